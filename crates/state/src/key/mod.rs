//! Keys: which bytes stand for a key, on every platform and for ever.
//!
//! Routing, key groups and state files all rest on the *canonical encoding* of a key, never on
//! `std::hash::Hash`, whose result may change with the compiler. The encoding is part of the file
//! format:
//!
//! | Type | Bytes |
//! |---|---|
//! | `u8` … `u128`, `i8` … `i128` | fixed width, little endian |
//! | `usize`, `isize` | as `u64`, `i64` |
//! | `bool` | 1 byte, 0 or 1 |
//! | `char` | its scalar value as `u32` |
//! | `()` | nothing |
//! | `[u8; N]` | the N bytes |
//! | `String`, `CompactString`, `Vec<u8>` as the whole key | the bytes alone |
//! | the same inside another type | length as `u32`, then the bytes |
//! | `Option<T>` | 1 byte 0; or 1 byte 1, then the value |
//! | tuples, structs | the fields in order |
//! | enums | the variant's position as `u32`, then its fields in order |
//!
//! Invariants: equal keys have equal encodings and unequal keys unequal ones (so `("a", "bc")` and
//! `("ab", "c")` differ); decoding accepts exactly what encoding produces; `key_hash` is always the
//! hash of the encoding. Floats are no keys: they have several zeros and NaNs.

mod borrowed;
mod fixed;
mod impls;
mod inline;
mod short;

use std::cell::Cell;

use tidegate_types::hash_bytes;

pub use borrowed::{BorrowedKey, HashedKey};
#[doc(hidden)]
pub use fixed::FixedEncoding;
pub(crate) use inline::{beginning_of, heap_bytes_of};

/// Bytes that are no encoding of the key type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The bytes end in the middle of a key.
    #[error("key ends `{missing}` bytes too early")]
    Truncated {
        /// How many more bytes were wanted.
        missing: usize,
    },
    /// Bytes are left over behind the key.
    #[error("key is followed by `{bytes}` bytes that don't belong to it")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// The type has no such value.
    #[error("`{value}` is no value of `{of}`")]
    Invalid {
        /// What was read.
        value: u64,
        /// What it should be a value of.
        of: &'static str,
    },
    /// A string isn't valid UTF-8.
    #[error("string in a key is not valid UTF-8")]
    Utf8,
}

/// A type by which a stream can be keyed.
///
/// Derive it for structs and enums (`#[derive(StateKey)]`); see the [module](self) for the
/// encoding. Reordering, adding or removing fields or variants makes another key type, whose state
/// files don't fit; a restore tells by [`schema`](Self::schema).
pub trait StateKey: Clone + Eq + Send + Sync + 'static {
    /// Appends the [schema](crate::schema) of the encoding, by which a restore recognises another
    /// key type, and a tool without the type reads the keys: `u64`, `(string,u32)`,
    /// `{shop:u32,day:u16}`. It has to be a single shape, without definitions.
    fn schema(out: &mut String);

    /// Appends the encoding that is used inside other types. It delimits itself.
    fn encode_element(&self, out: &mut Vec<u8>);

    /// Reads one encoded element and moves `input` behind it.
    ///
    /// # Errors
    /// [`KeyError`] if the bytes don't start with an encoding of this type.
    fn decode_element(input: &mut &[u8]) -> Result<Self, KeyError>;

    /// Appends the canonical encoding of a whole key.
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.encode_element(out);
    }

    /// Reads a whole key.
    ///
    /// # Errors
    /// [`KeyError`] if `bytes` isn't exactly the canonical encoding of a key.
    #[inline]
    fn decode(mut bytes: &[u8]) -> Result<Self, KeyError> {
        let key = Self::decode_element(&mut bytes)?;
        if !bytes.is_empty() {
            return Err(KeyError::Trailing { bytes: bytes.len() });
        }
        Ok(key)
    }

    /// Whether both are the same key, as `==` says; an override may be faster. What finds a key in
    /// a table.
    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    /// The encoding, whole or within another type, if all keys of this type have equally many bytes
    /// and no more than fit: a faster way to the bytes of [`encode`](Self::encode). An override
    /// must give the same, and always or never.
    #[doc(hidden)]
    #[inline]
    fn fixed_encoding(&self) -> Option<FixedEncoding> {
        None
    }

    /// Hash of the canonical encoding, from which the key group follows. An override must give the
    /// same result.
    #[inline]
    fn key_hash(&self) -> u64 {
        with_scratch(|scratch| {
            self.encode(scratch);
            hash_bytes(scratch)
        })
    }

    /// [Hashes](Self::key_hash) of the keys of many records, as many as there are places for them.
    /// An override must give the same results.
    #[doc(hidden)]
    #[inline]
    fn key_hashes<'a, T>(records: &'a [T], key_of: impl Fn(&'a T) -> &'a Self, hashes: &mut [u64]) {
        for (hash, record) in hashes.iter_mut().zip(records) {
            *hash = key_of(record).key_hash();
        }
    }
}

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `body` with an empty buffer that is reused by the thread. The buffer is taken out
/// meanwhile, so a nested call merely allocates.
fn with_scratch<R>(body: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    SCRATCH.with(|cell| {
        let mut scratch = cell.take();
        scratch.clear();
        let result = body(&mut scratch);
        cell.set(scratch);
        result
    })
}

/// The schema of a key type as a string.
pub(crate) fn schema_of<K: StateKey>() -> String {
    let mut schema = String::new();
    K::schema(&mut schema);
    schema
}

/// Takes `count` bytes off the front of `input`.
#[inline]
fn take<'a>(input: &mut &'a [u8], count: usize) -> Result<&'a [u8], KeyError> {
    let (head, tail) = input.split_at_checked(count).ok_or(KeyError::Truncated {
        missing: count.saturating_sub(input.len()),
    })?;
    *input = tail;
    Ok(head)
}
