//! Percent-encoding of the parts of a URI (RFC 3986).

use std::borrow::Cow;

/// The characters besides letters, digits and `-._~` that stay as they are in a path.
pub(crate) const PATH: &[u8] = b"!$&'()*+,;=:@/";
/// The same in an authority.
pub(crate) const AUTHORITY: &[u8] = b"!$&'()*+,;=:@[]";
/// The same in the key or value of a query parameter.
pub(crate) const PARAMETER: &[u8] = b"!$'()*+,;:@/?";

/// Encodes every byte that is neither unreserved nor in `allowed`.
pub(crate) fn encode<'a>(text: &'a [u8], allowed: &[u8]) -> Cow<'a, str> {
    let stays = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || allowed.contains(byte);
    if let Some(text) = std::str::from_utf8(text).ok().filter(|text| text.as_bytes().iter().all(stays)) {
        return Cow::Borrowed(text);
    }
    let mut encoded = String::with_capacity(text.len() + 16);
    for byte in text {
        if stays(byte) {
            encoded.push(char::from(*byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    Cow::Owned(encoded)
}

/// Decodes all escapes; `None` if one is incomplete or not hexadecimal.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
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
    Some(decoded)
}
