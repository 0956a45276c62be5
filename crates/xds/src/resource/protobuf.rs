//! A zero-copy protobuf reader: field by field, strings as slices of the input, without allocations.
//!
//! For messages that are too large to decode into owned types. It accepts and rejects exactly what prost does, so that
//! either can read a resource.

/// The bytes are malformed. prost can say why.
#[derive(Debug)]
pub(crate) struct Malformed;

/// A message, read from its fields in wire order.
pub(crate) trait Message<'a>: Default {
    /// Reads one field from the reader, which is positioned after the key. Unknown fields are passed to
    /// [`Reader::skip`].
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed>;

    /// Reads a whole message.
    fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut message = Self::default();
        Reader::new(bytes).merge(&mut message)?;
        Ok(message)
    }
}

/// The maximum nesting depth of messages.
const MAX_DEPTH: u32 = 100;
/// The shortest element used to estimate the length of a list.
const MIN_EXPECTED: usize = 32;

/// The key before a field's value: field number and wire type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key(u32);

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const DELIMITED: u32 = 2;
const START_GROUP: u32 = 3;
const END_GROUP: u32 = 4;
const FIXED32: u32 = 5;

/// The unread part of a message.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// The remaining nesting depth.
    depth: u32,
}

impl<'a> Reader<'a> {
    /// Starts to read a message.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, depth: MAX_DEPTH }
    }

    /// The key of the next field, if there is one.
    #[inline]
    pub(crate) fn next_key(&mut self) -> Result<Option<Key>, Malformed> {
        if self.rest.is_empty() { Ok(None) } else { self.key().map(Some) }
    }

    /// A number of any varint type; a smaller type gets the lower bits.
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

    /// Merges a message into `into`, as protobuf requires for a field that occurs more than once.
    #[inline]
    pub(crate) fn message<M: Message<'a>>(&mut self, key: Key, into: &mut M) -> Result<(), Malformed> {
        key.expect(DELIMITED)?;
        self.nested(into)
    }

    /// An element of a repeated message field.
    #[inline]
    pub(crate) fn push<M: Message<'a>>(&mut self, key: Key, into: &mut Vec<M>) -> Result<(), Malformed> {
        let depth = below(self.depth)?;
        let bytes = self.bytes(key)?;
        if into.is_empty() {
            // The other elements are probably as long as the first one, unless that is very short.
            into.reserve(1 + self.rest.len() / bytes.len().max(MIN_EXPECTED));
        }
        into.push(M::default());
        into.last_mut().map_or(Ok(()), |last| Reader { rest: bytes, depth }.merge(last))
    }

    /// A map entry. prost does not check its wire type, as long as it is valid.
    pub(crate) fn entry<M: Message<'a>>(&mut self, key: Key, into: &mut M) -> Result<(), Malformed> {
        if key.wire_type() > FIXED32 {
            return Err(Malformed);
        }
        self.nested(into)
    }

    /// A message decoded by prost, because it is small or rare. Its nesting depth starts at zero.
    #[inline]
    pub(crate) fn owned<M: prost::Message>(&mut self, key: Key, into: &mut M) -> Result<(), Malformed> {
        below(self.depth)?;
        merge_owned(self.bytes(key)?, into)
    }

    /// Like [`Self::owned`], for a message that is validated and discarded.
    #[inline]
    pub(crate) fn unread<M: prost::Message + Default>(&mut self, key: Key) -> Result<(), Malformed> {
        below(self.depth)?;
        check_owned::<M>(self.bytes(key)?)
    }

    /// Skips an unknown field.
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

// Rare cases are separate functions that take the bytes instead of the reader, so that a reader can stay in registers.

#[inline(never)]
fn long_varint(bytes: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let mut value = 0;
    for (i, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            // The tenth byte holds the last of the 64 bits.
            let fits = i < 9 || byte <= 1;
            return bytes.get(i + 1..).filter(|_| fits).map(|rest| (value, rest)).ok_or(Malformed);
        }
    }
    Err(Malformed)
}

/// Skips a field's value and returns the remaining bytes.
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
