//! Made-up transactions for the fraud example: the same in every run.

use serde::{Deserialize, Serialize};
use tidegate::prelude::*;

/// Amounts below this may be a thief's test of the account.
pub(crate) const SMALL: u64 = 100;
/// Amounts above this are worth stealing.
pub(crate) const LARGE: u64 = 50_000;
/// A test is followed by the theft within this time, in milliseconds.
pub(crate) const ONE_MINUTE: i64 = 60_000;

#[derive(Clone, Debug, Serialize, Deserialize, Record)]
pub(crate) struct Transaction {
    pub(crate) account: u64,
    /// Milliseconds since the first transaction.
    pub(crate) time: i64,
    pub(crate) cents: u64,
}

impl Transaction {
    /// The transaction with this number: one every 100 ms, on 200 accounts.
    pub(crate) fn nth(index: u64) -> Transaction {
        let dice = scramble(index);
        let cents = match dice % 100 {
            0..8 => 1 + dice / 100 % (SMALL - 1),
            8..16 => LARGE + 1 + dice / 100 % LARGE,
            _ => SMALL + dice / 100 % (LARGE - SMALL),
        };
        Transaction {
            account: scramble(dice) % 200,
            time: index as i64 * 100,
            cents,
        }
    }
}

/// Spreads numbers over all 64 bits (the finaliser of splitmix64).
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
