//! The asynchronous part of a snapshot: what the worker thread has frozen is written and sealed
//! here, on the background thread, and then acknowledged.
//!
//! What is small travels in the acknowledgement (see [`piece`](crate::piece)). Files go where the
//! barrier says: into the job's own namespace, or into the folder of a savepoint. Invariant: a file
//! is either named by an acknowledgement or removed here.

use std::io::{Read, Seek, Write};
use std::sync::Arc;
use std::time::Duration;

use tidegate_state::PieceKind;
use tidegate_types::message::{DeclineReason, Report, SnapshotMetrics};
use tidegate_types::{
    CheckpointId, FileHandle, KeyGroupRange, KeyedPiece, KeyedStateHandle, ListState,
    SnapshotLocation, SubtaskId, SubtaskState,
};

use crate::chains::{KeyedSnapshot, TakenPieces};
use crate::clock::Ticks;
use crate::error::{BoxError, chain};
use crate::logic::Seal;
use crate::metrics::SnapshotStage;
use crate::piece::{PieceWriter, StatePlacement};
use crate::report::Reporter;
use crate::subtask::SnapshotWrite;

/// A state file in the making. Dropping it without [`finish`](Self::finish) removes it.
pub trait StateFileWrite: Write + Send {
    /// Makes the file durable and closes it.
    ///
    /// # Errors
    /// If it couldn't be made durable; nothing usable is left then.
    fn finish(self: Box<Self>) -> Result<FileHandle, BoxError>;
}

/// A state file to restore from.
pub trait StateFileRead: Read + Seek + Send {}

impl<F: Read + Seek + Send> StateFileRead for F {}

/// Where state files live. Calls may block; they come from background threads, and from workers
/// while they restore.
pub trait StateFiles: Send + Sync + 'static {
    /// Begins a new file for the state of `subtask` (a name such as `count[1]`), in the folder
    /// `location`, or in the job's own namespace if there is none.
    ///
    /// # Errors
    /// If the storage can't be reached or is full.
    fn create(
        &self,
        checkpoint: CheckpointId,
        location: Option<&SnapshotLocation>,
        subtask: &str,
    ) -> Result<Box<dyn StateFileWrite>, BoxError>;

    /// Opens a file after verifying that it is complete and unaltered.
    ///
    /// # Errors
    /// Names the file and says what is wrong with it.
    fn open(&self, file: &FileHandle) -> Result<Box<dyn StateFileRead>, BoxError>;

    /// Deletes a file that no acknowledgement has mentioned. A failure leaves an orphan for the
    /// next sweep, never more.
    fn discard(&self, checkpoint: CheckpointId, file: &FileHandle);
}

/// One subtask's part of one checkpoint, between freezing and acknowledging.
pub(crate) struct SnapshotJob {
    pub(crate) checkpoint: CheckpointId,
    /// Where its files go; `None` is the job's own namespace.
    pub(crate) location: Option<SnapshotLocation>,
    pub(crate) subtask: SubtaskId,
    pub(crate) name: String,
    /// Key groups of the keyed state, if there is any; the state itself is held by `write`.
    pub(crate) keyed: Option<KeyGroupRange>,
    pub(crate) lists: Vec<ListState>,
    pub(crate) finished: bool,
    pub(crate) seals: Vec<Seal>,
    /// All but the time it takes to write.
    pub(crate) metrics: SnapshotMetrics,
    pub(crate) write: SnapshotWrite,
    /// Shows that it is under way, until it is dropped with the job.
    pub(crate) stage: SnapshotStage,
    pub(crate) files: Arc<dyn StateFiles>,
    pub(crate) placement: StatePlacement,
    pub(crate) reports: Reporter,
}

/// Which part of making a snapshot durable failed.
enum SnapshotError {
    Write(BoxError),
    Seal(BoxError),
}

impl SnapshotJob {
    /// Whether there is nothing to write: such a job may run on the worker's own thread.
    pub(crate) fn is_instant(&self) -> bool {
        self.keyed.is_none() && self.seals.is_empty()
    }

    /// Writes, seals, and acknowledges or declines.
    pub(crate) fn run(mut self) {
        let began = Ticks::now();
        if self.write.is_cancelled() {
            return;
        }
        match self.write_and_seal() {
            Ok(keyed) => self.acknowledge(keyed, Ticks::now().since(began)),
            Err(_) if self.write.is_cancelled() => {}
            Err(SnapshotError::Write(error)) => self.reports.send(Report::Declined {
                checkpoint: self.checkpoint,
                subtask: self.subtask,
                reason: DeclineReason::WriteFailed {
                    cause: chain(&error),
                },
            }),
            // What could not be sealed once is part of every later checkpoint too: only writing it
            // anew can help.
            Err(SnapshotError::Seal(error)) => {
                self.reports.fail(Some(self.subtask), chain(&error));
            }
        }
    }

    fn write_and_seal(&mut self) -> Result<Option<KeyedStateHandle>, SnapshotError> {
        let written = self.write().map_err(SnapshotError::Write)?;
        for seal in self.seals.drain(..) {
            if let Err(error) = seal() {
                // Only what is new: older pieces belong to other checkpoints.
                if let Some(file) = written.as_ref().and_then(Written::file) {
                    self.files.discard(self.checkpoint, file);
                }
                return Err(SnapshotError::Seal(error));
            }
        }
        Ok(written.map(Written::into_handle))
    }

    fn write(&self) -> Result<Option<Written>, BoxError> {
        let Some(key_groups) = self.keyed else {
            return Ok(None);
        };
        let KeyedSnapshot {
            frozen,
            below,
            pieces,
        } = self.write.take().ok_or(Aborted)?;
        let kind = frozen.kind();
        let mut piece = PieceWriter::new(
            self.placement,
            &*self.files,
            self.checkpoint,
            self.location.as_ref(),
            &self.name,
        );
        let mut writer = CancellableWriter {
            out: &mut piece,
            write: &self.write,
        };
        let written = frozen.write_to(&mut writer)?;
        writer.check()?;
        // That nothing has changed is a piece, too: the next one follows it.
        let is_needed = kind == PieceKind::Changes || written.chunks > 0;
        let new = match is_needed {
            true => Some(piece.finish()?),
            false => None,
        };
        Ok(Some(Written {
            below,
            new,
            pieces,
            key_groups,
        }))
    }

    fn acknowledge(self, keyed: Option<KeyedStateHandle>, write: Duration) {
        let SnapshotJob {
            checkpoint,
            subtask,
            lists,
            finished,
            metrics,
            ..
        } = self;
        tidegate_fault::point("acknowledge:before");
        self.reports.send(Report::Acknowledged {
            checkpoint,
            subtask,
            state: SubtaskState {
                keyed,
                lists,
                finished,
            },
            metrics: SnapshotMetrics { write, ..metrics },
        });
        tidegate_fault::point("acknowledge:after");
    }
}

/// Keyed state that is written, but not acknowledged.
struct Written {
    /// Pieces of the base.
    below: Vec<KeyedPiece>,
    /// The piece that was written; none if there is no key at all.
    new: Option<KeyedPiece>,
    pieces: TakenPieces,
    key_groups: KeyGroupRange,
}

impl Written {
    /// The file that was written, if any.
    fn file(&self) -> Option<&FileHandle> {
        self.new.as_ref().and_then(KeyedPiece::file)
    }

    /// What is acknowledged. From here on later snapshots may rest on it.
    fn into_handle(self) -> KeyedStateHandle {
        let mut pieces = self.below;
        pieces.extend(self.new);
        self.pieces.set(&pieces);
        KeyedStateHandle {
            pieces,
            key_groups: self.key_groups,
        }
    }
}

/// Nobody wants the snapshot any more.
#[derive(Debug, thiserror::Error)]
#[error("the checkpoint was aborted")]
struct Aborted;

/// Stops a long write soon after the checkpoint was aborted.
struct CancellableWriter<'a> {
    out: &'a mut dyn Write,
    write: &'a SnapshotWrite,
}

impl CancellableWriter<'_> {
    fn check(&self) -> std::io::Result<()> {
        match self.write.is_cancelled() {
            true => Err(std::io::Error::other(Aborted)),
            false => Ok(()),
        }
    }
}

impl Write for CancellableWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.check()?;
        self.out.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests;
