//! Common flags of both programs.

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command};

/// A boolean of which only `false` is supported; `true` is an error that names the flag.
#[derive(Clone, Debug)]
pub(crate) struct OnlyFalse;

impl TypedValueParser for OnlyFalse {
    type Value = bool;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<bool, clap::Error> {
        let parsed = clap::builder::BoolishValueParser::new().parse_ref(command, arg, value)?;
        if parsed {
            let name =
                arg.map_or_else(String::new, |arg| format!("--{}", arg.get_long().unwrap_or_default()));
            let message = format!("{name}=true is not supported\n");
            return Err(clap::Error::raw(ErrorKind::InvalidValue, message).with_cmd(command));
        }
        Ok(parsed)
    }
}
