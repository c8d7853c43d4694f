//! Texts as records: in one piece of memory per batch, dealt out by hash, counted.

use std::hint::black_box;
use std::ops::Range;

use tidegate_types::hash_bytes;

use super::flow::{Consume, Produce, Tally};
use super::numbers::owner;
use super::parcel::Batch;
use super::text_table::TextCounts;
use crate::generate::text::write_key;

/// Keys that are generated in one step.
const STEP: u64 = 128;

/// Texts one behind another, and where each ends.
#[derive(Default)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    pub(super) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts
            .zip(&self.ends)
            .map(|(&start, &end)| &self.bytes[start..end])
    }
}

impl Batch for Texts {
    /// From 4096 on 50.3, 49.0, 50.2 ns per key; 39.4, 35.5, 34.9 per word, in half the memory.
    const RECORDS: usize = 16384;

    fn with_capacity(records: usize) -> Self {
        Texts {
            bytes: Vec::with_capacity(records * 16),
            ends: Vec::with_capacity(records + STEP as usize),
        }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Appends a text to the batch of its owner.
#[inline]
pub(super) fn deal(text: &[u8], open: &mut [Texts]) {
    let owner = match open.len() {
        1 => 0,
        peers => owner(hash_bytes(text), peers),
    };
    open[owner].push(text);
}

/// Generates keys and deals them out.
pub(super) struct Keyed {
    range: Range<u64>,
    keys: u64,
    text: String,
}

impl Keyed {
    pub(super) fn new(range: Range<u64>, keys: u64) -> Self {
        let text = String::new();
        Keyed { range, keys, text }
    }
}

impl Produce for Keyed {
    type Batch = Texts;

    fn produce(&mut self, open: &mut [Texts]) -> bool {
        let end = self.range.end.min(self.range.start + STEP);
        for index in self.range.start..end {
            self.text.clear();
            write_key(index, self.keys, &mut self.text);
            deal(self.text.as_bytes(), open);
        }
        self.range.start = end;
        !self.range.is_empty()
    }
}

/// Counts texts; for each record, the text and its count so far.
pub(super) struct Counted {
    counts: TextCounts,
    out: Vec<u64>,
}

impl Counted {
    /// With room for so many keys.
    pub(super) fn new(keys: u64) -> Self {
        Counted {
            counts: TextCounts::with_room_for(keys as usize),
            out: Vec::new(),
        }
    }
}

impl Consume<Texts> for Counted {
    fn consume(&mut self, batch: &Texts) {
        self.counts.add(batch, &mut self.out);
        // The texts themselves need not be written again: they go with their counts.
        black_box((
            batch.bytes.as_slice(),
            batch.ends.as_slice(),
            self.out.as_slice(),
        ));
        self.out.clear();
    }

    fn tally(&self) -> Tally {
        self.counts.tally()
    }
}
