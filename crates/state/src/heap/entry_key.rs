//! What a table finds its entries by: the stream's key and a namespace.
//!
//! The key group follows from the key's hash alone; the position in the group's table from the
//! hashes of both. In a file, the key part of an entry is the canonical encoding of the key as long
//! as there is nothing else; otherwise key, namespace and whatever a kind of state adds follow each
//! other as elements, which delimit themselves, so no two of them ever have the same bytes.

use std::any::TypeId;

use crate::key::{BorrowedKey, FixedEncoding, KeyError, StateKey, schema_of};
use crate::scope::Scope;

/// The key of an entry. As large as `K` where there is no namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryKey<K, N> {
    pub(super) key: K,
    pub(super) namespace: N,
}

/// Whether `N` is more than the absence of namespaces. Known to the compiler.
#[inline]
pub(super) fn has_namespace<N: 'static>() -> bool {
    TypeId::of::<N>() != TypeId::of::<()>()
}

/// Schema of a state's namespaces as files have it: empty if there are none.
pub(super) fn namespace_schema<N: StateKey>() -> String {
    match has_namespace::<N>() {
        true => schema_of::<N>(),
        false => String::new(),
    }
}

/// Combines the hashes of key and namespace. Where there are no namespaces it is that of the key.
#[inline]
pub(super) fn scope_hash<N: StateKey>(key_hash: u64, namespace: &N) -> u64 {
    if !has_namespace::<N>() {
        return key_hash;
    }
    // The product keeps a key that equals its namespace from cancelling itself out.
    let namespace = namespace.key_hash().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key_hash.wrapping_add(namespace)
}

/// Spreads the hash of key and namespace over a table. The table takes its position from the low
/// bits and its tags from the top seven, which are the same for all keys of a key group; so the low
/// half is folded onto the top, which leaves the low bits as they are.
#[inline]
pub(super) fn table_hash<N: StateKey>(key_hash: u64, namespace: &N) -> u64 {
    let hash = scope_hash(key_hash, namespace);
    hash ^ (hash << 32)
}

impl<K: StateKey, N: StateKey> EntryKey<K, N> {
    #[inline]
    pub(super) fn table_hash(&self) -> u64 {
        table_hash(self.key.key_hash(), &self.namespace)
    }

    /// What [`encode`](Self::encode) appends, if it is short and always as long.
    #[inline]
    pub(super) fn fixed_encoding(&self) -> Option<FixedEncoding> {
        let key = self.key.fixed_encoding()?;
        match has_namespace::<N>() {
            true => key.then(self.namespace.fixed_encoding()?),
            false => Some(key),
        }
    }

    /// Appends the key part of an entry that has nothing but key and namespace.
    #[inline]
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match has_namespace::<N>() {
            true => self.encode_element(out),
            false => self.key.encode(out),
        }
    }

    /// Appends the beginning of the key part of an entry that has more.
    #[inline]
    pub(super) fn encode_element(&self, out: &mut Vec<u8>) {
        self.key.encode_element(out);
        self.namespace.encode_element(out);
    }

    /// Reads what [`encode`](Self::encode) appends.
    #[inline]
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, KeyError> {
        if has_namespace::<N>() {
            let (key, namespace) = <(K, N)>::decode(bytes)?;
            return Ok(EntryKey { key, namespace });
        }
        let key = K::decode(bytes)?;
        let namespace = N::decode_element(&mut &[][..])?;
        Ok(EntryKey { key, namespace })
    }

    /// Reads what [`encode_element`](Self::encode_element) appends, and moves `input` behind it.
    pub(super) fn decode_element(input: &mut &[u8]) -> Result<Self, KeyError> {
        let (key, namespace) = <(K, N)>::decode_element(input)?;
        Ok(EntryKey { key, namespace })
    }

    /// What finds this entry.
    #[inline]
    pub(super) fn lookup(&self) -> Lookup<'_, K, N> {
        Lookup {
            hash: self.key.key_hash(),
            key: &self.key,
            namespace: &self.namespace,
        }
    }
}

/// Finds an entry by a borrowed form of its key.
pub(super) struct Lookup<'a, Q: ?Sized, N> {
    /// Hash of the key, which routing has computed already.
    pub(super) hash: u64,
    key: &'a Q,
    pub(super) namespace: &'a N,
}

impl<Q: ?Sized, N> Clone for Lookup<'_, Q, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: ?Sized, N> Copy for Lookup<'_, Q, N> {}

impl<'a, Q: ?Sized> Lookup<'a, Q, ()> {
    /// What has no namespace.
    #[inline]
    pub(super) fn key<K: StateKey>(hash: u64, key: &'a Q) -> Self
    where
        Q: BorrowedKey<K>,
    {
        debug_assert_eq!(hash, key.hash_key(), "the hash is that of the key");
        Lookup {
            hash,
            key,
            namespace: &(),
        }
    }
}

impl<'a, Q: ?Sized, N> Lookup<'a, Q, N> {
    /// What a scope means.
    #[inline]
    pub(super) fn scope<K: StateKey, S: Scope<K, N, Key = Q>>(scope: &'a S) -> Self
    where
        Q: BorrowedKey<K>,
    {
        let (hash, key) = (scope.key_hash(), scope.key());
        debug_assert_eq!(hash, key.hash_key(), "the hash is that of the key");
        Lookup {
            hash,
            key,
            namespace: scope.namespace(),
        }
    }

    /// The same key in another namespace.
    pub(super) fn within<'b>(self, namespace: &'b N) -> Lookup<'b, Q, N>
    where
        'a: 'b,
    {
        Lookup {
            hash: self.hash,
            key: self.key,
            namespace,
        }
    }

    #[inline]
    pub(super) fn table_hash(&self) -> u64
    where
        N: StateKey,
    {
        table_hash(self.hash, self.namespace)
    }

    #[inline]
    pub(super) fn is<K: StateKey>(&self, entry: &EntryKey<K, N>) -> bool
    where
        Q: BorrowedKey<K>,
        N: Eq,
    {
        self.key.is_key(&entry.key) && *self.namespace == entry.namespace
    }

    #[inline]
    pub(super) fn to_entry_key<K: StateKey>(self) -> EntryKey<K, N>
    where
        Q: BorrowedKey<K>,
        N: Clone,
    {
        EntryKey {
            key: self.key.to_key(),
            namespace: self.namespace.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded<K: StateKey, N: StateKey>(key: &EntryKey<K, N>) -> Vec<u8> {
        let mut bytes = Vec::new();
        key.encode(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn short_keys_are_encoded_alike(key: u64, namespace: u32) {
            let within = EntryKey { key, namespace };
            let fixed = within.fixed_encoding().unwrap();
            prop_assert_eq!(&fixed.padded()[..fixed.width()], encoded(&within));
            let alone = EntryKey { key, namespace: () };
            let fixed = alone.fixed_encoding().unwrap();
            prop_assert_eq!(&fixed.padded()[..fixed.width()], encoded(&alone));
        }
    }

    #[test]
    fn a_namespace_may_be_too_much_or_of_any_length() {
        let (key, namespace) = (1u128, 2u8);
        assert_eq!(EntryKey { key, namespace }.fixed_encoding(), None);
        let (key, namespace) = (1u8, "2".to_owned());
        assert_eq!(EntryKey { key, namespace }.fixed_encoding(), None);
    }
}
