//! Comparing short texts without a call.

/// `left == right`, in code that is inlined for up to 16 bytes; for a slice of unknown length, `==`
/// is a call. Two loads that may overlap cover each length.
#[inline]
pub(super) fn same_bytes(left: &[u8], right: &[u8]) -> bool {
    let length = left.len();
    if length != right.len() {
        return false;
    }
    match length {
        8..=16 => {
            let end = length - 8;
            (word(left, 0) == word(right, 0)) & (word(left, end) == word(right, end))
        }
        4..=7 => {
            let end = length - 4;
            (half_word(left, 0) == half_word(right, 0))
                & (half_word(left, end) == half_word(right, end))
        }
        1..=3 => {
            let (middle, last) = (length >> 1, length - 1);
            (left[0] == right[0]) & (left[middle] == right[middle]) & (left[last] == right[last])
        }
        0 => true,
        _ => left == right,
    }
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..at + 8].try_into();
    u64::from_ne_bytes(word.expect("a word has 8 bytes"))
}

#[inline(always)]
fn half_word(bytes: &[u8], at: usize) -> u32 {
    let half = bytes[at..at + 4].try_into();
    u32::from_ne_bytes(half.expect("half a word has 4 bytes"))
}

#[cfg(test)]
mod tests {
    use super::same_bytes;

    #[test]
    fn every_byte_counts() {
        for length in 0..40_usize {
            let text = vec![b'x'; length];
            assert!(same_bytes(&text, &text.clone()));
            for at in 0..length {
                let mut other = text.clone();
                other[at] ^= 1 << (at % 8);
                assert!(!same_bytes(&text, &other), "byte {at} of {length}");
                assert!(!same_bytes(&text, &text[..at]), "{at} of {length} bytes");
            }
        }
    }
}
