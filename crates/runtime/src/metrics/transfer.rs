//! The counters of one process's subtasks, on their way to the process that watches the attempt.
//!
//! A process sends what has changed since it was last asked, of its own subtasks; the watching
//! process applies it to counters of its own, which then answer every question as if the subtasks
//! ran there. Between checkpoints the channels of a subtask all stand at the same barrier, so they
//! are sent as runs, and only if they have got on: an update has some tens of bytes per subtask,
//! however many channels it has, and records alone cost nobody a look at channels.
//!
//! Invariant: a snapshot that has not been acknowledged is never taken for one that has. So updates
//! travel in order, and behind the reports that were made before them: on the same stream.

use std::ops::Range;

use tidegate_types::graph::JobGraph;
use tidegate_types::{CheckpointId, SubtaskId};

use super::AttemptMetrics;
use super::checkpoints::SnapshotPhase;
use super::traffic::Traffic;

/// What one subtask has done in this attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubtaskProgress {
    /// Which.
    pub subtask: SubtaskId,
    /// Records that it has taken.
    pub records_in: u64,
    /// Records that it has emitted.
    pub records_out: u64,
    /// The newest checkpoint whose barrier it has passed on.
    pub passed: CheckpointId,
    /// Its input channels, in order. In an update, none of them if they are where they were.
    pub channels: Vec<ChannelRun>,
    /// Its snapshots that have been neither acknowledged nor given up, oldest first.
    pub under_way: Vec<(CheckpointId, SnapshotPhase)>,
}

/// Consecutive channels of which the same can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelRun {
    /// How many.
    pub channels: u32,
    /// The newest checkpoint whose barrier has been taken from each.
    pub newest: CheckpointId,
}

/// Finds out what has changed.
#[derive(Debug)]
pub struct MetricsExport {
    metrics: AttemptMetrics,
    /// As it was told last.
    told: Vec<SubtaskProgress>,
    told_traffic: Traffic,
}

impl MetricsExport {
    /// For the subtasks on these workers, counted over all processes, which have told nothing yet.
    pub fn new(metrics: AttemptMetrics, graph: &JobGraph, workers: Range<u32>) -> Self {
        let fresh = AttemptMetrics::new(graph);
        let subtasks = graph.subtasks().into_iter();
        let own = subtasks.filter(|subtask| workers.contains(&subtask.index));
        MetricsExport {
            metrics,
            told: own.map(|subtask| fresh.progress(subtask)).collect(),
            told_traffic: Traffic::default(),
        }
    }

    /// What is new, by subtask; nothing of those that stand where they stood.
    pub fn changes(&mut self) -> Vec<SubtaskProgress> {
        let mut changes = Vec::new();
        for told in &mut self.told {
            let now = self.metrics.progress(told.subtask);
            if now != *told {
                let mut change = now.clone();
                if now.channels == told.channels {
                    change.channels.clear();
                }
                changes.push(change);
                *told = now;
            }
        }
        changes
    }

    /// What this process has sent to others since the attempt began, if that is more than was told.
    pub fn traffic(&mut self) -> Option<Traffic> {
        let now = self.metrics.traffic();
        let told = std::mem::replace(&mut self.told_traffic, now);
        (told != now).then_some(now)
    }
}

impl AttemptMetrics {
    /// What a subtask has done, as far as it can be seen here.
    pub fn progress(&self, subtask: SubtaskId) -> SubtaskProgress {
        let checkpoints = &self.counters(subtask).checkpoints;
        // Ordering: first what is passed, then what is under way; see `checkpoints`.
        let passed = checkpoints.passed();
        SubtaskProgress {
            subtask,
            records_in: self.records_in(subtask),
            records_out: self.records_out(subtask),
            passed,
            channels: runs(checkpoints.newest()),
            under_way: checkpoints.all_under_way(),
        }
    }

    /// Takes over what another process says of one of its subtasks. What doesn't fit the graph is
    /// left out.
    pub fn apply(&self, progress: &SubtaskProgress) {
        let SubtaskId { operator, index } = progress.subtask;
        let subtasks = self.operators.get(operator.0 as usize);
        let Some(counters) = subtasks.and_then(|subtasks| subtasks.get(index as usize)) else {
            tracing::debug!(subtask = %progress.subtask, "progress of an unknown subtask");
            return;
        };
        let run = |run: &ChannelRun| std::iter::repeat_n(run.newest, run.channels as usize);
        let newest = progress.channels.iter().flat_map(run);
        counters
            .checkpoints
            .replace(progress.passed, newest, &progress.under_way);
        self.of(progress.subtask)
            .update(progress.records_in, progress.records_out);
    }
}

fn runs(channels: impl Iterator<Item = CheckpointId>) -> Vec<ChannelRun> {
    let mut runs: Vec<ChannelRun> = Vec::new();
    for newest in channels {
        match runs.last_mut() {
            Some(run) if run.newest == newest => run.channels += 1,
            _ => runs.push(ChannelRun {
                channels: 1,
                newest,
            }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use tidegate_types::graph::{Edge, OperatorRole, OperatorSpec, Partitioning};
    use tidegate_types::{MaxParallelism, OperatorId, OperatorUid};

    use super::*;
    use crate::alignment::ChannelIndex;

    fn subtask(operator: u32, index: u32) -> SubtaskId {
        let operator = OperatorId(operator);
        SubtaskId { operator, index }
    }

    /// Four subtasks to three.
    fn graph() -> JobGraph {
        let operator = |(index, parallelism): (usize, u32)| OperatorSpec {
            uid: OperatorUid(format!("op{index}")),
            parallelism,
            max_parallelism: MaxParallelism::derive(parallelism),
            max_parallelism_derived: true,
            role: OperatorRole::Transform,
        };
        JobGraph {
            operators: [4, 3].into_iter().enumerate().map(operator).collect(),
            edges: vec![Edge {
                from: OperatorId(0),
                to: OperatorId(1),
                partitioning: Partitioning::KeyGroups,
            }],
        }
    }

    #[test]
    fn only_changes_of_ones_own_subtasks_are_told() {
        let graph = graph();
        let metrics = AttemptMetrics::new(&graph);
        let mut export = MetricsExport::new(metrics.clone(), &graph, 2..4);
        assert_eq!(export.changes(), []);
        metrics.of(subtask(0, 1)).update(1, 2);
        assert_eq!(export.changes(), [], "it runs elsewhere");
        metrics.of(subtask(0, 3)).update(0, 7);
        let keyed = metrics.of(subtask(1, 2));
        keyed.on_barrier(ChannelIndex(1), CheckpointId(5));
        let changes = export.changes();
        let changed: Vec<SubtaskId> = changes.iter().map(|change| change.subtask).collect();
        assert_eq!(changed, [subtask(0, 3), subtask(1, 2)]);
        assert_eq!(changes[0].records_out, 7);
        let run = |channels, id| ChannelRun {
            channels,
            newest: CheckpointId(id),
        };
        assert_eq!(changes[1].channels, [run(1, 0), run(1, 5), run(2, 0)]);
        assert_eq!(export.changes(), []);

        keyed.update(9, 9);
        let changes = export.changes();
        assert_eq!((changes.len(), changes[0].records_in), (1, 9));
        assert_eq!(changes[0].channels, [], "they are where they were");
    }

    #[test]
    fn questions_are_answered_as_where_the_subtasks_run() {
        let graph = graph();
        let (near, far) = (AttemptMetrics::new(&graph), AttemptMetrics::new(&graph));
        let mut exports = [0..2, 2..4].map(|w| MetricsExport::new(near.clone(), &graph, w));
        let mut agree = |checkpoint: u64| {
            for export in &mut exports {
                export.changes().iter().for_each(|change| far.apply(change));
            }
            for subtask in graph.subtasks() {
                assert_eq!(far.progress(subtask), near.progress(subtask));
            }
            let checkpoint = CheckpointId(checkpoint);
            assert_eq!(far.held_back(checkpoint), near.held_back(checkpoint));
        };
        agree(7);
        for sender in 0..4 {
            near.of(subtask(0, sender)).on_passed(CheckpointId(7));
            near.of(subtask(1, 1))
                .on_barrier(ChannelIndex(sender), CheckpointId(7));
            agree(7);
        }
        let snapshot = near.of(subtask(1, 1)).begin_snapshot(CheckpointId(7));
        agree(7);
        near.of(subtask(1, 1)).on_passed(CheckpointId(7));
        let newer = near.of(subtask(1, 1)).begin_snapshot(CheckpointId(8));
        snapshot.begin_write();
        agree(7);
        drop(snapshot);
        agree(7);
        agree(8);
        drop(newer);
        agree(8);
        near.of(subtask(1, 1)).update(30, 40);
        agree(8);
        assert_eq!(far.records_in(subtask(1, 1)), 30);
        assert_eq!(far.records_out(subtask(1, 1)), 40);
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let metrics = AttemptMetrics::new(&graph());
        for unknown in [subtask(2, 0), subtask(1, 3), subtask(u32::MAX, u32::MAX)] {
            metrics.apply(&SubtaskProgress {
                subtask: unknown,
                ..metrics.progress(subtask(0, 0))
            });
        }
        let endless = ChannelRun {
            channels: u32::MAX,
            newest: CheckpointId(1),
        };
        metrics.apply(&SubtaskProgress {
            channels: vec![endless, endless],
            ..metrics.progress(subtask(1, 0))
        });
        let channels = metrics.channels(subtask(1, 0));
        assert!(channels.map(|(_, newest)| newest).eq([CheckpointId(1); 4]));
    }
}
