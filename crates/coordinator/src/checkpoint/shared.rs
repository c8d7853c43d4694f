//! Files that several checkpoints refer to: which of them may go when one of these does.
//!
//! An incremental checkpoint refers to pieces of the one it rests on, its *base*, beside its own
//! new files. So a file belongs to all checkpoints that refer to it, and goes with the last of
//! them. There are no counts to be kept in step: who refers to a file is read off the checkpoints
//! themselves, as a restarted job reads it off their metadata. As long as something under way may
//! still refer to pieces of a base, the base is *held*: it may have been dropped, its files have
//! not (Flink's `SharedStateRegistry`; it counts references instead).
//!
//! Invariants: a file is deleted when the last checkpoint that refers to it leaves *retained ∪ held
//! ∪ finalising ∪ in doubt*, with the newest of them, which leaves last, and so once; a checkpoint
//! under way refers to its own files and to its base's, and to nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, Owner, SnapshotFormat,
    SnapshotKind, SubtaskId, SubtaskState,
};

use crate::action::JobAction;
use crate::failure::AbortReason;

use super::CheckpointCoordinator;
use super::pending::PendingCheckpoint;

/// Checkpoints that are not retained, and whose files must stay all the same.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Dropped, but the base of something under way, or sharing files and not yet gone from the
    /// store.
    held: Vec<CompletedCheckpoint>,
    /// Nobody knows whether the store lists them. Until it has been read, nothing of theirs, and
    /// nothing that they rest on, is deleted.
    doubted: Vec<Arc<CompletedCheckpoint>>,
}

impl Kept {
    /// The files of this checkpoint must stay until the store has been read.
    pub(super) fn doubt(&mut self, checkpoint: Arc<CompletedCheckpoint>) {
        self.doubted.push(checkpoint);
    }

    /// Nothing will rest on any of them any more, nor ask for what is in doubt.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = CompletedCheckpoint> {
        let Kept { held, doubted } = std::mem::take(self);
        held.into_iter()
            .chain(doubted.into_iter().map(Arc::unwrap_or_clone))
    }

    fn all(&self) -> impl Iterator<Item = &CompletedCheckpoint> {
        self.held.iter().chain(self.doubted.iter().map(Arc::as_ref))
    }
}

impl CheckpointCoordinator {
    /// What an incremental checkpoint of `attempt` that is triggered now may rest on: the latest
    /// one, if the subtasks that run have taken it.
    pub(super) fn base(
        &self,
        attempt: AttemptNumber,
        kind: SnapshotKind,
        format: SnapshotFormat,
    ) -> Option<CheckpointId> {
        let latest = self.retained.last()?;
        let own = latest.attempt == attempt
            && latest.job == self.job
            && latest.owner == Owner::Job
            && latest.location.is_none();
        let rests = format == SnapshotFormat::Incremental && !kind.is_savepoint();
        (rests && own).then_some(latest.id)
    }

    /// Why a subtask's state can't become part of the checkpoint: the first file in it that is
    /// neither new nor part of the same subtask's state in the base.
    pub(super) fn unknown_file(
        &self,
        pending: &PendingCheckpoint,
        subtask: SubtaskId,
        state: &SubtaskState,
    ) -> Option<AbortReason> {
        let base = pending.barrier.base;
        let mut old = state.files().filter(|file| !pending.owns(file)).peekable();
        old.peek()?;
        let known = base.and_then(|base| self.subtask_in(base, subtask));
        let known: BTreeSet<_> = known.iter().flat_map(|state| state.files()).collect();
        let unknown = old.find(|file| !known.contains(file))?;
        Some(AbortReason::UnknownFile {
            subtask: self.graph.display(subtask).to_string(),
            file: unknown.name.clone(),
            base,
        })
    }

    fn subtask_in(&self, base: CheckpointId, subtask: SubtaskId) -> Option<&SubtaskState> {
        let mut known = self.retained.iter().chain(&self.kept.held);
        let base = known.find(|completed| completed.id == base)?;
        // Taken in this attempt, so of the same graph.
        let operator = base.operators.get(subtask.operator.0 as usize)?;
        operator.subtasks.get(subtask.index as usize)
    }

    /// A checkpoint that was retained until now goes: its files do, too, apart from those that
    /// something else refers to.
    pub(super) fn drop_completed(
        &mut self,
        checkpoint: CompletedCheckpoint,
        actions: &mut Vec<JobAction>,
    ) {
        // Others that are being dropped may still refer to what it shares: if it shares anything,
        // its files wait until it is gone from the store, and so are they.
        let waits = self.bases_needed().contains(&checkpoint.id)
            || !checkpoint.files().all(|file| checkpoint.owns(file))
            || !self.also_referred_to(&checkpoint).is_empty();
        let spared = match waits {
            true => checkpoint.files().cloned().collect(),
            false => Vec::new(),
        };
        if waits {
            self.kept.held.push(checkpoint.clone());
        }
        self.deletions.begin(checkpoint.id);
        actions.push(JobAction::DropCompleted {
            checkpoint: Box::new(checkpoint),
            spared,
        });
    }

    /// Lets go of bases that nothing under way rests on any more. Called between events, when
    /// every checkpoint is in its place: not while one is on its way from one to another.
    pub(crate) fn release_bases(&mut self, actions: &mut Vec<JobAction>) {
        if self.kept.held.is_empty() || !self.kept.doubted.is_empty() {
            return;
        }
        let needed = self.bases_needed();
        // Ordering: what refers to a file is gone from the store before the file is. A deletion
        // that has ended may have failed, and then its checkpoint is still listed. So they go in
        // the order of their ids, and a file goes with the newest that refers to it: the store
        // leaves all files of one whose pointer stays, and files that were written for others as
        // long as it lists anything older.
        self.kept.held.sort_by_key(|base| base.id);
        let stays = |base: &CompletedCheckpoint| {
            needed.contains(&base.id) || self.deletions.concern(base.id)
        };
        let first = self.kept.held.iter().position(stays);
        let held = first.map_or_else(Vec::new, |first| self.kept.held.split_off(first));
        let released = std::mem::replace(&mut self.kept.held, held);
        self.release(released, actions);
    }

    /// Drops them once more, now with their files.
    fn release(&mut self, released: Vec<CompletedCheckpoint>, actions: &mut Vec<JobAction>) {
        for (index, base) in released.iter().enumerate() {
            // Those that wait for their turn still count: each file goes with the last.
            let later = released[index + 1..].iter();
            let mut spared: Vec<FileHandle> = later
                .flat_map(CompletedCheckpoint::files)
                .cloned()
                .collect();
            spared.extend(self.also_referred_to(base));
            let files: BTreeSet<&str> = names(base).collect();
            spared.retain(|file| files.contains(file.name.as_str()));
            self.deletions.begin(base.id);
            actions.push(JobAction::DropCompleted {
                checkpoint: Box::new(base.clone()),
                spared,
            });
        }
    }

    /// The store has been read: nothing is in doubt any more, and what it lists is retained. Only
    /// what was dropped stays so, although its deletion is under way or has failed: were it
    /// retained until it isn't listed any more, nobody would delete its files. The newest counts
    /// in any case, since it is what is restored.
    pub(super) fn on_kept_recovered(&mut self) {
        self.kept.doubted.clear();
        let newest = self.newest_listed();
        let held = &mut self.kept.held;
        held.retain(|base| Some(base.id) != newest);
        let dropped = |id| held.iter().any(|base| base.id == id);
        self.retained.retain(|listed| !dropped(listed.id));
    }

    /// What something under way rests on.
    fn bases_needed(&self) -> BTreeSet<CheckpointId> {
        let pending = self.pending.values().filter_map(|p| p.barrier.base);
        let finalising = self.finalising.iter().filter_map(|f| f.base());
        pending.chain(finalising).collect()
    }

    /// The checkpoints that are complete, or may be, and whose files must stay therefore.
    fn standing(&self) -> impl Iterator<Item = &CompletedCheckpoint> {
        let finalising = self.finalising.iter().map(|f| f.checkpoint());
        self.retained
            .iter()
            .chain(self.kept.all())
            .chain(finalising)
    }

    /// The files of `checkpoint`, which is about to go, that others refer to.
    fn also_referred_to(&self, checkpoint: &CompletedCheckpoint) -> Vec<FileHandle> {
        let others = self.standing().filter(|other| other.id != checkpoint.id);
        // Mostly nothing is shared, and nothing needs to be compared.
        let shares = !checkpoint.files().all(|file| checkpoint.owns(file));
        let referred: BTreeSet<&str> = others
            .flat_map(|other| {
                let may_be_shared = move |file: &&FileHandle| shares || !other.owns(file);
                other.files().filter(may_be_shared)
            })
            .map(|file| file.name.as_str())
            .collect();
        if referred.is_empty() {
            return Vec::new();
        }
        let shared = |file: &&FileHandle| referred.contains(file.name.as_str());
        checkpoint.files().filter(shared).cloned().collect()
    }

    /// Leaves out of `files`, which are to be deleted, what some checkpoint refers to that is
    /// complete or may be. What brings them may be so late that nobody knows its checkpoint any
    /// more: it was completed then, and has left a file to those that rest on it.
    pub(super) fn spare_referred(&self, files: &mut Vec<FileHandle>) {
        if files.is_empty() {
            return;
        }
        let referred: BTreeSet<&str> = self.standing().flat_map(names).collect();
        files.retain(|file| !referred.contains(file.name.as_str()));
    }

    pub(super) fn check_shared(&self) {
        let held = || self.kept.held.iter();
        let retained = |id| self.retained.iter().any(|completed| completed.id == id);
        assert!(
            held().all(|base| !retained(base.id)),
            "what is held was dropped"
        );
        let kept: BTreeSet<&str> = held().chain(&self.retained).flat_map(names).collect();
        let finalising = self.finalising.iter().map(|f| f.checkpoint());
        for checkpoint in finalising {
            let mut old = checkpoint.files().filter(|file| !checkpoint.owns(file));
            assert!(
                old.all(|file| kept.contains(file.name.as_str())),
                "what is being made durable rests on what is there"
            );
        }
    }
}

fn names(checkpoint: &CompletedCheckpoint) -> impl Iterator<Item = &str> {
    checkpoint.files().map(|file| file.name.as_str())
}
