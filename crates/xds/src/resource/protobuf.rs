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
        Reader::new(bytes).merge(&mut message)?;
        Ok(message)
    }
}

/// How deep messages may be in each other.
const MAX_DEPTH: u32 = 100;
/// The shortest element by which the length of a list is guessed.
const MIN_EXPECTED: usize = 32;

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
    /// Reads a message from its first field on.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, depth: MAX_DEPTH }
    }

    /// The key of the next field, if there is one.
    #[inline]
    pub(crate) fn next_key(&mut self) -> Result<Option<Key>, Malformed> {
        if self.rest.is_empty() { Ok(None) } else { self.key().map(Some) }
    }

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
        let depth = below(self.depth)?;
        let bytes = self.bytes(key)?;
        if into.is_empty() {
            // The others are likely to be as long as the first, but a very short one is no measure.
            into.reserve(1 + self.rest.len() / bytes.len().max(MIN_EXPECTED));
        }
        into.push(M::default());
        into.last_mut().map_or(Ok(()), |last| Reader { rest: bytes, depth }.merge(last))
    }

    /// The entry of a map. Of those prost does not look at the wire type, as long as it is one.
    pub(crate) fn entry<M: Message<'a>>(&mut self, key: Key, into: &mut M) -> Result<(), Malformed> {
        if key.wire_type() > FIXED32 {
            return Err(Malformed);
        }
        self.nested(into)
    }

    /// A message that prost reads: one that is small or rare. It may be as deep as if nothing were around it.
    #[inline]
    pub(crate) fn owned<M: prost::Message>(&mut self, key: Key, into: &mut M) -> Result<(), Malformed> {
        below(self.depth)?;
        merge_owned(self.bytes(key)?, into)
    }

    /// The same of a message that nobody reads.
    #[inline]
    pub(crate) fn unread<M: prost::Message + Default>(&mut self, key: Key) -> Result<(), Malformed> {
        below(self.depth)?;
        check_owned::<M>(self.bytes(key)?)
    }

    /// A field that the message does not have.
    #[inline]
    pub(crate) fn skip(&mut self, key: Key) -> Result<(), Malformed> {
        self.rest = skip(self.rest, key, self.depth)?;
        Ok(())
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
            [low, high, ref rest @ ..] if high < 0x80 => {
                self.rest = rest;
                Ok(u64::from(low & 0x7f) | u64::from(high) << 7)
            }
            _ => {
                let (value, rest) = long_varint(self.rest)?;
                self.rest = rest;
                Ok(value)
            }
        }
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

// What is rare is a function of its own, given the bytes and not the reader: so a reader can stay in registers.

#[inline(never)]
fn long_varint(bytes: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let mut value = 0;
    for (i, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            // The tenth byte has one bit of the sixty-four.
            let fits = i < 9 || byte <= 1;
            return bytes.get(i + 1..).filter(|_| fits).map(|rest| (value, rest)).ok_or(Malformed);
        }
    }
    Err(Malformed)
}

/// What follows a field's value.
#[cold]
fn skip(bytes: &[u8], key: Key, depth: u32) -> Result<&[u8], Malformed> {
    let below = below(depth)?;
    let mut from = Reader { rest: bytes, depth };
    match (key.number(), key.wire_type()) {
        (0, _) => return Err(Malformed),
        (_, VARINT) => drop(from.raw_varint()?),
        (_, FIXED64) => drop(from.take(8)?),
        (_, DELIMITED) => drop(from.delimited()?),
        (_, FIXED32) => drop(from.take(4)?),
        (number, START_GROUP) => loop {
            let inner = from.key()?;
            if (inner.number(), inner.wire_type()) == (number, END_GROUP) {
                break;
            }
            from.rest = skip(from.rest, inner, below)?;
        },
        _ => return Err(Malformed),
    }
    Ok(from.rest)
}

#[inline(never)]
fn merge_owned<M: prost::Message>(bytes: &[u8], into: &mut M) -> Result<(), Malformed> {
    into.merge(bytes).map_err(|_| Malformed)
}

#[cold]
fn check_owned<M: prost::Message + Default>(bytes: &[u8]) -> Result<(), Malformed> {
    merge_owned(bytes, &mut M::default())
}
