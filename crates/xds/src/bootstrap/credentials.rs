//! The credentials of a management server: `channel_creds` (gRFC A27, A65) and `call_creds` (gRFC A97).

use std::path::PathBuf;

use super::certificate_provider::{CertificateFiles, certificate_files};
use super::json::{Place, Problems};
use super::options::BootstrapOptions;
use crate::Gates;

/// The supported kinds of `channel_creds`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ChannelCreds {
    /// No TLS.
    Insecure,
    /// TLS with these files (gRFC A65). Without roots the system's are used; with an identity it is mTLS.
    Tls(CertificateFiles),
    /// TLS with the system's roots, and the access tokens of Google's application default credentials. Needs the cargo
    /// feature `google-default`; without it no stream to the server succeeds.
    GoogleDefault,
}

/// The supported kinds of `call_creds` (gRFC A97). They must never be sent without TLS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CallCreds {
    /// A bearer token that is read from a file.
    JwtTokenFile(PathBuf),
}

/// A27-16: the first supported type is used; A27-17, A27-18: at least one must be supported.
pub(super) fn channel_creds(
    entry: &Place<'_>,
    options: &BootstrapOptions,
    problems: &mut Problems,
) -> Option<ChannelCreds> {
    let entries = match entry.field("channel_creds") {
        None => Vec::new(),
        Some(field) => field.list(problems)?,
    };
    let types = entries.iter().map(|entry| creds_type(entry, problems));
    // A malformed entry has been reported already.
    let types = types.collect::<Vec<_>>().into_iter().collect::<Option<Vec<_>>>()?;
    let supported = options.channel_creds();
    if let Some((entry, kind)) = entries.iter().zip(&types).find(|(_, kind)| supported.contains(kind)) {
        return match *kind {
            "tls" => match entry.field("config") {
                // A65-01, A65-05: every field is optional; the trust bundle map of A87 is not among them.
                Some(config) => {
                    certificate_files(&config, &Gates::default(), problems).map(ChannelCreds::Tls)
                }
                None => Some(ChannelCreds::Tls(CertificateFiles::default())),
            },
            // A27-20: TLS with the system's roots, and access tokens.
            "google_default" => Some(ChannelCreds::GoogleDefault),
            _ => Some(ChannelCreds::Insecure),
        };
    }
    let supported = supported.join(", ");
    let reason = match types.as_slice() {
        [] => format!("none given; supported: {supported}"),
        types => {
            // A27-20: it is behind a cargo feature.
            let hint = if types.contains(&"google_default") {
                " (google_default needs the cargo feature google-default of proxyless)"
            } else {
                ""
            };
            format!("none of the types {types:?} is supported; supported: {supported}{hint}")
        }
    };
    problems.fail(&entry.path_of("channel_creds"), reason)
}

/// A97-12, A97-13: all supported entries apply, and those of other types are ignored. A97-16: behind its gate only the
/// syntax counts.
pub(super) fn call_creds(
    entry: &Place<'_>,
    options: &BootstrapOptions,
    problems: &mut Problems,
) -> Vec<CallCreds> {
    let list = entry.field("call_creds").and_then(|field| field.list(problems)).unwrap_or_default();
    let mut found = Vec::new();
    for creds in &list {
        let kind = creds_type(creds, problems);
        if kind != Some("jwt_token_file") || !options.gates.bootstrap_call_creds {
            continue;
        }
        match creds.field("config") {
            // A97-14, A97-15: the path is required.
            None => problems.add(&creds.path_of("config.jwt_token_file"), "is missing"),
            Some(config) => {
                let file = config.required_string("jwt_token_file", problems);
                found.extend(file.map(|file| CallCreds::JwtTokenFile(file.into())));
            }
        }
    }
    found
}

/// The type of an entry of `channel_creds` or `call_creds`. A27-19: `config` is optional.
fn creds_type<'a>(entry: &Place<'a>, problems: &mut Problems) -> Option<&'a str> {
    entry.object(problems)?;
    if let Some(config) = entry.field("config") {
        config.object(problems)?;
    }
    entry.required_string("type", problems)
}
