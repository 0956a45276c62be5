//! The receive window of a connection's streams: it starts small, and grows to what the link can carry.
//!
//! A stream gets at most one window in each round trip. Other libraries of gRPC estimate the bandwidth-delay product with
//! PINGs, which some servers count as abuse. Here the round-trip time is that of our SETTINGS, which a server must
//! acknowledge at once (RFC 9113, section 6.5.3): the first ones, and then each growth. A [`Burst`] measures the bandwidth.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The window of each stream of a connection. All values are independent of other memory, hence relaxed.
pub(crate) struct ReceiveWindow {
    beginning: Instant,
    /// The time of the last unacknowledged SETTINGS, in nanoseconds since the beginning; 0: there are none.
    settings_sent: AtomicU64,
    /// The shortest round-trip time, in nanoseconds; 0: not known yet.
    round_trip: AtomicU64,
    size: AtomicU32,
    largest: u32,
    /// The size that a reader has asked for.
    wanted: AtomicU32,
}

impl ReceiveWindow {
    /// A window of `initial` bytes that grows up to `largest`.
    pub(crate) fn new(initial: u32, largest: u32) -> Self {
        Self {
            beginning: Instant::now(),
            settings_sent: AtomicU64::new(0),
            round_trip: AtomicU64::new(0),
            size: AtomicU32::new(initial),
            largest,
            wanted: AtomicU32::new(initial),
        }
    }

    /// The size of the window.
    pub(crate) fn size(&self) -> u32 {
        self.size.load(Ordering::Relaxed)
    }

    /// SETTINGS are sent.
    pub(crate) fn on_settings_sent(&self) {
        self.settings_sent.store(self.now(), Ordering::Relaxed);
    }

    /// The server has acknowledged SETTINGS.
    pub(crate) fn on_settings_acknowledged(&self) {
        let sent = self.settings_sent.swap(0, Ordering::Relaxed);
        if sent == 0 {
            return;
        }
        let sample = self.now().saturating_sub(sent).max(1);
        let shortest = self.round_trip.load(Ordering::Relaxed);
        if shortest == 0 || sample < shortest {
            self.round_trip.store(sample, Ordering::Relaxed);
        }
    }

    /// The size to announce, if a reader needs more than there is. The caller announces it, and then calls
    /// [`Self::on_announced`].
    pub(crate) fn growth(&self) -> Option<u32> {
        let wanted = self.wanted.load(Ordering::Relaxed);
        // One at a time, so that an acknowledgement belongs to the last SETTINGS.
        (wanted > self.size() && self.settings_sent.load(Ordering::Relaxed) == 0).then_some(wanted)
    }

    /// The window has this size now.
    pub(crate) fn on_announced(&self, size: u32) {
        self.size.store(size, Ordering::Relaxed);
        self.on_settings_sent();
    }

    /// A reader that waits for data has received this many bytes in this time.
    fn measured(&self, bytes: u64, time: Duration) {
        let (size, round_trip) = (self.size(), u128::from(self.round_trip.load(Ordering::Relaxed)));
        // Two thirds of a window in each round trip: with a larger one the server would have sent more.
        if 3 * u128::from(bytes) * round_trip >= 2 * u128::from(size) * time.as_nanos() {
            let next = size.saturating_mul(2).min(self.largest);
            self.wanted.fetch_max(next, Ordering::Relaxed);
        }
    }

    fn now(&self) -> u64 {
        // Centuries fit.
        u64::try_from(self.beginning.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }
}

/// The bytes that one stream has received since the last measurement.
#[derive(Default)]
pub(crate) struct Burst {
    bytes: u64,
    /// Set once the stream has received more than most responses.
    began: Option<Instant>,
}

/// No clock is read for shorter responses.
const SHORT: u64 = 64 << 10;

impl Burst {
    /// The reader has read this many bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
    }

    /// The reader waits for data: it is not slower than the server and the link.
    pub(crate) fn waits(&mut self, window: &ReceiveWindow) {
        let enough = if self.began.is_some() { window.size().into() } else { SHORT };
        if self.bytes < enough {
            return;
        }
        let now = Instant::now();
        if let Some(began) = self.began {
            window.measured(self.bytes, now - began);
        }
        *self = Self { bytes: 0, began: Some(now) };
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const WINDOW: u32 = 1 << 20;

    /// A window whose round-trip time is 50 ms.
    async fn far() -> ReceiveWindow {
        let window = ReceiveWindow::new(WINDOW, 4 * WINDOW);
        window.on_settings_sent();
        advance(Duration::from_millis(50)).await;
        window.on_settings_acknowledged();
        window
    }

    /// Reads windows of data, each in this time. Returns the size that the reader needs.
    async fn read(window: &ReceiveWindow, windows: u32, each: Duration) -> Option<u32> {
        let mut burst = Burst::default();
        burst.add(SHORT as usize);
        burst.waits(window);
        for _ in 0..windows {
            advance(each).await;
            burst.add(window.size() as usize);
            burst.waits(window);
        }
        window.growth()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_the_window_limits_gets_a_larger_one_up_to_the_largest() {
        let window = far().await;
        let round_trip = Duration::from_millis(50);
        assert_eq!(read(&window, 1, round_trip).await, Some(2 * WINDOW));
        window.on_announced(2 * WINDOW);
        assert_eq!(read(&window, 3, round_trip).await, None, "the last SETTINGS are not acknowledged");
        window.on_settings_acknowledged();
        assert_eq!(window.growth(), Some(4 * WINDOW));
        window.on_announced(4 * WINDOW);
        window.on_settings_acknowledged();
        assert_eq!(read(&window, 9, round_trip).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_or_reader_does_not_need_a_larger_window() {
        let window = far().await;
        assert_eq!(read(&window, 9, Duration::from_millis(100)).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_shortest_round_trip_counts_and_without_one_nothing_grows() {
        let window = ReceiveWindow::new(WINDOW, 4 * WINDOW);
        assert_eq!(read(&window, 9, Duration::from_millis(1)).await, None);
        for millis in [5, 500] {
            window.on_settings_sent();
            advance(Duration::from_millis(millis)).await;
            window.on_settings_acknowledged();
        }
        // Not asked for.
        window.on_settings_acknowledged();
        assert_eq!(read(&window, 1, Duration::from_millis(50)).await, None);
        assert_eq!(read(&window, 1, Duration::from_millis(5)).await, Some(2 * WINDOW));
    }
}
