//! What a table holds per key and namespace, by kind of state: how it becomes entries of a file,
//! and is put together from them again.

use super::chunks::OpenChunk;
use super::entry_key::EntryKey;
use crate::descriptor::StateValue;
use crate::error::LoadError;
use crate::format::{decode_value, encode_entry, encode_short_entry, encode_value};
use crate::key::{FixedEncoding, KeyError, StateKey};

/// The content of an entry of a table. A clone shares nothing that either side can change: it is
/// what a snapshot holds on to while the stream goes on.
pub(super) trait Content: Clone + Send + 'static {
    /// What one entry of a file contributes. Kinds that have several per key see them in any order.
    type Part;

    /// Whether each content is one entry of a file, which [`encode_entry`](Self::encode_entry)
    /// appends.
    const IS_ONE_ENTRY: bool;

    /// Appends what the keys of all entries for this content begin with: the key itself, but for
    /// map keys. A tombstone has only that.
    #[inline]
    fn encode_key<K: StateKey, N: StateKey>(key: &EntryKey<K, N>, out: &mut Vec<u8>) {
        key.encode(out);
    }

    /// Reads what [`encode_key`](Self::encode_key) appends.
    fn decode_key<K: StateKey, N: StateKey>(bytes: &[u8]) -> Result<EntryKey<K, N>, KeyError> {
        EntryKey::decode(bytes)
    }

    /// Appends the entry that this content is.
    ///
    /// # Panics
    /// If [it isn't one](Self::IS_ONE_ENTRY).
    fn encode_entry<K: StateKey, N: StateKey>(
        &self,
        key: &EntryKey<K, N>,
        out: &mut Vec<u8>,
    ) -> postcard::Result<()>;

    /// Puts the same, in short form, behind the first `end` bytes of `out`; what is there already
    /// is overwritten. `key` is the encoding of the key.
    ///
    /// # Panics
    /// If [it isn't one](Self::IS_ONE_ENTRY).
    fn encode_short_entry(
        &self,
        key: FixedEncoding,
        out: &mut Vec<u8>,
        end: &mut usize,
    ) -> postcard::Result<()>;

    /// Appends all entries for this content. Kinds that have several per key first forget what
    /// earlier pieces have of it.
    #[inline]
    fn encode<K: StateKey, N: StateKey>(
        &self,
        key: &EntryKey<K, N>,
        chunk: &mut OpenChunk<'_>,
    ) -> postcard::Result<()> {
        chunk.append(|out| self.encode_entry(key, out))
    }

    /// Reads entry `entry` of a chunk.
    fn decode<K: StateKey, N: StateKey>(
        entry: u32,
        key: &[u8],
        value: &[u8],
    ) -> Result<(EntryKey<K, N>, Self::Part), LoadError>;

    /// The content that consists of one part.
    fn from_part(part: Self::Part) -> Self;

    /// Adds a part; `false` if it is there already.
    fn add_part(&mut self, part: Self::Part) -> bool;
}

/// A value, as value, reducing and aggregating state have it: one entry of a file.
#[derive(Clone)]
pub(super) struct Single<V>(pub(super) V);

impl<V: StateValue> Content for Single<V> {
    type Part = V;

    const IS_ONE_ENTRY: bool = true;

    #[inline]
    fn encode_entry<K: StateKey, N: StateKey>(
        &self,
        key: &EntryKey<K, N>,
        out: &mut Vec<u8>,
    ) -> postcard::Result<()> {
        encode_entry(out, |out| key.encode(out), |out| encode_value(&self.0, out))
    }

    #[inline]
    fn encode_short_entry(
        &self,
        key: FixedEncoding,
        out: &mut Vec<u8>,
        end: &mut usize,
    ) -> postcard::Result<()> {
        encode_short_entry(out, end, key, &self.0)
    }

    #[inline]
    fn decode<K: StateKey, N: StateKey>(
        entry: u32,
        key: &[u8],
        value: &[u8],
    ) -> Result<(EntryKey<K, N>, V), LoadError> {
        let key = EntryKey::decode(key).map_err(|cause| LoadError::Key { entry, cause })?;
        Ok((key, decode_value(entry, value)?))
    }

    #[inline]
    fn from_part(part: V) -> Self {
        Single(part)
    }

    fn add_part(&mut self, _part: V) -> bool {
        false
    }
}
