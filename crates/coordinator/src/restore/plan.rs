//! Restore plans as people read them.

use std::fmt;

use tidegate_types::graph::JobGraph;
use tidegate_types::{KeyedPiece, RestorePlan, SubtaskRestore};

/// Displays a plan with one line per subtask:
/// `count[1]: key groups 64..=127, 1/count-1 (0..=127)`. Pieces of the same state are joined by
/// `+`.
#[derive(Clone, Copy, Debug)]
pub struct DisplayPlan<'a> {
    /// The graph that the plan was made for.
    pub graph: &'a JobGraph,
    /// The plan.
    pub plan: &'a RestorePlan,
}

impl fmt::Display for DisplayPlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for subtask in self.graph.subtasks() {
            let name = self.graph.display(subtask);
            write!(f, "{name}: ")?;
            write_subtask(f, self.plan.subtask(subtask))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

fn write_subtask(f: &mut fmt::Formatter<'_>, subtask: &SubtaskRestore) -> fmt::Result {
    write!(f, "key groups {}", subtask.key_groups)?;
    for handle in &subtask.keyed {
        f.write_str(", ")?;
        write_pieces(f, &handle.pieces)?;
        write!(f, " ({})", handle.key_groups)?;
    }
    for list in &subtask.lists {
        write!(f, ", {} of `{}`", list.elements.len(), list.name)?;
    }
    if subtask.finished {
        f.write_str(", finished")?;
    }
    Ok(())
}

fn write_pieces(f: &mut fmt::Formatter<'_>, pieces: &[KeyedPiece]) -> fmt::Result {
    if pieces.is_empty() {
        return f.write_str("no keys");
    }
    for (index, piece) in pieces.iter().enumerate() {
        if index > 0 {
            f.write_str(" + ")?;
        }
        match piece {
            KeyedPiece::File(file) => f.write_str(&file.name)?,
            KeyedPiece::Inline(bytes) => write!(f, "{} bytes inline", bytes.len())?,
        }
    }
    Ok(())
}
