//! Tests of the guide in `docs/guide`: every code block is run, or read by the code that reads such texts at run time.
//!
//! | Language | Test |
//! |---|---|
//! | `rust` | a doctest of this crate ([`PAGES`]); `no_run` is allowed |
//! | `json` | a bootstrap, parsed; `json,google-default` with the credentials of that feature |
//! | `yaml` | a mesh file, as `proxyless check` reads it; `yaml,kubernetes` is any valid YAML |
//! | `console` | commands after `$ `: those of `proxyless` are parsed by it (`crates/cli/tests/guide.rs`) |
//! | `go` | equal to the program in `docs/guide/go-control-plane`, which `.ci/book` builds |
//! | `text` | output of a program; not tested |
//!
//! Blocks in other languages fail the test `every_block_has_a_test`.
#![forbid(unsafe_code)]

pub mod blocks;

macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        /// The pages whose Rust blocks are doctests.
        pub const PAGES: &[&str] = &[$($path),*];
        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("../../../docs/guide/src/", $path))]
            pub mod $name {}
        )*
    };
}

pages! {
    canary: "recipes/canary.md",
    istio: "setup/istio.md",
    migrating: "migrating.md",
    observability: "observability.md",
    quick_start: "quick-start.md",
    security: "security.md",
    session_affinity: "recipes/session-affinity.md",
    testing: "testing.md",
    timeouts_and_retries: "recipes/timeouts-and-retries.md",
}
