//! A resource that carries its own name: from the decoded message to the validated resource.

use std::fmt::Display;

use super::Resource;
use super::any::{DecodeContext, Decoded, KnownResources};
use super::field::{self, Field};

/// A message that is a resource with its own name.
pub(crate) trait NamedResource {
    /// The field of the name.
    const NAME_FIELD: &'static str;

    /// The resource's name.
    fn name(&self) -> &str;

    /// Checks all rules; `None` only after a violation was recorded. Parts may be shared with the `known` version.
    fn validate(&self, at: &Field<'_>, known: Option<&Resource>) -> Option<Resource>;
}

pub(super) fn decode_named<M: NamedResource>(
    message: Result<M, impl Display>,
    wrapper_name: Option<String>,
    cx: &DecodeContext,
    known: &KnownResources<'_>,
) -> Decoded {
    let message = match message {
        Ok(message) => message,
        Err(error) => return Decoded::bad(wrapper_name, "", format!("does not decode: {error}")),
    };
    // the wrapper's name is the requested one; it takes precedence over the resource's own name.
    let name = wrapper_name.as_deref().unwrap_or(message.name());
    let resource = field::validate(cx, |at| {
        at.field(M::NAME_FIELD).require_text(name);
        message.validate(at, known(name))
    });
    let name = Some(name).filter(|name| !name.is_empty()).map(str::to_owned);
    Decoded { name, resource }
}
