//! How keyed operators go through a batch: with a look at the records to come, if that pays.
//!
//! Once state has outgrown the cache, an access to it waits for memory. The keys of the next
//! records are known, so their hashes are computed ahead, the state is told them, and each record
//! is worked on with its hash at hand, while the state of the others is on its way.
//!
//! Where the hashes came along with the records, they are used in any case.
//!
//! Invariant: whether one looks ahead or not, records are worked on one by one, in order, and none
//! any more once the output is full. What was found out ahead of records that are then left alone
//! is forgotten.

#[cfg(test)]
mod tests;

use tidegate_state::Record;

use crate::batch::Batch;
use crate::error::BoxError;
use crate::output::Collector;

/// Records looked at ahead. Enough for the waits of all to be spent at the same time, and so few
/// that what was fetched for the last isn't displaced before its turn.
const LOOK_AHEAD: usize = 32;

/// An operator that works on records by their keys.
pub(crate) trait ByKey {
    /// What comes in.
    type In;
    /// What goes out.
    type Out;

    /// Whether to look ahead. Asked once per batch.
    fn outgrows_cache(&self) -> bool;

    /// Hash of the record's key; any number if it has none.
    fn key_hash(&self, record: &Self::In) -> u64;

    /// Has the state of the keys with these hashes fetched.
    fn prefetch(&self, key_hashes: &[u64]);

    /// Works on a record. `key_hash` is what [`ByKey::key_hash`] said of it, if that was asked.
    ///
    /// # Errors
    /// As for [`Logic::process`](crate::Logic::process).
    fn work(
        &mut self,
        record: Self::In,
        key_hash: Option<u64>,
        out: &mut Collector<Self::Out>,
    ) -> Result<(), BoxError>;
}

/// Works on records until there are none left, or the output is full.
///
/// # Errors
/// The first of `operator`.
#[inline]
pub(crate) fn process_by_key<O: ByKey<Out: Record>>(
    operator: &mut O,
    input: &mut Batch<O::In>,
    out: &mut Collector<O::Out>,
) -> Result<(), BoxError> {
    let prefetches = operator.outgrows_cache();
    if prefetches || input.key_hashes().is_some() {
        return process_ahead(operator, input, out, prefetches);
    }
    while !out.is_full() {
        let Some(record) = input.next() else { break };
        operator.work(record, None, out)?;
    }
    Ok(())
}

fn process_ahead<O: ByKey<Out: Record>>(
    operator: &mut O,
    input: &mut Batch<O::In>,
    out: &mut Collector<O::Out>,
    prefetches: bool,
) -> Result<(), BoxError> {
    let mut hashes = [0; LOOK_AHEAD];
    while !out.is_full() && input.len() > 0 {
        let records = input.as_slice();
        let hashes = &mut hashes[..records.len().min(LOOK_AHEAD)];
        if let Some(known) = input.key_hashes() {
            hashes.copy_from_slice(&known[..hashes.len()]);
        } else {
            for (hash, record) in hashes.iter_mut().zip(records) {
                *hash = operator.key_hash(record);
            }
        }
        if prefetches {
            operator.prefetch(hashes);
        }
        // In this order, so that no record is taken once the hashes have come to an end.
        for (hash, record) in hashes.iter().zip(&mut *input) {
            operator.work(record, Some(*hash), out)?;
            if out.is_full() {
                break;
            }
        }
    }
    Ok(())
}
