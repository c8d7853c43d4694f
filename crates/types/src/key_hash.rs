//! The hash that maps keys to key groups: XXH3 (64 bit, seed 0) of a key's canonical encoding. Its
//! [`HASH_ID`] is kept in each checkpoint and verified at restore.
//!
//! Every record of a keyed stream is hashed, and most keys are short, so up to 16 bytes are hashed
//! here, in code that is inlined where it is used; the crate `xxhash-rust` would be called for each
//! of them. Longer keys go there. Source: `XXH3_len_0to16_64b` of the reference implementation
//! (xxHash 0.8, `xxhash.h`), with the constants that follow from seed 0 and the default secret.

use xxhash_rust::xxh3::xxh3_64;

/// Names the hash that maps keys to key groups. Changing the hash means changing this name.
pub const HASH_ID: &str = "xxh3-64/1";

/// XXH3 of no bytes.
const OF_NOTHING: u64 = 0x2d06_8005_38d3_94c2;
/// Parts of the default secret, each two words of it combined as the algorithm does.
const FLIP_1_TO_3: u64 = 0x8727_5a9b;
const FLIP_4_TO_8: u64 = 0xc73a_b174_c5ec_d5a2;
const FLIP_LOW_9_TO_16: u64 = 0x6782_737b_ea42_39b9;
const FLIP_HIGH_9_TO_16: u64 = 0xaf56_bc3b_0996_523a;

/// Hashes the canonical encoding of a key.
#[inline]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    match bytes.len() {
        9..=16 => hash_9_to_16(bytes),
        4..=8 => hash_4_to_8(bytes),
        1..=3 => hash_1_to_3(bytes),
        0 => OF_NOTHING,
        _ => hash_long(bytes),
    }
}

/// Hashes what `bytes_of` says of each item, into the place of the same index.
///
/// How a key is hashed depends on its length, and nobody can foresee that of a text. So keys are
/// sorted first by what is to be done with them, without a branch, and then hashed in a loop of one
/// kind after another.
///
/// # Panics
/// If there are fewer hashes than items.
pub fn hash_each<'a, T>(items: &'a [T], bytes_of: impl Fn(&'a T) -> &'a [u8], hashes: &mut [u64]) {
    for (items, hashes) in items
        .chunks(CHUNK)
        .zip(hashes[..items.len()].chunks_mut(CHUNK))
    {
        hash_chunk(items, &bytes_of, hashes);
    }
}

/// Items that are sorted together, as many as have an index of a byte.
const CHUNK: usize = 1 << u8::BITS;

/// What is to be done with keys of each length; all longer ones are as the last.
static KINDS: [u8; 18] = [0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4];

#[inline]
fn hash_chunk<'a, T>(items: &'a [T], bytes_of: &impl Fn(&'a T) -> &'a [u8], hashes: &mut [u64]) {
    let mut sorted = [[0; CHUNK]; 5];
    let mut counts = [0; 5];
    for (index, item) in items.iter().enumerate() {
        let length = bytes_of(item).len().min(KINDS.len() - 1);
        let kind = usize::from(KINDS[length]);
        sorted[kind][counts[kind]] = index as u8;
        counts[kind] += 1;
    }
    let sorted = |kind: usize| &sorted[kind][..counts[kind]];
    hash_some(items, sorted(0), bytes_of, |_| OF_NOTHING, hashes);
    hash_some(items, sorted(1), bytes_of, hash_1_to_3, hashes);
    hash_some(items, sorted(2), bytes_of, hash_4_to_8, hashes);
    hash_some(items, sorted(3), bytes_of, hash_9_to_16, hashes);
    hash_some(items, sorted(4), bytes_of, hash_long, hashes);
}

/// Hashes the items at these indexes, all in the same way.
#[inline(always)]
fn hash_some<'a, T>(
    items: &'a [T],
    indexes: &[u8],
    bytes_of: impl Fn(&'a T) -> &'a [u8],
    hash: impl Fn(&[u8]) -> u64,
    hashes: &mut [u64],
) {
    for index in indexes {
        let index = usize::from(*index);
        hashes[index] = hash(bytes_of(&items[index]));
    }
}

#[inline(never)]
fn hash_long(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..at + 8].try_into();
    u64::from_le_bytes(word.expect("a word has 8 bytes"))
}

#[inline(always)]
fn half_word(bytes: &[u8], at: usize) -> u64 {
    let half = bytes[at..at + 4].try_into();
    u32::from_le_bytes(half.expect("half a word has 4 bytes")).into()
}

#[inline(always)]
fn hash_1_to_3(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let (first, middle, last) = (bytes[0], bytes[length >> 1], bytes[length - 1]);
    let combined =
        u32::from(first) << 16 | u32::from(middle) << 24 | u32::from(last) | (length as u32) << 8;
    let mut hash = u64::from(combined) ^ FLIP_1_TO_3;
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    hash = (hash ^ (hash >> 29)).wrapping_mul(0x1656_67b1_9e37_79f9);
    hash ^ (hash >> 32)
}

#[inline(always)]
fn hash_4_to_8(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let joined = (half_word(bytes, 0) << 32).wrapping_add(half_word(bytes, length - 4));
    let mut hash = joined ^ FLIP_4_TO_8;
    hash ^= hash.rotate_left(49) ^ hash.rotate_left(24);
    hash = hash.wrapping_mul(0x9fb2_1c65_1e98_df25);
    hash ^= (hash >> 35).wrapping_add(length as u64);
    hash = hash.wrapping_mul(0x9fb2_1c65_1e98_df25);
    hash ^ (hash >> 28)
}

#[inline(always)]
fn hash_9_to_16(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let low = word(bytes, 0) ^ FLIP_LOW_9_TO_16;
    let high = word(bytes, length - 8) ^ FLIP_HIGH_9_TO_16;
    let product = u128::from(low) * u128::from(high);
    let hash = (length as u64)
        .wrapping_add(low.swap_bytes())
        .wrapping_add(high)
        .wrapping_add(product as u64 ^ (product >> 64) as u64);
    let hash = (hash ^ (hash >> 37)).wrapping_mul(0x1656_6791_9e37_79f9);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // BC-46: the same for every length as the algorithm that `HASH_ID` names.
    #[test]
    fn every_length_is_hashed_by_xxh3() {
        let bytes: Vec<u8> = (0..600_u32).map(|i| (i * 167 + 13) as u8).collect();
        for length in 0..bytes.len() {
            assert_eq!(
                hash_bytes(&bytes[..length]),
                xxh3_64(&bytes[..length]),
                "{length}"
            );
        }
    }

    proptest! {
        #[test]
        fn many_are_hashed_as_each_by_itself(
            keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..600),
        ) {
            let mut hashes = vec![1; keys.len() + 1];
            hash_each(&keys, |key| key, &mut hashes);
            prop_assert_eq!(hashes.pop(), Some(1));
            let expected: Vec<u64> = keys.iter().map(|key| hash_bytes(key)).collect();
            prop_assert_eq!(hashes, expected);
        }

        #[test]
        fn short_keys_are_hashed_by_xxh3(bytes in prop::collection::vec(any::<u8>(), 0..=17)) {
            prop_assert_eq!(hash_bytes(&bytes), xxh3_64(&bytes));
        }
    }
}
