//! Texts: keys of mixed length.

use super::mix;

/// Longest key.
const KEY_MAX: u64 = 40;
/// What keys are filled up with.
const FILLER: &str = "-the-quick-brown-fox-jumps-over-the-lazy";

/// Appends the text of record `index` if there are `keys` different ones: 1 to 40 bytes, the key's
/// number first, in hexadecimal, then filler that begins with what no number contains.
#[inline]
pub(crate) fn write_key(index: u64, keys: u64, text: &mut String) {
    write_text(super::key(index, keys), text);
}

/// Appends the text of a key.
#[inline]
fn write_text(key: u64, text: &mut String) {
    let before = text.len();
    let digits = u64::BITS
        .saturating_sub(key.leading_zeros())
        .div_ceil(4)
        .max(1);
    for digit in (0..digits).rev() {
        let digit = (key >> (4 * digit)) & 15;
        text.push(char::from(b"0123456789abcdef"[digit as usize]));
    }
    let length = 1 + (mix(key) >> 32) % KEY_MAX;
    let missing = (length as usize).saturating_sub(text.len() - before);
    text.push_str(&FILLER[..missing]);
}

/// The text of a key.
pub(crate) fn of_key(key: u64) -> String {
    let mut text = String::with_capacity(KEY_MAX as usize);
    write_text(key, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn keys_are_different_and_of_every_length() {
        let keys = 10_000;
        let mut by_key = BTreeMap::new();
        let mut lengths = std::collections::BTreeSet::new();
        for index in 0..100_000 {
            let mut text = String::new();
            write_key(index, keys, &mut text);
            lengths.insert(text.len() as u64);
            let before = by_key.insert(super::super::key(index, keys), text.clone());
            assert!(before.is_none_or(|before| before == text));
        }
        let distinct: std::collections::BTreeSet<&String> = by_key.values().collect();
        assert_eq!(distinct.len(), by_key.len());
        assert_eq!(lengths, (1..=KEY_MAX).collect());
        assert_eq!(of_key(0).chars().next(), Some('0'));
    }
}
