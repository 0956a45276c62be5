//! Protobuf read in place: field by field, text as slices of the bytes that it came in, nothing allocated.
//!
//! For messages that are too large to be decoded into owned ones. What it takes and what it refuses is just what prost
//! takes and refuses, so that it does not matter by which of the two a resource is read.

/// The bytes are not what they should be. Why, prost can say.
#[derive(Debug)]
pub(crate) struct Malformed;

/// A message, given its fields in the order in which they come.
pub(crate) trait Message<'a>: Default {
    /// Takes one field from the reader, which stands behind the key; [`Reader::skip`] if it is none of the message's.
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed>;

    /// Reads a whole message.
    fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut message = Self::default();
        Reader { rest: bytes, depth: MAX_DEPTH }.merge(&mut message)?;
        Ok(message)
    }
}

/// How deep messages may be in each other.
const MAX_DEPTH: u32 = 100;

/// What precedes a field's value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// The field's number.
    pub(crate) number: u32,
    wire_type: WireType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WireType {
    Varint,
    Fixed64,
    Delimited,
    StartGroup,
    EndGroup,
    Fixed32,
}

/// The part of a message that is still to be read.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// How many messages deeper it may go.
    depth: u32,
}

impl<'a> Reader<'a> {
    /// A number of any of the types that are a varint on the wire: a smaller type gets the lower bits.
    pub(crate) fn varint(&mut self, key: Key) -> Result<u64, Malformed> {
        key.expect(WireType::Varint)?;
        self.raw_varint()
    }

    /// A `double`.
    pub(crate) fn fixed64(&mut self, key: Key) -> Result<&'a [u8], Malformed> {
        key.expect(WireType::Fixed64)?;
        self.take(8)
    }

    /// Bytes.
    pub(crate) fn bytes(&mut self, key: Key) -> Result<&'a [u8], Malformed> {
        key.expect(WireType::Delimited)?;
        self.delimited()
    }

    /// Text.
    pub(crate) fn text(&mut self, key: Key) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes(key)?).map_err(|_| Malformed)
    }

    /// A message, read into one that may have been read in part: a field that comes twice is merged.
    pub(crate) fn message<M: Message<'a>>(&mut self, key: Key, into: &mut M) -> Result<(), Malformed> {
        key.expect(WireType::Delimited)?;
        self.entry(into)
    }

    /// A message that may come many times.
    pub(crate) fn push<M: Message<'a>>(&mut self, key: Key, into: &mut Vec<M>) -> Result<(), Malformed> {
        let mut message = M::default();
        self.message(key, &mut message)?;
        into.push(message);
        Ok(())
    }

    /// The entry of a map. Of those prost does not look at the wire type.
    pub(crate) fn entry<M: Message<'a>>(&mut self, into: &mut M) -> Result<(), Malformed> {
        let depth = below(self.depth)?;
        Reader { rest: self.delimited()?, depth }.merge(into)
    }

    /// A message that prost reads: one that is small or rare. It may be as deep as if nothing were around it.
    pub(crate) fn owned<M: prost::Message>(&mut self, key: Key, into: &mut M) -> Result<(), Malformed> {
        below(self.depth)?;
        into.merge(self.bytes(key)?).map_err(|_| Malformed)
    }

    /// A field that the message does not have.
    pub(crate) fn skip(&mut self, key: Key) -> Result<(), Malformed> {
        self.skip_at(key, self.depth)
    }

    #[inline]
    fn merge<M: Message<'a>>(mut self, into: &mut M) -> Result<(), Malformed> {
        while !self.rest.is_empty() {
            let key = self.key()?;
            into.field(key, &mut self)?;
        }
        Ok(())
    }

    #[inline]
    fn key(&mut self) -> Result<Key, Malformed> {
        let key = u32::try_from(self.raw_varint()?).map_err(|_| Malformed)?;
        let wire_type = match key & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Delimited,
            3 => WireType::StartGroup,
            4 => WireType::EndGroup,
            5 => WireType::Fixed32,
            _ => return Err(Malformed),
        };
        match key >> 3 {
            0 => Err(Malformed),
            number => Ok(Key { number, wire_type }),
        }
    }

    #[inline]
    fn raw_varint(&mut self) -> Result<u64, Malformed> {
        match *self.rest {
            [byte, ref rest @ ..] if byte < 0x80 => {
                self.rest = rest;
                Ok(byte.into())
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (i, &byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.take(i + 1)?;
                // The tenth byte has one bit of the sixty-four.
                return if i == 9 && byte > 1 { Err(Malformed) } else { Ok(value) };
            }
        }
        Err(Malformed)
    }

    #[inline]
    fn delimited(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.raw_varint()?).map_err(|_| Malformed)?;
        self.take(length)
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn skip_at(&mut self, key: Key, depth: u32) -> Result<(), Malformed> {
        let below = below(depth)?;
        match key.wire_type {
            WireType::Varint => self.raw_varint().map(drop),
            WireType::Fixed64 => self.take(8).map(drop),
            WireType::Delimited => self.delimited().map(drop),
            WireType::Fixed32 => self.take(4).map(drop),
            WireType::EndGroup => Err(Malformed),
            WireType::StartGroup => loop {
                match self.key()? {
                    Key { number, wire_type: WireType::EndGroup } if number == key.number => return Ok(()),
                    inner => self.skip_at(inner, below)?,
                }
            },
        }
    }
}

impl Key {
    #[inline]
    fn expect(self, wire_type: WireType) -> Result<(), Malformed> {
        if self.wire_type == wire_type { Ok(()) } else { Err(Malformed) }
    }
}

fn below(depth: u32) -> Result<u32, Malformed> {
    depth.checked_sub(1).ok_or(Malformed)
}
