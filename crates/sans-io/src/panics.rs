//! Containment of panics in code of the application.
//!
//! This holds where panics unwind. With `panic = "abort"`, or when a destructor panics while another panic unwinds,
//! Rust ends the process and nothing here runs.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A panic that was caught. It is shown as its message; its location is known only to the panic hook of the program,
/// which has already run (the default hook prints both).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked(String);

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Panicked {
    fn new(payload: &(dyn Any + Send)) -> Self {
        /// It becomes part of statuses, which are headers.
        const LONGEST: usize = 500;
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self(text.unwrap_or("without a message").chars().take(LONGEST).collect())
    }
}

/// Calls `f` and catches its panic. The caller must drop state that `f` may have left inconsistent.
///
/// # Errors
/// The panic.
pub fn contain<T>(f: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| Panicked::new(&*payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_by_its_message() {
        let caught = |text: &str| Err::<(), _>(Panicked(text.to_owned()));
        assert_eq!(contain(|| panic!("number {}", 2)), caught("number 2"));
        assert_eq!(contain(|| std::panic::panic_any(3)), caught("without a message"));
        assert_eq!(contain(|| panic!("{}", "x".repeat(1 << 20))), caught(&"x".repeat(500)));
    }
}
