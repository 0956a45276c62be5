//! Any protobuf message as a tree of fields, to be mutated without the lengths around becoming wrong.

use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use proxyless_sans_io::Rng;

/// A message.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree(Vec<(u32, Node)>);

#[derive(Clone, Debug)]
enum Node {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(Vec<u8>),
    Message(Tree),
    Group(Tree),
    /// A length and bytes behind a key that announces a number.
    Mistyped(Tree),
}

impl Tree {
    /// Reads valid bytes without groups. Bytes that can be a message are treated as one.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        Self::try_parse(bytes).expect("a valid message")
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        for (number, node) in &self.0 {
            node.encode(*number, &mut to);
        }
        to
    }

    /// Changes one field, anywhere.
    pub(super) fn mutate(&mut self, rng: &mut Rng) {
        if self.0.is_empty() {
            self.0.push((1 + rng.below(9) as u32, Node::random(rng)));
            return;
        }
        let at = rng.below(self.0.len() as u64) as usize;
        if let Node::Message(inner) | Node::Group(inner) | Node::Mistyped(inner) = &mut self.0[at].1
            && rng.below(5) != 0
        {
            return inner.mutate(rng);
        }
        let (number, node) = self.0[at].clone();
        match rng.below(8) {
            0 => drop(self.0.remove(at)),
            1 | 2 => {
                let to = rng.below(self.0.len() as u64 + 1) as usize;
                self.0.insert(to, (number, node));
            }
            3 => self.0.insert(at, (1 + rng.below(9) as u32, Node::random(rng))),
            4 => self.0[at].0 = 1 + rng.below(9) as u32,
            5 => self.0[at].1 = Node::random(rng),
            6 => {
                let to = rng.below(self.0.len() as u64) as usize;
                self.0.swap(at, to);
            }
            _ => {
                if let Node::Message(inner) = node {
                    let wrap = if rng.below(2) == 0 { Node::Group } else { Node::Mistyped };
                    self.0[at].1 = wrap(inner);
                }
            }
        }
    }

    fn try_parse(mut bytes: &[u8]) -> Option<Self> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let (number, wire_type) = decode_key(&mut bytes).ok()?;
            let node = match wire_type {
                WireType::Varint => Node::Varint(decode_varint(&mut bytes).ok()?),
                WireType::SixtyFourBit => Node::Fixed64(take(&mut bytes, 8)?.try_into().ok()?),
                WireType::ThirtyTwoBit => Node::Fixed32(take(&mut bytes, 4)?.try_into().ok()?),
                WireType::LengthDelimited => {
                    let length = decode_varint(&mut bytes).ok()?;
                    let value = take(&mut bytes, length.try_into().ok()?)?;
                    Self::try_parse(value).map_or_else(|| Node::Bytes(value.to_vec()), Node::Message)
                }
                WireType::StartGroup | WireType::EndGroup => return None,
            };
            fields.push((number, node));
        }
        Some(Self(fields))
    }
}

impl Node {
    fn random(rng: &mut Rng) -> Self {
        const TEXTS: [&[u8]; 8] =
            [b"", b"10.0.0.1", b"::1", b"envoy.lb", b"hash_key", b"\xff", "\u{e9}".as_bytes(), b"\x08\x01"];
        match rng.below(7) {
            0 => Self::Varint(rng.below(4)),
            1 => Self::Varint(rng.next_u64() >> rng.below(64)),
            2 => Self::Fixed64([0; 8]),
            3 => Self::Fixed32([0; 4]),
            4 => Self::Message(Tree(vec![(1 + rng.below(5) as u32, Self::Varint(rng.below(400)))])),
            _ => Self::Bytes(TEXTS[rng.below(8) as usize].to_vec()),
        }
    }

    fn encode(&self, number: u32, to: &mut Vec<u8>) {
        let delimited = |wire_type, bytes: &[u8], to: &mut Vec<u8>| {
            encode_key(number, wire_type, to);
            encode_varint(bytes.len() as u64, to);
            to.extend(bytes);
        };
        match self {
            Self::Varint(value) => {
                encode_key(number, WireType::Varint, to);
                encode_varint(*value, to);
            }
            Self::Fixed64(bytes) => {
                encode_key(number, WireType::SixtyFourBit, to);
                to.extend(bytes);
            }
            Self::Fixed32(bytes) => {
                encode_key(number, WireType::ThirtyTwoBit, to);
                to.extend(bytes);
            }
            Self::Bytes(bytes) => delimited(WireType::LengthDelimited, bytes, to),
            Self::Message(inner) => delimited(WireType::LengthDelimited, &inner.encode(), to),
            Self::Mistyped(inner) => delimited(WireType::Varint, &inner.encode(), to),
            Self::Group(inner) => {
                encode_key(number, WireType::StartGroup, to);
                to.extend(inner.encode());
                encode_key(number, WireType::EndGroup, to);
            }
        }
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}
