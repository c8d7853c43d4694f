//! Split lists, union lists and broadcast maps beside keyed state, in one function.

use tidegate::prelude::*;
use tidegate::process::KeyedBroadcastProcessFunction;
use tidegate::testing::{OperatorSnapshot, OperatorUnderTest, keyed_broadcast_process};
use tidegate::{BoxError, Either};

/// A little of every kind of state.
struct Everything {
    count: ValueState<u64, u64>,
    seen: OperatorListState<u64>,
    subtasks: OperatorListState<u32>,
    rules: BroadcastState<String, u64>,
}

/// What a subtask knows: the count of the record's key, what its split list and union list hold,
/// and its rules.
type Known = (u64, Vec<u64>, Vec<u32>, Vec<(String, u64)>);

impl Everything {
    fn open(states: &mut KeyedOpenContext<'_, u64>) -> Result<Self, BoxError> {
        let subtasks = states.union_list("subtasks")?;
        if subtasks.is_empty() {
            subtasks.add(states.subtask_index());
        }
        Ok(Everything {
            count: states.value("count")?,
            seen: states.split_list("seen")?,
            subtasks,
            rules: states.broadcast_state("rules")?,
        })
    }
}

impl KeyedBroadcastProcessFunction for Everything {
    type Key = u64;
    type In = u64;
    type Broadcast = (String, u64);
    type Out = Known;

    fn process(
        &mut self,
        record: u64,
        ctx: &mut KeyedContext<'_, u64>,
        out: &mut Collector<Known>,
    ) -> Result<(), BoxError> {
        let count = self.count.update_or(ctx, 0, |count| {
            *count += 1;
            *count
        })?;
        self.seen.add(record);
        let mut seen = self.seen.get();
        seen.sort_unstable();
        let mut subtasks = self.subtasks.get();
        subtasks.sort_unstable();
        let rules = self.rules.with(|rules| rules.clone().into_iter().collect());
        out.emit((count, seen, subtasks, rules));
        Ok(())
    }

    fn process_broadcast(
        &mut self,
        (name, limit): (String, u64),
        ctx: &mut BroadcastContext<'_>,
        _out: &mut Collector<Known>,
    ) -> Result<(), BoxError> {
        self.rules.put(ctx, name, limit);
        Ok(())
    }
}

fn everything() -> OperatorUnderTest<Either<u64, (String, u64)>, Known> {
    keyed_broadcast_process(|record| *record, Everything::open)
}

/// A key of each subtask of four.
fn keys_of_four() -> [u64; 4] {
    let max = tidegate::MaxParallelism::derive(1);
    let owner = |key: u64| {
        let hash = tidegate::state::StateKey::key_hash(&key);
        max.owner(max.key_group(hash), 4)
    };
    [0, 1, 2, 3].map(|subtask| (0..).find(|key| owner(*key) == subtask).unwrap())
}

fn rules() -> Vec<(String, u64)> {
    vec![("high".to_owned(), 9), ("low".to_owned(), 2)]
}

/// Takes a snapshot with one record of each key in `parallelism` subtasks.
fn filled(parallelism: u32) -> OperatorSnapshot {
    let keys = keys_of_four();
    let parts = (0..parallelism).map(|index| {
        let mut subtask = everything().open_subtask(index, parallelism).unwrap();
        for rule in rules() {
            subtask.process_right(rule).unwrap();
        }
        let own = keys.iter().enumerate();
        let own = own.filter(|(at, _)| *at as u32 * parallelism / 4 == index);
        for (_, key) in own {
            subtask.process_left(*key).unwrap();
        }
        subtask.snapshot().unwrap()
    });
    OperatorSnapshot::of_subtasks(parts)
}

// RS-11, RS-12, RS-13, RS-15, L1, L15, O2: keyed state follows its key; each element of the
// split list goes to one subtask, all of the union list to each, and of the broadcast map one copy
// to each.
#[test]
fn every_kind_of_state_is_redistributed_in_its_own_way() {
    for (before, after) in [(4, 1), (1, 4), (4, 2), (2, 4), (2, 2)] {
        let snapshot = filled(before);
        let keys = keys_of_four();
        let mut split = Vec::new();
        for index in 0..after {
            let mut subtask = everything()
                .restore_subtask(&snapshot, index, after)
                .unwrap();
            let at = (0..4).find(|at| *at as u32 * after / 4 == index).unwrap();
            subtask.process_left(keys[at]).unwrap();
            let [known] = &subtask.take_output()[..] else {
                panic!("one record in, one out")
            };
            let (count, seen, subtasks, found) = known.clone();
            assert_eq!(count, 2, "{before} to {after}: its count is kept");
            assert!(subtasks.iter().copied().eq(0..before), "{subtasks:?}");
            assert_eq!(found, rules());
            split.extend(seen);
        }
        // Those of the snapshot, and the record that each subtask has just seen.
        for key in keys {
            let at = split.iter().position(|seen| *seen == key);
            split.remove(at.unwrap());
        }
        assert_eq!(split.len(), after as usize, "{before} to {after}");
    }
}
