//! Whether one looks ahead or not makes no difference but for time: to the mechanism alone, and to
//! each kind of keyed operator over tables that are large enough.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_state::{StateKey, ValueState, ValueStateDescriptor};
use tidegate_types::{MaxParallelism, SubtaskRestore, UnixMillis};

use super::*;
use crate::batch::BatchBuffer;
use crate::either::Either;
use crate::harness::{HarnessSetup, OperatorHarness};
use crate::keyed::{Count, KeyedMap};
use crate::logic::{Logic, SubtaskContext};
use crate::output::{ByReference, ByValue};
use crate::process::{
    BroadcastContext, Connected, Keyed, KeyedBroadcastProcessFunction, KeyedCoProcessFunction,
    KeyedContext, KeyedProcessFunction, Single, WithBroadcast,
};

/// More than what a table is looked ahead in from.
const MANY_KEYS: u64 = 40_000;

/// Emits each record, and notes what it was told of it before.
#[derive(Default)]
struct Witness {
    is_large: bool,
    prefetched: RefCell<Vec<u64>>,
    begun: Option<u64>,
    /// Hashes of the records, as far as they were told.
    known: Vec<Option<u64>>,
    fails_at: Option<u64>,
}

impl ByKey for Witness {
    type In = u64;
    type Out = u64;
    type Begun = u64;

    fn outgrows_cache(&self) -> bool {
        self.is_large
    }

    fn key_hash(&self, record: &u64) -> u64 {
        record + 1_000_000
    }

    fn prefetch(&self, key_hashes: &[u64], places: &mut [LikelyPlace]) {
        assert!(!key_hashes.is_empty());
        assert_eq!(places.len(), key_hashes.len());
        self.prefetched.borrow_mut().extend(key_hashes);
    }

    fn begin(&mut self, record: &u64, ahead: Ahead) -> u64 {
        assert_eq!(
            self.begun, None,
            "one is worked on before the next is begun"
        );
        let key_hash = ahead.map(|(key_hash, _)| key_hash);
        if let Some(hash) = key_hash.filter(|_| self.is_large) {
            assert!(self.prefetched.borrow().contains(&hash), "{record}");
        }
        self.known.push(key_hash);
        self.begun = Some(*record);
        *record
    }

    fn work(&mut self, record: u64, begun: u64, out: &mut Collector<u64>) -> Result<(), BoxError> {
        assert_eq!((self.begun.take(), begun), (Some(record), record));
        if self.fails_at == Some(record) {
            return Err("failed".into());
        }
        out.emit(record);
        Ok(())
    }
}

#[test]
fn each_record_is_worked_on_once_in_order_with_its_own_hash() {
    for is_large in [false, true] {
        for count in [0, 1, 31, 32, 33, 64, 65, 1000] {
            let mut witness = Witness {
                is_large,
                ..Witness::default()
            };
            let records: Vec<u64> = (0..count).collect();
            let mut input = Batch::from(records.clone());
            let mut out = Collector::collecting(usize::MAX);
            process_by_key(&mut witness, &mut input, &mut out).unwrap();
            assert_eq!(input.len(), 0);
            assert_eq!(out.take_collected(), records);
            let known = |record: &u64| is_large.then_some(record + 1_000_000);
            assert_eq!(witness.known, Vec::from_iter(records.iter().map(known)));
            let prefetched = if is_large { count as usize } else { 0 };
            assert_eq!(witness.prefetched.borrow().len(), prefetched, "each once");
        }
    }
}

#[test]
fn hashes_that_came_along_are_used() {
    for is_large in [false, true] {
        let mut witness = Witness {
            is_large,
            ..Witness::default()
        };
        let hash = |record: u64| record + 5_000_000;
        let mut input = Batch::from(BatchBuffer {
            records: Vec::from_iter(0..1300),
            key_hashes: Vec::from_iter((0..1300).map(hash)),
        });
        let mut out = Collector::collecting(1);
        while input.len() > 0 {
            // Full in the middle of a batch, and of a chunk.
            process_by_key(&mut witness, &mut input, &mut out).unwrap();
            out.take_collected();
        }
        let hashes = Vec::from_iter((0..1300).map(|record| Some(hash(record))));
        assert_eq!(witness.known, hashes);
        assert_eq!(witness.prefetched.borrow().is_empty(), !is_large);
    }
}

// Fullness shows when 512 records are staged, which is within a chunk unless a batch begins there.
#[test]
fn nothing_is_taken_once_the_output_is_full() {
    for is_large in [false, true] {
        let mut witness = Witness {
            is_large,
            ..Witness::default()
        };
        let mut out = Collector::collecting(1);
        let mut few = Batch::from(Vec::from_iter(0..5));
        process_by_key(&mut witness, &mut few, &mut out).unwrap();
        let mut input = Batch::from(Vec::from_iter(5..1300));
        process_by_key(&mut witness, &mut input, &mut out).unwrap();
        assert!(out.is_full());
        assert_eq!(input.as_slice(), Vec::from_iter(512..1300));
        process_by_key(&mut witness, &mut input, &mut out).unwrap();
        assert_eq!(input.len(), 1300 - 512, "it is still full");

        assert_eq!(out.take_collected(), Vec::from_iter(0..512));
        process_by_key(&mut witness, &mut input, &mut out).unwrap();
        assert_eq!(input.as_slice(), Vec::from_iter(1024..1300));
        assert_eq!(out.take_collected(), Vec::from_iter(512..1024));
        process_by_key(&mut witness, &mut input, &mut out).unwrap();
        assert_eq!(out.take_collected(), Vec::from_iter(1024..1300));
        let known = |record: u64| is_large.then_some(record + 1_000_000);
        assert_eq!(witness.known, Vec::from_iter((0..1300).map(known)));
    }
}

#[test]
fn an_error_stops_it_in_the_middle() {
    for is_large in [false, true] {
        let mut witness = Witness {
            is_large,
            fails_at: Some(40),
            ..Witness::default()
        };
        let mut input = Batch::from(Vec::from_iter(0..100));
        let mut out = Collector::collecting(usize::MAX);
        let failed = process_by_key(&mut witness, &mut input, &mut out);
        assert_eq!(failed.unwrap_err().to_string(), "failed");
        assert_eq!(out.take_collected(), Vec::from_iter(0..40));
        assert_eq!(input.as_slice(), Vec::from_iter(41..100));
    }
}

fn by_reference<T, K>(select: fn(&T) -> &K) -> ByReference<fn(&T) -> &K, K> {
    ByReference::new(select)
}

fn drive<In: Record, Out: Record>(
    make: impl FnOnce(&SubtaskContext) -> Result<Box<dyn Logic<In, Out>>, BoxError>,
) -> OperatorHarness<In, Out> {
    let max_parallelism = MaxParallelism::derive(1);
    let setup = HarnessSetup {
        uid: "by-key".to_owned(),
        index: 0,
        parallelism: 1,
        max_parallelism,
        restored: None,
        restore: SubtaskRestore {
            key_groups: max_parallelism.range(0, 1).unwrap(),
            keyed: Vec::new(),
            lists: Vec::new(),
            finished: false,
        },
        processing_time: UnixMillis(0),
    };
    let mut harness = OperatorHarness::open(setup, make).unwrap();
    harness.limit_output(700);
    harness
}

/// Every key once, and then in another order with many of them again, in batches of all sizes.
fn batches() -> impl Iterator<Item = Vec<u64>> {
    let keys = (0..MANY_KEYS).chain((0..MANY_KEYS).map(|n| n * n % MANY_KEYS));
    let mut keys = keys.collect::<Vec<_>>().into_iter();
    (0..)
        .map(move |n| keys.by_ref().take(1 + n * 37 % 1500).collect())
        .take_while(|batch: &Vec<u64>| !batch.is_empty())
}

/// Compares running counts per key with those of a plain map, by `input` and `expected` of a key.
fn expect_counts<In: Record, Out: Record + PartialEq + std::fmt::Debug>(
    mut harness: OperatorHarness<In, Out>,
    input: impl Fn(u64) -> In,
    expected: impl Fn(u64, u64) -> Out,
) {
    let mut counts = HashMap::<u64, u64>::new();
    for batch in batches() {
        let records = batch.iter().map(|key| input(*key)).collect();
        harness.process_batch(records).unwrap();
        let expected = batch.iter().map(|key| {
            let count = counts.entry(*key).or_default();
            *count += 1;
            expected(*key, *count)
        });
        assert_eq!(harness.take_output(), Vec::from_iter(expected));
    }
    assert_eq!(counts.len(), MANY_KEYS as usize);
}

#[test]
fn count_is_the_same() {
    expect_counts(
        drive(|context| {
            let selector = by_reference(|key: &u64| key);
            Ok(Box::new(Count::open(selector, context)?))
        }),
        |key| key,
        |key, count| (key, count),
    );
    expect_counts(
        drive(|context| {
            let selector = by_reference(|record: &(u8, String)| &record.1);
            Ok(Box::new(Count::open(selector, context)?))
        }),
        |key| (7, key.to_string()),
        |key, count| (key.to_string(), count),
    );
    expect_counts(
        drive(|context| {
            let selector = ByValue::new(|key: &u64| key.to_string());
            Ok(Box::new(Count::open(selector, context)?))
        }),
        |key| key,
        |key, count| (key.to_string(), count),
    );
}

// A key may be a text that is put together: that takes longer than to count it.
#[test]
fn a_key_that_has_to_be_made_is_made_once() {
    let made = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&made);
    let mut harness = drive(move |context| {
        let selector = ByValue::new(move |key: &u64| {
            counter.fetch_add(1, Ordering::Relaxed);
            key.to_string()
        });
        Ok(Box::new(Count::open(selector, context)?))
    });
    harness.process_batch(Vec::from_iter(0..100)).unwrap();
    assert_eq!(harness.take_output().len(), 100);
    assert_eq!(made.load(Ordering::Relaxed), 100);
}

#[test]
fn map_is_the_same() {
    let counted = drive(|context| {
        let descriptor = ValueStateDescriptor::new("count");
        let selector = ByValue::new(|record: &(u64, u64)| record.0.to_string());
        let count = |record: (u64, u64), count: &mut u64, out: &mut Collector<(u64, u64)>| {
            *count += record.1;
            out.emit((record.0, *count));
            Ok(())
        };
        let map = KeyedMap::open(selector, &descriptor, 0, count, context)?;
        Ok(Box::new(map))
    });
    expect_counts(counted, |key| (key, 1), |key, count| (key, count));
}

/// Counts, by the key of the context.
struct Counter<K: StateKey> {
    counts: ValueState<K, u64>,
}

impl<K: StateKey> Counter<K> {
    fn count(&self, ctx: &KeyedContext<'_, K>) -> Result<(K, u64), BoxError> {
        let count = self.counts.update_or(ctx, 0, |count| {
            *count += 1;
            *count
        })?;
        Ok((ctx.key().clone(), count))
    }
}

impl KeyedProcessFunction for Counter<String> {
    type Key = String;
    type In = (u64, String);
    type Out = (String, u64);

    fn process(
        &mut self,
        _record: (u64, String),
        ctx: &mut KeyedContext<'_, String>,
        out: &mut Collector<(String, u64)>,
    ) -> Result<(), BoxError> {
        out.emit(self.count(ctx)?);
        Ok(())
    }
}

impl KeyedCoProcessFunction for Counter<u64> {
    type Key = u64;
    type Left = u64;
    type Right = (u8, u64);
    type Out = (u64, u64);

    fn process_left(
        &mut self,
        _record: u64,
        ctx: &mut KeyedContext<'_, u64>,
        out: &mut Collector<(u64, u64)>,
    ) -> Result<(), BoxError> {
        out.emit(self.count(ctx)?);
        Ok(())
    }

    fn process_right(
        &mut self,
        _record: (u8, u64),
        ctx: &mut KeyedContext<'_, u64>,
        out: &mut Collector<(u64, u64)>,
    ) -> Result<(), BoxError> {
        out.emit(self.count(ctx)?);
        Ok(())
    }
}

impl KeyedBroadcastProcessFunction for Counter<u64> {
    type Key = u64;
    type In = u64;
    type Broadcast = String;
    type Out = (u64, u64);

    fn process(
        &mut self,
        _record: u64,
        ctx: &mut KeyedContext<'_, u64>,
        out: &mut Collector<(u64, u64)>,
    ) -> Result<(), BoxError> {
        out.emit(self.count(ctx)?);
        Ok(())
    }

    fn process_broadcast(
        &mut self,
        record: String,
        _ctx: &mut BroadcastContext<'_>,
        out: &mut Collector<(u64, u64)>,
    ) -> Result<(), BoxError> {
        out.emit((record.len() as u64, 0));
        Ok(())
    }
}

#[test]
fn process_functions_are_the_same() {
    let counted = drive(|context| {
        let keyed = Keyed::open(context, |states| {
            let counts = states.value("count")?;
            let selector = by_reference(|record: &(u64, String)| &record.1);
            Ok(Single::new(selector, Counter { counts }))
        })?;
        Ok(Box::new(keyed))
    });
    let record = |key: u64| (key, key.to_string());
    expect_counts(counted, record, |key, count| (key.to_string(), count));
}

#[test]
fn two_inputs_are_the_same() {
    let counted = drive(|context| {
        let keyed = Keyed::open(context, |states| {
            let counts = states.value("count")?;
            let left = by_reference(|record: &u64| record);
            let right = by_reference(|record: &(u8, u64)| &record.1);
            Ok(Connected::new(left, right, Counter { counts }))
        })?;
        Ok(Box::new(keyed))
    });
    let record = |key: u64| match key % 3 {
        0 => Either::Right((7, key)),
        _ => Either::Left(key),
    };
    expect_counts(counted, record, |key, count| (key, count));
}

// Broadcast records have no key, wherever in a chunk they come.
#[test]
fn broadcast_records_in_between_are_the_same() {
    let mut harness = drive(|context| {
        let keyed = Keyed::open(context, |states| {
            let counts = states.value("count")?;
            let selector = by_reference(|record: &u64| record);
            Ok(WithBroadcast::new(selector, Counter { counts }))
        })?;
        Ok(Box::new(keyed))
    });
    for round in 1..3 {
        let records = (0..MANY_KEYS).flat_map(|key| {
            let broadcast = (key % 7 == 3).then(|| Either::Right("rule".to_owned()));
            [Some(Either::Left(key)), broadcast].into_iter().flatten()
        });
        harness.process_batch(records.collect()).unwrap();
        let expected = (0..MANY_KEYS).flat_map(|key| {
            let broadcast = (key % 7 == 3).then_some((4, 0));
            [Some((key, round)), broadcast].into_iter().flatten()
        });
        assert_eq!(harness.take_output(), Vec::from_iter(expected));
    }
}
