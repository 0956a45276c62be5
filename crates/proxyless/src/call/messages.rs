//! Finds the gRPC messages in the bytes of a body.

use crate::telemetry::Message;

/// The length of the prefix of a message: a flag and the length.
const PREFIX: usize = 5;

/// Adds up the sizes of messages without their prefixes, however the bytes are cut into frames.
#[derive(Debug, Default)]
pub(crate) struct MessageCounter {
    prefix: [u8; PREFIX],
    /// The bytes of the current prefix that were seen.
    filled: usize,
    /// The bytes of the current message that are missing.
    left: usize,
    bytes: u64,
    /// The complete messages.
    messages: u64,
    /// The size of the current message.
    size: u64,
}

impl MessageCounter {
    /// Reads a part of the body, and reports each message that it completes.
    pub(crate) fn feed(&mut self, mut data: &[u8], mut complete: impl FnMut(Message)) {
        while !data.is_empty() {
            let body = self.left.min(data.len());
            self.left -= body;
            self.bytes += body as u64;
            data = data.get(body..).unwrap_or_default();
            if body > 0 && self.left == 0 {
                complete(self.next());
            }
            let missing = (PREFIX - self.filled).min(data.len());
            let (prefix, rest) = data.split_at(missing);
            for (place, byte) in self.prefix.iter_mut().skip(self.filled).zip(prefix) {
                *place = *byte;
            }
            self.filled += missing;
            data = rest;
            if self.filled == PREFIX {
                let [_, length @ ..] = self.prefix;
                let length = u32::from_be_bytes(length);
                self.size = length.into();
                self.left = usize::try_from(length).unwrap_or(usize::MAX);
                self.filled = 0;
                if length == 0 {
                    complete(self.next());
                }
            }
        }
    }

    /// The message that is complete.
    fn next(&mut self) -> Message {
        let [flag, ..] = self.prefix;
        let sequence_number = self.messages;
        self.messages += 1;
        Message { sequence_number, size: self.size, compressed: flag != 0 }
    }

    /// The bytes of all messages so far, without prefixes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a66_a72_messages_are_found_however_bytes_are_cut() {
        let body = [&[0, 0, 0, 0, 3][..], b"abc", &[1, 0, 0, 0, 0], &[0, 0, 0, 1, 0], &[7; 256]].concat();
        for step in 1..=body.len() {
            let (mut counter, mut messages) = (MessageCounter::default(), Vec::new());
            let mut note = |Message { sequence_number, size, compressed }| {
                messages.push((sequence_number, size, compressed))
            };
            body.chunks(step).for_each(|chunk| counter.feed(chunk, &mut note));
            assert_eq!(counter.bytes(), 3 + 256, "in steps of {step}");
            assert_eq!(messages, [(0, 3, false), (1, 0, true), (2, 256, false)], "in steps of {step}");
        }
    }

    #[test]
    fn a_message_that_is_cut_off_counts_as_far_as_it_came() {
        let mut counter = MessageCounter::default();
        counter.feed(&[0, 0, 0, 0, 9, 1, 2], |message| panic!("{message:?} is not complete"));
        assert_eq!(counter.bytes(), 2);
    }
}
