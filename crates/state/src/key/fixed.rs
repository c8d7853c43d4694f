//! Encodings of few bytes, always as many: they are handed around as a number, and written without
//! looking at each byte.

/// The encoding of a key of fixed width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedEncoding {
    /// The bytes, the first in the lowest bits; all others are 0.
    bits: u128,
    width: usize,
}

impl FixedEncoding {
    /// The most bytes.
    pub(crate) const WIDTH_MAX: usize = size_of::<u128>();

    /// The lowest `width` bytes of a number, none of whose other bits are set.
    #[inline]
    pub(super) fn new(bits: u128, width: usize) -> Self {
        debug_assert!(
            width == Self::WIDTH_MAX || bits >> (8 * width) == 0,
            "nothing lies beyond the width"
        );
        FixedEncoding { bits, width }
    }

    /// Number of bytes.
    #[inline]
    pub(crate) fn width(self) -> usize {
        self.width
    }

    /// The bytes, of which the first [`width`](Self::width) count.
    #[inline]
    pub(crate) fn padded(self) -> [u8; Self::WIDTH_MAX] {
        self.bits.to_le_bytes()
    }

    /// How many bytes at the end are 0.
    #[inline]
    pub(crate) fn zeros_at_end(self) -> usize {
        let beyond = Self::WIDTH_MAX - self.width;
        self.bits.leading_zeros() as usize / 8 - beyond
    }

    /// These bytes with others behind them, if there are not too many.
    #[inline]
    pub(crate) fn then(self, next: FixedEncoding) -> Option<FixedEncoding> {
        let width = self.width + next.width;
        if width > Self::WIDTH_MAX {
            return None;
        }
        // Without any of its own, `next` may be at the very end.
        let behind = next.bits.checked_shl(8 * self.width as u32).unwrap_or(0);
        Some(FixedEncoding::new(self.bits | behind, width))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::StateKey;

    fn assert_encodes_alike<K: StateKey>(key: K) {
        let fixed = key.fixed_encoding().expect("its width is fixed");
        let (mut whole, mut element) = (Vec::new(), Vec::new());
        key.encode(&mut whole);
        key.encode_element(&mut element);
        assert_eq!(fixed.padded()[..fixed.width()], whole);
        assert_eq!(fixed.padded()[..fixed.width()], element);
        assert!(
            fixed.padded()[fixed.width()..]
                .iter()
                .all(|byte| *byte == 0)
        );
        let zeros = whole.iter().rev().take_while(|byte| **byte == 0);
        assert_eq!(fixed.zeros_at_end(), zeros.count());
    }

    proptest! {
        #[test]
        fn keys_of_fixed_width_are_encoded_alike(bits: u128, letter: char, flag: bool) {
            assert_encodes_alike(bits as u8);
            assert_encodes_alike(bits as u16);
            assert_encodes_alike(bits as u32);
            assert_encodes_alike(bits as u64);
            assert_encodes_alike(bits);
            assert_encodes_alike(bits as usize);
            assert_encodes_alike(bits as i8);
            assert_encodes_alike(bits as i16);
            assert_encodes_alike(bits as i32);
            assert_encodes_alike(bits as i64);
            assert_encodes_alike(bits as i128);
            assert_encodes_alike(bits as isize);
            assert_encodes_alike(letter);
            assert_encodes_alike(flag);
        }

        // As a key and its namespace.
        #[test]
        fn one_behind_the_other_is_as_a_tuple(first: i64, second: i32, third: u64) {
            let mut expected = Vec::new();
            (first, second).encode(&mut expected);
            let [a, b, c] = [
                first.fixed_encoding().unwrap(),
                second.fixed_encoding().unwrap(),
                third.fixed_encoding().unwrap(),
            ];
            let both = a.then(b).unwrap();
            prop_assert_eq!(&both.padded()[..both.width()], expected);
            prop_assert_eq!(a.then(c).map(FixedEncoding::width), Some(16));
            prop_assert_eq!(both.then(c), None);
        }
    }

    #[test]
    fn keys_of_any_length_have_none() {
        assert_eq!("text".to_owned().fixed_encoding(), None);
        assert_eq!(vec![1u8].fixed_encoding(), None);
        assert_eq!(Some(1u8).fixed_encoding(), None);
    }
}
