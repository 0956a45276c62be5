//! The target of an xDS channel: `xds:///name` or `xds://authority/name`.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use crate::bootstrap::Bootstrap;
use crate::percent;
use crate::resource::ResourceType;
use crate::resource_name::{ResourceName, SCHEME, expand};

/// A parsed `xds:` URI.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XdsTarget {
    /// `None` if it is empty, too.
    authority: Option<Arc<str>>,
    name: Arc<str>,
}

impl XdsTarget {
    /// Parses `xds:///name`, `xds:name` or `xds://authority/name`; authority and path are percent-decoded and otherwise
    /// unchanged.
    ///
    /// # Errors
    ///
    /// Describes why the URI is invalid, and how to write it.
    pub fn parse(target: &str) -> Result<Self, TargetError> {
        let error = |kind| TargetError { target: target.to_owned(), kind };
        let rest = match target.split_once(':') {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("xds") => rest,
            _ => return Err(error(Kind::Scheme)),
        };
        // A27-32, A27-33: `xds:name` and `xds:///name` are equivalent.
        let (authority, path) = match rest.strip_prefix("//") {
            None => (None, rest),
            Some(rest) => {
                // A27-34, A47-01: an authority selects an entry of `authorities`.
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                if !authority.is_empty() && path.is_empty() {
                    return Err(error(Kind::AuthorityOnly(authority.to_owned())));
                }
                let authority = percent_decode(authority).ok_or_else(|| error(Kind::Escape))?;
                (Some(authority).filter(|authority| !authority.is_empty()), path)
            }
        };
        if path.contains(['?', '#']) {
            return Err(error(Kind::Query));
        }
        if let Some(c) = path.chars().find(|&c| is_forbidden(c)) {
            return Err(error(Kind::Character(c)));
        }
        // Only one slash: as in gRPC's other libraries, `xds:////name` requests `/name`.
        let path = path.strip_prefix('/').unwrap_or(path);
        let name = percent_decode(path).ok_or_else(|| error(Kind::Escape))?;
        if name.is_empty() {
            return Err(error(Kind::Empty));
        }
        Ok(Self { authority: authority.map(Into::into), name: name.into() })
    }

    /// The authority of the target, if it has one.
    #[must_use]
    pub fn authority(&self) -> Option<&Arc<str>> {
        self.authority.as_ref()
    }

    /// The name of the Listener to request (A27-36), by the templates of the bootstrap (gRFC A47).
    ///
    /// # Errors
    ///
    /// If the bootstrap does not have the target's authority, or that of the template.
    pub fn listener_name(&self, bootstrap: &Bootstrap) -> Result<Arc<str>, TargetError> {
        let error = |kind| TargetError { target: self.to_string(), kind };
        let Some(authority) = &self.authority else {
            // A47-02, A47-13: without a template the name itself is that of the Listener.
            let Some(template) = bootstrap.client_default_listener_resource_name_template() else {
                return Ok(Arc::clone(&self.name));
            };
            // A47-03, A47-11: the authority of the template must be known; its own template is not used.
            let name: Arc<str> = expand(template, &self.name).into();
            let parsed = ResourceName::parse(&name, ResourceType::Listener);
            let parsed = parsed.map_err(|why| error(Kind::Template(why)))?;
            return match parsed.authority {
                Some(authority) if !bootstrap.authorities().contains_key(&authority) => {
                    Err(error(Kind::Unknown(authority)))
                }
                _ => Ok(name),
            };
        };
        // A47-15: an unknown authority makes the target invalid.
        let Some(config) = bootstrap.authorities().get(&**authority) else {
            return Err(error(Kind::Unknown(authority.to_string())));
        };
        let template = config.client_listener_resource_name_template.clone().unwrap_or_else(|| {
            // A47-06: the default template of an authority.
            let authority = percent::encode(authority.as_bytes(), percent::AUTHORITY);
            format!("{SCHEME}//{authority}/{}/%s", ResourceType::Listener.full_name())
        });
        Ok(expand(&template, &self.name).into())
    }

    /// The default `:authority` of RPCs (A27-62, A47-14): the path as given, with its port if any (A27-63).
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }
}

/// A URI that parses as the same target: characters that need it are percent-encoded.
impl fmt::Display for XdsTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.authority.as_deref().unwrap_or_default();
        write!(f, "xds://{}/", percent::encode(authority.as_bytes(), percent::AUTHORITY))?;
        self.name.chars().try_for_each(|c| {
            if matches!(c, '%' | '?' | '#') || is_forbidden(c) {
                f.write_str(&escape(c))
            } else {
                f.write_char(c)
            }
        })
    }
}

impl std::str::FromStr for XdsTarget {
    type Err = TargetError;

    fn from_str(target: &str) -> Result<Self, TargetError> {
        Self::parse(target)
    }
}

/// An invalid target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("target {target:?}: {kind}")]
pub struct TargetError {
    target: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Kind {
    #[error("not an xds URI; expected xds:///name")]
    Scheme,
    #[error("it has only the authority {0:?}; a name goes behind three slashes, as in xds:///name")]
    AuthorityOnly(String),
    #[error(
        "the authority {0:?} is not among `authorities` in the bootstrap; a name goes behind three slashes, as in xds:///name"
    )]
    Unknown(String),
    #[error("client_default_listener_resource_name_template: {0}")]
    Template(String),
    #[error("it names no listener; expected xds:///name")]
    Empty,
    #[error("a query or fragment has no meaning here; write ? as %3F and # as %23")]
    Query,
    #[error(
        "the character {0:?} cannot be part of a URI; write it as {escape}",
        escape = escape(*.0)
    )]
    Character(char),
    #[error("a percent sign must begin an escape such as %20, and the whole must be UTF-8")]
    Escape,
}

/// Whether a character must be percent-encoded in a URI.
fn is_forbidden(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

/// A percent-encoded character.
fn escape(c: char) -> String {
    let mut bytes = [0; 4];
    c.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn percent_decode(text: &str) -> Option<String> {
    String::from_utf8(percent::decode(text)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(target: &str) -> String {
        XdsTarget::parse(target).unwrap().name().to_string()
    }

    #[test]
    fn a27_32_33_both_forms_name_the_listener() {
        assert_eq!(name("xds:example.com:123"), "example.com:123");
        assert_eq!(name("xds:///example.com:123"), "example.com:123");
        assert_eq!(name("XDS:///a/b"), "a/b");
    }

    #[test]
    fn a27_36_63_name_is_the_path_and_nothing_else() {
        assert_eq!(name("xds:///svc"), "svc");
        assert_eq!(name("xds:///svc:80/"), "svc:80/");
        assert_eq!(name("xds:///a%20b%2Fc"), "a b/c");
        assert_eq!(name("xds:////svc"), "/svc");
    }

    fn bootstrap(fields: &str) -> Bootstrap {
        let servers = r#""xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "insecure"}]}]"#;
        Bootstrap::from_json(&format!("{{{servers}, {fields}}}")).unwrap()
    }

    fn listener(target: &str, bootstrap: &Bootstrap) -> String {
        XdsTarget::parse(target).unwrap().listener_name(bootstrap).unwrap().to_string()
    }

    #[test]
    fn a47_01_06_14_authority_selects_the_template() {
        let bootstrap = bootstrap(
            r#""authorities": {"a.example": {}, "b[": {}, "c": {
                "client_listener_resource_name_template": "xdstp://c/envoy.config.listener.v3.Listener/x/%s?k=v"}}"#,
        );
        let target = XdsTarget::parse("xds://a.example/svc:80").unwrap();
        assert_eq!((target.authority().map(|a| &**a), &**target.name()), (Some("a.example"), "svc:80"));
        for (target, wanted) in [
            ("xds://a.example/svc:80", "xdstp://a.example/envoy.config.listener.v3.Listener/svc:80"),
            ("xds://a%2Eexample/b%20c/d", "xdstp://a.example/envoy.config.listener.v3.Listener/b%20c/d"),
            ("xds://c/svc", "xdstp://c/envoy.config.listener.v3.Listener/x/svc?k=v"),
            ("xds:///svc", "svc"),
        ] {
            assert_eq!(listener(target, &bootstrap), wanted, "{target}");
        }
    }

    #[test]
    fn a47_02_03_10_13_default_template_names_listeners_without_authority() {
        let with = |template: &str| {
            bootstrap(&format!(
                r#""client_default_listener_resource_name_template": {template:?}, "authorities": {{"a": {{
                    "client_listener_resource_name_template": "xdstp://a/unused/%s"}}}}"#
            ))
        };
        let new_style = with("xdstp://a/envoy.config.listener.v3.Listener/%s?k=v");
        assert_eq!(
            listener("xds:b%20c", &new_style),
            "xdstp://a/envoy.config.listener.v3.Listener/b%20c?k=v"
        );
        assert_eq!(listener("xds:///b%20c", &with("p/%s/%s")), "p/b c/b c");
        assert_eq!(listener("xds:///svc", &with("")), "svc");
        assert_eq!(listener("xds:///svc", &with("fixed")), "fixed");
        let svc = XdsTarget::parse("xds:///svc").unwrap();
        let unknown = svc.listener_name(&with("xdstp://b/envoy.config.listener.v3.Listener/%s")).unwrap_err();
        assert!(unknown.to_string().contains("\"b\" is not among"), "{unknown}");
        let wrong_type =
            svc.listener_name(&with("xdstp://a/envoy.config.cluster.v3.Cluster/%s")).unwrap_err();
        assert!(wrong_type.to_string().contains("its type must be"), "{wrong_type}");
    }

    #[test]
    fn a27_34_a47_15_unknown_authority_is_a_clear_error() {
        let bootstrap = bootstrap(r#""authorities": {"a": {}}"#);
        let error =
            XdsTarget::parse("xds://b/svc").unwrap().listener_name(&bootstrap).unwrap_err().to_string();
        assert!(error.contains("\"b\" is not among `authorities`"), "{error}");
        let error = XdsTarget::parse("xds://svc").unwrap_err().to_string();
        assert!(error.contains("xds:///name"), "{error}");
    }

    #[test]
    fn invalid_targets_are_explained() {
        for (target, why) in [
            ("svc", "not an xds URI"),
            ("dns:///svc", "not an xds URI"),
            ("xds:", "no listener"),
            ("xds:///", "no listener"),
            ("xds:///svc?x", "query"),
            ("xds:///gree ter", "' ' cannot be part of a URI; write it as %20"),
            ("xds:///svc%2", "escape"),
            ("xds:///svc%ff", "UTF-8"),
        ] {
            let error = XdsTarget::parse(target).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(target), "{error}");
        }
    }

    #[test]
    fn displays_as_a_target() {
        assert_eq!(XdsTarget::parse("xds:svc:1").unwrap().to_string(), "xds:///svc:1");
    }

    #[test]
    fn what_is_displayed_is_the_same_target() {
        for (target, printed) in [
            ("xds:///a%20b%2Fc%25", "xds:///a%20b/c%25"),
            ("xds:a%3Fb%23c%0A", "xds:///a%3Fb%23c%0A"),
            ("xds:////%C2%A0é", "xds:////%C2%A0é"),
            ("xds://a%2Fb:1/c", "xds://a%2Fb:1/c"),
        ] {
            let parsed = XdsTarget::parse(target).unwrap();
            assert_eq!(parsed.to_string(), printed);
            assert_eq!(XdsTarget::parse(printed).unwrap(), parsed);
        }
    }
}
