//! The end of a job's history: what is completed now must never be restored again.
//!
//! Deleting completed checkpoints one by one isn't enough for that. If the deletion is cut off, or
//! fails for some, an older one is the newest left, and going on from it repeats what was
//! committed since; if it succeeds, the namespace looks as if nothing had ever completed, and the
//! job would begin from its origin again. So the end comes first, as one durable record: nothing up
//! to this id is restored any more. The same does the marker of a job that has finished.
//!
//! Invariants: nothing is deleted before the record is durable; a pointer that doesn't count any
//! more is removed before anything new is recorded.

use tidegate_types::{CheckpointId, CompletedCheckpoint, Owner};

use crate::elsewhere;
use crate::error::StorageError;
use crate::job_store::JobStore;
use crate::sweep::SweepReport;

impl JobStore {
    /// Ends the history that `completed` are, then deletes each of them as
    /// [`drop_completed`](Self::drop_completed) does. None of them, and nothing older, is recovered
    /// from then on, whatever can't be deleted; see [`resume`](Self::resume) for what that means to
    /// a later start.
    ///
    /// # Errors
    /// If the end can't be recorded, or it isn't known whether it is, nothing is deleted. Otherwise
    /// every checkpoint is tried, and [`StorageError::Undeletable`] counts those that are left in
    /// part; a later start or sweep deletes the rest.
    pub async fn discard_history(
        &self,
        completed: &[CompletedCheckpoint],
    ) -> Result<(), StorageError> {
        let mut ascending: Vec<_> = completed.iter().collect();
        ascending.sort_by_key(|checkpoint| checkpoint.id);
        let Some(newest) = ascending.last() else {
            return Ok(());
        };
        let recorded = self.inner.records.discard_up_to(newest.id);
        recorded.await.into_result()?;
        let mut left = Vec::new();
        for (index, checkpoint) in ascending.iter().enumerate() {
            // What they share goes with the last of them.
            let later = ascending[index + 1..].iter();
            let spared: Vec<_> = later.flat_map(|later| later.files()).cloned().collect();
            left.extend(self.drop_completed(checkpoint, &spared).await.err());
        }
        let count = left.len();
        match left.into_iter().next() {
            None => Ok(()),
            Some(first) => Err(StorageError::Undeletable {
                count,
                first: Box::new(first),
            }),
        }
    }

    /// Sweeps the namespace after the end of its job, when nothing runs: deletes what no completed
    /// checkpoint refers to. If the job has finished, that is everything: its checkpoints, and
    /// those that it has claimed. Only what the user owns stays, without pointers.
    ///
    /// # Errors
    /// As [`recover`](Self::recover) and [`sweep_orphans`](Self::sweep_orphans); failing removals
    /// of pointers.
    pub async fn sweep_after_end(&self) -> Result<SweepReport, StorageError> {
        let records = &self.inner.records;
        if records.finished().await?.is_some() {
            for id in records.listed_ids().await? {
                self.forget(id).await?;
            }
            return self.sweep_orphans(&[]).await;
        }
        let found = self.look().await?;
        self.forget_what_does_not_count(&found.gone).await?;
        self.sweep_orphans(&found.completed).await
    }

    /// Removes the pointers up to the end of a discarded history, and those in `gone`: to
    /// savepoints that their user has deleted. What the former own is left for a sweep.
    pub(crate) async fn forget_what_does_not_count(
        &self,
        gone: &[CheckpointId],
    ) -> Result<(), StorageError> {
        let records = &self.inner.records;
        let discarded = records.discarded().await?;
        let mut ids = records.listed_ids().await?;
        ids.retain(|id| Some(*id) <= discarded);
        for id in ids.into_iter().chain(gone.iter().copied()) {
            self.forget(id).await?;
        }
        Ok(())
    }

    /// Removes the pointer to a checkpoint. A folder elsewhere that the job owns is recorded first,
    /// for a sweep to delete; in the namespace a sweep finds what no pointer leads to.
    async fn forget(&self, id: CheckpointId) -> Result<(), StorageError> {
        let records = &self.inner.records;
        let pointer = records.pointer(id).await?;
        if pointer.owner == Owner::Job {
            let begun = elsewhere::begin_deleting(records, &pointer).await;
            begun.into_result()?;
        }
        records.remove_pointer(id).await.into_result()
    }
}
