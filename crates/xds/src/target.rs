//! The target of an xDS channel: `xds:///name`.

use std::fmt::{self, Write as _};
use std::sync::Arc;

/// A parsed `xds:` URI.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XdsTarget {
    name: Arc<str>,
}

impl XdsTarget {
    /// Parses `xds:///name` or `xds:name`; the path is percent-decoded and otherwise unchanged.
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
        let path = match rest.strip_prefix("//") {
            None => rest,
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                // A27-34: an authority selects an entry of `authorities` (gRFC A47), which is not supported yet.
                if !authority.is_empty() {
                    return Err(error(Kind::Authority(authority.to_owned())));
                }
                path
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
        Ok(Self { name: name.into() })
    }

    /// The name of the Listener to request (A27-36), and the default `:authority` of RPCs (A27-62): the path as given,
    /// with its port if any (A27-63).
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }
}

/// A URI that parses as the same target: characters that need it are percent-encoded.
impl fmt::Display for XdsTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("xds:///")?;
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
    #[error(
        "authority {0:?}: authorities are not supported yet; a name goes behind three slashes, as in xds:///name"
    )]
    Authority(String),
    #[error("it names no listener; expected xds:///name")]
    Empty,
    #[error("a query or fragment has no meaning here; write ? as %3F and # as %23")]
    Query,
    #[error(
        "the character {0:?} cannot be part of a URI; a name that has it is written with {escape}",
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
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
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

    #[test]
    fn a27_34_authority_is_a_clear_error() {
        for target in ["xds://traffic-director/svc", "xds://svc"] {
            let error = XdsTarget::parse(target).unwrap_err();
            assert!(matches!(error.kind, Kind::Authority(_)), "{error}");
            assert!(error.to_string().contains("xds:///name"), "{error}");
        }
    }

    #[test]
    fn invalid_targets_are_explained() {
        for (target, why) in [
            ("svc", "not an xds URI"),
            ("dns:///svc", "not an xds URI"),
            ("xds:", "no listener"),
            ("xds:///", "no listener"),
            ("xds:///svc?x", "query"),
            ("xds:///gree ter", "' ' cannot be part of a URI; a name that has it is written with %20"),
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
        ] {
            let parsed = XdsTarget::parse(target).unwrap();
            assert_eq!(parsed.to_string(), printed);
            assert_eq!(XdsTarget::parse(printed).unwrap(), parsed);
        }
    }
}
