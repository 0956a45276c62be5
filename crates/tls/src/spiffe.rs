//! SPIFFE ids and trust bundle maps (gRFC A87).

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use serde_json::Value;

use crate::certificate::{Certificate, SubjectAltName, cut};
use crate::roots::Roots;

/// The limits of the SPIFFE ID specification.
const MAX_ID_BYTES: usize = 2048;
const MAX_TRUST_DOMAIN_BYTES: usize = 255;

/// The root certificates of each trust domain.
#[derive(Debug)]
pub struct TrustBundleMap {
    domains: BTreeMap<String, Arc<Roots>>,
}

impl TrustBundleMap {
    /// Parses a map in JSON. A87-14: an invalid part makes all of it invalid. A87-12: an empty map is valid.
    ///
    /// # Errors
    ///
    /// Says what is invalid, and where.
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(json).map_err(|error| format!("is not JSON: {error}"))?;
        let domains = value.get("trust_domains").and_then(Value::as_object);
        let domains = domains.ok_or("trust_domains: must be an object")?;
        let mut map = BTreeMap::new();
        for (name, bundle) in domains {
            let at = format!("trust_domains[{:?}]", cut(name));
            if !is_trust_domain(name) {
                return Err(format!("{at}: is not the name of a trust domain"));
            }
            map.insert(name.clone(), Arc::new(roots(bundle).map_err(|why| format!("{at}.{why}"))?));
        }
        Ok(Self { domains: map })
    }

    /// The roots of the trust domain that a peer claims to be in. A87-03, A87-04: the peer must have a single URI, which is
    /// a SPIFFE id.
    pub(crate) fn roots_of(&self, peer: &Certificate) -> Result<&Roots, String> {
        let mut uris = peer.subject_alt_names.iter().filter_map(|name| match name {
            SubjectAltName::Uri(uri) => Some(uri),
            _ => None,
        });
        let (Some(uri), None) = (uris.next(), uris.next()) else {
            return Err("it must have exactly one URI, which is a SPIFFE id".to_owned());
        };
        let domain = trust_domain(uri).ok_or_else(|| format!("its URI {:?} is not a SPIFFE id", cut(uri)))?;
        // A87-05: unknown domains are not trusted.
        let roots = self.domains.get(domain).map(Arc::as_ref);
        roots.ok_or_else(|| format!("its trust domain {domain:?} is not in the trust bundle map"))
    }

    /// The trust domains.
    pub(crate) fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(String::as_str)
    }
}

/// The roots of a trust bundle. A87-13: only `kty`, `use` and `x5c` of its keys count.
fn roots(bundle: &Value) -> Result<Roots, String> {
    let keys = bundle.get("keys").and_then(Value::as_array).ok_or("keys: must be a list")?;
    let sequence = bundle.get("spiffe_sequence");
    if sequence.is_some_and(|sequence| sequence.as_u64().is_none()) {
        return Err("spiffe_sequence: must be a number that is not negative".to_owned());
    }
    let mut certificates = Vec::new();
    for (i, key) in keys.iter().enumerate() {
        let text = |name| key.get(name).and_then(Value::as_str);
        match text("kty") {
            Some("EC" | "RSA") => {}
            _ => return Err(format!("keys[{i}].kty: must be \"EC\" or \"RSA\"")),
        }
        match text("use") {
            Some("x509-svid") => {}
            // SPIRE puts the keys of JWTs into the same bundle.
            Some("jwt-svid") => continue,
            _ => return Err(format!("keys[{i}].use: must be \"x509-svid\"")),
        }
        let chain = key.get("x5c").and_then(Value::as_array).map(Vec::as_slice);
        let Some([certificate]) = chain else {
            return Err(format!("keys[{i}].x5c: must be a list of exactly one certificate"));
        };
        let der = certificate.as_str().and_then(|text| STANDARD.decode(text).ok());
        let der = der.ok_or_else(|| format!("keys[{i}].x5c[0]: must be base64"))?;
        Certificate::parse(&der).map_err(|why| format!("keys[{i}].x5c[0]: {why}"))?;
        certificates.push(CertificateDer::from(der));
    }
    Roots::from_certificates(certificates).map_err(|why| format!("keys: {why}"))
}

/// The trust domain of a SPIFFE id; `None` if it is not one.
fn trust_domain(id: &str) -> Option<&str> {
    let rest = id.strip_prefix("spiffe://").filter(|_| id.len() <= MAX_ID_BYTES)?;
    let (domain, path) = match rest.find('/') {
        Some(slash) => rest.split_at_checked(slash)?,
        None => (rest, ""),
    };
    let segment = |segment: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        !matches!(segment, "" | "." | "..") && segment.bytes().all(allowed)
    };
    let path = path.strip_prefix('/').is_none_or(|path| path.split('/').all(segment));
    (is_trust_domain(domain) && path).then_some(domain)
}

fn is_trust_domain(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    (1..=MAX_TRUST_DOMAIN_BYTES).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use proxyless_testkit::tls::{Authority, Leaf};
    use serde_json::json;

    use super::*;

    fn parse(json: &Value) -> Result<TrustBundleMap, String> {
        TrustBundleMap::from_json(json.to_string().as_bytes())
    }

    fn with_key(key: Value) -> Value {
        json!({"trust_domains": {"one.example": {"spiffe_sequence": 1, "keys": [key]}}})
    }

    #[test]
    fn a87_04_spiffe_ids_are_well_formed() {
        for (id, domain) in [
            ("spiffe://one.example", Some("one.example")),
            ("spiffe://one.example/ns/prod/sa/API_1", Some("one.example")),
            ("spiffe://a-b_c.9/x", Some("a-b_c.9")),
            ("spiffe://", None),
            ("spiffe:///path", None),
            ("spiffe://One.example/a", None),
            ("spiffe://one.example/", None),
            ("spiffe://one.example//a", None),
            ("spiffe://one.example/a/", None),
            ("spiffe://one.example/./a", None),
            ("spiffe://one.example/..", None),
            ("spiffe://one.example:80/a", None),
            ("spiffe://me@one.example/a", None),
            ("spiffe://one.example/a?b", None),
            ("spiffe://one.example/a%20b", None),
            ("https://one.example/a", None),
            ("one.example", None),
        ] {
            assert_eq!(trust_domain(id), domain, "{id}");
        }
        assert_eq!(trust_domain(&format!("spiffe://{}", "a".repeat(256))), None);
        assert_eq!(trust_domain(&format!("spiffe://a/{}", "a".repeat(2048))), None);
    }

    #[test]
    fn a87_13_the_roots_of_each_domain_are_read() {
        let (one, two) = (Authority::new("one"), Authority::new("two"));
        let jwt = json!({"kty": "EC", "use": "jwt-svid", "kid": "x", "crv": "P-256", "x": "", "y": ""});
        let map = parse(&json!({"trust_domains": {
            "one.example": {"spiffe_sequence": 7, "keys": [one.jwk(), jwt, two.jwk()], "future": 1},
            "two.example": {"keys": []},
        }}))
        .unwrap();
        let roots = |name: &str| map.domains[name].len();
        assert_eq!((roots("one.example"), roots("two.example")), (2, 0));
    }

    #[test]
    fn a87_12_an_empty_map_is_valid() {
        assert_eq!(parse(&json!({"trust_domains": {}})).unwrap().domains().count(), 0);
    }

    #[test]
    fn a87_13_a87_14_any_problem_makes_the_map_invalid() {
        let good = Authority::new("one").jwk();
        let with = |field: &str, value: Value| {
            let mut key = good.clone();
            key[field] = value;
            with_key(key)
        };
        let key = "trust_domains[\"one.example\"].keys[0]";
        for (json, why) in [
            (json!([]), "trust_domains: must be an object".to_owned()),
            (json!({"trust_domains": []}), "trust_domains: must be an object".to_owned()),
            (json!({"trust_domains": {"A": {"keys": []}}}), "\"A\"]: is not the name".to_owned()),
            (json!({"trust_domains": {"a": {}}}), "[\"a\"].keys: must be a list".to_owned()),
            (json!({"trust_domains": {"a": {"keys": [], "spiffe_sequence": -1}}}), "sequence".to_owned()),
            (with_key(json!(1)), format!("{key}.kty: must be")),
            (with("kty", json!("OKP")), format!("{key}.kty: must be")),
            (with("use", json!("sig")), format!("{key}.use: must be")),
            (with("use", Value::Null), format!("{key}.use: must be")),
            (with("x5c", json!([])), format!("{key}.x5c: must be a list of exactly one")),
            (with("x5c", json!(["", ""])), format!("{key}.x5c: must be a list of exactly one")),
            (with("x5c", json!(["!"])), format!("{key}.x5c[0]: must be base64")),
            (with("x5c", json!(["AAAA"])), format!("{key}.x5c[0]: is not an X.509 certificate")),
        ] {
            let found = parse(&json).unwrap_err();
            assert!(found.contains(&why), "{found:?} should contain {why:?}");
        }
        assert!(TrustBundleMap::from_json(b"{").unwrap_err().contains("is not JSON"));
    }

    #[test]
    fn a87_04_a87_05_the_trust_domain_of_the_peer_chooses_the_roots() {
        let ca = Authority::new("one");
        let map = parse(&with_key(ca.jwk())).unwrap();
        let certificate = |leaf| Certificate::parse(&ca.issue(leaf).chain_der()[0]).unwrap();
        let peer =
            |uris: &[&str]| certificate(uris.iter().fold(Leaf::new("x").dns("d"), |leaf, uri| leaf.uri(uri)));
        let good = "spiffe://one.example/a";
        assert_eq!(map.roots_of(&peer(&[good])).unwrap().len(), 1);
        for (uris, why) in [
            (&[][..], "exactly one URI"),
            (&[good, good], "exactly one URI"),
            (&["https://one.example/a"], "is not a SPIFFE id"),
            (&["spiffe://three.example/a"], "\"three.example\" is not in the trust bundle map"),
        ] {
            let found = map.roots_of(&peer(uris)).unwrap_err();
            assert!(found.contains(why), "{found:?} should contain {why:?}");
        }
    }
}
