//! Broadcast state: rules that change while the job runs, against a stream of readings.
//!
//! Rules come on a stream of their own, which every subtask of the judge gets whole; what they come
//! to is broadcast state, in each checkpoint once. Without arguments the job judges readings for
//! about ten seconds; kill it at any moment (`kill -9`) and run the same command again: it goes on
//! with the rules it had, and each reading is judged exactly once.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use serde::{Deserialize, Serialize};
use tidegate::CheckpointInterval;
use tidegate::prelude::*;

/// Rules that are given before no more come: the limit of each of ten kinds of sensors, again and
/// again, each time another.
const RULES: u64 = 100;
const KINDS: u64 = 10;

#[derive(Clone, Debug, Serialize, Deserialize, Record)]
struct Reading {
    number: u64,
    kind: u64,
    value: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, Record)]
struct Rule {
    kind: u64,
    limit: u64,
    version: u64,
}

/// A reading's number, the version of the rule that applied (0 without any), and the verdict.
type Verdict = (u64, u64, String);

struct Judge {
    /// Limit and version by kind.
    rules: BroadcastState<u64, (u64, u64)>,
}

impl Judge {
    fn open(states: &mut OpenContext<'_>) -> Result<Self, BoxError> {
        Ok(Judge {
            rules: states.broadcast_state("rules")?,
        })
    }
}

impl BroadcastProcessFunction for Judge {
    type In = Reading;
    type Broadcast = Rule;
    type Out = Verdict;

    fn process(
        &mut self,
        reading: Reading,
        _ctx: &mut ProcessContext<'_>,
        out: &mut Collector<Verdict>,
    ) -> Result<(), BoxError> {
        let Reading {
            number,
            kind,
            value,
        } = reading;
        let (version, verdict) = match self.rules.get(&kind) {
            None => (0, "no rule"),
            Some((limit, version)) if value > limit => (version, "too high"),
            Some((_, version)) => (version, "fine"),
        };
        out.emit((number, version, verdict.to_owned()));
        Ok(())
    }

    fn process_broadcast(
        &mut self,
        rule: Rule,
        ctx: &mut BroadcastContext<'_>,
        _out: &mut Collector<Verdict>,
    ) -> Result<(), BoxError> {
        self.rules.put(ctx, rule.kind, (rule.limit, rule.version));
        Ok(())
    }
}

/// Writes the verdict on each reading as a line `number<TAB>version<TAB>verdict`.
#[derive(Parser)]
struct RulesArgs {
    /// How many readings to judge.
    #[arg(long, default_value_t = 500_000)]
    readings: u64,

    /// Readings a second.
    #[arg(long, default_value_t = 50_000.0)]
    rate: f64,

    /// Rules a second.
    #[arg(long, default_value_t = 50.0)]
    rules_rate: f64,

    /// Folder for the output.
    #[arg(long, default_value = "rules-demo/output")]
    output: PathBuf,

    #[command(flatten)]
    tidegate: tidegate::Args,
}

fn main() -> tidegate::Result<()> {
    let RulesArgs {
        readings,
        rate,
        rules_rate,
        output,
        mut tidegate,
    } = tidegate::parse();
    tidegate
        .checkpoint_dir
        .get_or_insert_with(|| "rules-demo/checkpoints".to_owned());
    tidegate
        .checkpoint_interval
        .get_or_insert(CheckpointInterval::Every(Duration::from_millis(200)));

    let env = Environment::new(tidegate)?;
    let reading = |number| Reading {
        number,
        kind: number % KINDS,
        value: number * 7 % 1000,
    };
    let rule = |index| Rule {
        kind: index % KINDS,
        limit: index * 13 % 1000,
        version: 1 + index / KINDS,
    };
    let rules = env
        .source("rules", Generator::new(Some(RULES), rule).rate(rules_rate))
        // One reader, so that all subtasks see the rules in the same order.
        .parallelism(1);
    env.source(
        "readings",
        Generator::new(Some(readings), reading).rate(rate),
    )
    .connect_broadcast(rules)
    .process("judge", Judge::open)
    .sink("verdicts", FileSink::new(output));
    env.execute("rules")?;
    Ok(())
}
