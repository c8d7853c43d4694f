//! A bound state as the backend sees it: whatever its value type.

use std::any::Any;

use tidegate_types::KeyGroup;

use super::link::{SnapshotLink, SnapshotTicket};
use super::shards::LoadRefusal;
use super::snapshot::SnapshotProgress;
use super::table::ValueState;
use crate::descriptor::StateValue;
use crate::error::LoadError;
use crate::format::Entries;
use crate::key::StateKey;

/// What the backend does with each of its bound states. Never called per record.
pub(super) trait BoundState {
    fn as_any(&self) -> &dyn Any;
    fn len(&self) -> usize;
    fn pending(&self) -> usize;
    fn begin_snapshot(&self, link: SnapshotLink, state: u32);
    fn advance(&self, budget: &mut usize, throttle: bool) -> SnapshotProgress;
    fn cancel(&self, ticket: SnapshotTicket);
    /// Adds the entries of one chunk.
    fn load(&self, group: KeyGroup, entries: u32, payload: &[u8]) -> Result<(), LoadError>;
}

impl<K: StateKey, V: StateValue> BoundState for ValueState<K, V> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn len(&self) -> usize {
        self.borrow().len()
    }

    fn pending(&self) -> usize {
        self.borrow().shards.pending.len()
    }

    fn begin_snapshot(&self, link: SnapshotLink, state: u32) {
        self.borrow_mut().shards.begin_snapshot(link, state);
    }

    fn advance(&self, budget: &mut usize, throttle: bool) -> SnapshotProgress {
        self.borrow_mut().shards.advance(budget, throttle)
    }

    fn cancel(&self, ticket: SnapshotTicket) {
        self.borrow_mut().shards.cancel(ticket);
    }

    fn load(&self, group: KeyGroup, entries: u32, payload: &[u8]) -> Result<(), LoadError> {
        let shards = &mut self.borrow_mut().shards;
        // A corrupt count must not reserve more than the payload can hold: 2 bytes per entry.
        shards.reserve(group, (entries as usize).min(payload.len() / 2));
        for read in Entries::new(payload, entries) {
            let (entry, key, value) = read?;
            let key = K::decode(key).map_err(|cause| LoadError::Key { entry, cause })?;
            let value = decode_value(value, entry)?;
            shards
                .load(group, key, value)
                .map_err(|refusal| match refusal {
                    LoadRefusal::Belongs(belongs) => LoadError::KeyGroup { entry, belongs },
                    LoadRefusal::Duplicate => LoadError::Duplicate { entry },
                })?;
        }
        Ok(())
    }
}

fn decode_value<V: StateValue>(bytes: &[u8], entry: u32) -> Result<V, LoadError> {
    let (value, rest) =
        postcard::take_from_bytes(bytes).map_err(|cause| LoadError::Value { entry, cause })?;
    if !rest.is_empty() {
        return Err(LoadError::TrailingValue {
            entry,
            bytes: rest.len(),
        });
    }
    Ok(value)
}
