//! The distinct servers of a bootstrap, and the list of each authority.

use std::collections::BTreeMap;

use super::{Bootstrap, ServerConfig};

/// The distinct servers of a bootstrap, and which of them serve which authority, by priority.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq)]
pub struct ServerLists {
    /// A47-08, A47-17: every server once, however many authorities list it. Servers are equal if their URI, credentials
    /// and known features are.
    pub servers: Vec<ServerConfig>,
    /// The servers of names without an authority: indices into `servers`; never empty.
    pub default: Vec<usize>,
    /// The servers of each authority; never empty.
    pub authorities: BTreeMap<String, Vec<usize>>,
}

impl Bootstrap {
    /// The distinct servers, and the list of each authority.
    #[doc(hidden)]
    #[must_use]
    pub fn server_lists(&self) -> ServerLists {
        let mut servers = Vec::new();
        let mut indices = |list: &[ServerConfig]| {
            let mut indices = Vec::new();
            for server in list {
                let known = servers.iter().position(|known| known == server);
                let index = known.unwrap_or_else(|| {
                    servers.push(server.clone());
                    servers.len() - 1
                });
                if !indices.contains(&index) {
                    indices.push(index);
                }
            }
            indices
        };
        let default = indices(&self.servers);
        let authorities = self.authorities.iter().map(|(name, authority)| {
            // A47-09: without servers of its own, an authority uses those of the top level.
            let own = indices(&authority.servers);
            (name.clone(), if own.is_empty() { default.clone() } else { own })
        });
        let authorities = authorities.collect();
        ServerLists { servers, default, authorities }
    }

    /// Whether any authority has a second server to fall back to (gRFC A71).
    #[doc(hidden)]
    #[must_use]
    pub fn has_fallback(&self) -> bool {
        let ServerLists { default, authorities, .. } = self.server_lists();
        default.len() > 1 || authorities.values().any(|list| list.len() > 1)
    }
}
