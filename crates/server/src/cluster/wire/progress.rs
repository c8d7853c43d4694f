//! How far the subtasks of a process are.

use tidegate_runtime::{
    AttemptMetrics, BusyWorker, ChannelRun as Run, SnapshotPhase, Stage, SubtaskProgress as Done,
    Traffic as Sent, Volume as Amount,
};
use tidegate_types::CheckpointId;
use tidegate_types::graph::JobGraph;

use super::{ChannelRun, Progress, Stuck, SubtaskProgress, Traffic, UnderWay, Volume};

impl Progress {
    /// Restoring state takes as long as it takes, so workers that do so aren't told of.
    pub(crate) fn new(
        changes: Vec<Done>,
        traffic: Option<Sent>,
        busy: &[BusyWorker],
        graph: &JobGraph,
    ) -> Self {
        let working = busy.iter().filter(|busy| busy.stage == Stage::Working);
        let stuck = working.map(|busy| Stuck {
            worker: busy.worker,
            subtask: graph.display(busy.subtask).to_string(),
            millis: busy.silent.as_millis() as u64,
        });
        Progress {
            subtasks: changes.into_iter().map(SubtaskProgress::from).collect(),
            stuck: stuck.collect(),
            traffic: traffic.map(Traffic::from),
        }
    }

    /// Has `metrics` answer as if the subtasks of the process with this index ran here.
    pub(crate) fn apply_to(&self, metrics: &AttemptMetrics, process: u32) {
        if let Some(traffic) = self.traffic {
            metrics.apply_traffic(process, traffic.into());
        }
        for subtask in &self.subtasks {
            if let Some(progress) = subtask.decode() {
                metrics.apply(&progress);
            }
        }
    }
}

impl From<Done> for SubtaskProgress {
    fn from(done: Done) -> Self {
        let run = |run: &Run| ChannelRun {
            channels: run.channels,
            newest: run.newest.0,
        };
        let under_way = |(checkpoint, phase): &(CheckpointId, SnapshotPhase)| UnderWay {
            checkpoint: checkpoint.0,
            frozen: *phase == SnapshotPhase::Writing,
        };
        SubtaskProgress {
            subtask: Some(done.subtask.into()),
            records_in: done.records_in,
            records_out: done.records_out,
            passed: done.passed.0,
            channels: done.channels.iter().map(run).collect(),
            under_way: done.under_way.iter().map(under_way).collect(),
        }
    }
}

impl SubtaskProgress {
    /// `None` if it is nobody's.
    fn decode(&self) -> Option<Done> {
        let run = |run: &ChannelRun| Run {
            channels: run.channels,
            newest: CheckpointId(run.newest),
        };
        let under_way = |under_way: &UnderWay| {
            let phase = match under_way.frozen {
                true => SnapshotPhase::Writing,
                false => SnapshotPhase::Freezing,
            };
            (CheckpointId(under_way.checkpoint), phase)
        };
        Some(Done {
            subtask: self.subtask?.into(),
            records_in: self.records_in,
            records_out: self.records_out,
            passed: CheckpointId(self.passed),
            channels: self.channels.iter().map(run).collect(),
            under_way: self.under_way.iter().map(under_way).collect(),
        })
    }
}

impl From<Sent> for Traffic {
    fn from(sent: Sent) -> Self {
        let volume = |Amount { messages, bytes }| Some(Volume { messages, bytes });
        Traffic {
            items: volume(sent.items),
            credit: volume(sent.credit),
            progress: volume(sent.progress),
        }
    }
}

impl From<Traffic> for Sent {
    fn from(traffic: Traffic) -> Self {
        let amount = |volume: Option<Volume>| {
            let Volume { messages, bytes } = volume.unwrap_or_default();
            Amount { messages, bytes }
        };
        Sent {
            items: amount(traffic.items),
            credit: amount(traffic.credit),
            progress: amount(traffic.progress),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_types::{OperatorId, SubtaskId};

    use super::*;

    #[test]
    fn progress_arrives_as_it_was() {
        let done = Done {
            subtask: SubtaskId {
                operator: OperatorId(1),
                index: 2,
            },
            records_in: 3,
            records_out: 4,
            passed: CheckpointId(5),
            channels: vec![Run {
                channels: 6,
                newest: CheckpointId(7),
            }],
            under_way: vec![
                (CheckpointId(8), SnapshotPhase::Writing),
                (CheckpointId(9), SnapshotPhase::Freezing),
            ],
        };
        assert_eq!(SubtaskProgress::from(done.clone()).decode(), Some(done));
        assert_eq!(SubtaskProgress::default().decode(), None);
    }

    #[test]
    fn traffic_arrives_as_it_was_and_is_added_up() {
        let volume = |messages| Amount {
            messages,
            bytes: messages * 100,
        };
        let sent = Sent {
            items: volume(1),
            credit: volume(2),
            progress: volume(3),
        };
        let graph = JobGraph::default();
        let metrics = AttemptMetrics::new(&graph);
        let progress = Progress::new(Vec::new(), Some(sent), &[], &graph);
        for process in [0, 1, 1] {
            progress.apply_to(&metrics, process);
        }
        Progress::default().apply_to(&metrics, 1);
        assert_eq!(metrics.traffic(), sent + sent);
    }
}
