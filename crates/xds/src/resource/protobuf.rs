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

/// What precedes a field's value: the field's number and the wire type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key(u32);

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const DELIMITED: u32 = 2;
const START_GROUP: u32 = 3;
const END_GROUP: u32 = 4;
const FIXED32: u32 = 5;

/// The part of a message that is still to be read.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// How many messages deeper it may go.
    depth: u32,
}

impl<'a> Reader<'a> {
    /// A number of any of the types that are a varint on the wire: a smaller type gets the lower bits.
    #[inline]
    pub(crate) fn varint(&mut self, key: Key) -> Result<u64, Malformed> {
        key.expect(VARINT)?;
        self.raw_varint()
    }

    /// A `double`.
    pub(crate) fn fixed64(&mut self, key: Key) -> Result<&'a [u8], Malformed> {
        key.expect(FIXED64)?;
        self.take(8)
    }

    /// Bytes.
    #[inline]
    pub(crate) fn bytes(&mut self, key: Key) -> Result<&'a [u8], Malformed> {
        key.expect(DELIMITED)?;
        self.delimited()
    }

    /// Text.
    #[inline]
    pub(crate) fn text(&mut self, key: Key) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes(key)?).map_err(|_| Malformed)
    }

    /// A message, read into one that may have been read in part: a field that comes twice is merged.
    #[inline]
    pub(crate) fn message<M: Message<'a>>(&mut self, key: Key, into: &mut M) -> Result<(), Malformed> {
        key.expect(DELIMITED)?;
        self.nested(into)
    }

    /// A message that may come many times.
    #[inline]
    pub(crate) fn push<M: Message<'a>>(&mut self, key: Key, into: &mut Vec<M>) -> Result<(), Malformed> {
        into.push(M::default());
        into.last_mut().map_or(Ok(()), |last| self.message(key, last))
    }

    /// The entry of a map. Of those prost does not look at the wire type, as long as it is one.
    pub(crate) fn entry<M: Message<'a>>(&mut self, key: Key, into: &mut M) -> Result<(), Malformed> {
        if key.wire_type() > FIXED32 {
            return Err(Malformed);
        }
        self.nested(into)
    }

    /// A message that prost reads: one that is small or rare. It may be as deep as if nothing were around it.
    #[inline(never)]
    pub(crate) fn owned<M: prost::Message>(&mut self, key: Key, into: &mut M) -> Result<(), Malformed> {
        below(self.depth)?;
        into.merge(self.bytes(key)?).map_err(|_| Malformed)
    }

    /// The same of a message that nobody reads.
    #[cold]
    pub(crate) fn unread<M: prost::Message + Default>(&mut self, key: Key) -> Result<(), Malformed> {
        self.owned(key, &mut M::default())
    }

    /// A field that the message does not have.
    pub(crate) fn skip(&mut self, key: Key) -> Result<(), Malformed> {
        self.skip_at(key, self.depth)
    }

    #[inline]
    fn nested<M: Message<'a>>(&mut self, into: &mut M) -> Result<(), Malformed> {
        let depth = below(self.depth)?;
        Reader { rest: self.delimited()?, depth }.merge(into)
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
        u32::try_from(self.raw_varint()?).map(Key).map_err(|_| Malformed)
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
        match (key.number(), key.wire_type()) {
            (0, _) => Err(Malformed),
            (_, VARINT) => self.raw_varint().map(drop),
            (_, FIXED64) => self.take(8).map(drop),
            (_, DELIMITED) => self.delimited().map(drop),
            (_, FIXED32) => self.take(4).map(drop),
            (number, START_GROUP) => loop {
                let inner = self.key()?;
                if (inner.number(), inner.wire_type()) == (number, END_GROUP) {
                    return Ok(());
                }
                self.skip_at(inner, below)?;
            },
            _ => Err(Malformed),
        }
    }
}

impl Key {
    /// The field's number.
    #[inline]
    pub(crate) fn number(self) -> u32 {
        self.0 >> 3
    }

    #[inline]
    fn wire_type(self) -> u32 {
        self.0 & 7
    }

    #[inline]
    fn expect(self, wire_type: u32) -> Result<(), Malformed> {
        if self.wire_type() == wire_type { Ok(()) } else { Err(Malformed) }
    }
}

#[inline]
fn below(depth: u32) -> Result<u32, Malformed> {
    depth.checked_sub(1).ok_or(Malformed)
}
