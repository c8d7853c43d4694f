//! Texts as records: as on Tidegate, or packed into plain memory.

use serde::{Deserialize, Serialize};
use tidegate_state::CompactString;
use tidegate_types::hash_bytes;

use crate::count::Key;
use crate::packed::Packed;

/// A text of any length.
pub(crate) trait Text: Key + Sync {
    /// The first `length` bytes of `text`. It is fast if `text` goes on behind them.
    fn beginning_of(text: &str, length: usize) -> Self;
}

impl Text for CompactString {
    #[inline]
    fn beginning_of(text: &str, length: usize) -> Self {
        text[..length].into()
    }
}

/// The hash that it has on Tidegate.
impl Key for CompactString {
    #[inline]
    fn hash(&self) -> u64 {
        hash_bytes(self.as_bytes())
    }
}

impl<const WORDS: usize> Text for Packed<[u64; WORDS]>
where
    [u64; WORDS]: Serialize + for<'a> Deserialize<'a>,
{
    #[inline]
    fn beginning_of(text: &str, length: usize) -> Self {
        Packed::beginning_of(text, length)
    }
}

impl<const WORDS: usize> Key for Packed<[u64; WORDS]>
where
    [u64; WORDS]: Serialize + for<'a> Deserialize<'a>,
{
    #[inline]
    fn hash(&self) -> u64 {
        Packed::hash(self)
    }
}
