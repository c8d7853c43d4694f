//! Which entry of a state is meant: a key and, where a state has one, a namespace.
//!
//! Each access to a state takes a scope. Operators hand one out for the record at hand, so that the
//! key's hash, which routing has computed, is not computed again.

use crate::key::{BorrowedKey, HashedKey, StateKey};

/// A key and a namespace within it. States without namespaces have the namespace `()`.
///
/// A namespace separates what a key has several of, such as windows. It is any [`StateKey`]; the
/// key group follows from the key alone, so all of a key's namespaces stay together.
pub trait Scope<K: StateKey, N = ()> {
    /// The form in which the key is at hand, such as `str` for a key of type `String`.
    type Key: BorrowedKey<K> + ?Sized;

    /// The key.
    fn key(&self) -> &Self::Key;

    /// Its hash: [`HashedKey::hash_key`] of [`key`](Self::key).
    fn key_hash(&self) -> u64;

    /// The namespace.
    fn namespace(&self) -> &N;
}

/// A scope made by hand.
///
/// ```
/// use tidegate_state::{At, HeapKeyedBackend, ValueStateDescriptor};
/// use tidegate_types::MaxParallelism;
///
/// let max = MaxParallelism::derive(1);
/// let mut backend = HeapKeyedBackend::<String>::new(max, max.range(0, 1)?);
/// let state = backend.bind_within::<u32, _>(&ValueStateDescriptor::<u64>::new("sum"))?;
/// state.set(&At::key("shop").within(&2024), 10)?;
/// assert_eq!(state.get(&At::key("shop").within(&2024))?, Some(10));
/// assert_eq!(state.get(&At::key("shop").within(&2025))?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct At<'a, Q: ?Sized, N = ()> {
    hash: u64,
    key: &'a Q,
    namespace: &'a N,
}

impl<Q: ?Sized, N> Clone for At<'_, Q, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: ?Sized, N> Copy for At<'_, Q, N> {}

impl<'a, Q: ?Sized> At<'a, Q> {
    /// Everything of `key` that has no namespace.
    #[inline]
    pub fn key(key: &'a Q) -> Self
    where
        Q: HashedKey,
    {
        At::hashed(key.hash_key(), key)
    }

    /// The same for a key whose hash is known already.
    #[inline]
    pub fn hashed(hash: u64, key: &'a Q) -> Self {
        At {
            hash,
            key,
            namespace: &(),
        }
    }
}

impl<'a, Q: ?Sized, N> At<'a, Q, N> {
    /// The same key in another namespace.
    #[inline]
    pub fn within<M>(self, namespace: &'a M) -> At<'a, Q, M> {
        At {
            hash: self.hash,
            key: self.key,
            namespace,
        }
    }
}

impl<K: StateKey, Q: BorrowedKey<K> + ?Sized, N> Scope<K, N> for At<'_, Q, N> {
    type Key = Q;

    #[inline]
    fn key(&self) -> &Q {
        self.key
    }

    #[inline]
    fn key_hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    fn namespace(&self) -> &N {
        self.namespace
    }
}
