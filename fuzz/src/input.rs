//! Bytes as a source of decisions.

/// Reads an input from its start; returns zeros after its end.
#[derive(Debug)]
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    /// A number in `0..bound`; `bound` is at least 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// A length in two bytes, and as many bytes as are available.
    pub(crate) fn block(&mut self) -> &'a [u8] {
        let length = usize::from(self.u16()).min(self.0.len());
        let (block, rest) = self.0.split_at(length);
        self.0 = rest;
        block
    }
}
