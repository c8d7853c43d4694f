//! Timers: order, snapshots, restore at other parallelisms.
use std::collections::BTreeSet;

use proptest::prelude::*;
use tidegate_state::{At, StateKey, TimerService, Timers, TimersDescriptor, ValueStateDescriptor};
use tidegate_types::MaxParallelism;

use super::Backend;
use crate::under_test::{BackendUnderTest, Pieces};

fn max() -> MaxParallelism {
    MaxParallelism::new(16).unwrap()
}

fn backend(index: u32, parallelism: u32) -> Backend<u64> {
    Backend::make(max(), max().range(index, parallelism).unwrap())
}

fn descriptor() -> TimersDescriptor {
    TimersDescriptor::event_time("timers")
}

fn load(backend: &mut Backend<u64>, saved: &[Pieces]) {
    for pieces in saved {
        backend.restore(pieces).unwrap();
    }
}

/// Timers of both kinds.
fn service<N: StateKey>(backend: &mut Backend<u64>, name: &str) -> TimerService<u64, N> {
    let event_time = TimersDescriptor::event_time(format!("{name}/event-time"));
    let processing_time = TimersDescriptor::processing_time(format!("{name}/processing-time"));
    TimerService {
        event_time: backend.bind_within(&event_time).unwrap(),
        processing_time: backend.bind_within(&processing_time).unwrap(),
    }
}

/// Takes everything that is due.
fn fire(timers: &Timers<u64, u32>, limit: i64) -> Vec<(u64, u32, i64)> {
    std::iter::from_fn(|| timers.next_due(limit).unwrap()).collect()
}

// KS-20: by time, each once, whatever the order of registration.
#[test]
fn timers_come_in_the_order_of_time() {
    let mut live = backend(0, 1);
    let timers = live.bind_within::<u32, _>(&descriptor()).unwrap();
    let mut model = BTreeSet::new();
    for number in 0..3000u64 {
        let (key, window, time) = (
            number % 101,
            (number % 7) as u32,
            (number * 7919 % 500) as i64,
        );
        let at = At::key(&key).within(&window);
        let new = timers.register(&at, time - 250).unwrap();
        assert_eq!(new, model.insert((time - 250, key, window)));
        if number % 3 == 0 {
            assert!(timers.delete(&at, time - 250).unwrap());
            model.remove(&(time - 250, key, window));
        }
    }
    assert_eq!((timers.len(), live.entries()), (model.len(), model.len()));
    assert_eq!(timers.earliest(), model.first().map(|first| first.0));
    let early = fire(&timers, -1);
    let late = fire(&timers, i64::MAX);
    assert!(early.iter().all(|timer| timer.2 < 0) && late.iter().all(|timer| timer.2 >= 0));
    let fired: Vec<_> = early.into_iter().chain(late).collect();
    assert!(fired.windows(2).all(|pair| pair[0].2 <= pair[1].2));
    let set: BTreeSet<_> = fired
        .iter()
        .map(|(key, window, time)| (*time, *key, *window))
        .collect();
    assert_eq!((set, fired.len()), (model.clone(), model.len()));
    assert!(timers.is_empty() && timers.earliest().is_none());
}

/// At the ends of time, and in the order that a restore keeps.
#[test]
fn timers_of_one_time_keep_their_order() {
    let mut live = backend(0, 1);
    let timers = live.bind_within::<u32, _>(&descriptor()).unwrap();
    for key in 0..200u64 {
        for time in [i64::MIN, 5, i64::MAX] {
            timers
                .register(&At::key(&key).within(&((key % 3) as u32)), time)
                .unwrap();
        }
    }
    let mut copy = backend(0, 1);
    load(&mut copy, &[live.save()]);
    let copy = copy.bind_within::<u32, _>(&descriptor()).unwrap();
    let fired = fire(&timers, i64::MAX);
    assert_eq!(fired.len(), 600);
    assert_eq!(fired, fire(&copy, i64::MAX));
}

/// A visitor of due timers may set new ones; those that are due come in turn.
#[test]
fn timers_set_while_firing_take_their_place() {
    let mut live = backend(0, 1);
    let timers = live.bind_within::<u32, _>(&descriptor()).unwrap();
    timers.register(&At::key(&1).within(&0), 10).unwrap();
    timers.register(&At::key(&1).within(&0), 30).unwrap();
    assert_eq!(timers.next_due(50).unwrap(), Some((1, 0, 10)));
    timers.register(&At::key(&2).within(&0), 20).unwrap();
    timers.register(&At::key(&1).within(&0), 5).unwrap();
    assert_eq!(fire(&timers, 50), [(1, 0, 5), (2, 0, 20), (1, 0, 30)]);
}

// BC-39: from 1 subtask to 2, to 3, to 1: each timer fires once, where its key is now, and what has
// fired before a snapshot doesn't fire again.
#[test]
fn timers_fire_once_on_the_owner_of_their_key() {
    let mut first = backend(0, 1);
    let timers = first.bind_within::<u32, _>(&descriptor()).unwrap();
    let mut expected = BTreeSet::new();
    for key in 0..500u64 {
        for window in 0..3u32 {
            let time = (key as i64) * 3 + i64::from(window);
            timers
                .register(&At::key(&key).within(&window), time)
                .unwrap();
            expected.insert((key, window, time));
        }
    }
    let mut fired = fire(&timers, 99);
    let mut files = vec![first.save()];
    // What fires after the snapshot is lost with the attempt, and fires again.
    assert_eq!(fire(&timers, 400).len(), 301);
    for (parallelism, limit) in [(2, 600), (3, 900), (1, i64::MAX)] {
        let mut next = Vec::new();
        for index in 0..parallelism {
            let mut subtask = backend(index, parallelism);
            if index == 0 {
                // Bound and used before anything is restored.
                let timers = subtask.bind_within::<u32, _>(&descriptor()).unwrap();
                assert_eq!(timers.earliest(), None);
            }
            load(&mut subtask, &files);
            let timers = subtask.bind_within::<u32, _>(&descriptor()).unwrap();
            let due = fire(&timers, limit);
            for (key, ..) in &due {
                let group = max().key_group(key.key_hash());
                assert!(max().range(index, parallelism).unwrap().contains(group));
            }
            fired.extend(due);
            next.push(subtask.save());
        }
        files = next;
    }
    assert_eq!(fired.len(), expected.len());
    assert_eq!(fired.into_iter().collect::<BTreeSet<_>>(), expected);
}

// BC-40: a window's timer is at its last millisecond. It fires once that is over: a record at the
// window's end belongs to the next window, one in the last millisecond to this one.
#[test]
fn processing_timers_wait_for_their_millisecond_to_pass() {
    const SIZE: i64 = 10;
    let mut live = backend(0, 1);
    let timers = service::<i64>(&mut live, "windows");
    let counts = live
        .bind_within::<i64, _>(&ValueStateDescriptor::<u64>::new("counts"))
        .unwrap();
    let mut closed = Vec::new();
    for now in 0..=30 {
        while let Some((key, start, time)) = timers.next_processing_timer(now).unwrap() {
            assert_eq!(time, start + SIZE - 1);
            let at = At::key(&key).within(&start);
            closed.push((start, now, counts.get(&at).unwrap()));
            counts.clear(&at).unwrap();
        }
        // Two records in each millisecond, one of them after the timers were looked at.
        for _ in 0..2 {
            let start = now - now % SIZE;
            let at = At::key(&7).within(&start);
            counts.update_or(&at, 0, |count| *count += 1).unwrap();
            timers
                .processing_time
                .register(&at, start + SIZE - 1)
                .unwrap();
        }
        let end = now - now % SIZE + SIZE;
        assert_eq!(timers.next_processing_wakeup(), Some(end));
        assert_eq!(timers.next_processing_timer(now).unwrap(), None);
    }
    assert_eq!(
        closed,
        [(0, 10, Some(20)), (10, 20, Some(20)), (20, 30, Some(20))]
    );
    assert_eq!(timers.next_processing_timer(i64::MIN).unwrap(), None);
}

#[test]
fn the_kinds_of_time_are_apart() {
    let mut live = backend(0, 1);
    let timers = service::<()>(&mut live, "timers");
    timers.event_time.register(&At::key(&1), 5).unwrap();
    timers.processing_time.register(&At::key(&2), 6).unwrap();
    let mut copy = backend(0, 1);
    load(&mut copy, &[live.save()]);
    let copy = service::<()>(&mut copy, "timers");
    for timers in [timers, copy] {
        assert_eq!(timers.next_event_timer(9).unwrap(), Some((1, (), 5)));
        assert_eq!(timers.next_event_timer(9).unwrap(), None);
        assert_eq!(timers.next_processing_timer(6).unwrap(), None);
        assert_eq!(timers.next_processing_timer(7).unwrap(), Some((2, (), 6)));
    }
    // Not as timers of the other kind, nor with another namespace.
    let other = TimersDescriptor::processing_time("timers/event-time");
    assert!(live.bind(&other).is_err());
    let event_time = TimersDescriptor::event_time("timers/event-time");
    assert!(live.bind_within::<u32, _>(&event_time).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Register(u64, u32, i64),
    Delete(u64, u32, i64),
    Fire(i64, usize),
    Freeze,
    Advance(usize),
    Restore,
}

fn step() -> impl Strategy<Value = Step> {
    let timer = || (0u64..40, 0u32..3, -20i64..20);
    prop_oneof![
        6 => timer().prop_map(|(key, window, time)| Step::Register(key, window, time)),
        4 => timer().prop_map(|(key, window, time)| Step::Delete(key, window, time)),
        2 => (-20i64..20, 0usize..30).prop_map(|(limit, most)| Step::Fire(limit, most)),
        1 => Just(Step::Freeze),
        2 => (0usize..4).prop_map(Step::Advance),
        1 => Just(Step::Restore),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    // KS-20: against an ordered set, with snapshots under way and restores in between.
    #[test]
    fn timers_behave_as_an_ordered_set(steps in prop::collection::vec(step(), 0..250)) {
        let mut live = backend(0, 1);
        let mut timers = live.bind_within::<u32, _>(&descriptor()).unwrap();
        let mut model = BTreeSet::<(i64, u64, u32)>::new();
        let mut frozen = Vec::new();
        for step in steps {
            match step {
                Step::Register(key, window, time) => {
                    let new = timers.register(&At::key(&key).within(&window), time).unwrap();
                    prop_assert_eq!(new, model.insert((time, key, window)));
                }
                Step::Delete(key, window, time) => {
                    let was = timers.delete(&At::key(&key).within(&window), time).unwrap();
                    prop_assert_eq!(was, model.remove(&(time, key, window)));
                }
                Step::Fire(limit, most) => {
                    for _ in 0..most {
                        let first = model.first().map(|first| first.0);
                        prop_assert_eq!(timers.earliest(), first);
                        let due = first.filter(|first| *first <= limit);
                        let fired = timers.next_due(limit).unwrap();
                        prop_assert_eq!(fired.map(|fired| fired.2), due);
                        let Some((key, window, time)) = fired else { break };
                        prop_assert!(model.remove(&(time, key, window)));
                    }
                }
                Step::Freeze => frozen.push((live.begin_snapshot(), model.clone())),
                Step::Advance(budget) => {
                    live.advance(budget);
                }
                Step::Restore => {
                    let file = live.save();
                    for (frozen, _) in frozen.drain(..) {
                        live.cancel(frozen);
                    }
                    live = backend(0, 1);
                    load(&mut live, &[file]);
                    timers = live.bind_within::<u32, _>(&descriptor()).unwrap();
                }
            }
        }
        frozen.push((live.begin_snapshot(), model));
        for (frozen, model) in frozen {
            let mut copy = backend(0, 1);
            load(&mut copy, &[live.complete(frozen)]);
            let copy = copy.bind_within::<u32, _>(&descriptor()).unwrap();
            let all = fire(&copy, i64::MAX);
            prop_assert_eq!(all.len(), model.len());
            let timers = all.iter().map(|(key, window, time)| (*time, *key, *window));
            prop_assert_eq!(timers.collect::<BTreeSet<_>>(), model);
        }
    }
}
