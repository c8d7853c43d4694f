//! Flink's walk-through in Rust: alerts on accounts where a small amount is followed by a large one
//! within a minute.
//!
//! Without arguments it judges a million made-up transactions for about ten seconds. Kill it at any
//! moment (`kill -9`) and run the same command again: it goes on, and the finished output has each
//! alert once. `docs/port-a-flink-job.md` shows it beside the Java original.

#[path = "support/transactions.rs"]
mod transactions;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use tidegate::CheckpointInterval;
use tidegate::prelude::*;
use transactions::{LARGE, ONE_MINUTE, SMALL, Transaction};

/// Account, time and amount of the large transaction.
type Alert = (u64, i64, u64);

struct FraudDetector {
    /// When the account's last transaction was, if it was a small one.
    small: ValueState<u64, i64>,
}

impl FraudDetector {
    fn open(states: &mut KeyedOpenContext<'_, u64>) -> Result<Self, BoxError> {
        Ok(FraudDetector {
            small: states.value("small")?,
        })
    }
}

impl KeyedProcessFunction for FraudDetector {
    type Key = u64;
    type In = Transaction;
    type Out = Alert;

    fn process(
        &mut self,
        transaction: Transaction,
        ctx: &mut KeyedContext<'_, u64>,
        out: &mut Collector<Alert>,
    ) -> Result<(), BoxError> {
        let Transaction {
            account,
            time,
            cents,
        } = transaction;
        if let Some(small) = self.small.get(ctx)? {
            if cents > LARGE && time - small <= ONE_MINUTE {
                out.emit((account, time, cents));
            }
            self.small.clear(ctx)?;
            let forget = EventTime(small + ONE_MINUTE);
            ctx.timer_service().delete_event_time_timer(forget)?;
        }
        if cents < SMALL {
            self.small.set(ctx, time)?;
            let forget = EventTime(time + ONE_MINUTE);
            ctx.timer_service().register_event_time_timer(forget)?;
        }
        Ok(())
    }

    /// A minute has passed without another transaction of the account.
    fn on_timer(
        &mut self,
        _timer: Timer,
        ctx: &mut KeyedContext<'_, u64>,
        _out: &mut Collector<Alert>,
    ) -> Result<(), BoxError> {
        self.small.clear(ctx)?;
        Ok(())
    }
}

/// Writes each alert as a line `account<TAB>milliseconds<TAB>cents`.
#[derive(Parser)]
struct FraudArgs {
    /// How many transactions to judge.
    #[arg(long, default_value_t = 1_000_000)]
    transactions: u64,

    /// Transactions a second.
    #[arg(long, default_value_t = 100_000.0)]
    rate: f64,

    /// Folder for the output.
    #[arg(long, default_value = "fraud-demo/output")]
    output: PathBuf,

    #[command(flatten)]
    tidegate: tidegate::Args,
}

fn main() -> tidegate::Result<()> {
    let FraudArgs {
        transactions,
        rate,
        output,
        mut tidegate,
    } = tidegate::parse();
    tidegate
        .checkpoint_dir
        .get_or_insert_with(|| "fraud-demo/checkpoints".to_owned());
    tidegate
        .checkpoint_interval
        .get_or_insert(CheckpointInterval::Every(Duration::from_millis(200)));

    let env = Environment::new(tidegate)?;
    let generator = Generator::new(Some(transactions), Transaction::nth).rate(rate);
    env.source("transactions", generator)
        // One reader keeps each account's transactions in order.
        .parallelism(1)
        .watermarks(
            "event time",
            WatermarkStrategy::monotonous(|transaction: &Transaction| EventTime(transaction.time)),
        )
        .parallelism(1)
        .key_by(|transaction| &transaction.account)
        .process("fraud-detector", FraudDetector::open)
        .sink("alerts", FileSink::new(output));
    env.execute("fraud")?;
    Ok(())
}
