//! Random streams: whatever upstream skips, cancels and closes and whatever is aborted, nothing
//! deadlocks, ids stay in order, and an exactly-once snapshot contains exactly what it should.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_types::{AlignmentMode, CheckpointId};

use super::AlignmentAction;
use super::harness::{Event, Item, Subtask, barrier};

/// What a channel does about one checkpoint.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Barrier,
    Cancel,
    Skip,
}

/// Per checkpoint: records before it and its fate. Afterwards the channel may close.
#[derive(Clone, Debug)]
struct ChannelPlan {
    checkpoints: Vec<(usize, Fate)>,
    closes_after: Option<usize>,
}

impl ChannelPlan {
    /// The items, without the last checkpoint that every open channel gets.
    fn items(&self, name: usize) -> Vec<Item> {
        let mut items = Vec::new();
        let take = self.closes_after.unwrap_or(usize::MAX);
        for (index, (records, fate)) in self.checkpoints.iter().enumerate().take(take) {
            let id = index as u64 + 1;
            items.extend((0..*records).map(|n| Item::Data(format!("{name}.{id}.{n}"))));
            match fate {
                Fate::Barrier => items.push(Item::Barrier(barrier(id))),
                Fate::Cancel => items.push(Item::Cancel(CheckpointId(id))),
                Fate::Skip => {}
            }
        }
        match self.closes_after {
            Some(_) => items.push(Item::Close),
            None => items.push(Item::Barrier(barrier(self.checkpoints.len() as u64 + 1))),
        }
        items
    }
}

fn plan(checkpoints: usize, faults: bool) -> impl Strategy<Value = ChannelPlan> {
    let fate = if faults {
        prop_oneof![6 => Just(Fate::Barrier), 1 => Just(Fate::Cancel), 1 => Just(Fate::Skip)]
            .boxed()
    } else {
        Just(Fate::Barrier).boxed()
    };
    let closes_after = if faults {
        prop_oneof![3 => Just(None), 1 => (0..=checkpoints).prop_map(Some)].boxed()
    } else {
        Just(None).boxed()
    };
    (vec((0..4usize, fate), checkpoints), closes_after).prop_map(|(checkpoints, closes_after)| {
        ChannelPlan {
            checkpoints,
            closes_after,
        }
    })
}

#[derive(Clone, Debug)]
struct Run {
    mode: AlignmentMode,
    plans: Vec<ChannelPlan>,
    /// Which readable channel to read next, modulo how many there are.
    picks: Vec<usize>,
    /// Notices: before which pick, and of which checkpoint.
    notices: Vec<(usize, u64)>,
}

fn run(faults: bool) -> impl Strategy<Value = Run> {
    let mode = prop_oneof![
        Just(AlignmentMode::ExactlyOnce),
        Just(AlignmentMode::AtLeastOnce)
    ];
    (mode, 1..5usize, 1..10usize).prop_flat_map(move |(mode, channels, checkpoints)| {
        let notices = if faults { 0..4 } else { 0..1 };
        (
            vec(plan(checkpoints, faults), channels),
            vec(any::<usize>(), 300),
            vec((0..60usize, 1..=checkpoints as u64), notices),
        )
            .prop_map(move |(plans, picks, notices)| Run {
                mode,
                plans,
                picks,
                notices,
            })
    })
}

impl Run {
    /// Reads everything, in the order of the picks. Panics if nothing can be read though
    /// something is queued.
    fn execute(&self) -> Subtask {
        let mut subtask = Subtask::new(self.mode, self.plans.len() as u32);
        for (channel, plan) in self.plans.iter().enumerate() {
            for item in plan.items(channel) {
                subtask.enqueue(channel, item);
            }
        }
        let mut picks = self.picks.iter().cycle().enumerate();
        while subtask.queued_any() {
            let (step, pick) = picks.next().unwrap();
            for (_, id) in self.notices.iter().filter(|(at, _)| *at == step) {
                subtask.notify_abort(CheckpointId(*id));
            }
            let readable = subtask.readable();
            assert!(!readable.is_empty(), "deadlock: {:?}", subtask.alignment);
            subtask.take_from(readable[pick % readable.len()]).unwrap();
        }
        subtask
    }

    fn last_id(&self) -> u64 {
        self.plans[0].checkpoints.len() as u64 + 1
    }
}

fn snapshots(log: &[Event]) -> Vec<u64> {
    let id = |event: &Event| match event {
        Event::Action(AlignmentAction::Snapshot { barrier, .. }) => Some(barrier.checkpoint.0),
        _ => None,
    };
    log.iter().filter_map(id).collect()
}

fn aborts(log: &[Event]) -> Vec<u64> {
    let id = |event: &Event| match event {
        Event::Action(AlignmentAction::Abort { checkpoint, .. }) => Some(checkpoint.0),
        _ => None,
    };
    log.iter().filter_map(id).collect()
}

fn data_of(channel: usize, log: &[Event]) -> Vec<String> {
    let data = |event: &Event| match event {
        Event::Data(from, data) if *from == channel => Some(data.clone()),
        _ => None,
    };
    log.iter().filter_map(data).collect()
}

/// The records of a channel before the barrier of `id`; all of them if it closes before.
fn data_before(items: &[Item], id: u64) -> Vec<String> {
    let is_barrier = |item: &Item| matches!(item, Item::Barrier(b) if b.checkpoint.0 == id);
    let end = items.iter().position(is_barrier).unwrap_or(items.len());
    let data = |item: &Item| match item {
        Item::Data(data) => Some(data.clone()),
        _ => None,
    };
    items[..end].iter().filter_map(data).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    // AL-20, AL-04, AL-05, TR-04: also with skips, cancels, closes and abort notices.
    #[test]
    fn ids_stay_in_order_and_nothing_deadlocks(run in run(true)) {
        let subtask = run.execute();
        let (snapshots, aborts) = (snapshots(&subtask.log), aborts(&subtask.log));
        prop_assert!(snapshots.is_sorted_by(|a, b| a < b), "{snapshots:?}");
        let mut decided = BTreeSet::new();
        for id in snapshots.iter().chain(&aborts) {
            prop_assert!(decided.insert(*id), "{} decided twice", id);
        }
        for (channel, plan) in run.plans.iter().enumerate() {
            let all = data_before(&plan.items(channel), u64::MAX);
            prop_assert_eq!(data_of(channel, &subtask.log), all);
        }
        prop_assert!(!subtask.alignment.blocked_any());
        let open_any = run.plans.iter().any(|plan| plan.closes_after.is_none());
        if open_any {
            prop_assert_eq!(snapshots.last(), Some(&run.last_id()));
            prop_assert!(subtask.is_settled());
        }
    }

    // AL-05: the snapshot holds what came before the barrier on every channel, nothing else.
    #[test]
    fn an_exactly_once_snapshot_holds_what_came_before_its_barrier(mut run in run(true)) {
        run.mode = AlignmentMode::ExactlyOnce;
        let log = run.execute().log;
        for (position, event) in log.iter().enumerate() {
            let Event::Action(AlignmentAction::Snapshot { barrier, .. }) = event else {
                continue;
            };
            for (channel, plan) in run.plans.iter().enumerate() {
                let expected = data_before(&plan.items(channel), barrier.checkpoint.0);
                prop_assert_eq!(data_of(channel, &log[..position]), expected);
            }
        }
    }

    // At least once: the snapshot holds everything from before the barrier, and maybe more.
    #[test]
    fn an_at_least_once_snapshot_misses_nothing(mut run in run(true)) {
        run.mode = AlignmentMode::AtLeastOnce;
        let log = run.execute().log;
        for (position, event) in log.iter().enumerate() {
            let Event::Action(AlignmentAction::Snapshot { barrier, .. }) = event else {
                continue;
            };
            for (channel, plan) in run.plans.iter().enumerate() {
                let expected = data_before(&plan.items(channel), barrier.checkpoint.0);
                prop_assert!(data_of(channel, &log[..position]).starts_with(&expected));
            }
        }
    }

    // Several checkpoints in flight: without faults each one is snapshotted, in both modes.
    #[test]
    fn without_faults_every_checkpoint_is_taken(run in run(false)) {
        let log = run.execute().log;
        prop_assert_eq!(snapshots(&log), (1..=run.last_id()).collect::<Vec<_>>());
        prop_assert_eq!(aborts(&log), Vec::<u64>::new());
    }
}
