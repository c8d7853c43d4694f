//! Stop-with-savepoint: what comes to an end, what doesn't, and what a job restored from it does.

use std::sync::{Arc, Mutex};

use tidegate_types::message::{DeclineReason, Report};
use tidegate_types::{AlignmentMode, CheckpointId, SnapshotKind, SubtaskState};

use crate::pipelines::{mapped, summed, unread, wait_for_all_ends, wait_until};
use crate::support::{Collected, Driven, Files, Numbers, Options, States};

const STOP: SnapshotKind = SnapshotKind::StopWithSavepoint { drain: false };
const DRAIN: SnapshotKind = SnapshotKind::StopWithSavepoint { drain: true };

fn every_setting() -> Vec<(SnapshotKind, Options, u32)> {
    let mut settings = Vec::new();
    for kind in [STOP, DRAIN] {
        for mode in [AlignmentMode::ExactlyOnce, AlignmentMode::AtLeastOnce] {
            for (parallelism, serialize) in [(1, false), (2, true), (3, false)] {
                settings.push((
                    kind,
                    Options {
                        serialize,
                        mode,
                        ..Options::default()
                    },
                    parallelism,
                ));
            }
        }
    }
    settings
}

/// What arrived and what is left to be read, together, must be everything, once.
fn assert_exact(driven: &Driven, states: &States, arrived: &[u64]) {
    let mut seen: Vec<(u64, u64)> = arrived.iter().map(|number| (*number, number + 1)).collect();
    let left = unread(&driven.plan, states, "numbers");
    seen.extend(left.iter().map(|range| (range.next, range.end)));
    seen.sort_unstable();
    let mut next = 0;
    for (from, to) in seen.into_iter().filter(|(from, to)| from < to) {
        assert_eq!(from, next, "a number is missing or doubled");
        next = to;
    }
    assert_eq!(next, u64::MAX);
}

// BC-60, SP-08: a busy source stands still at the barrier. A checkpoint triggered
// behind it is ordered after it, and would push on whatever had been emitted in between.
#[test]
fn nothing_follows_the_barrier_of_a_stop() {
    for (kind, options, parallelism) in every_setting() {
        let map = |number, out: &mut tidegate_runtime::Collector<u64>| {
            out.emit(number);
            Ok(())
        };
        let (plan, collected) = mapped(Numbers::endless(), [parallelism, parallelism, 1], map);
        let mut driven = Driven::start(plan, options);
        wait_until(|| collected.0.lock().unwrap().len() > 10_000);
        driven.trigger(1);
        driven.trigger_savepoint(2, kind);
        let states = driven.acknowledgements(2);
        let arrived = collected.0.lock().unwrap().clone();
        driven.complete(2);
        driven.trigger(3);
        let later = driven.acknowledgements(3);

        assert_exact(&driven, &states, &arrived);
        assert_eq!(states, later, "nobody has moved");
        assert_eq!(collected.0.lock().unwrap().len(), arrived.len());
        assert_eq!(
            *driven.ended.borrow(),
            [],
            "no source has read its last record"
        );
        driven.stop();
    }
}

fn finished(driven: &Driven, states: &States, uid: &str) -> Vec<bool> {
    let of_operator = |subtask: &&tidegate_types::SubtaskId| {
        driven.plan.graph().operator(subtask.operator).uid.0 == uid
    };
    let states = states.iter().filter(|(subtask, _)| of_operator(subtask));
    states.map(|(_, state)| state.finished).collect()
}

fn total(numbers: u64) -> u64 {
    (0..numbers).sum()
}

/// Runs a restored job of [`summed`] to the end of its sources; returns what the sink got.
fn run_to_the_end(sources: Vec<Numbers>, files: Files, states: &States) -> Vec<u64> {
    let readers = 2 * sources.len();
    let (plan, collected) = summed(sources, 2);
    let restored = Some((CheckpointId(1), states));
    let mut driven = Driven::start_from(plan, Options::default(), files, restored);
    wait_for_all_ends(&driven, readers);
    driven.trigger(2);
    let states = driven.acknowledgements(2);
    assert!(states.values().all(|state| state.finished), "{states:?}");
    driven.stop();
    collected.0.lock().unwrap().clone()
}

/// A job over two sources of 50 000 numbers that stand still amid a split.
fn half_read(mode: AlignmentMode) -> (Driven, Collected<u64>) {
    let limits = [10_500, 20_500].map(|limit| Arc::new(Mutex::new(limit)));
    let limited = |limit: &Arc<Mutex<u64>>| Numbers {
        limit: Some(Arc::clone(limit)),
        ..Numbers::up_to(50_000)
    };
    let (plan, collected) = summed(limits.iter().map(limited).collect(), 2);
    let options = Options {
        mode,
        ..Options::default()
    };
    let driven = Driven::start(plan, options);
    wait_until(|| limits.iter().all(|limit| *limit.lock().unwrap() == 0));
    (driven, collected)
}

// SP-08, BC-21
#[test]
fn a_stop_without_drain_ends_no_input_and_the_job_can_go_on() {
    let (mut driven, collected) = half_read(AlignmentMode::ExactlyOnce);
    driven.trigger_savepoint(1, STOP);
    let states = driven.acknowledgements(1);
    driven.stop();
    assert_eq!(*collected.0.lock().unwrap(), [], "no sum is due yet");
    assert!(states.values().all(|state| !state.finished), "{states:?}");

    let rest = vec![Numbers::up_to(50_000), Numbers::up_to(50_000)];
    let sums = run_to_the_end(rest, driven.files.clone(), &states);
    assert_eq!(sums.len(), 2, "each subtask emits its sum once");
    assert_eq!(sums.iter().sum::<u64>(), 2 * total(50_000));
}

// SP-07
#[test]
fn a_drain_finishes_everything_before_the_snapshot() {
    for mode in [AlignmentMode::ExactlyOnce, AlignmentMode::AtLeastOnce] {
        let (mut driven, collected) = half_read(mode);
        driven.trigger_savepoint(1, DRAIN);
        let states = driven.acknowledgements(1);
        assert_eq!(finished(&driven, &states, "sum"), [true; 2]);
        assert_eq!(finished(&driven, &states, "sink"), [true]);
        // A reader has not come to its end, and its position says so.
        for uid in ["numbers0", "numbers1"] {
            assert_eq!(finished(&driven, &states, uid), [false; 2]);
            assert!(
                unread(&driven.plan, &states, uid)
                    .iter()
                    .any(|range| range.end <= 50_000)
            );
        }
        assert_eq!(*driven.ended.borrow(), []);
        driven.stop();
        assert_eq!(
            collected.0.lock().unwrap().len(),
            2,
            "finish() ran once each"
        );

        // Draining is for good: a restart finds sources at their ends, reads nothing of what they
        // have not read, and finishes nothing a second time. Endless ones would never end by
        // themselves.
        let ended: States = states
            .into_iter()
            .map(|(subtask, state)| {
                let finished = true;
                (subtask, SubtaskState { finished, ..state })
            })
            .collect();
        let rest = vec![Numbers::endless(), Numbers::endless()];
        let sums = run_to_the_end(rest, driven.files.clone(), &ended);
        assert_eq!(sums, []);
    }
}

// FT-03: with a source that has ended, one that hasn't, and all that have; at both settings.
#[test]
fn a_stop_goes_through_sources_that_have_ended() {
    for kind in [STOP, DRAIN] {
        for running in [false, true] {
            let second = match running {
                true => Numbers::endless(),
                false => Numbers::up_to(3000),
            };
            let (plan, collected) = summed(vec![Numbers::up_to(2000), second], 2);
            let mut driven = Driven::start(plan, Options::default());
            wait_for_all_ends(&driven, if running { 2 } else { 4 });
            driven.trigger(1);
            driven.trigger_savepoint(2, kind);
            let states = driven.acknowledgements(2);
            driven.complete(2);
            driven.trigger(3);
            assert_eq!(driven.acknowledgements(3), states);

            assert_eq!(finished(&driven, &states, "numbers0"), [true; 2]);
            assert_eq!(finished(&driven, &states, "numbers1"), [!running; 2]);
            let finishes = !running || kind == DRAIN;
            assert_eq!(finished(&driven, &states, "sum"), [finishes; 2]);
            let sums = if finishes { 2 } else { 0 };
            assert_eq!(collected.0.lock().unwrap().len(), sums);
            driven.stop();
        }
    }
}

// A final checkpoint under way, and a stop behind it.
#[test]
fn a_stop_behind_the_final_checkpoint_finds_everything_finished() {
    let (plan, collected) = summed(vec![Numbers::up_to(1000)], 2);
    let mut driven = Driven::start(plan, Options::default());
    wait_for_all_ends(&driven, 2);
    driven.trigger_savepoint(1, SnapshotKind::Final);
    driven.trigger_savepoint(2, DRAIN);
    let states = driven.acknowledgements(2);
    assert!(states.values().all(|state: &SubtaskState| state.finished));
    assert_eq!(collected.0.lock().unwrap().iter().sum::<u64>(), total(1000));
    driven.stop();
}

#[test]
fn a_stop_that_comes_too_late_is_declined_and_stops_nothing() {
    let limit = Arc::new(Mutex::new(0));
    let source = Numbers {
        limit: Some(Arc::clone(&limit)),
        ..Numbers::up_to(1000)
    };
    let (plan, _collected) = summed(vec![source], 1);
    let mut driven = Driven::start(plan, Options::default());
    driven.trigger(5);
    driven.acknowledgements(5);
    driven.trigger_savepoint(4, DRAIN);
    driven.wait_for("decline", |report| {
        let Report::Declined {
            checkpoint, reason, ..
        } = report
        else {
            return false;
        };
        let latest = CheckpointId(5);
        *checkpoint == CheckpointId(4) && *reason == DeclineReason::Superseded { latest }
    });
    *limit.lock().unwrap() = u64::MAX;
    wait_for_all_ends(&driven, 1);
    driven.stop();
}

// The attempt is about to be replaced, and stays orderly until then.
#[test]
fn an_aborted_stop_leaves_subtasks_able_to_take_part() {
    for kind in [STOP, DRAIN] {
        let (mut driven, _collected) = half_read(AlignmentMode::ExactlyOnce);
        driven.trigger_savepoint(1, kind);
        driven.abort(1, 0);
        driven.trigger(2);
        let mut states = States::new();
        while states.len() < driven.subtasks() {
            match driven.next_report() {
                Report::Acknowledged {
                    checkpoint: CheckpointId(2),
                    subtask,
                    state,
                    ..
                } => {
                    states.insert(subtask, state);
                }
                Report::Acknowledged { .. } => {}
                Report::Declined {
                    checkpoint, reason, ..
                } => {
                    assert_eq!(checkpoint, CheckpointId(1));
                    assert_eq!(reason, DeclineReason::CancelledUpstream);
                }
                other => panic!("unexpected {other:?}"),
            }
        }
        driven.stop();
    }
}
