//! Texts: keys of mixed length.

use super::mix;

/// Longest key.
const KEY_MAX: u64 = 40;
/// What keys are filled up with.
const FILLER: &str = "-the-quick-brown-fox-jumps-over-the-lazy";

/// The text of a key: 1 to 40 bytes, its number first, in hexadecimal, then filler that begins with
/// what no number contains.
pub(crate) fn of_key(key: u64) -> String {
    let mut text = format!("{key:x}");
    let length = 1 + (mix(key) >> 32) % KEY_MAX;
    let missing = (length as usize).saturating_sub(text.len());
    text.push_str(&FILLER[..missing]);
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_are_different_and_of_every_length() {
        let texts: BTreeSet<String> = (0..10_000).map(of_key).collect();
        assert_eq!(texts.len(), 10_000);
        let lengths: BTreeSet<u64> = texts.iter().map(|text| text.len() as u64).collect();
        assert_eq!(lengths, (1..=KEY_MAX).collect());
        assert_eq!(of_key(0).chars().next(), Some('0'));
    }
}
