//! What the handles of all kinds of state have in common.

use tidegate_types::KeyGroup;

use super::bound::Table;
use super::content::Content;
use super::entry_key::EntryKey;
use super::shards::Shards;
use crate::key::StateKey;

impl<K: 'static, C: 'static, N: 'static> Table<K, C, N> for Shards<K, C, N> {
    fn shards(&self) -> &Shards<K, C, N> {
        self
    }

    fn shards_mut(&mut self) -> &mut Shards<K, C, N> {
        self
    }
}

/// Keys of one key group that have something in a namespace.
pub(super) fn keys_of_group<K: StateKey, C: Content, N: StateKey>(
    table: &impl Table<K, C, N>,
    key_group: KeyGroup,
    namespace: &N,
) -> Vec<K> {
    let shards = table.shards();
    let shard = &shards.shards[usize::from(key_group.0 - shards.key_groups.start)];
    let entries = shard.entries.iter();
    entries
        .filter(|(at, _)| at.namespace == *namespace)
        .map(|(EntryKey { key, .. }, _)| key.clone())
        .collect()
}

/// Accessors that don't depend on the kind of state, for a handle with a field `table`.
macro_rules! common_accessors {
    () => {
        /// Whether there is anything.
        ///
        /// # Errors
        /// If the backend fails to read.
        #[inline]
        pub fn contains(&self, scope: &impl Scope<K, N>) -> Result<bool, StateError> {
            let table = self.table.borrow();
            Ok(table.shards().get(Lookup::scope(scope)).is_some())
        }

        /// Removes what there is; no later snapshot has it.
        ///
        /// # Errors
        /// If the backend fails to write.
        #[inline]
        pub fn clear(&self, scope: &impl Scope<K, N>) -> Result<(), StateError> {
            let mut table = self.table.borrow_mut();
            table.shards_mut().remove(Lookup::scope(scope));
            Ok(())
        }

        /// Number of keys (or keys and namespaces) that have anything. Exact.
        pub fn entries_total(&self) -> usize {
            self.table.borrow().shards().len
        }

        /// The keys that have anything in `namespace`, by key group, in no order within one. Looks
        /// at every entry of the state.
        ///
        /// # Errors
        /// If the backend fails to read.
        pub fn keys(&self, namespace: &N) -> Result<Vec<K>, StateError> {
            let table = self.table.borrow();
            let groups = table.shards().key_groups.iter();
            let keys = groups.flat_map(|group| keys_of_group(&*table, group, namespace));
            Ok(keys.collect())
        }

        /// Visits every key that has anything in `namespace`. The visitor may change the state as
        /// it likes: what it removes is not visited any more, what it adds may be.
        ///
        /// # Errors
        /// The first error of the visitor, or if the backend fails to read.
        pub fn for_each_key<E: From<StateError>>(
            &self,
            namespace: &N,
            mut visit: impl FnMut(At<'_, K, N>) -> Result<(), E>,
        ) -> Result<(), E> {
            let groups = self.table.borrow().shards().key_groups;
            for group in groups.iter() {
                let keys = keys_of_group(&*self.table.borrow(), group, namespace);
                for key in &keys {
                    let at = At::key(key).within(namespace);
                    if self.contains(&at)? {
                        visit(at)?;
                    }
                }
            }
            Ok(())
        }
    };
}

pub(super) use common_accessors;
