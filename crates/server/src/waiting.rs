//! What a checkpoint that doesn't get on is waiting for, in words.
//!
//! Neither side knows alone: the coordinator knows who has not acknowledged, the subtasks know
//! which of their inputs has not delivered the barrier. Both are only read, and nothing waits for
//! a subtask: the one that is stuck answers no questions.

use std::fmt;
use std::time::Duration;

use tidegate_coordinator::{CheckpointStatistics, CheckpointStatus, Statistics};
use tidegate_runtime::{AttemptMetrics, HeldBack, HeldBackBy};
use tidegate_types::graph::JobGraph;
use tidegate_types::{AttemptNumber, CheckpointId, Millis, OperatorId, SubtaskId};

/// As long as a checkpoint may be under way before somebody is told, whatever its timeout.
const PATIENCE_MAX: Duration = Duration::from_secs(10);

/// What is waited for is looked up anew this often.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How many subtasks, and how many senders of one, are named in a text.
const NAMED_MAX: usize = 5;

/// A checkpoint under way, and who holds it up. Displays as one line of text:
/// `` `chk-7` has been under way for 12s: `count[1]` waits for the barrier from `words[0]` ``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingFor {
    /// The checkpoint or savepoint.
    pub checkpoint: CheckpointId,
    /// Time since its trigger.
    pub under_way: Duration,
    /// Every subtask that has not acknowledged: first those that wait for no other, then the rest,
    /// both in the order of the job graph. Empty if all have, and its metadata is being written.
    pub subtasks: Vec<WaitingSubtask>,
}

/// A subtask that has not acknowledged a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingSubtask {
    /// Its name: `count[1]`.
    pub name: String,
    /// What it is waiting for.
    pub by: WaitsBecause,
}

/// Why a subtask has not acknowledged a checkpoint. Subtasks are named as in `count[1]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitsBecause {
    /// A source that has not acted on the trigger: it, or another operator on its worker, is busy
    /// or stuck in `poll`.
    NotActedOnTrigger,
    /// These senders have not sent the barrier on the channels to it.
    NoBarrierFrom(Vec<String>),
    /// These have sent it, but the subtask has not got to it: it, or another operator on its
    /// worker, is busy or stuck.
    BusyWithDataFrom(Vec<String>),
    /// Its worker freezes its state.
    FreezingState,
    /// Its state is frozen and being written.
    WritingState,
    /// It is done; its acknowledgement, or a decline, is on its way.
    Acknowledging,
}

impl WaitsBecause {
    fn new(by: HeldBackBy, graph: &JobGraph) -> Self {
        let names = |senders: Vec<SubtaskId>| {
            let name = |sender| graph.display(sender).to_string();
            senders.into_iter().map(name).collect()
        };
        match by {
            HeldBackBy::Trigger => Self::NotActedOnTrigger,
            HeldBackBy::Senders(senders) => Self::NoBarrierFrom(names(senders)),
            HeldBackBy::Backlog(senders) => Self::BusyWithDataFrom(names(senders)),
            HeldBackBy::Freezing => Self::FreezingState,
            HeldBackBy::Writing => Self::WritingState,
        }
    }
}

/// The subtasks of one attempt.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) attempt: AttemptNumber,
    pub(crate) metrics: AttemptMetrics,
}

impl WaitingFor {
    /// What `checkpoint` is, or was when it ended, waiting for. `observed` is the attempt that
    /// runs.
    pub(crate) fn new(
        checkpoint: &CheckpointStatistics,
        now: Millis,
        graph: &JobGraph,
        observed: Option<&Observed>,
    ) -> Self {
        let id = checkpoint.checkpoint;
        let observed = observed.filter(|observed| observed.attempt == checkpoint.attempt);
        let mut held_back: Vec<HeldBack> =
            observed.map_or_else(Vec::new, |observed| observed.metrics.held_back(id));
        held_back.sort_by_key(|held| held.subtask);
        let because = |subtask: SubtaskId| {
            let found = held_back.binary_search_by_key(&subtask, |held| held.subtask);
            let by = found.map(|index| held_back[index].by.clone());
            by.map_or(WaitsBecause::Acknowledging, |by| {
                WaitsBecause::new(by, graph)
            })
        };
        let mut subtasks: Vec<WaitingSubtask> = missing(checkpoint)
            .map(|subtask| WaitingSubtask {
                name: graph.display(subtask).to_string(),
                by: because(subtask),
            })
            .collect();
        subtasks.sort_by_key(|subtask| matches!(subtask.by, WaitsBecause::NoBarrierFrom(_)));
        WaitingFor {
            checkpoint: id,
            under_way: checkpoint.duration().unwrap_or(checkpoint.age(now)),
            subtasks,
        }
    }
}

/// The subtasks that have not acknowledged, in the order of the graph.
fn missing(checkpoint: &CheckpointStatistics) -> impl Iterator<Item = SubtaskId> {
    let operators = checkpoint.operators().zip(0..);
    operators.flat_map(|(operator, id)| {
        let subtasks = operator.subtasks().zip(0..);
        subtasks
            .filter(|(acknowledged, _)| acknowledged.is_none())
            .map(move |(_, index)| SubtaskId {
                operator: OperatorId(id),
                index,
            })
    })
}

/// The oldest checkpoint under way.
pub(crate) fn oldest(statistics: &Statistics) -> Option<&CheckpointStatistics> {
    let mut oldest_first = statistics.history().rev();
    let found = oldest_first.find(|entry| entry.status == CheckpointStatus::InProgress);
    found.map(AsRef::as_ref)
}

impl fmt::Display for WaitingFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let for_ = rounded(self.under_way);
        write!(f, "`{}` has been under way for {for_:?}: ", self.checkpoint)?;
        if self.subtasks.is_empty() {
            return f.write_str("all subtasks have acknowledged, and it is being stored");
        }
        for (index, subtask) in self.subtasks.iter().take(NAMED_MAX).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{subtask}")?;
        }
        match self.subtasks.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, "; and {more} more subtasks"),
        }
    }
}

/// Nobody needs to know more exactly.
fn rounded(time: Duration) -> Duration {
    let step = if time < Duration::from_secs(10) {
        100
    } else {
        1000
    };
    let millis = time.as_millis() as u64;
    Duration::from_millis(millis - millis % step)
}

impl fmt::Display for WaitingSubtask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ", self.name)?;
        match &self.by {
            WaitsBecause::NotActedOnTrigger => f.write_str("has not acted on the trigger"),
            WaitsBecause::NoBarrierFrom(senders) => {
                write!(f, "waits for the barrier from {}", Names(senders))
            }
            WaitsBecause::BusyWithDataFrom(senders) => {
                let from = Names(senders);
                write!(f, "is busy with data before the barrier from {from}")
            }
            WaitsBecause::FreezingState => f.write_str("is taking its snapshot"),
            WaitsBecause::WritingState => f.write_str("is writing its snapshot"),
            WaitsBecause::Acknowledging => f.write_str("is about to acknowledge"),
        }
    }
}

struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = &self.0[..self.0.len().min(NAMED_MAX)];
        write!(f, "`{}`", named.join("`, `"))?;
        match self.0.len() - named.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Notices checkpoints that take suspiciously long, and says so once for each.
#[derive(Debug)]
pub(crate) struct Watch {
    patience: Duration,
    look_due: Millis,
    /// The last checkpoint that somebody was told of.
    told: CheckpointId,
    current: Option<WaitingFor>,
}

impl Watch {
    pub(crate) fn new(timeout: Duration) -> Self {
        Watch {
            patience: PATIENCE_MAX.min(timeout / 2),
            look_due: Millis(0),
            told: CheckpointId::NONE,
            current: None,
        }
    }

    /// What the oldest checkpoint is waiting for, if it has been under way for too long.
    pub(crate) fn current(&self) -> Option<&WaitingFor> {
        self.current.as_ref()
    }

    pub(crate) fn look(
        &mut self,
        statistics: &Statistics,
        now: Millis,
        graph: &JobGraph,
        observed: Option<&Observed>,
    ) {
        let slow = oldest(statistics).filter(|oldest| oldest.age(now) >= self.patience);
        let Some(slow) = slow else {
            self.current = None;
            return;
        };
        let known = self.current.as_ref().map(|current| current.checkpoint);
        if known == Some(slow.checkpoint) && now < self.look_due {
            return;
        }
        let waiting = WaitingFor::new(slow, now, graph, observed);
        if slow.checkpoint > self.told {
            self.told = slow.checkpoint;
            tracing::warn!(checkpoint = %slow.checkpoint, "slow checkpoint: {waiting}");
        }
        self.current = Some(waiting);
        self.look_due = now.after(LOOK_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(subtasks: Vec<(&str, WaitsBecause)>) -> WaitingFor {
        let subtasks = subtasks.into_iter();
        WaitingFor {
            checkpoint: CheckpointId(7),
            under_way: Duration::from_millis(12_345),
            subtasks: subtasks
                .map(|(name, by)| WaitingSubtask {
                    name: name.to_owned(),
                    by,
                })
                .collect(),
        }
    }

    #[test]
    fn it_reads_as_a_sentence() {
        let words = vec!["words[0]".to_owned()];
        let text = waiting(vec![
            ("sink[0]", WaitsBecause::WritingState),
            ("count[1]", WaitsBecause::NoBarrierFrom(words)),
        ]);
        assert_eq!(
            text.to_string(),
            "`chk-7` has been under way for 12s: `sink[0]` is writing its snapshot; `count[1]` \
             waits for the barrier from `words[0]`"
        );
        assert_eq!(
            waiting(vec![]).to_string(),
            "`chk-7` has been under way for 12s: all subtasks have acknowledged, and it is being \
             stored"
        );
    }

    #[test]
    fn many_are_counted_rather_than_named() {
        let senders: Vec<String> = (0..7).map(|index| format!("map[{index}]")).collect();
        let names: Vec<String> = (0..8).map(|index| format!("sink[{index}]")).collect();
        let all = names.iter().map(|name| {
            let by = WaitsBecause::BusyWithDataFrom(senders.clone());
            (name.as_str(), by)
        });
        let text = waiting(all.collect()).to_string();
        assert!(text.contains("`map[4]` and 2 more"), "{text}");
        assert!(!text.contains("map[5]"), "{text}");
        assert!(text.ends_with("; and 3 more subtasks"), "{text}");
    }
}
