//! Binary dumps of CSDS: an encoded `ClientStatusResponse`, as programs write it that call CSDS themselves.

use std::path::Path;

use envoy_types::pb::envoy::service::status::v3::{ClientConfig, ClientStatusResponse};
use prost::Message as _;

/// The clients of a binary dump; `None` if the file is text, or if it is for the reader of texts to say why it is not.
pub(super) fn clients(path: &Path) -> Result<Option<Vec<ClientConfig>>, String> {
    let Ok(bytes) = std::fs::read(path) else { return Ok(None) };
    let text = std::str::from_utf8(&bytes);
    // A field of a message begins with its number, which most often is a control character.
    if text.is_ok_and(|text| !text.contains(|c| c < ' ' && !matches!(c, '\n' | '\r' | '\t'))) {
        return Ok(None);
    }
    match ClientStatusResponse::decode(&bytes[..]) {
        Ok(response) if !response.config.is_empty() => Ok(Some(response.config)),
        _ if text.is_ok() => Ok(None),
        _ => Err(format!(
            "{}: is neither text nor a binary dump of CSDS (an encoded ClientStatusResponse)",
            path.display()
        )),
    }
}
