//! tokio's `oneshot` channels. In models (see [`proxyless_sans_io::sync`]) each use of one is an indivisible step.

#[cfg(not(proxyless_loom))]
pub(crate) use tokio::sync::oneshot;

#[cfg(proxyless_loom)]
pub(crate) mod oneshot {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use proxyless_sans_io::sync::Step;
    use tokio::sync::oneshot::error::{RecvError, TryRecvError};

    pub(crate) struct Sender<T>(tokio::sync::oneshot::Sender<T>, Arc<Step>);
    pub(crate) struct Receiver<T>(tokio::sync::oneshot::Receiver<T>, Arc<Step>);

    pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let ((sender, receiver), step) = (tokio::sync::oneshot::channel(), Arc::default());
        (Sender(sender, Arc::clone(&step)), Receiver(receiver, step))
    }

    impl<T> Sender<T> {
        pub(crate) fn is_closed(&self) -> bool {
            self.1.take();
            self.0.is_closed()
        }

        pub(crate) fn send(self, value: T) -> Result<(), T> {
            self.1.take();
            self.0.send(value)
        }
    }

    impl<T> Receiver<T> {
        pub(crate) fn close(&mut self) {
            self.1.take();
            self.0.close();
        }

        pub(crate) fn try_recv(&mut self) -> Result<T, TryRecvError> {
            self.1.take();
            self.0.try_recv()
        }
    }

    impl<T> Future for Receiver<T> {
        type Output = Result<T, RecvError>;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
            self.1.take();
            Pin::new(&mut self.0).poll(cx)
        }
    }
}
