//! Savepoints of earlier versions are restored: the promise of docs/formats.md, kept.
//!
//! Each folder in `golden/` is a savepoint of the job below, taken half-way. To add one, when a
//! format has got a new version: `GOLDEN_SAVEPOINT=v2 cargo nextest run -p tidegate --test
//! golden_savepoints`. Those that are there never change.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::connectors::CollectCommitted;
use tidegate::prelude::*;
use tidegate::process::KeyedBroadcastProcessFunction;
use tidegate::{CheckpointLocation, RestoreMode, RestoreOptions, SnapshotLocation, StatePlacement};
use url::Url;

const RECORDS: u64 = 2_000;
/// Keys of every odd kind.
const KEYS: [&str; 7] = ["", "plain", "\0", "\u{ff}", "👩‍👩‍👧‍👦", "a\0b", "ab"];
/// Every so many records, one is put into the split list.
const SAMPLE: u64 = 100;
/// In the year 3000.
const FAR_AHEAD: UnixMillis = UnixMillis(32_503_680_000_000);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Phase {
    New,
    Seen { times: u32, last: Option<i64> },
}

/// The sum and the number of what was added.
#[derive(Clone)]
struct Mean;

impl Aggregate for Mean {
    type In = u64;
    type Acc = (u64, u32);
    type Out = u64;

    fn create(&self) -> (u64, u32) {
        (0, 0)
    }

    fn add(&self, (sum, count): &mut (u64, u32), value: u64) {
        *sum += value;
        *count += 1;
    }

    fn get_result(&self, (sum, count): &(u64, u32)) -> u64 {
        sum / u64::from(*count)
    }
}

/// Keeps what it gets in every kind of state, and says it all when the input has ended.
struct EveryKind {
    phase: ValueState<String, Phase>,
    list: ListState<String, u64>,
    map: MapState<String, u32, String>,
    greatest: ReducingState<String, u64>,
    mean: AggregatingState<String, Mean>,
    sample: OperatorListState<u64>,
    rules: BroadcastState<String, i64>,
}

impl EveryKind {
    fn open(states: &mut KeyedOpenContext<'_, String>) -> Result<Self, BoxError> {
        let subtasks = states.union_list("subtasks")?;
        match states.restored_checkpoint() {
            None => subtasks.add(states.subtask_index()),
            Some(_) => assert_eq!(subtasks.get(), [0, 1]),
        }
        Ok(EveryKind {
            phase: states.bind(&ValueStateDescriptor::new("phase").with_default(Phase::New))?,
            list: states.list("list")?,
            map: states.map("map")?,
            greatest: states.reducing("greatest", |greatest: &mut u64, value| {
                *greatest = value.max(*greatest);
            })?,
            mean: states.aggregating("mean", Mean)?,
            sample: states.split_list("sample")?,
            rules: states.broadcast_state("rules")?,
        })
    }

    fn summary(&self, ctx: &KeyedContext<'_, String>) -> Result<String, BoxError> {
        let rules = self.rules.with(|rules| format!("{rules:?}"));
        Ok(format!(
            "{:?} {:?} {:?} {:?} {:?} {rules}",
            self.phase.get(ctx)?,
            self.list.get(ctx)?,
            self.map.entries(ctx)?,
            self.greatest.get(ctx)?,
            self.mean.get(ctx)?,
        ))
    }
}

impl KeyedBroadcastProcessFunction for EveryKind {
    type Key = String;
    type In = (String, u64);
    type Broadcast = (String, i64);
    type Out = (String, String);

    fn process(
        &mut self,
        (_, number): (String, u64),
        ctx: &mut KeyedContext<'_, String>,
        _out: &mut Collector<(String, String)>,
    ) -> Result<(), BoxError> {
        self.phase.update(ctx, |phase| {
            let times = match phase {
                Phase::New => 0,
                Phase::Seen { times, .. } => *times,
            };
            let last = (number % 2 == 0).then_some(-(number as i64));
            *phase = Phase::Seen {
                times: times + 1,
                last,
            };
        })?;
        if number % 10 == 0 {
            self.list.add(ctx, number)?;
        }
        self.map.put(ctx, (number % 5) as u32, number.to_string())?;
        self.greatest.add(ctx, number * 7919 % 1_000)?;
        self.mean.add(ctx, number)?;
        if number % SAMPLE == 0 {
            self.sample.add(number);
        }
        let timers = ctx.timer_service();
        timers.register_event_time_timer(EventTime::MAX)?;
        timers.register_processing_time_timer(FAR_AHEAD)?;
        Ok(())
    }

    fn process_broadcast(
        &mut self,
        (name, limit): (String, i64),
        ctx: &mut BroadcastContext<'_>,
        _out: &mut Collector<(String, String)>,
    ) -> Result<(), BoxError> {
        self.rules.put(ctx, name, limit);
        Ok(())
    }

    fn on_timer(
        &mut self,
        _timer: Timer,
        ctx: &mut KeyedContext<'_, String>,
        out: &mut Collector<(String, String)>,
    ) -> Result<(), BoxError> {
        out.emit((ctx.key().clone(), self.summary(ctx)?));
        for sampled in self.sample.get() {
            out.emit(("sampled".to_owned(), sampled.to_string()));
        }
        self.sample.clear();
        Ok(())
    }
}

/// The job; all it has said in the end goes to `said`.
fn job(env: &Environment, rate: f64, said: &CollectCommitted<(String, String)>) {
    let record = |index: u64| {
        let key = KEYS[(index * index * index % 11 % KEYS.len() as u64) as usize];
        (key.to_owned(), index)
    };
    let rules = Generator::new(Some(3), |index| (format!("rule {index}"), -(index as i64)));
    let rules = env.source("rules", rules).parallelism(1);
    env.source("records", Generator::new(Some(RECORDS), record).rate(rate))
        .parallelism(1)
        .key_by(|(key, _)| key)
        .connect_broadcast(rules)
        .process("every-kind", EveryKind::open)
        .sink("said", said.clone());
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Runs the job to its end, from a savepoint if there is one; returns all it said, sorted.
fn run(from: Option<&Path>, parallelism: u32) -> Vec<(String, String)> {
    let said = CollectCommitted::new();
    let env = Environment::for_tests()
        .with_parallelism(parallelism)
        .with_options(|options| {
            options.restore = from.map(|path| RestoreOptions {
                from: SnapshotLocation::new(Url::from_file_path(path).unwrap().as_str()),
                mode: RestoreMode::NoClaim,
            });
        });
    job(&env, 1e9, &said);
    let report = env.execute("golden").unwrap();
    assert_eq!(report.restored.is_some(), from.is_some());
    let mut said = said.take();
    said.sort_unstable();
    said
}

/// Takes a savepoint half-way and puts it into the golden folder.
fn make(name: &str, inline_bytes_max: u64) {
    let dir = tempfile::tempdir().unwrap();
    let url = |name: &str| Url::from_file_path(dir.path().join(name)).unwrap();
    let env = Environment::for_tests()
        .with_parallelism(2)
        .with_options(|options| {
            options.location = CheckpointLocation::Directory(url("checkpoints"));
            options.placement = StatePlacement::Files { inline_bytes_max };
        });
    job(&env, 1_000.0, &CollectCommitted::new());
    let job = env.start("golden").unwrap();
    assert!(job.wait_until_running());
    std::thread::sleep(Duration::from_secs(1));
    let savepoints = url("savepoints");
    let savepoint = job.savepoint(Some(savepoints.as_str())).unwrap();
    job.cancel();
    let _ = job.wait();
    let made = Url::parse(savepoint.location.unwrap().as_str()).unwrap();
    fs::create_dir_all(golden().join(name)).unwrap();
    for entry in fs::read_dir(made.to_file_path().unwrap()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), golden().join(name).join(entry.file_name())).unwrap();
    }
}

// IT-10, IT-13: through a savepoint, at other parallelisms, every kind of state is right, and
// timers fire once each.
#[test]
fn golden_savepoints_are_restored() {
    if let Ok(name) = std::env::var("GOLDEN_SAVEPOINT") {
        make(&format!("{name}-inline"), 1 << 20);
        make(&format!("{name}-files"), 0);
    }
    let undisturbed = run(None, 2);
    let samples = undisturbed.iter().filter(|(key, _)| key == "sampled");
    assert_eq!(samples.count() as u64, RECORDS / SAMPLE);
    let by_key: BTreeMap<_, _> = undisturbed.iter().cloned().collect();
    assert_eq!(by_key.len(), KEYS.len() + 1, "each key spoke: {by_key:?}");
    let mut restored = 0;
    for entry in fs::read_dir(golden()).unwrap() {
        let folder = entry.unwrap().path();
        for parallelism in [1, 2, 3] {
            let said = run(Some(&folder), parallelism);
            assert!(said == undisturbed, "{} at {parallelism}", folder.display());
        }
        restored += 1;
    }
    assert!(restored > 0, "there is no golden savepoint");
}
