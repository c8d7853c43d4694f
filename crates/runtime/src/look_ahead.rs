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

use tidegate_state::{LikelyPlace, Record};

use crate::batch::Batch;
use crate::error::BoxError;
use crate::output::Collector;

/// Records looked at ahead. Enough for the waits of all to be spent at the same time, and so few
/// that what was fetched for the last isn't displaced before its turn.
const LOOK_AHEAD: usize = 32;

/// The hash of a record's key and where its state is, if one has looked ahead.
pub(crate) type Ahead = Option<(u64, LikelyPlace)>;

/// An operator that works on records by their keys.
pub(crate) trait ByKey {
    /// What comes in.
    type In;
    /// What goes out.
    type Out;
    /// What is known of a record before it is taken.
    type Begun;

    /// Whether to look ahead. Asked once per batch.
    fn outgrows_cache(&self) -> bool;

    /// Hash of the record's key; any number if it has none.
    fn key_hash(&self, record: &Self::In) -> u64;

    /// Has the state of the keys with these hashes fetched, and tells where it is, as far as that
    /// is known.
    fn prefetch(&self, key_hashes: &[u64], places: &mut [LikelyPlace]);

    /// Begins to work on a record, while it still lies in its batch: does what needs no more than a
    /// look at it.
    fn begin(&mut self, record: &Self::In, ahead: Ahead) -> Self::Begun;

    /// Works on the record that has been begun last.
    ///
    /// # Errors
    /// As for [`Logic::process`](crate::Logic::process).
    fn work(
        &mut self,
        record: Self::In,
        begun: Self::Begun,
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
    match prefetches || input.key_hashes().is_some() {
        true => process_ahead(operator, input, out, prefetches),
        false => process_at_hand(operator, input, out),
    }
}

// A function of its own, and so is the other one: where all is one, the loops lack registers.
#[inline(never)]
fn process_at_hand<O: ByKey<Out: Record>>(
    operator: &mut O,
    input: &mut Batch<O::In>,
    out: &mut Collector<O::Out>,
) -> Result<(), BoxError> {
    while !out.is_full() {
        let Some(record) = input.next() else { break };
        let begun = operator.begin(&record, None);
        operator.work(record, begun, out)?;
    }
    Ok(())
}

#[inline(never)]
fn process_ahead<O: ByKey<Out: Record>>(
    operator: &mut O,
    input: &mut Batch<O::In>,
    out: &mut Collector<O::Out>,
    prefetches: bool,
) -> Result<(), BoxError> {
    let mut hashes = [0; LOOK_AHEAD];
    let mut places = [LikelyPlace::NOWHERE; LOOK_AHEAD];
    while !out.is_full() && input.len() > 0 {
        let count = input.len().min(LOOK_AHEAD);
        let (hashes, places) = (&mut hashes[..count], &mut places[..count]);
        find_hashes(operator, input, hashes);
        if prefetches {
            operator.prefetch(hashes, places);
        }
        for (hash, place) in hashes.iter().zip(&*places) {
            let Some(record) = input.as_slice().first() else {
                break;
            };
            let begun = operator.begin(record, Some((*hash, *place)));
            let Some(record) = input.next() else { break };
            operator.work(record, begun, out)?;
            if out.is_full() {
                break;
            }
        }
    }
    Ok(())
}

/// The hashes of the next records' keys, as many as there are places for them.
fn find_hashes<O: ByKey>(operator: &O, input: &Batch<O::In>, hashes: &mut [u64]) {
    match input.key_hashes() {
        Some(known) => hashes.copy_from_slice(&known[..hashes.len()]),
        None => {
            for (hash, record) in hashes.iter_mut().zip(input.as_slice()) {
                *hash = operator.key_hash(record);
            }
        }
    }
}
