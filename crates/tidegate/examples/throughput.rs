//! Measures generator → key_by → count → discard, the hot path of a keyed job.
//!
//! `cargo run --release --example throughput -- --records 200000000 --keys 1000 --parallelism 2`

use clap::Parser;
use tidegate::prelude::*;

/// Counts generated keys as fast as it goes.
#[derive(Parser)]
struct ThroughputArgs {
    /// How many records.
    #[arg(long, default_value_t = 100_000_000)]
    records: u64,

    /// How many keys.
    #[arg(long, default_value_t = 1_000)]
    keys: u64,

    #[command(flatten)]
    tidegate: tidegate::Args,
}

/// Spreads consecutive numbers (SplitMix64's finaliser).
fn mix(index: u64) -> u64 {
    let mixed = (index ^ (index >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn main() -> tidegate::Result<()> {
    let ThroughputArgs {
        records,
        keys,
        tidegate,
    } = ThroughputArgs::parse();
    let env = Environment::new(tidegate)?;
    env.source(
        "numbers",
        Generator::new(Some(records), move |index| mix(index) % keys),
    )
    .key_by(|key| key)
    .count("count")
    .sink("discard", Discard);
    env.execute("throughput")?;
    Ok(())
}
