//! Small texts as what they are in memory: three words.
//!
//! A [`CompactString`] of up to 24 bytes lies where the value is. To look at its bytes, or to copy
//! them there, one has to look at the length first, and then go one of several ways; which one, the
//! processor guesses wrong for every other word of a language. Here nothing depends on the length.
//!
//! Two texts that are the same in memory are the same, whatever that memory means, and nearly all
//! keys that are found in a table are. And a text of which one knows that 24 bytes can be read from
//! its beginning on, as in the middle of a longer one, is these bytes without those behind its end.
//!
//! One of the two modules of the engine with `unsafe`: the type doesn't show its memory.
//! Invariants: what is found out by looking at memory is only ever that two texts are equal. Those
//! that are not the same in memory (one was cut off and has something behind its end, or owns its
//! bytes) are compared as texts. What is put together has the layout of the crate, which is held
//! against texts that the crate has made when this is compiled.

#![allow(unsafe_code)]

use compact_str::CompactString;

use super::short::same_bytes;

type Words = [usize; 3];

// Three words with nothing between them, as it is documented: "the same size as a `String`".
const _: () = assert!(size_of::<CompactString>() == size_of::<Words>());

/// What a text is in memory.
#[inline(always)]
fn words(text: &CompactString) -> Words {
    // SAFETY: the place is valid for reads of as many bytes as the text has (see above), and is
    // read without regard to alignment. Every byte of a text is initialised: it is an array of 24
    // bytes of which the last is written last, or two words (a pointer and a length) and a third
    // (the capacity, or a discriminant padded with zeros), neither with padding; `compact_str` 0.10
    // asserts their sizes, and a change of the version in `Cargo.toml` has to look again. Words
    // may have any bits; a pointer that is read as a number is never made a pointer again.
    unsafe { std::ptr::from_ref(text).cast::<Words>().read_unaligned() }
}

/// `left == right`.
#[inline(always)]
pub(super) fn same_text(left: &CompactString, right: &CompactString) -> bool {
    let (a, b) = (words(left), words(right));
    let difference = (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]);
    difference == 0 || same_bytes_of(left, right)
}

#[inline(never)]
fn same_bytes_of(left: &CompactString, right: &CompactString) -> bool {
    same_bytes(left.as_bytes(), right.as_bytes())
}

/// The bytes of a text that lie on the heap.
#[inline(always)]
pub(crate) fn heap_bytes_of(text: &CompactString) -> usize {
    // The length of one on the heap is its second word, and something else of any other: read in
    // any case, so that nobody has to guess where a text lies.
    let [_, length, _] = words(text);
    match text.is_heap_allocated() {
        true => length,
        false => 0,
    }
}

/// The first `length` bytes of `text`: fastest if it has 24 or more.
///
/// # Panics
/// If there are fewer, or they end within a character.
#[inline(always)]
pub(crate) fn beginning_of(text: &str, length: usize) -> CompactString {
    let beginning = &text[..length];
    match text.as_bytes().first_chunk() {
        #[cfg(target_pointer_width = "64")]
        Some(bytes) if length <= INLINE => {
            // SAFETY: the first `length` of these bytes are text, as a `str` is made of them above.
            unsafe { of_bytes(bytes, length) }
        }
        _ => made_by_the_crate(beginning),
    }
}

#[inline(never)]
fn made_by_the_crate(text: &str) -> CompactString {
    CompactString::from(text)
}

/// Bytes of a text that lies in the value.
const INLINE: usize = 24;

/// By length: the bits of three words that belong to a text, and what the last one has besides. The
/// last byte is the text's own, or there is room for 192 and the length.
static LAYOUTS: [([u64; 3], u64); INLINE + 1] = {
    let mut layouts = [([0; 3], 0); INLINE + 1];
    let mut length = 0;
    while length <= INLINE {
        let (words, rest) = &mut layouts[length];
        let mut at = 0;
        while at < length {
            words[at / 8] |= 0xff << (8 * (at % 8));
            at += 1;
        }
        if length < INLINE {
            *rest = (192 | length as u64) << 56;
        }
        length += 1;
    }
    layouts
};

/// A text of the first `length` bytes, at most all.
///
/// # Safety
/// They are UTF-8.
#[cfg(target_pointer_width = "64")]
#[inline(always)]
const unsafe fn of_bytes(bytes: &[u8; INLINE], length: usize) -> CompactString {
    let (mask, rest) = &LAYOUTS[length];
    let (words, _) = bytes.as_chunks::<8>();
    let first = u64::from_le_bytes(words[0]) & mask[0];
    let second = u64::from_le_bytes(words[1]) & mask[1];
    let third = u64::from_le_bytes(words[2]) & mask[2] | *rest;
    let memory = [
        first.to_le_bytes(),
        second.to_le_bytes(),
        third.to_le_bytes(),
    ];
    // SAFETY: this is what such a text is in memory. How the crate lays texts out is its own
    // business, so the result is held against texts that it has made, below: another layout doesn't
    // compile.
    unsafe { std::mem::transmute::<[[u8; 8]; 3], CompactString>(memory) }
}

/// What a text is in memory, byte by byte.
#[cfg(target_pointer_width = "64")]
const fn bytes_of(text: CompactString) -> [u8; INLINE] {
    // SAFETY: they are as many, and all initialised, see `words`.
    unsafe { std::mem::transmute::<CompactString, [u8; INLINE]>(text) }
}

/// Whether a text is the same in memory as when the crate makes it.
#[cfg(target_pointer_width = "64")]
const fn is_laid_out_alike(text: &'static str) -> bool {
    let mut bytes = [b'#'; INLINE];
    let (own, _) = bytes.split_at_mut(text.len());
    own.copy_from_slice(text.as_bytes());
    // SAFETY: as many bytes as `text` has are its own.
    let made = bytes_of(unsafe { of_bytes(&bytes, text.len()) });
    let expected = bytes_of(CompactString::const_new(text));
    let mut at = 0;
    while at < INLINE && made[at] == expected[at] {
        at += 1;
    }
    at == INLINE
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    let text = "of twenty-four bytes or ";
    let mut length = 0;
    while length <= INLINE {
        assert!(is_laid_out_alike(text.split_at(length).0));
        length += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_every_length_are_compared() {
        for length in 0..60_usize {
            let text = "x".repeat(length);
            let compact = CompactString::from(&text);
            assert!(same_text(&compact, &compact.clone()), "{length}");
            for at in 0..length {
                let mut other = text.clone();
                other.replace_range(at..=at, "y");
                assert!(!same_text(&compact, &other.into()), "byte {at} of {length}");
                assert!(!same_text(&compact, &text[..at].into()), "{at} of {length}");
            }
        }
    }

    #[test]
    fn what_lies_on_the_heap_is_the_length_of_what_does_not_fit() {
        for length in 0..60 {
            let text = CompactString::from("x".repeat(length));
            let expected = if length > INLINE { length } else { 0 };
            assert_eq!(heap_bytes_of(&text), expected);
        }
        let mut roomy = CompactString::with_capacity(100);
        roomy.push_str("tide");
        assert_eq!(heap_bytes_of(&roomy), 4);
        let fixed = CompactString::const_new("longer than what lies in a value");
        assert_eq!(heap_bytes_of(&fixed), 0, "nobody owns it");
    }

    // The same text, but not the same in memory.
    #[test]
    fn what_lies_behind_the_end_and_where_a_text_lies_do_not_matter() {
        let expected = CompactString::from("tide");
        let mut cut = CompactString::from("tidegate, and more");
        cut.truncate(4);
        assert_ne!(words(&cut), words(&expected), "nothing was cleared");
        assert!(same_text(&cut, &expected) && same_text(&expected, &cut));

        let mut roomy = CompactString::with_capacity(100);
        roomy.push_str("tide");
        assert!(roomy.is_heap_allocated());
        assert!(same_text(&roomy, &expected) && same_text(&expected, &roomy));

        let long = "longer than what lies in a value";
        let fixed = CompactString::const_new(long);
        assert!(same_text(&fixed, &long.into()) && same_text(&fixed, &fixed.clone()));
        assert!(!same_text(
            &fixed,
            &"longer than what lies in a place".into()
        ));
    }

    // Every byte of a text, and what follows it, whether that is near the end or not.
    #[test]
    fn beginnings_are_the_texts_that_the_crate_makes() {
        let text = "\u{e9}t\u{e9} abcdefghijklmnopqrstuvwxyz 0123456789 \u{1f30a} and more";
        let ends = |from: usize| (from..=text.len()).filter(|end| text.is_char_boundary(*end));
        for from in ends(0) {
            for end in ends(from) {
                let expected = &text[from..end];
                let made = beginning_of(&text[from..], end - from);
                assert_eq!(made, expected);
                assert_eq!(made.is_heap_allocated(), expected.len() > INLINE);
                assert_eq!(made.clone() + "!", format!("{expected}!"));
                if expected.len() <= INLINE {
                    assert_eq!(words(&made), words(&CompactString::from(expected)));
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "char boundary")]
    fn a_beginning_ends_between_characters() {
        beginning_of("\u{e9}t\u{e9}, and as much behind it as is read", 1);
    }
}
