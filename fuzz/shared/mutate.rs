//! Damages valid bytes in the ways that storage, transfer and forgers do: flips, truncations,
//! swaps, splices, and lengths that lie. The same seed gives the same damage.

#![allow(dead_code)] // not everybody who includes this file uses all of it

/// Values that lengths, counts and tags are overwritten with.
const NUMBERS: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 33,
    1 << 40,
    u64::MAX >> 1,
    u64::MAX,
];

/// A source of damage.
pub(crate) struct Mutator {
    state: u64,
}

impl Mutator {
    pub(crate) fn new(seed: u64) -> Self {
        Mutator { state: seed }
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.state;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }

    /// A number below `bound`, which isn't 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.random() % bound as u64) as usize
    }

    /// A range within `bytes`, of up to 40 of them.
    fn range(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        let length = self.below(41).min(bytes.len() - start);
        start..start + length
    }

    /// `valid` with one to three things changed; `other` is what is spliced into it.
    pub(crate) fn damaged(&mut self, valid: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = valid.to_vec();
        for _ in 0..=self.below(3) {
            self.damage(&mut bytes, other);
        }
        bytes
    }

    fn damage(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let range = self.range(bytes);
        match self.below(9) {
            0 | 1 => self.flip(bytes),
            2 | 3 => self.overwrite_number(bytes),
            4 => bytes.truncate(range.start),
            5 => drop(bytes.drain(range)),
            6 => {
                let copy = bytes[range.clone()].to_vec();
                bytes.splice(range.end..range.end, copy);
            }
            7 => {
                let part = other[self.range(other)].to_vec();
                bytes.splice(range, part);
            }
            _ => {
                let length = range.len();
                let to = self.below(bytes.len() - length + 1);
                let (from_bytes, to_bytes) = (bytes[range.clone()].to_vec(), to..to + length);
                let swapped = bytes[to_bytes.clone()].to_vec();
                bytes[to_bytes].copy_from_slice(&from_bytes);
                bytes[range].copy_from_slice(&swapped);
            }
        }
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        if !bytes.is_empty() {
            let at = self.below(bytes.len());
            bytes[at] ^= 1 << self.below(8);
        }
    }

    /// Writes a number of 1, 2, 4 or 8 bytes over what is there.
    fn overwrite_number(&mut self, bytes: &mut [u8]) {
        let number = NUMBERS[self.below(NUMBERS.len())].to_le_bytes();
        let width = 1 << self.below(4);
        if bytes.len() >= width {
            let at = self.below(bytes.len() - width + 1);
            bytes[at..at + width].copy_from_slice(&number[..width]);
        }
    }
}
