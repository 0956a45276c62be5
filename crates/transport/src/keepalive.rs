//! Keepalive: probes a quiet connection with PINGs.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::options::ConnectOptions;
use crate::state::Shared;

/// The keepalive of one connection. Must be polled whenever the connection is.
pub(crate) struct Keepalive {
    pings: PingPong,
    interval: Duration,
    timeout: Duration,
    while_idle: bool,
    state: State,
    timer: Pin<Box<Sleep>>,
}

enum State {
    /// No stream is open, so no PINGs are sent. A new stream wakes the connection, and thus the keepalive.
    Idle,
    /// The timer runs until the next PING, unless data arrives before.
    Scheduled,
    /// The timer runs until the connection counts as dead, unless the PING is answered.
    Probing,
    /// The connection is ending anyway.
    Over,
}

impl Keepalive {
    /// `None` if keepalive is disabled in `options`.
    pub(crate) fn new(options: &ConnectOptions, pings: Option<PingPong>) -> Option<Self> {
        let interval = options.keepalive_interval?;
        Some(Self {
            pings: pings?,
            interval,
            timeout: options.keepalive_timeout,
            while_idle: options.keepalive_while_idle,
            state: State::Idle,
            timer: Box::pin(sleep_until(Instant::now())),
        })
    }

    /// Ready, with the cause, when a PING was not answered in time.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, shared: &Shared) -> Poll<String> {
        loop {
            let probes = self.while_idle || shared.quota.in_use() > 0;
            match self.state {
                State::Over => return Poll::Pending,
                State::Idle if !probes => return Poll::Pending,
                State::Idle => self.schedule(shared),
                State::Scheduled => {
                    ready!(self.timer.as_mut().poll(cx));
                    if after(shared.last_read(), self.interval) > self.timer.deadline() {
                        self.schedule(shared);
                    } else if !probes {
                        self.state = State::Idle;
                    } else if self.pings.send_ping(Ping::opaque()).is_ok() {
                        self.state = State::Probing;
                        self.timer.as_mut().reset(after(Instant::now(), self.timeout));
                    } else {
                        self.state = State::Over;
                    }
                }
                State::Probing => match self.pings.poll_pong(cx) {
                    Poll::Ready(Ok(_)) => self.schedule(shared),
                    Poll::Ready(Err(_)) => self.state = State::Over,
                    Poll::Pending => {
                        ready!(self.timer.as_mut().poll(cx));
                        return Poll::Ready(format!(
                            "keepalive: no answer to a PING within {:?}",
                            self.timeout
                        ));
                    }
                },
            }
        }
    }

    fn schedule(&mut self, shared: &Shared) {
        self.state = State::Scheduled;
        self.timer.as_mut().reset(after(shared.last_read(), self.interval));
    }
}

/// Instants beyond the representable range count as never.
fn after(instant: Instant, duration: Duration) -> Instant {
    const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    instant + duration.min(NEVER)
}
