//! Comparing small texts as what they are in memory: three words.
//!
//! A [`CompactString`] of up to 24 bytes lies where the value is. To look at its bytes one has to
//! look at its length first, and then go one of several ways; which one, the processor guesses
//! wrong for every other word of a language. Two texts that are the same in memory are the same,
//! whatever that memory means, and nearly all keys that are found in a table are.
//!
//! One of the two modules of the engine with `unsafe`: the type doesn't show its memory. Invariant:
//! what is found out this way is only ever that two texts are equal. Those that are not the same in
//! memory (one was cut off and has something behind its end, or owns its bytes) are compared as
//! texts.

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
}
