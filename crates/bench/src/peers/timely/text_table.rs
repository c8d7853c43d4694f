//! Counts by text, in a flat table with open addressing, the texts in one piece of memory.
//!
//! As [`super::table`], but an entry has the hash and where the text is. Entries are asked for
//! ahead, and then the texts that they point to.
//!
//! Invariant: at most half of the entries are taken, so every search ends.

use tidegate_types::hash_bytes;

use super::flow::Tally;
use super::parcel::Batch;
use super::texts::Texts;
use crate::peers::prefetch::prefetch;

/// Texts whose entries are on their way from memory at a time.
const AHEAD: usize = 32;

/// Tables of fewer entries lie in the second-level cache.
const AHEAD_FROM: usize = 1 << 14;

#[derive(Clone, Copy, Default)]
struct Entry {
    hash: u64,
    /// 0 if there is no text.
    count: u64,
    start: usize,
    len: usize,
}

/// Counts by text.
pub(super) struct TextCounts {
    /// A power of two.
    entries: Vec<Entry>,
    texts: Vec<u8>,
    used: usize,
}

impl TextCounts {
    pub(super) fn with_room_for(keys: usize) -> Self {
        let len = (keys.max(8) * 2).next_power_of_two();
        TextCounts {
            entries: vec![Entry::default(); len],
            texts: Vec::new(),
            used: 0,
        }
    }

    /// Counts each text and appends its count so far to `out`.
    pub(super) fn add(&mut self, batch: &Texts, out: &mut Vec<u64>) {
        out.reserve(batch.len());
        if self.entries.len() < AHEAD_FROM {
            out.extend(
                batch
                    .iter()
                    .map(|text| self.add_one(text, hash_bytes(text))),
            );
            return;
        }
        let mut chunk: [(&[u8], u64); AHEAD] = [(&[], 0); AHEAD];
        let mut texts = batch.iter();
        loop {
            let mut filled = 0;
            for (slot, text) in chunk.iter_mut().zip(texts.by_ref()) {
                *slot = (text, hash_bytes(text));
                self.ask_for_entry(slot.1);
                filled += 1;
                if filled == AHEAD {
                    break;
                }
            }
            let chunk = &chunk[..filled];
            chunk.iter().for_each(|&(_, hash)| self.ask_for_text(hash));
            out.extend(chunk.iter().map(|&(text, hash)| self.add_one(text, hash)));
            if filled < AHEAD {
                return;
            }
        }
    }

    fn ask_for_entry(&self, hash: u64) {
        prefetch(&self.entries[hash as usize & (self.entries.len() - 1)]);
    }

    fn ask_for_text(&self, hash: u64) {
        let entry = &self.entries[hash as usize & (self.entries.len() - 1)];
        if let Some(first) = self.texts.get(entry.start) {
            prefetch(first);
        }
    }

    #[inline]
    fn add_one(&mut self, text: &[u8], hash: u64) -> u64 {
        let mask = self.entries.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let entry = &mut self.entries[at];
            if entry.count == 0 {
                *entry = Entry {
                    hash,
                    count: 1,
                    start: self.texts.len(),
                    len: text.len(),
                };
                self.texts.extend_from_slice(text);
                self.on_insert();
                return 1;
            }
            let (start, len) = (entry.start, entry.len);
            if entry.hash == hash && &self.texts[start..start + len] == text {
                entry.count += 1;
                return entry.count;
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn on_insert(&mut self) {
        self.used += 1;
        if self.used * 2 <= self.entries.len() {
            return;
        }
        let mask = self.entries.len() * 2 - 1;
        let mut larger = vec![Entry::default(); mask + 1];
        for entry in self.entries.iter().filter(|entry| entry.count > 0) {
            let mut at = entry.hash as usize & mask;
            while larger[at].count > 0 {
                at = (at + 1) & mask;
            }
            larger[at] = *entry;
        }
        self.entries = larger;
    }

    pub(super) fn tally(&self) -> Tally {
        Tally {
            distinct_keys: self.used as u64,
            sum_of_counts: self.entries.iter().map(|entry| entry.count).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::generate::text::write_key;

    #[test]
    fn it_counts_as_a_hash_map_does_also_while_it_grows() {
        for (room, keys) in [(8, 1_000), (20_000, 20_000), (10, 3)] {
            let mut counts = TextCounts::with_room_for(room);
            let mut expected: HashMap<Vec<u8>, u64> = HashMap::new();
            for first in (0..50_000).step_by(1_000) {
                let mut batch = Texts::default();
                for index in first..first + 1_000 {
                    let mut text = String::new();
                    write_key(index, keys, &mut text);
                    batch.push(text.as_bytes());
                }
                let mut out = Vec::new();
                counts.add(&batch, &mut out);
                let count = |text: &[u8]| {
                    let count = expected.entry(text.to_vec()).or_insert(0);
                    *count += 1;
                    *count
                };
                assert_eq!(out, batch.iter().map(count).collect::<Vec<_>>());
            }
            let tally = Tally {
                distinct_keys: expected.len() as u64,
                sum_of_counts: 50_000,
            };
            assert_eq!(counts.tally(), tally);
        }
    }
}
