//! Counts interim responses (1xx): h2 keeps each one until the caller asks for the response, which may be never.

/// How many responses, interim ones and the final one, a request may have.
pub(crate) const MOST: u16 = 256;
const SLOTS: usize = 64;

/// Counts the HEADERS that do not end their stream, without a record for each stream.
///
/// Streams share slots. A slot starts again when a newer stream is answered, so a server cannot make room for more unless
/// the client sends another request. Older streams count along: one response each, as a rule.
pub(crate) struct Interim([Slot; SLOTS]);

#[derive(Clone, Copy, Default)]
struct Slot {
    newest: u32,
    count: u16,
}

impl Default for Interim {
    fn default() -> Self {
        Self([Slot::default(); SLOTS])
    }
}

impl Interim {
    /// Takes a response's HEADERS in. Returns whether they are too many.
    pub(crate) fn is_too_many(&mut self, stream: u32) -> bool {
        // A client's streams have odd ids.
        let number = usize::try_from(stream / 2).unwrap_or_default() % SLOTS;
        let Some(slot) = self.0.get_mut(number) else { return false };
        if stream > slot.newest {
            *slot = Slot { newest: stream, count: 0 };
        }
        slot.count = slot.count.saturating_add(1);
        slot.count > MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stream_gets_so_many_and_no_more() {
        let mut interim = Interim::default();
        assert!((0..MOST).all(|_| !interim.is_too_many(5)));
        assert!(interim.is_too_many(5));
    }

    #[test]
    fn streams_that_take_turns_do_not_get_more() {
        let mut interim = Interim::default();
        // The same slot, and another.
        let streams = [1, 1 + 2 * 64, 3];
        let passed = (0..10_000).find(|turn| interim.is_too_many(streams[turn % 3])).expect("too many");
        assert!(passed <= 3 * usize::from(MOST), "{passed}");
    }

    #[test]
    fn one_response_for_each_of_many_streams_is_fine_in_any_order() {
        let mut interim = Interim::default();
        let streams: Vec<u32> = (0..100_000).map(|number| 2 * number + 1).collect();
        assert!(streams.iter().all(|stream| !interim.is_too_many(*stream)));
        // As many as are open at once in practice, the newest first.
        assert!(streams.chunks(10_000).all(|open| {
            !open.iter().rev().any(|stream| Interim::is_too_many(&mut interim, stream + 200_000))
        }));
    }
}
