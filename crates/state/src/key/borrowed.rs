//! Looking a key up by a borrowed form of it, so that a key becomes owned only when state keeps it.

use tidegate_types::hash_bytes;

use super::StateKey;

/// A form in which a key of type `K` can be looked up: the key itself, `str` for `String`, `[u8]`
/// for `Vec<u8>`.
pub trait BorrowedKey<K: StateKey> {
    /// The same as [`StateKey::key_hash`] of the owned key.
    fn hash_key(&self) -> u64;

    /// Whether this is the same key as `key`.
    fn is_key(&self, key: &K) -> bool;

    /// Makes the owned key.
    fn to_key(&self) -> K;
}

impl<K: StateKey> BorrowedKey<K> for K {
    #[inline]
    fn hash_key(&self) -> u64 {
        self.key_hash()
    }

    #[inline]
    fn is_key(&self, key: &K) -> bool {
        self == key
    }

    #[inline]
    fn to_key(&self) -> K {
        self.clone()
    }
}

impl BorrowedKey<String> for str {
    #[inline]
    fn hash_key(&self) -> u64 {
        hash_bytes(self.as_bytes())
    }

    #[inline]
    fn is_key(&self, key: &String) -> bool {
        self == key
    }

    #[inline]
    fn to_key(&self) -> String {
        self.to_owned()
    }
}

impl BorrowedKey<Vec<u8>> for [u8] {
    #[inline]
    fn hash_key(&self) -> u64 {
        hash_bytes(self)
    }

    #[inline]
    fn is_key(&self, key: &Vec<u8>) -> bool {
        self == key
    }

    #[inline]
    fn to_key(&self) -> Vec<u8> {
        self.to_owned()
    }
}
