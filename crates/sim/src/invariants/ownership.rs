//! The coordinator owns the files in the acknowledgements it has taken: it discards each at most
//! once, and by the time it leaves, none is left that no retained checkpoint refers to.
//!
//! Source: BC-01 (late or declined acknowledgements leak files), BC-06, BC-55 (a cleanup that
//! depended on every message); CC-16, CC-20, CC-23. A
//! checkpoint in doubt is exempt: its files are left for the sweep, rather a leak than a loss.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::message::Report;
use tidegate_types::{
    CheckpointId, CompletedCheckpoint, FileHandle, SnapshotLocation, SubtaskState,
};

use super::{Checked, ensure};
use crate::store::Store;

const NAME: &str = "ownership";

/// The coordinator remembers what became of this many checkpoints. A report that is repeated later
/// than that may discard once more, which harms nothing: names are never used again.
const REMEMBERED: u64 = 64;

/// The files that one process' coordinator has been handed.
#[derive(Debug, Default)]
pub(crate) struct Ownership {
    taken: BTreeMap<String, CheckpointId>,
    /// Discarded, and not listed by the store since.
    discarded: BTreeSet<String>,
    /// Ever discarded: their deletion may still be under way.
    given_up: BTreeSet<String>,
    /// Of dropped checkpoints, since something else refers to them or may come to do so.
    spared: BTreeSet<String>,
    in_doubt: BTreeSet<CheckpointId>,
    /// The newest checkpoint that has ended.
    newest: Option<CheckpointId>,
    /// Completed in this step.
    completed: Option<CheckpointId>,
}

impl Ownership {
    pub(crate) fn on_report(&mut self, report: &Report) {
        if let Report::Acknowledged {
            checkpoint, state, ..
        } = report
        {
            let files = SubtaskState::files(state);
            self.taken
                .extend(files.map(|file| (file.name.clone(), *checkpoint)));
        }
    }

    /// The store lists these, so the coordinator has them again, even those it has dropped: their
    /// deletion may have failed.
    pub(crate) fn on_recovered(&mut self, completed: &[CompletedCheckpoint]) {
        for file in completed.iter().flat_map(CompletedCheckpoint::files) {
            self.discarded.remove(&file.name);
        }
    }

    /// A checkpoint has completed or was aborted.
    pub(crate) fn on_ended(&mut self, checkpoint: CheckpointId) {
        self.newest = self.newest.max(Some(checkpoint));
    }

    pub(crate) fn on_doubt(&mut self, checkpoint: CheckpointId) {
        self.in_doubt.insert(checkpoint);
    }

    /// Whether anything ever was.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.in_doubt.is_empty()
    }

    pub(crate) fn on_discard<'a>(
        &mut self,
        checkpoint: CheckpointId,
        files: impl Iterator<Item = &'a FileHandle>,
    ) -> Checked {
        let newest = self.newest.unwrap_or(checkpoint);
        let is_forgotten = newest.0.saturating_sub(checkpoint.0) >= REMEMBERED;
        for file in files {
            self.given_up.insert(file.name.clone());
            let first = self.discarded.insert(file.name.clone());
            ensure(first || is_forgotten, NAME, || {
                format!("`{}` is discarded a second time", file.name)
            })?;
        }
        Ok(())
    }

    /// These outlive a checkpoint that is dropped.
    pub(crate) fn on_spared(&mut self, files: &[FileHandle]) {
        let names = files.iter().map(|file| file.name.clone());
        self.spared.extend(names);
    }

    pub(crate) fn on_completed(&mut self, checkpoint: CheckpointId) {
        self.completed = Some(checkpoint);
    }

    /// The step is over. Every checkpoint older than one that has completed has ended by now, so
    /// what was handed over for it is retained or was given up: whatever messages were lost, no
    /// more is left behind than what is under way.
    pub(crate) fn after_step(&mut self, store: &Store) -> Checked {
        let Some(completed) = self.completed.take() else {
            return Ok(());
        };
        self.taken.retain(|name, _| store.files.contains_key(name));
        let live = store.live_files();
        let forgotten = self.taken.iter().find(|(name, checkpoint)| {
            // Savepoints are not subsumed.
            **checkpoint < completed
                && !name.contains("://")
                && !self.given_up.contains(*name)
                && !self.spared.contains(*name)
                && !self.in_doubt.contains(checkpoint)
                && !live.contains(name.as_str())
        });
        ensure(forgotten.is_none(), NAME, || {
            format!("{completed} has completed, and {forgotten:?} was forgotten")
        })
    }

    /// The coordinator leaves, and everything it has issued is done. Nothing failed to be deleted.
    pub(crate) fn on_leave(&self, store: &Store) -> Checked {
        let live = store.live_files();
        let forgotten = self.taken.iter().find(|(name, checkpoint)| {
            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
            store.files.contains_key(*name)
                && !live.contains(name.as_str())
                // Their turn may come after the end: the sweep's.
                && !self.spared.contains(*name)
                && !self.in_doubt.contains(checkpoint)
                && !store.elsewhere.contains_key(&SnapshotLocation::new(folder))
        });
        ensure(forgotten.is_none(), NAME, || {
            format!("{forgotten:?} was handed over and forgotten")
        })
    }
}
