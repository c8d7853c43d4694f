//! The words of texts, found 64 bytes at a time.
//!
//! To find a word byte by byte, the processor has to guess where it ends, and is wrong for nearly
//! every word. So the bytes that separate words are found first, 64 at a time, without a branch, as
//! bits of a number; where words begin and end are bits of two more. Most words take a few
//! instructions then, whatever their length. A word is handed out with what follows it, since that
//! makes it a [`CompactString`] without a look at its length.
//!
//! Invariant: words are those of [`str::split_ascii_whitespace`].

use std::ops::Deref;

use compact_str::CompactString;

use crate::key::beginning_of;

/// Bytes that are looked at together, as many as a number has bits.
const BLOCK: usize = 64;

/// The words of `text`: what lies between spaces, tabs, line feeds, form feeds and carriage
/// returns, as with [`str::split_ascii_whitespace`], and several times as fast if the text has a
/// few hundred bytes or more.
///
/// ```
/// use tidegate_state::{CompactString, text::words};
///
/// let found: Vec<CompactString> = words("to be, or\tnot\nto be").map(Into::into).collect();
/// assert_eq!(found, ["to", "be,", "or", "not", "to", "be"]);
/// ```
#[inline]
pub fn words(text: &str) -> Words<'_> {
    Words {
        text,
        next_block: 0,
        starts: 0,
        ends: 0,
        is_open: 0,
        open: 0,
    }
}

/// A word of a text. Derefs to it; [`CompactString::from`] copies it, and fast.
#[derive(Clone, Copy, Debug)]
pub struct Word<'a> {
    /// From the word to the end of the text.
    rest: &'a str,
    length: usize,
}

impl Word<'_> {
    /// The word.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.rest[..self.length]
    }
}

impl Deref for Word<'_> {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<Word<'_>> for CompactString {
    #[inline]
    fn from(word: Word<'_>) -> Self {
        beginning_of(word.rest, word.length)
    }
}

impl From<Word<'_>> for String {
    #[inline]
    fn from(word: Word<'_>) -> Self {
        word.as_str().to_owned()
    }
}

/// The words of a text, one after another; see [`words`].
#[derive(Clone, Debug)]
pub struct Words<'a> {
    text: &'a str,
    /// Where the block after this one begins.
    next_block: usize,
    /// First bytes of words in this block, and bytes behind the last ones; of words that were not
    /// handed out.
    starts: u64,
    ends: u64,
    /// 1 if the last byte of this block belongs to a word,
    is_open: u64,
    /// which begins here, if that was in an earlier block.
    open: usize,
}

impl Words<'_> {
    /// Goes on to the next block. Returns whether there is one: behind the last byte there is
    /// always another, if only for the end of a word.
    #[inline]
    fn advance(&mut self) -> bool {
        if self.starts != 0 {
            self.open = self.place(self.starts);
        }
        let Some(rest) = self.text.as_bytes().get(self.next_block..) else {
            return false;
        };
        let separators = match rest.first_chunk() {
            Some(block) => separators(block),
            None => separators_near_the_end(rest),
        };
        let follows_word = !separators << 1 | self.is_open;
        self.starts = !separators & !follows_word;
        self.ends = separators & follows_word;
        self.is_open = !separators >> (BLOCK - 1);
        self.next_block += BLOCK;
        true
    }

    /// Where the first of these bits of the block is in the text.
    #[inline(always)]
    fn place(&self, bits: u64) -> usize {
        self.next_block - BLOCK + bits.trailing_zeros() as usize
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Word<'a>> {
        while self.ends == 0 {
            if !self.advance() {
                return None;
            }
        }
        // The start that belongs to an end is before it, or in an earlier block.
        let is_here = self.starts.trailing_zeros() < self.ends.trailing_zeros();
        let start = match is_here {
            true => self.place(self.starts),
            false => self.open,
        };
        let end = self.place(self.ends);
        self.starts &= self.starts.wrapping_sub(u64::from(is_here));
        self.ends &= self.ends - 1;
        Some(Word {
            rest: &self.text[start..],
            length: end - start,
        })
    }
}

/// The bytes of a block that separate words, as bits.
#[inline]
fn separators(block: &[u8; BLOCK]) -> u64 {
    // In a loop of its own, which compilers make a few instructions for 16 bytes.
    let mut found = [0; BLOCK];
    for (found, byte) in found.iter_mut().zip(block) {
        *found = u8::from((*byte == b' ') | ((byte.wrapping_sub(b'\t') <= 4) & (*byte != 11)));
    }
    let (words, _) = found.as_chunks::<8>();
    let gathered = words.iter().enumerate().map(|(at, word)| {
        // Moves the lowest bits of all bytes to the highest byte.
        let bits = u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits << (8 * at)
    });
    gathered.fold(0, |bits, more| bits | more)
}

/// As for a block that goes on with spaces.
#[inline(never)]
fn separators_near_the_end(rest: &[u8]) -> u64 {
    let mut block = [b' '; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    separators(&block)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assert_same_words(text: &str) {
        let expected: Vec<&str> = text.split_ascii_whitespace().collect();
        let found: Vec<CompactString> = words(text).map(CompactString::from).collect();
        assert_eq!(found, expected, "{text:?}");
        let found: Vec<String> = words(text).map(String::from).collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn every_byte_separates_words_or_not() {
        for byte in 0..128_u8 {
            let text = format!("{}{}a", "x".repeat(70), char::from(byte));
            assert_same_words(&text);
        }
    }

    // Words and separators of all lengths across the bounds of blocks, and ends everywhere.
    #[test]
    fn words_are_whole_wherever_blocks_end() {
        for length in 1..140 {
            for gap in [1, 2, 63, 64, 65] {
                let text = format!("{}{}", "x".repeat(length), " ".repeat(gap)).repeat(3);
                for end in [0, 1, 63, 64, 65, 127, 128, 129, text.len()] {
                    let end = end.min(text.len());
                    assert_same_words(&text[..end]);
                    assert_same_words(&text[text.len() - end..]);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn words_are_those_of_the_standard_library(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    " ", "\t", "\n", "\u{b}", "\u{c}", "\r", "a", "of", "\u{e9}", "\u{a0}",
                    "\u{2003}", "\u{1f30a}", "twenty-four bytes in all",
                    "more than twenty-four bytes",
                ]),
                0..120,
            ),
        ) {
            assert_same_words(&parts.concat());
        }
    }
}
