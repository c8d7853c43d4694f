//! Measures generator → key_by → count → discard, the hot path of a keyed job.
//!
//! `cargo run --release --example throughput -- --records 200000000 --keys 1000 --parallelism 2`
//!
//! With `--by process` the count is a process function of its own instead of the built-in one, with
//! `--by timers` one that keeps a timer for each key besides.

use clap::{Parser, ValueEnum};
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

    /// No faster than this many a second, all subtasks together.
    #[arg(long)]
    rate: Option<f64>,

    /// What counts them.
    #[arg(long, value_enum, default_value = "count")]
    by: By,

    #[command(flatten)]
    tidegate: tidegate::Args,
}

/// What counts.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// The built-in count.
    Count,
    /// A process function.
    Process,
    /// A process function with a timer per key.
    Timers,
}

/// The count as a process function.
struct Counter {
    count: ValueState<u64, u64>,
    with_timers: bool,
}

impl KeyedProcessFunction for Counter {
    type Key = u64;
    type In = u64;
    type Out = (u64, u64);

    fn process(
        &mut self,
        key: u64,
        ctx: &mut KeyedContext<'_, u64>,
        out: &mut Collector<(u64, u64)>,
    ) -> Result<(), BoxError> {
        let count = self.count.update_or(ctx, 0, |count| {
            *count += 1;
            *count
        })?;
        if self.with_timers {
            // The same each time: registered once.
            ctx.timer_service()
                .register_event_time_timer(EventTime::MAX)?;
        }
        out.emit((key, count));
        Ok(())
    }
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
        rate,
        by,
        tidegate,
    } = tidegate::parse();
    let env = Environment::new(tidegate)?;
    let mut numbers = Generator::new(Some(records), move |index| mix(index) % keys);
    if let Some(rate) = rate {
        numbers = numbers.rate(rate);
    }
    let keyed = env.source("numbers", numbers).key_by(|key| key);
    let counts = match by {
        By::Count => keyed.count("count"),
        By::Process | By::Timers => keyed.process("count", move |states| {
            Ok(Counter {
                count: states.value("count")?,
                with_timers: by == By::Timers,
            })
        }),
    };
    counts.sink("discard", Discard);
    env.execute("throughput")?;
    Ok(())
}
