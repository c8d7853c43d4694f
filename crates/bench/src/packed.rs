//! Texts packed into plain memory: copied, compared and hashed without a branch on their length.
//!
//! A text that fits is its bytes, and zeros behind them. One that doesn't, or ends in a zero,
//! stands as the number that it was given when it was first seen, and a last byte that no text
//! contains. So equal texts are equal memory, and different ones different memory.
//!
//! The program that runs jobs on renoir includes this file (`crates/bench/renoir`): nothing of the
//! rest of the suite is used here.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Last byte of a text that is elsewhere: in UTF-8 there is none such.
const ELSEWHERE: u64 = 0xff << 56;

/// The texts that are elsewhere, and their numbers.
static NUMBERS: Mutex<Option<HashMap<Box<str>, u64>>> = Mutex::new(None);

/// A text that is packed; `W` is an array of words of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Packed<W>(W);

/// Keys, if there are generated ones: they have at most 40 bytes.
pub(crate) type PackedKey = Packed<[u64; 5]>;
/// Words, which seldom have more than 16 bytes.
pub(crate) type PackedWord = Packed<[u64; 2]>;

impl<const WORDS: usize> Packed<[u64; WORDS]> {
    const BYTES: usize = 8 * WORDS;

    /// The first `length` bytes of `text`. It is fast if `text` goes on behind them.
    #[inline]
    pub(crate) fn beginning_of(text: &str, length: usize) -> Self {
        match text.as_bytes().get(..Self::BYTES) {
            Some(head) if Self::fits(text, length) => {
                let (bytes, _) = head.as_chunks::<8>();
                let mut words = [0; WORDS];
                for (at, (word, bytes)) in words.iter_mut().zip(bytes).enumerate() {
                    *word = first_bytes(*bytes, length.saturating_sub(8 * at));
                }
                Packed(words)
            }
            _ => Self::new(&text[..length]),
        }
    }

    /// A text.
    #[inline(never)]
    pub(crate) fn new(text: &str) -> Self {
        let mut words = [0; WORDS];
        if Self::fits(text, text.len()) {
            for (word, bytes) in words.iter_mut().zip(text.as_bytes().chunks(8)) {
                let mut padded = [0; 8];
                padded[..bytes.len()].copy_from_slice(bytes);
                *word = u64::from_le_bytes(padded);
            }
        } else {
            words[0] = number(text);
            words[WORDS - 1] |= ELSEWHERE;
        }
        Packed(words)
    }

    /// Multiplies each word into what the ones before have become (as wyhash does).
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.0
            .into_iter()
            .fold(0x9e37_79b9_7f4a_7c15, |hash, word| {
                let product = u128::from(hash ^ word) * 0xbf58_476d_1ce4_e5b9;
                (product >> 64) as u64 ^ product as u64
            })
    }

    /// Whether its bytes and zeros stand for the text of so many bytes.
    #[inline]
    fn fits(text: &str, length: usize) -> bool {
        length <= Self::BYTES && (length == 0 || text.as_bytes()[length - 1] != 0)
    }
}

/// The first `count` of eight bytes, and zeros behind them; all if there are more.
#[inline]
fn first_bytes(bytes: [u8; 8], count: usize) -> u64 {
    let others = 64 - 8 * count.min(8) as u32;
    // In two steps, since no number can be shifted by all its bits.
    let mask = (u64::MAX >> (others / 2)) >> (others - others / 2);
    u64::from_le_bytes(bytes) & mask
}

/// The number of a text that is elsewhere, the same each time.
fn number(text: &str) -> u64 {
    let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    let numbers = numbers.get_or_insert_default();
    if let Some(number) = numbers.get(text) {
        return *number;
    }
    let number = numbers.len() as u64;
    numbers.insert(text.into(), number);
    number
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    type Short = PackedWord;

    #[test]
    fn texts_are_equal_if_they_were_wherever_they_are_cut_out() {
        let all = "0123456789abcdefghij\0";
        let mut seen = HashSet::new();
        for length in 0..=all.len() {
            let text = Short::new(&all[..length]);
            assert!(seen.insert(text.0), "{length}");
            assert_eq!(Short::beginning_of(all, length), text, "{length}");
            for behind in ["", " ", "       and more"] {
                let longer = format!("{}{behind}", &all[..length]);
                assert_eq!(Short::beginning_of(&longer, length), text, "{length}");
                assert_eq!(Short::beginning_of(&longer, length).hash(), text.hash());
            }
        }
        for text in ["\0", "0\0", "0\0\0", "01234567\0", "0123456789abcde\0"] {
            assert!(seen.insert(Short::new(text).0), "{text:?}");
        }
    }

    #[test]
    fn hashes_of_short_texts_differ() {
        let texts = (0..100_000).map(|number: u64| Short::new(&number.to_string()).hash());
        let hashes: HashSet<u64> = texts.collect();
        assert_eq!(hashes.len(), 100_000);
        // Those of one subtask are spread over the table all the same.
        let low: HashSet<u64> = hashes.iter().map(|hash| hash & 0xffff).collect();
        assert!(low.len() > 45_000, "{}", low.len());
    }
}
