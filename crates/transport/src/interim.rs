//! Counts interim responses (1xx): h2 keeps each one until the caller asks for the response, which may be never.

/// How many responses, interim ones and the final one, a request may have.
pub(crate) const MOST: u32 = 256;
const SLOTS: usize = 64;

/// Counts the HEADERS that do not end their stream, without a record for each stream.
///
/// Streams share slots. A slot starts again when a newer stream is answered, so a server cannot make room for more
/// unless the client sends another request. Older streams count along, with one response for each that is open.
pub(crate) struct Interim([Slot; SLOTS]);

#[derive(Clone, Copy, Default)]
struct Slot {
    newest: u32,
    count: u32,
}

impl Default for Interim {
    fn default() -> Self {
        Self([Slot::default(); SLOTS])
    }
}

impl Interim {
    /// Counts a response's HEADERS. Returns whether they are too many while this many streams are open.
    pub(crate) fn is_too_many(&mut self, stream: u32, open: usize) -> bool {
        // A client's streams have odd ids.
        let number = usize::try_from(stream / 2).unwrap_or_default() % SLOTS;
        let Some(slot) = self.0.get_mut(number) else { return false };
        if stream > slot.newest {
            *slot = Slot { newest: stream, count: 0 };
        }
        slot.count = slot.count.saturating_add(1);
        let open = u32::try_from(open).unwrap_or(u32::MAX);
        slot.count > MOST.saturating_add(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stream_gets_so_many_and_no_more() {
        let mut interim = Interim::default();
        assert!((0..MOST + 3).all(|_| !interim.is_too_many(5, 3)));
        assert!(interim.is_too_many(5, 3));
    }

    #[test]
    fn streams_that_take_turns_do_not_get_more() {
        let mut interim = Interim::default();
        // The same slot, and another.
        let streams = [1, 1 + 2 * 64, 3];
        let passed = (0..10_000).find(|turn| interim.is_too_many(streams[turn % 3], 3)).expect("too many");
        assert!(passed <= 3 * (MOST as usize + 3), "{passed}");
    }

    #[test]
    fn one_response_for_each_of_many_streams_is_fine_in_any_order() {
        let mut interim = Interim::default();
        let streams: Vec<u32> = (0..100_000).map(|number| 2 * number + 1).collect();
        assert!(streams.iter().all(|stream| !interim.is_too_many(*stream, streams.len())));
        // The newest first.
        assert!(streams.iter().rev().all(|stream| !interim.is_too_many(stream + 200_000, streams.len())));
    }
}
