//! Localities.

use std::fmt;

/// Region, zone and sub-zone of a group of endpoints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Locality {
    /// The region.
    pub region: String,
    /// The zone.
    pub zone: String,
    /// The sub-zone.
    pub sub_zone: String,
}

impl fmt::Display for Locality {
    /// Human-readable; not unique, since empty parts are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.region, &self.zone, &self.sub_zone].map(String::as_str);
        let set: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if set.is_empty() { f.write_str("(no locality)") } else { f.write_str(&set.join(" / ")) }
    }
}
