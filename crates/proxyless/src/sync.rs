//! The types through which the data path and the driver of a channel share memory. In models (see
//! [`proxyless_sans_io::sync`]) each use of one is an indivisible step.

#[cfg(not(proxyless_loom))]
pub(crate) use arc_swap::ArcSwap;
#[cfg(not(proxyless_loom))]
pub(crate) use tokio_util::sync::CancellationToken;

#[cfg(proxyless_loom)]
pub(crate) use model::{ArcSwap, CancellationToken};

#[cfg(proxyless_loom)]
mod model {
    use std::ops::Deref;
    use std::sync::Arc;

    use proxyless_sans_io::sync::Stepped;

    pub(crate) struct ArcSwap<T>(Stepped<arc_swap::ArcSwap<T>>);

    impl<T> ArcSwap<T> {
        pub(crate) fn from_pointee(value: T) -> Self {
            Self(Stepped::new(arc_swap::ArcSwap::from_pointee(value)))
        }
    }

    impl<T> Deref for ArcSwap<T> {
        type Target = arc_swap::ArcSwap<T>;

        fn deref(&self) -> &Self::Target {
            &self.0
        }
    }

    #[derive(Clone)]
    pub(crate) struct CancellationToken(Arc<Stepped<tokio_util::sync::CancellationToken>>);

    impl CancellationToken {
        pub(crate) fn new() -> Self {
            Self(Arc::new(Stepped::new(tokio_util::sync::CancellationToken::new())))
        }
    }

    impl Deref for CancellationToken {
        type Target = tokio_util::sync::CancellationToken;

        fn deref(&self) -> &Self::Target {
            &self.0
        }
    }
}
