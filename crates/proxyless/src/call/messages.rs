//! Finds the gRPC messages in the bytes of a body.

use crate::telemetry::Message;

/// The length of the prefix of a message: a flag and the length.
const PREFIX: usize = 5;

/// Adds up the sizes of messages without their prefixes, however the bytes are cut into frames.
#[derive(Debug, Default)]
pub(crate) struct MessageCounter {
    prefix: [u8; PREFIX],
    /// The bytes of the current prefix that were seen.
    filled: u8,
    /// The bytes of the current message that are missing.
    left: u64,
    bytes: u64,
    /// The complete messages.
    messages: u64,
}

impl MessageCounter {
    /// Reads a part of the body, and reports each message that it completes.
    #[inline]
    pub(crate) fn feed(&mut self, data: &[u8], mut complete: impl FnMut(Message)) {
        match data.split_first_chunk() {
            // Usually it is one whole message.
            Some((prefix, message))
                if self.left == 0 && self.filled == 0 && length(prefix) == message.len() as u64 =>
            {
                self.prefix = *prefix;
                self.bytes += length(prefix);
                complete(self.next());
            }
            _ => self.feed_parts(data, complete),
        }
    }

    fn feed_parts(&mut self, mut data: &[u8], mut complete: impl FnMut(Message)) {
        while !data.is_empty() {
            let body = data.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= body as u64;
            self.bytes += body as u64;
            data = data.get(body..).unwrap_or_default();
            if body > 0 && self.left == 0 {
                complete(self.next());
            }
            let filled = usize::from(self.filled);
            let (prefix, rest) = data.split_at(data.len().min(PREFIX - filled));
            for (place, byte) in self.prefix.iter_mut().skip(filled).zip(prefix) {
                *place = *byte;
                self.filled += 1;
            }
            data = rest;
            if usize::from(self.filled) == PREFIX {
                self.left = length(&self.prefix);
                self.filled = 0;
                if self.left == 0 {
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
        Message { sequence_number, size: length(&self.prefix), compressed: flag != 0 }
    }

    /// The bytes of all messages so far, without prefixes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The length of a message.
fn length(prefix: &[u8; PREFIX]) -> u64 {
    let [_, length @ ..] = *prefix;
    u32::from_be_bytes(length).into()
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
