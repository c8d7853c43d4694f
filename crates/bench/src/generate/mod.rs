//! What goes in: the same for every system, and a function of the index alone.
//!
//! The program that runs jobs on renoir includes these files (`crates/bench/renoir`): nothing of
//! the rest of the suite is used here.

pub(crate) mod text;

/// Spreads consecutive numbers (SplitMix64's finaliser).
#[inline]
pub(crate) fn mix(index: u64) -> u64 {
    let mixed = (index ^ (index >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The key of record `index` if there are `keys` of them.
#[inline]
pub(crate) fn key(index: u64, keys: u64) -> u64 {
    mix(index) % keys
}
