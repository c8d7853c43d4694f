//! An operator whose two inputs carry different types.

use tidegate_runtime::Batch;
use tidegate_runtime::{
    BoxError, Broadcast, Collector, EdgeKind, Either, FlatMap, Flow, JobPlan, Logic, Rebalance,
    Route, Snapshot,
};
use tidegate_types::graph::Partitioning;
use tidegate_types::{CheckpointBarrier, ListState, Redistribution};

use crate::pipelines::wait_for_all_ends;
use crate::support::{Collected, Driven, Files, Numbers, Options, operator};

const WORDS: u64 = 500;
const NUMBERS: u64 = 20_000;

/// Counts what comes on each side, and tells of every word and every thousandth number.
struct Tally {
    words: u64,
    numbers: u64,
}

impl Logic<Either<u64, String>, String> for Tally {
    fn process(
        &mut self,
        input: &mut Batch<Either<u64, String>>,
        out: &mut Collector<String>,
    ) -> Result<Flow, BoxError> {
        while !out.is_full() {
            match input.next() {
                None => break,
                Some(Either::Right(word)) => {
                    self.words += 1;
                    out.emit(word);
                }
                Some(Either::Left(number)) => {
                    self.numbers += 1;
                    if number % 1000 == 0 {
                        out.emit(number.to_string());
                    }
                }
            }
        }
        Ok(Flow::Continue)
    }

    fn snapshot(&mut self, _barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        let element = postcard::to_stdvec(&(self.numbers, self.words))?;
        Ok(Snapshot {
            lists: vec![ListState {
                name: "tally".to_owned(),
                redistribution: Redistribution::Split,
                elements: vec![element],
            }],
            ..Snapshot::default()
        })
    }
}

/// Numbers are dealt out to both subtasks of the tally, words go to each of them.
fn plan(numbers: Numbers, collected: &Collected<String>) -> JobPlan {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 2), numbers);
    let spelled = plan.source(operator("spelled", 1), Numbers::up_to(WORDS));
    let words = plan.operator::<u64, String, _>(operator("words", 1), |_| {
        Ok(FlatMap::new(|number: u64, out: &mut Collector<String>| {
            out.emit(format!("word {number}"));
            Ok(())
        }))
    });
    let tally = plan.operator::<Either<u64, String>, String, _>(operator("tally", 2), |context| {
        let restored = context.restored_list("tally").first();
        let restored = restored
            .map(|element| postcard::from_bytes(element))
            .transpose()?;
        let (numbers, words) = restored.unwrap_or((0, 0));
        Ok(Tally { words, numbers })
    });
    let sink = plan.sink(operator("sink", 1), collected.clone());
    fn evenly<T: tidegate_state::Record>() -> Box<dyn Route<T>> {
        Box::new(Rebalance::default())
    }
    let records = EdgeKind::Records;
    plan.connect::<u64>((spelled, words), Partitioning::Rebalance, records, |_| {
        evenly()
    });
    plan.connect_as(
        (numbers, tally),
        Partitioning::Rebalance,
        records,
        |_| evenly::<u64>(),
        Either::<u64, String>::Left,
    );
    plan.connect_as(
        (words, tally),
        Partitioning::Broadcast,
        records,
        |_| Box::new(Broadcast) as Box<dyn Route<String>>,
        Either::<u64, String>::Right,
    );
    plan.connect::<String>((tally, sink), Partitioning::Rebalance, records, |_| {
        evenly()
    });
    plan
}

fn tallies(states: &crate::support::States) -> Vec<(u64, u64)> {
    let lists = states.values().flat_map(|state| &state.lists);
    let tallies = lists.filter(|list| list.name == "tally");
    let decode = |list: &ListState| postcard::from_bytes(&list.elements[0]).unwrap();
    tallies.map(decode).collect()
}

#[test]
fn an_operator_takes_two_types_in_one_order() {
    for serialize in [false, true] {
        let collected = Collected::<String>::default();
        let options = Options {
            serialize,
            ..Options::default()
        };
        let mut driven = Driven::start(plan(Numbers::up_to(NUMBERS), &collected), options);
        wait_for_all_ends(&driven, 3);
        driven.trigger(1);
        let tallies = tallies(&driven.acknowledgements(1));
        driven.stop();
        assert_eq!(
            tallies.iter().map(|(numbers, _)| numbers).sum::<u64>(),
            NUMBERS
        );
        assert!(
            tallies.iter().all(|(_, words)| *words == WORDS),
            "{tallies:?}"
        );
        let mut collected = std::mem::take(&mut *collected.0.lock().unwrap());
        collected.sort();
        let words = (0..WORDS).map(|word| format!("word {word}"));
        let mut expected: Vec<String> = words.clone().chain(words).collect();
        expected.extend((0..NUMBERS / 1000).map(|thousand| (thousand * 1000).to_string()));
        expected.sort();
        assert_eq!(collected, expected);
    }
}

// A barrier is aligned over both inputs: what the tally has counted when it is taken in the middle,
// and what the sources still have to read, is everything once.
#[test]
fn a_snapshot_cuts_both_inputs_at_one_point() {
    let collected = Collected::<String>::default();
    let files = Files::default();
    let numbers = Numbers::up_to(NUMBERS);
    let mut driven = Driven::start_from(
        plan(numbers.clone(), &collected),
        Options::default(),
        files.clone(),
        None,
    );
    driven.trigger(1);
    let states = driven.acknowledgements(1);
    driven.stop();

    let restored = Some((tidegate_types::CheckpointId(1), &states));
    let mut driven = Driven::start_from(
        plan(numbers, &collected),
        Options::default(),
        files,
        restored,
    );
    wait_for_all_ends(&driven, 3);
    driven.trigger(2);
    let tallies = tallies(&driven.acknowledgements(2));
    driven.stop();
    assert_eq!(
        tallies.iter().map(|(numbers, _)| numbers).sum::<u64>(),
        NUMBERS
    );
    assert!(
        tallies.iter().all(|(_, words)| *words == WORDS),
        "{tallies:?}"
    );
}
