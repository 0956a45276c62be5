//! The name of a method.

use std::fmt;

/// A method: its service and its own name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MethodName {
    pub(super) service: String,
    pub(super) method: String,
}

impl MethodName {
    /// Reads `package.Service/Method`, also with a slash at the start, or with a dot instead of the slash.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let name = text.strip_prefix('/').unwrap_or(text);
        let parts = name.split_once('/').or_else(|| name.rsplit_once('.'));
        let is_name = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
        };
        match parts {
            Some((service, method)) if is_name(service) && is_name(method) && !method.contains('.') => {
                Ok(Self { service: service.to_owned(), method: method.to_owned() })
            }
            _ => Err(format!("method {text:?} is not of the form package.Service/Method")),
        }
    }

    /// The path of requests.
    pub(super) fn path(&self) -> String {
        format!("/{self}")
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_service_and_a_method() {
        for text in ["a.b.S/M", "/a.b.S/M", "a.b.S.M"] {
            assert_eq!(MethodName::parse(text).unwrap().path(), "/a.b.S/M", "{text}");
        }
        for text in ["", "M", "S/", "/M", "S/M/N", "S/a b", "a.S/M.N"] {
            let error = MethodName::parse(text).unwrap_err();
            assert_eq!(error, format!("method {text:?} is not of the form package.Service/Method"));
        }
    }
}
