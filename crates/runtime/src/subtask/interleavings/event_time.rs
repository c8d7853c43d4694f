//! Watermarks on their way through a job, between data, barriers, ends and stops, by the main
//! output of an operator and by the side.

use tidegate_types::graph::Partitioning;
use tidegate_types::{AlignmentMode, SnapshotKind};

use super::scripted::{FIRED, Heard, Line, OPERATORS, Play, SIDE, Who};
use super::{Random, edges_of};
use crate::background::Background;
use Heard::{Finish, Record, Snapshot, Watermark};
use Line::{Active, Emit, End, Idle};
use std::sync::atomic::Ordering;

const MAX: Heard = Watermark(i64::MAX);
const STOP: SnapshotKind = SnapshotKind::StopWithSavepoint { drain: false };

fn play_in(mode: AlignmentMode, play: impl FnOnce(&mut Play<'_>) + Send + Sync + 'static) {
    let (background, thread) = Background::start("unused".to_owned()).unwrap();
    timely::execute_directly(move |worker| {
        let mut stage = Play::start(worker, &background, mode, Partitioning::Rebalance);
        stage.settle();
        play(&mut stage);
        stage.close();
    });
    thread.join().unwrap();
}

fn play(play: impl FnOnce(&mut Play<'_>) + Send + Sync + 'static) {
    play_in(AlignmentMode::ExactlyOnce, play);
}

/// The other source has nothing to do with it.
fn alone(stage: &mut Play<'_>) {
    stage.tell(1, &[Idle]);
    stage.settle();
}

#[test]
fn a_watermark_stays_between_the_data_and_the_barriers_around_it() {
    play(|stage| {
        alone(stage);
        stage.tell(0, &[Emit(1), Line::Watermark(10), Emit(2)]);
        stage.settle();
        for source in [0, 1] {
            stage.trigger(source, 1, SnapshotKind::Checkpoint);
        }
        stage.tell(
            0,
            &[Line::Watermark(20), Emit(3), Emit(4), Line::Watermark(30)],
        );
        stage.settle();
        let expected = [
            Record(1),
            Watermark(10),
            Record(2),
            Snapshot(1),
            Watermark(20),
            Record(3),
            Record(4),
            Watermark(30),
        ];
        assert_eq!(stage.log.of(Who::Middle), expected);
        assert_eq!(stage.log.of(Who::Sink), expected);
    });
}

#[test]
fn the_slowest_channel_holds_the_watermark_back_unless_it_is_idle() {
    play(|stage| {
        stage.tell(0, &[Emit(1), Line::Watermark(10)]);
        stage.settle();
        assert_eq!(stage.log.of(Who::Sink), [Record(1)]);
        stage.tell(1, &[Line::Watermark(5)]);
        stage.settle();
        assert_eq!(stage.log.of(Who::Sink), [Record(1), Watermark(5)]);
        stage.tell(1, &[Idle]);
        stage.settle();
        let released = [Record(1), Watermark(5), Watermark(10)];
        assert_eq!(stage.log.of(Who::Sink), released);
        // Idleness itself goes on to the sink: else the next watermark would be ignored there.
        stage.tell(0, &[Idle]);
        stage.settle();
        stage.tell(1, &[Active, Line::Watermark(11)]);
        stage.settle();
        assert_eq!(stage.log.of(Who::Sink).last(), Some(&Watermark(11)));
    });
}

#[test]
fn a_watermark_behind_a_barrier_waits_for_the_alignment() {
    play(|stage| {
        for source in [0, 1] {
            stage.tell(source, &[Line::Watermark(3)]);
        }
        stage.settle();
        stage.trigger(0, 1, SnapshotKind::Checkpoint);
        stage.settle();
        stage.tell(0, &[Emit(1), Line::Watermark(10)]);
        stage.tell(1, &[Emit(2), Line::Watermark(7)]);
        stage.settle();
        assert_eq!(stage.log.of(Who::Middle), [Watermark(3), Record(2)]);
        let told = stage.controls.told_of_waiting.clone();
        assert_ne!(told.load(Ordering::SeqCst), 0, "its input is not silent");
        stage.trigger(1, 1, SnapshotKind::Checkpoint);
        stage.settle();
        told.store(0, Ordering::SeqCst);
        stage.tell(0, &[Idle, Active]);
        stage.settle();
        assert_eq!(told.load(Ordering::SeqCst), 0, "nothing waits any more");
        let expected = [
            Watermark(3),
            Record(2),
            Snapshot(1),
            Record(1),
            Watermark(7),
        ];
        assert_eq!(stage.log.of(Who::Middle), expected);
        assert_eq!(stage.log.of(Who::Sink), expected);
    });
}

// Timers that a watermark fires are before the barrier behind it, however many there are.
#[test]
fn a_barrier_waits_while_firing_is_paused_by_a_full_collector() {
    play(|stage| {
        alone(stage);
        stage.controls.timers.store(20, Ordering::SeqCst);
        *stage.controls.pausing.lock().unwrap() = Some(Who::Sink);
        stage.tell(0, &[Line::Watermark(10)]);
        stage.settle();
        for source in [0, 1] {
            stage.trigger(source, 1, SnapshotKind::Checkpoint);
        }
        stage.tell(1, &[Active, Emit(1)]);
        stage.settle();
        assert_eq!(stage.log.of(Who::Middle), [], "it fires, and is not done");
        assert_eq!(stage.states(1).len(), 2, "the sources");

        stage.end_break();
        let mut fired: Vec<Heard> = (1..=20).map(|timer| Record(FIRED + timer)).collect();
        fired.extend([Watermark(10), Snapshot(1), Record(1)]);
        assert_eq!(stage.log.of(Who::Sink), fired);
        let middle = [Watermark(10), Snapshot(1), Record(1)];
        assert_eq!(stage.log.of(Who::Middle), middle);
        assert_eq!(stage.states(1).len(), OPERATORS);
    });
}

#[test]
fn the_end_of_time_comes_once_and_before_the_end_of_data() {
    play(|stage| {
        stage.tell(0, &[Emit(1), End]);
        stage.settle();
        assert_eq!(stage.log.of(Who::Middle), [Record(1)], "the other goes on");
        stage.tell(1, &[Line::Watermark(5), Emit(9), End]);
        stage.settle();
        let expected = [Record(1), Watermark(5), Record(9), MAX, Finish];
        assert_eq!(stage.log.of(Who::Middle), expected);
        assert_eq!(stage.log.of(Who::Sink), expected);
        for checkpoint in [1, 2] {
            for source in [0, 1] {
                stage.trigger(source, checkpoint, SnapshotKind::Final);
            }
            stage.settle();
        }
        let all = [&expected[..], &[Snapshot(1), Snapshot(2)]].concat();
        assert_eq!(stage.log.of(Who::Sink), all);
    });
}

// BC-21: what is behind the barrier neither fires nor ends anything.
#[test]
fn a_stop_without_drain_lets_no_watermark_pass() {
    for mode in [AlignmentMode::ExactlyOnce, AlignmentMode::AtLeastOnce] {
        play_in(mode, |stage| {
            stage.controls.timers.store(2, Ordering::SeqCst);
            for source in [0, 1] {
                stage.tell(source, &[Emit(source as u64), Line::Watermark(5)]);
            }
            stage.settle();
            for source in [0, 1] {
                stage.trigger(source, 1, STOP);
                stage.tell(source, &[Emit(7), Line::Watermark(9), End]);
            }
            stage.settle();
            let heard = stage.log.of(Who::Sink);
            let fired = [FIRED + 1, FIRED + 2].map(Record);
            assert_eq!(
                heard[2..],
                [&fired[..], &[Watermark(5), Snapshot(1)]].concat()
            );
            assert_eq!(stage.states(1).len(), OPERATORS);
        });
    }
}

#[test]
fn markers_stand_at_the_same_place_on_a_side_output() {
    play(|stage| {
        alone(stage);
        stage.tell(
            0,
            &[Emit(SIDE + 1), Line::Watermark(10), Emit(1), Emit(SIDE + 2)],
        );
        stage.settle();
        for source in [0, 1] {
            stage.trigger(source, 1, SnapshotKind::Checkpoint);
        }
        stage.tell(0, &[Emit(SIDE + 3), End]);
        stage.tell(1, &[End]);
        stage.settle();
        let side = [1, 2, 3].map(|number| Record(SIDE + number));
        let expected = [
            side[0],
            Watermark(10),
            side[1],
            Snapshot(1),
            side[2],
            MAX,
            Finish,
        ];
        assert_eq!(stage.log.of(Who::SideSink), expected);
        let main = [Watermark(10), Record(1), Snapshot(1), MAX, Finish];
        assert_eq!(stage.log.of(Who::Sink), main);
        for source in [0, 1] {
            stage.trigger(source, 2, SnapshotKind::Final);
        }
        stage.settle();
        assert_eq!(stage.states(2).len(), OPERATORS);
    });
}

#[test]
fn a_full_side_output_stops_the_operator() {
    play(|stage| {
        alone(stage);
        *stage.controls.pausing.lock().unwrap() = Some(Who::SideSink);
        let numbers: Vec<Line> = (0..200).map(|number| Emit(SIDE + number)).collect();
        stage.tell(0, &numbers);
        stage.tell(0, &[Emit(1), Line::Watermark(9)]);
        stage.settle();
        let taken = stage.log.of(Who::Middle);
        assert!(taken.len() < 20, "{} taken", taken.len());
        assert_eq!(
            stage.log.of(Who::Sink),
            [],
            "what is behind waits, on the main output too"
        );
        for source in [0, 1] {
            stage.trigger(source, 1, SnapshotKind::Checkpoint);
        }
        stage.end_break();
        (0..10).for_each(|_| stage.settle());
        assert_eq!(stage.log.of(Who::Middle).len(), 203);
        let side = stage.log.of(Who::SideSink);
        let records = side.iter().filter(|heard| matches!(heard, Record(_)));
        assert_eq!((records.count(), side.len()), (200, 202));
        assert_eq!(stage.states(1).len(), OPERATORS);
    });
}

/// Per mode of alignment.
const SEEDS: u64 = 1_000;

/// A source that keeps its word: what it emits is later than its watermark.
struct Honest {
    watermark: u64,
    emitted: u64,
}

impl Honest {
    fn line(&mut self, random: &mut Random) -> Line {
        if random.below(3) == 0 {
            self.watermark += random.below(10);
            return Line::Watermark(self.watermark as i64);
        }
        self.emitted += 1;
        let time = self.watermark + 1 + random.below(20);
        Emit(if random.below(3) == 0 {
            SIDE + time
        } else {
            time
        })
    }
}

/// Two sources, a watermark now and then, checkpoints, and a worker that gets on at random.
fn perform(stage: &mut Play<'_>, seed: u64) -> u64 {
    let mut random = Random(seed);
    let mut sources = [0, 1].map(|_| Honest {
        watermark: 0,
        emitted: 0,
    });
    stage
        .controls
        .timers
        .store(random.below(4) as usize, Ordering::SeqCst);
    let checkpoints = 1 + random.below(3);
    let mut given = [0, 0];
    for _ in 0..random.below(80) {
        let source = random.below(2) as usize;
        match random.below(8) {
            0 if given[source] < checkpoints => {
                given[source] += 1;
                stage.trigger(source, given[source], SnapshotKind::Checkpoint);
            }
            1..=4 => stage.tell(source, &[sources[source].line(&mut random)]),
            _ => stage.step(),
        }
    }
    for source in [0, 1] {
        for checkpoint in given[source] + 1..=checkpoints {
            stage.trigger(source, checkpoint, SnapshotKind::Checkpoint);
        }
        stage.tell(source, &[End]);
    }
    stage.settle();
    checkpoints
}

fn check_nothing_is_late(heard: &[Heard], seed: u64) {
    let mut watermark = i64::MIN;
    for event in heard {
        match *event {
            Record(time) if !(FIRED..SIDE).contains(&time) => {
                let time = time % SIDE;
                assert!(
                    time as i64 > watermark,
                    "seed {seed}: {time} is late in {heard:?}"
                );
            }
            Watermark(next) => {
                assert!(next > watermark, "seed {seed}: {heard:?}");
                watermark = next;
            }
            Record(_) | Snapshot(_) | Finish => {}
        }
    }
    assert_eq!(watermark, i64::MAX, "seed {seed}");
}

/// Numbers that were heard before the snapshot, in order of size.
fn before_snapshot(heard: &[Heard], checkpoint: u64) -> Vec<u64> {
    let cut = heard
        .iter()
        .position(|event| *event == Snapshot(checkpoint));
    let before = &heard[..cut.expect("taken")];
    let number = |event: &Heard| match event {
        Record(number) if !(FIRED..SIDE).contains(number) => Some(*number),
        _ => None,
    };
    let mut numbers: Vec<u64> = before.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn whatever_the_order_nothing_becomes_late_and_snapshots_cut_all_channels_alike() {
    let (background, thread) = Background::start("unused".to_owned()).unwrap();
    timely::execute_directly(move |worker| {
        for seed in 0..SEEDS {
            let mode = AlignmentMode::ExactlyOnce;
            let mut stage = Play::start(worker, &background, mode, edges_of(seed));
            let checkpoints = perform(&mut stage, seed);
            let heard = [Who::Middle, Who::Sink, Who::SideSink].map(|who| stage.log.of(who));
            for heard in &heard {
                check_nothing_is_late(heard, seed);
            }
            for checkpoint in 1..=checkpoints {
                let mut sent: Vec<u64> = [0, 1]
                    .map(|source| before_snapshot(&stage.log.of(Who::Source(source)), checkpoint))
                    .concat();
                sent.sort_unstable();
                let [middle, sink, side] =
                    [0, 1, 2].map(|at| before_snapshot(&heard[at], checkpoint));
                assert_eq!(middle, sent, "seed {seed}");
                assert_eq!(
                    [sink, side].concat(),
                    sent,
                    "seed {seed}: both outputs together"
                );
            }
            stage.close();
        }
    });
    thread.join().unwrap();
}
