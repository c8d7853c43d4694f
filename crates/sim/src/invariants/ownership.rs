//! The coordinator owns the files in the acknowledgements it has taken: it discards each at most
//! once, and by the time it leaves, none is left that no retained checkpoint refers to.
//!
//! Source: BC-01 (late or declined acknowledgements leak files), BC-06, BC-55 (a cleanup that
//! depended on every message); CC-16, CC-20, CC-23. A
//! checkpoint in doubt is exempt: its files are left for the sweep, rather a leak than a loss.
//! Files that a dropped checkpoint shares are exempt while their turn may still come: as long as a
//! checkpoint or a deletion is under way, or the store is in doubt. Otherwise the coordinator is
//! *at rest*, and each file that it has is retained or was discarded.

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
    /// What the store listed when it was read, and the coordinator hasn't dropped since. A deletion
    /// that was under way then may have taken the pointer away.
    listed: Vec<CompletedCheckpoint>,
    /// The store hasn't been read since the last doubt.
    unread: bool,
    /// How many deletions for each checkpoint have not reported back.
    deleting: BTreeMap<CheckpointId, u32>,
    /// Whether the last step before the end left it so.
    at_rest: bool,
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
            for file in files {
                // What was written for an older one is that one's.
                self.taken.entry(file.name.clone()).or_insert(*checkpoint);
            }
        }
    }

    /// The store lists these, so the coordinator has them again, even those it has dropped: their
    /// deletion may have failed.
    pub(crate) fn on_recovered(&mut self, completed: &[CompletedCheckpoint]) {
        self.unread = false;
        self.listed = completed.to_vec();
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
        self.unread = true;
    }

    /// A deletion for this checkpoint has been issued.
    pub(crate) fn on_deleting(&mut self, checkpoint: CheckpointId) {
        *self.deleting.entry(checkpoint).or_default() += 1;
    }

    /// One of them has ended.
    pub(crate) fn on_deleted(&mut self, checkpoint: CheckpointId) {
        if let Some(count) = self.deleting.get_mut(&checkpoint) {
            *count -= 1;
            self.deleting.retain(|_, count| *count > 0);
        }
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

    /// A completed checkpoint is dropped, and these outlive it.
    pub(crate) fn on_dropped(&mut self, checkpoint: CheckpointId, files: &[FileHandle]) {
        self.listed.retain(|listed| listed.id != checkpoint);
        let names = files.iter().map(|file| file.name.clone());
        self.spared.extend(names);
    }

    pub(crate) fn on_completed(&mut self, checkpoint: CheckpointId) {
        self.completed = Some(checkpoint);
    }

    /// The step is over, and the job goes on. Every checkpoint older than one that has completed
    /// has ended by now, so what was handed over for it is retained or was given up: whatever
    /// messages were lost, no more is left behind than what is under way. If none is, nothing is
    /// spared any more.
    pub(crate) fn after_step(&mut self, none_under_way: bool, store: &Store) -> Checked {
        let was_at_rest = self.at_rest;
        self.at_rest = none_under_way && self.deleting.is_empty() && !self.unread;
        let completed = self.completed.take();
        if completed.is_none() && (was_at_rest || !self.at_rest) {
            return Ok(());
        }
        self.taken.retain(|name, _| store.files.contains_key(name));
        let is_over = |checkpoint| self.at_rest || Some(checkpoint) < completed;
        let forgotten = self.forgotten(store).find(|(name, checkpoint)| {
            // Savepoints are not subsumed.
            is_over(**checkpoint) && !name.contains("://") && !self.given_up.contains(*name)
        });
        ensure(forgotten.is_none(), NAME, || {
            let at_rest = self.at_rest;
            format!("{forgotten:?} was forgotten; completed: {completed:?}, at rest: {at_rest}")
        })
    }

    /// The coordinator leaves, and everything it has issued is done. Nothing failed to be deleted.
    pub(crate) fn on_leave(&self, store: &Store) -> Checked {
        let forgotten = self.forgotten(store).find(|(name, _)| {
            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
            !store.elsewhere.contains_key(&SnapshotLocation::new(folder))
        });
        ensure(forgotten.is_none(), NAME, || {
            format!("{forgotten:?} was handed over and forgotten")
        })
    }

    /// Files that are there without need, and that no sweep has been left to find. If the end comes
    /// before the turn of what was spared, that is the sweep's.
    fn forgotten<'a>(
        &'a self,
        store: &'a Store,
    ) -> impl Iterator<Item = (&'a String, &'a CheckpointId)> {
        let mut live = store.live_files();
        let listed = self.listed.iter().flat_map(CompletedCheckpoint::files);
        live.extend(listed.map(|file| file.name.as_str()));
        self.taken.iter().filter(move |(name, checkpoint)| {
            store.files.contains_key(*name)
                && !live.contains(name.as_str())
                && (self.at_rest || !self.spared.contains(*name))
                && !self.in_doubt.contains(checkpoint)
        })
    }
}
