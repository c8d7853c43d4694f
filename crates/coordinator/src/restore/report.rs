//! What a restore would do, for people who want to know before they try.

use std::fmt;

use tidegate_types::graph::{JobGraph, OperatorSpec};
use tidegate_types::{
    CheckpointId, CompletedCheckpoint, MaxParallelism, OperatorCheckpoint, OperatorUid,
    SubtaskState,
};

use crate::failure::plural;

use super::{RestoreError, Saved, check, keyed, max_parallelism};

/// What becomes of one operator at a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorOutlook {
    /// The operator.
    pub uid: OperatorUid,
    /// Its parallelism in the checkpoint; `None` if it is new.
    pub saved_parallelism: Option<usize>,
    /// Its parallelism in the job graph; `None` if it is gone.
    pub parallelism: Option<u32>,
    /// Its number of key groups, if it has keyed state.
    pub max_parallelism: Option<MaxParallelism>,
    /// Bytes of its state in the checkpoint, files and inline.
    pub bytes: u64,
    /// How many of its subtasks in the checkpoint had finished.
    pub finished: usize,
}

/// What a restore of a checkpoint into a job graph would do. Displays as lines of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreOutlook {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Everything that stands in the way; the restore works if nothing does.
    pub problems: Vec<RestoreError>,
    /// What each operator of the graph gets, in graph order.
    pub operators: Vec<OperatorOutlook>,
    /// Operators of the checkpoint that the graph doesn't have: what state they hold is dropped.
    pub dropped: Vec<OperatorOutlook>,
}

impl RestoreOutlook {
    /// Whether the restore would work.
    pub fn is_possible(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Says what a restore of `checkpoint` into `graph` would do, or everything that is wrong. Changes
/// nothing; max parallelism counts as [adopted](super::adopt_max_parallelism).
///
/// Whether the checkpoint's files are there is not for it to know. `graph` must be
/// [valid](JobGraph::validate).
pub fn preview_restore(
    graph: &JobGraph,
    checkpoint: &CompletedCheckpoint,
    allow_non_restored: bool,
) -> RestoreOutlook {
    let saved = Saved::new(checkpoint);
    let mut graph = graph.clone();
    max_parallelism::adopt_where_possible(&mut graph, &saved);
    let is_gone =
        |operator: &&OperatorCheckpoint| graph.operators.iter().all(|op| op.uid != operator.uid);
    let operators = graph.operators.iter();
    let dropped = checkpoint.operators.iter().filter(is_gone);
    RestoreOutlook {
        checkpoint: checkpoint.id,
        problems: check::problems(&graph, checkpoint, allow_non_restored),
        operators: operators
            .map(|spec| outlook(&spec.uid, Some(spec), saved.of(spec)))
            .collect(),
        dropped: dropped
            .map(|operator| outlook(&operator.uid, None, Some(operator)))
            .collect(),
    }
}

fn outlook(
    uid: &OperatorUid,
    spec: Option<&OperatorSpec>,
    saved: Option<&OperatorCheckpoint>,
) -> OperatorOutlook {
    let subtasks = saved.map_or(&[][..], |operator| &operator.subtasks);
    OperatorOutlook {
        uid: uid.clone(),
        saved_parallelism: saved.map(|operator| operator.subtasks.len()),
        parallelism: spec.map(|spec| spec.parallelism),
        max_parallelism: saved
            .filter(|operator| keyed::is_keyed(operator))
            .map(|operator| operator.max_parallelism),
        bytes: subtasks.iter().map(SubtaskState::bytes).sum(),
        finished: subtasks.iter().filter(|state| state.finished).count(),
    }
}

impl fmt::Display for RestoreOutlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checkpoint = self.checkpoint;
        if !self.is_possible() {
            let count = self.problems.len();
            let reasons = plural(count as u64);
            writeln!(
                f,
                "`{checkpoint}` can't be restored, for {count} reason{reasons}:"
            )?;
            return self.problems.iter().try_for_each(|p| writeln!(f, "  {p}"));
        }
        writeln!(f, "`{checkpoint}` can be restored:")?;
        let all = self.operators.iter().chain(&self.dropped);
        all.into_iter()
            .try_for_each(|operator| writeln!(f, "  {operator}"))
    }
}

impl fmt::Display for OperatorOutlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: ", self.uid)?;
        match (self.saved_parallelism, self.parallelism) {
            (None, new) => write!(f, "new, starts empty, parallelism {}", new.unwrap_or(0))?,
            (Some(old), None) => write!(f, "dropped, parallelism {old}")?,
            (Some(old), Some(new)) if old == new as usize => write!(f, "parallelism {old}")?,
            (Some(old), Some(new)) => write!(f, "parallelism {old} -> {new}")?,
        }
        if let Some(max) = self.max_parallelism {
            write!(f, ", max parallelism {max}")?;
        }
        if let Some(old) = self.saved_parallelism {
            write!(f, ", {} byte{}", self.bytes, plural(self.bytes))?;
            match self.finished {
                0 => {}
                all if all == old => f.write_str(", finished")?,
                some => write!(f, ", {some} of {old} subtasks finished")?,
            }
        }
        Ok(())
    }
}
