//! Looking a key up by a borrowed form of it, so that a key becomes owned only when state keeps it.

use compact_str::CompactString;
use tidegate_types::hash_bytes;

use super::StateKey;
use super::short::same_bytes;

/// What hashes like a key: the key itself, or a borrowed form of it such as `str`, which may stand
/// for keys of several types.
pub trait HashedKey {
    /// The same as [`StateKey::key_hash`] of the owned key.
    fn hash_key(&self) -> u64;
}

impl<K: StateKey> HashedKey for K {
    #[inline]
    fn hash_key(&self) -> u64 {
        self.key_hash()
    }
}

impl HashedKey for str {
    #[inline]
    fn hash_key(&self) -> u64 {
        hash_bytes(self.as_bytes())
    }
}

impl HashedKey for [u8] {
    #[inline]
    fn hash_key(&self) -> u64 {
        hash_bytes(self)
    }
}

/// A form in which a key of type `K` can be looked up: the key itself, `str` for `String` and
/// [`CompactString`], `[u8]` for `Vec<u8>`.
pub trait BorrowedKey<K: StateKey>: HashedKey {
    /// Whether this is the same key as `key`.
    fn is_key(&self, key: &K) -> bool;

    /// Makes the owned key.
    fn to_key(&self) -> K;
}

impl<K: StateKey> BorrowedKey<K> for K {
    #[inline]
    fn is_key(&self, key: &K) -> bool {
        self.is_same(key)
    }

    #[inline]
    fn to_key(&self) -> K {
        self.clone()
    }
}

macro_rules! borrowed_strings {
    ($($type:ty),*) => {$(
        impl BorrowedKey<$type> for str {
            #[inline]
            fn is_key(&self, key: &$type) -> bool {
                same_bytes(self.as_bytes(), key.as_bytes())
            }

            #[inline]
            fn to_key(&self) -> $type {
                self.into()
            }
        }
    )*};
}

borrowed_strings!(String, CompactString);

impl BorrowedKey<Vec<u8>> for [u8] {
    #[inline]
    fn is_key(&self, key: &Vec<u8>) -> bool {
        self == key
    }

    #[inline]
    fn to_key(&self) -> Vec<u8> {
        self.to_owned()
    }
}
