//! Small jobs that several tests run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tidegate_runtime::Batch;
use tidegate_runtime::{
    BoxError, ByKeyGroup, ByValue, Collector, Count, EdgeKind, FlatMap, Flow, JobPlan, Logic,
    Rebalance, Snapshot, SubtaskContext,
};
use tidegate_types::graph::Partitioning;
use tidegate_types::{CheckpointBarrier, ListState, Redistribution};

use crate::support::{Collected, Driven, Numbers, PATIENCE, Range, States, operator};

/// numbers → count by `number % keys` → collect
pub(crate) fn keyed_count(
    source: Numbers,
    keys: u64,
    parallelism: u32,
) -> (JobPlan, Collected<(u64, u64)>) {
    counted_by(source, move |number| number % keys, parallelism)
}

/// numbers → count by `key_of` the number → collect
pub(crate) fn counted_by(
    source: Numbers,
    key_of: impl Fn(u64) -> u64 + Clone + Send + Sync + 'static,
    parallelism: u32,
) -> (JobPlan, Collected<(u64, u64)>) {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", parallelism), source);
    let by_key = ByValue::new(move |number: &u64| key_of(*number));
    let selector = by_key.clone();
    let count = plan.operator(operator("count", parallelism), move |context| {
        Count::<u64, _>::open(selector.clone(), context)
    });
    let collected = Collected::default();
    let sink = plan.sink(operator("sink", parallelism), collected.clone());
    plan.connect::<u64>(
        (numbers, count),
        Partitioning::KeyGroups,
        EdgeKind::Records,
        move |context| {
            let (max, parallelism) = (context.max_parallelism, context.parallelism);
            Box::new(ByKeyGroup::new(by_key.clone(), max, parallelism))
        },
    );
    plan.connect::<(u64, u64)>(
        (count, sink),
        Partitioning::Forward,
        EdgeKind::Records,
        |_| Box::new(Rebalance::default()),
    );
    (plan, collected)
}

pub(crate) fn assert_counts(updates: &[(u64, u64)], keys: u64, each: u64) {
    let mut by_key: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (key, count) in updates {
        by_key.entry(*key).or_default().push(*count);
    }
    assert_eq!(by_key.len() as u64, keys);
    for (key, mut counts) in by_key {
        counts.sort_unstable();
        assert!(counts.iter().copied().eq(1..=each), "key {key}: {counts:?}");
    }
}

/// Waits until so many readers have reported their end, at any time of the attempt.
pub(crate) fn wait_for_all_ends(driven: &Driven, readers: usize) {
    while driven.ended.borrow().len() < readers {
        driven.next_report();
    }
}

pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "condition not met in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// numbers → `function` → collect
pub(crate) fn mapped(
    source: Numbers,
    parallelism: [u32; 3],
    function: impl FnMut(u64, &mut Collector<u64>) -> Result<(), BoxError>
    + Clone
    + Send
    + Sync
    + 'static,
) -> (JobPlan, Collected<u64>) {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", parallelism[0]), source);
    let map = plan.operator::<u64, u64, _>(operator("map", parallelism[1]), move |_| {
        Ok(FlatMap::new(function.clone()))
    });
    let collected = Collected::default();
    let sink = plan.sink(operator("sink", parallelism[2]), collected.clone());
    for edge in [(numbers, map), (map, sink)] {
        plan.connect::<u64>(
            edge,
            Partitioning::Rebalance,
            EdgeKind::Records,
            |context| Box::new(Rebalance::starting_at(context.origin as usize)),
        );
    }
    (plan, collected)
}

/// Adds up what it gets, and emits the sum at the end.
pub(crate) struct Sum(u64);

impl Sum {
    pub(crate) fn open(context: &SubtaskContext) -> Result<Self, BoxError> {
        let restored = context.restored_list("sum").first();
        Ok(Sum(restored.map_or(0, |bytes| {
            u64::from_le_bytes(bytes.as_slice().try_into().unwrap())
        })))
    }
}

impl Logic<u64, u64> for Sum {
    fn process(
        &mut self,
        input: &mut Batch<u64>,
        _out: &mut Collector<u64>,
    ) -> Result<Flow, BoxError> {
        self.0 += input.sum::<u64>();
        Ok(Flow::Continue)
    }

    fn finish(&mut self, out: &mut Collector<u64>) -> Result<(), BoxError> {
        out.emit(self.0);
        Ok(())
    }

    fn snapshot(&mut self, _barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        let list = ListState {
            name: "sum".to_owned(),
            redistribution: Redistribution::Split,
            elements: vec![self.0.to_le_bytes().to_vec()],
        };
        Ok(Snapshot {
            lists: vec![list],
            ..Snapshot::default()
        })
    }
}

/// numbers (several sources) → sum, one at the end per subtask → collect
pub(crate) fn summed(sources: Vec<Numbers>, parallelism: u32) -> (JobPlan, Collected<u64>) {
    let mut plan = JobPlan::new();
    let numbers: Vec<_> = sources
        .into_iter()
        .enumerate()
        .map(|(index, source)| {
            plan.source(operator(&format!("numbers{index}"), parallelism), source)
        })
        .collect();
    let sum = plan.operator::<u64, u64, _>(operator("sum", parallelism), Sum::open);
    let collected = Collected::default();
    let sink = plan.sink(operator("sink", 1), collected.clone());
    for edge in numbers
        .into_iter()
        .map(|numbers| (numbers, sum))
        .chain([(sum, sink)])
    {
        plan.connect::<u64>(edge, Partitioning::Rebalance, EdgeKind::Records, |_| {
            Box::new(Rebalance::default())
        });
    }
    (plan, collected)
}

/// Numbers that a snapshot of [`Numbers`] says are still to be read, with the rest of the source
/// as one range. `uid` is that of the readers.
pub(crate) fn unread(plan: &JobPlan, states: &States, uid: &str) -> Vec<Range> {
    let mut ranges = Vec::new();
    for (subtask, state) in states {
        let list = |name: &str| {
            let list = state.lists.iter().find(|list| list.name == name);
            list.map_or(&[][..], |list| &list.elements)
        };
        match plan.graph().operator(subtask.operator).uid.0.as_str() {
            name if name == uid => ranges.extend(
                list("splits")
                    .iter()
                    .map(|bytes| postcard::from_bytes::<Range>(bytes).unwrap()),
            ),
            name if name == format!("{uid}-splits") => ranges.push(Range {
                next: postcard::from_bytes(&list("enumerator")[0]).unwrap(),
                end: u64::MAX,
            }),
            _ => {}
        }
    }
    ranges
}
