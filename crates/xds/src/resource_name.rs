//! Names of resources: plain ones, and `xdstp:` URIs (xRFC TP1), whose authority selects the management servers (gRFC
//! A47).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::percent;
use crate::resource::ResourceType;

/// The scheme of new-style names.
pub(crate) const SCHEME: &str = "xdstp:";

/// The normalized name of a resource, by which it is requested and cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceName {
    /// The authority, decoded. `None` for plain names; empty for new-style names without one (A47-07).
    pub(crate) authority: Option<String>,
    /// The normalized name.
    pub(crate) name: Arc<str>,
}

impl ResourceName {
    /// Parses the name of a resource of this type. Plain names are taken as they are.
    ///
    /// A47-21: normalizes new-style names: context parameters are sorted by key, of duplicate keys the last one counts,
    /// percent-encoding is that of RFC 3986. The fragment (directives of xRFC TP1) is dropped.
    ///
    /// # Errors
    ///
    /// Describes why a new-style name is invalid.
    pub(crate) fn parse(name: &Arc<str>, resource_type: ResourceType) -> Result<Self, String> {
        let Some(rest) = name.strip_prefix(SCHEME) else {
            return Ok(Self { authority: None, name: Arc::clone(name) });
        };
        let invalid = |why: &str| format!("{name:?} is not a valid xdstp: name: {why}");
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let path = path.strip_prefix('/').unwrap_or(path);
        let (type_name, id) = path.split_once('/').unwrap_or((path, ""));
        // TP1: the type is part of the name.
        if type_name != resource_type.full_name() {
            return Err(invalid(&format!("its type must be {}", resource_type.full_name())));
        }
        if id.is_empty() {
            return Err(invalid("it has no id behind the type"));
        }
        let bad_escape = || invalid("a percent sign must begin an escape such as %20");
        let authority = percent::decode(authority).ok_or_else(bad_escape)?;
        let authority = String::from_utf8(authority).map_err(|_| invalid("its authority is not UTF-8"))?;
        let id = percent::decode(id).ok_or_else(bad_escape)?;
        let mut parameters = BTreeMap::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let key = percent::decode(key).ok_or_else(bad_escape)?;
            parameters.insert(key, percent::decode(value).ok_or_else(bad_escape)?);
        }
        let mut normal =
            format!("{SCHEME}//{}/{type_name}/", percent::encode(authority.as_bytes(), percent::AUTHORITY));
        normal += &percent::encode(&id, percent::PATH);
        for (i, (key, value)) in parameters.iter().enumerate() {
            normal.push(if i == 0 { '?' } else { '&' });
            normal += &percent::encode(key, percent::PARAMETER);
            normal.push('=');
            normal += &percent::encode(value, percent::PARAMETER);
        }
        let name = if *normal == **name { Arc::clone(name) } else { normal.into() };
        Ok(Self { authority: Some(authority), name })
    }
}

/// The name of a Listener by its template: `%s` stands for the name in the target (A47-04, A47-12).
pub(crate) fn expand(template: &str, name: &str) -> String {
    let name = if template.starts_with(SCHEME) {
        percent::encode(name.as_bytes(), percent::PATH)
    } else {
        Cow::Borrowed(name)
    };
    template.replace("%s", &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: &str = "envoy.config.cluster.v3.Cluster";

    fn parse(name: &str) -> Result<ResourceName, String> {
        ResourceName::parse(&name.into(), ResourceType::Cluster)
    }

    #[test]
    fn plain_names_are_not_touched() {
        for name in ["a", "xds://x/y?b&a", "%", "https://xdstp:/", ""] {
            assert_eq!(parse(name), Ok(ResourceName { authority: None, name: name.into() }), "{name}");
        }
    }

    #[test]
    fn a47_21_names_are_normalized() {
        for (name, authority, normal) in [
            ("xdstp://a.example/T/x", "a.example", "xdstp://a.example/T/x"),
            ("xdstp://a/T/x/y?b=2&a=1", "a", "xdstp://a/T/x/y?a=1&b=2"),
            ("xdstp://a/T/x?b=2&a=1&b=3", "a", "xdstp://a/T/x?a=1&b=3"),
            ("xdstp://a/T/x?b&a=&&", "a", "xdstp://a/T/x?a=&b="),
            ("xdstp://a/T/%41 %2c%e9?%6b=%26", "a", "xdstp://a/T/A%20,%E9?k=%26"),
            ("xdstp://a/T/x#directive", "a", "xdstp://a/T/x"),
            ("xdstp://a/T/x?k=v#directive", "a", "xdstp://a/T/x?k=v"),
            ("xdstp://a%62:1/T/x", "ab:1", "xdstp://ab:1/T/x"),
        ] {
            let (name, normal) =
                (name.replace("/T/", &format!("/{T}/")), normal.replace("/T/", &format!("/{T}/")));
            let parsed = parse(&name).unwrap();
            assert_eq!((parsed.authority.as_deref(), &*parsed.name), (Some(authority), &*normal), "{name}");
            assert_eq!(parse(&normal), Ok(parsed), "normal names stay as they are");
        }
    }

    #[test]
    fn a47_07_all_spellings_without_an_authority_are_one() {
        for name in ["xdstp:///T/x", "xdstp:/T/x", "xdstp:T/x"] {
            let parsed = parse(&name.replace('T', T)).unwrap();
            let normal = format!("xdstp:///{T}/x");
            assert_eq!((parsed.authority.as_deref(), &*parsed.name), (Some(""), &*normal), "{name}");
        }
    }

    #[test]
    fn invalid_names_say_why() {
        for (name, why) in [
            (
                "xdstp://a/envoy.config.listener.v3.Listener/x".to_owned(),
                "its type must be envoy.config.cluster",
            ),
            ("xdstp:".to_owned(), "its type must be"),
            (format!("xdstp://a/{T}"), "no id"),
            (format!("xdstp://a/{T}/"), "no id"),
            (format!("xdstp://a/{T}/%2"), "percent sign"),
            (format!("xdstp://a/{T}/x?%zz=1"), "percent sign"),
            (format!("xdstp://%ff/{T}/x"), "UTF-8"),
        ] {
            let error = parse(&name).unwrap_err();
            assert!(error.contains(why) && error.contains(&name), "{error}");
        }
    }

    #[test]
    fn a47_04_12_names_are_encoded_in_new_style_templates_only() {
        assert_eq!(expand("xdstp://a/T/%s?k=v", "b c/d?é"), "xdstp://a/T/b%20c/d%3F%C3%A9?k=v");
        assert_eq!(expand("x/%s/y", "b c?"), "x/b c?/y");
        assert_eq!(expand("fixed", "b"), "fixed");
    }
}
