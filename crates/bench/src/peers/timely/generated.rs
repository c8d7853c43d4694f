//! Sources of generated records.

use std::ops::Range;
use std::sync::Arc;

use super::flow::Produce;
use super::records::{Key, Records, deal};
use crate::generate::{self, text::of_key};
use crate::packed::PackedKey;

/// Records that are generated in one step.
const STEP: usize = 512;

/// Takes the next step's indexes out of `range`.
fn step(range: &mut Range<u64>) -> Range<u64> {
    let end = range.end.min(range.start + STEP as u64);
    let indexes = range.start..end;
    range.start = end;
    indexes
}

/// Generates numbers for the worker itself.
pub(super) struct Mixed(Range<u64>);

impl Mixed {
    pub(super) fn new(range: Range<u64>) -> Self {
        Mixed(range)
    }
}

impl Produce for Mixed {
    type Batch = Records<u64>;

    fn produce(&mut self, open: &mut [Records<u64>]) -> bool {
        let indexes = step(&mut self.0);
        open[0].extend(
            (0..(indexes.end - indexes.start) as usize)
                .map(|at| generate::mix(indexes.start + at as u64)),
        );
        !self.0.is_empty()
    }
}

/// Generates keys and deals them out.
pub(super) struct Keyed<F> {
    range: Range<u64>,
    record: F,
}

/// Numbers, of which so many are different.
pub(super) fn numbers(range: Range<u64>, keys: u64) -> Keyed<impl Fn(u64) -> u64> {
    let record = move |index| generate::key(index, keys);
    Keyed { range, record }
}

/// The texts of all keys.
pub(super) fn texts_of(keys: u64) -> Arc<[PackedKey]> {
    (0..keys).map(|key| PackedKey::new(&of_key(key))).collect()
}

/// Copies of texts.
pub(super) fn texts(
    range: Range<u64>,
    texts: Arc<[PackedKey]>,
) -> Keyed<impl Fn(u64) -> PackedKey> {
    let record = move |index| texts[generate::key(index, texts.len() as u64) as usize];
    Keyed { range, record }
}

impl<K: Key, F: Fn(u64) -> K + 'static> Produce for Keyed<F> {
    type Batch = Records<K>;

    fn produce(&mut self, open: &mut [Records<K>]) -> bool {
        let indexes = step(&mut self.range);
        let mut keys = [K::default(); STEP];
        let count = (indexes.end - indexes.start) as usize;
        for (slot, index) in keys.iter_mut().zip(indexes) {
            *slot = (self.record)(index);
        }
        deal(&keys[..count], open);
        !self.range.is_empty()
    }
}
