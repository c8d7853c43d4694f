//! The asynchronous part of a snapshot: what the worker thread has frozen is written and sealed
//! here, on the background thread, and then acknowledged.

use std::io::{Read, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_state::FrozenKeyedState;
use tidegate_types::message::{DeclineReason, Report, SnapshotMetrics};
use tidegate_types::{
    CheckpointId, FileHandle, KeyGroupRange, KeyedStateHandle, ListState, SubtaskId, SubtaskState,
};

use crate::clock::Ticks;
use crate::error::{BoxError, chain};
use crate::logic::Seal;
use crate::report::Reporter;

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
    /// Begins a new file for the state of `subtask` (a name such as `count[1]`).
    ///
    /// # Errors
    /// If the storage can't be reached or is full.
    fn create(
        &self,
        checkpoint: CheckpointId,
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

/// Set when nobody wants the snapshot any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One subtask's part of one checkpoint, between freezing and acknowledging.
pub(crate) struct SnapshotJob {
    pub(crate) checkpoint: CheckpointId,
    pub(crate) subtask: SubtaskId,
    pub(crate) name: String,
    pub(crate) keyed: Option<(FrozenKeyedState, KeyGroupRange)>,
    pub(crate) lists: Vec<ListState>,
    pub(crate) finished: bool,
    pub(crate) seals: Vec<Seal>,
    pub(crate) alignment: Duration,
    pub(crate) sync: Duration,
    pub(crate) cancelled: Cancelled,
    pub(crate) files: Arc<dyn StateFiles>,
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
        if self.cancelled.is_set() {
            return;
        }
        match self.write_and_seal() {
            Ok(keyed) => self.acknowledge(keyed, Ticks::now().since(began)),
            Err(_) if self.cancelled.is_set() => {}
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
        let keyed = self.write().map_err(SnapshotError::Write)?;
        for seal in self.seals.drain(..) {
            if let Err(error) = seal() {
                if let Some(keyed) = &keyed {
                    self.files.discard(self.checkpoint, &keyed.file);
                }
                return Err(SnapshotError::Seal(error));
            }
        }
        Ok(keyed)
    }

    fn write(&mut self) -> Result<Option<KeyedStateHandle>, BoxError> {
        let Some((frozen, key_groups)) = self.keyed.take() else {
            return Ok(None);
        };
        let mut file = self.files.create(self.checkpoint, &self.name)?;
        let mut writer = CancellableWriter {
            file: &mut file,
            cancelled: &self.cancelled,
        };
        frozen.write_to(&mut writer)?;
        Ok(Some(KeyedStateHandle {
            file: file.finish()?,
            key_groups,
        }))
    }

    fn acknowledge(self, keyed: Option<KeyedStateHandle>, write: Duration) {
        let SnapshotJob {
            checkpoint,
            subtask,
            lists,
            finished,
            alignment,
            sync,
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
            metrics: SnapshotMetrics {
                alignment,
                sync,
                write,
                ..SnapshotMetrics::default()
            },
        });
        tidegate_fault::point("acknowledge:after");
    }
}

/// Stops a long write soon after the checkpoint was aborted.
struct CancellableWriter<'a> {
    file: &'a mut Box<dyn StateFileWrite>,
    cancelled: &'a Cancelled,
}

impl Write for CancellableWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.cancelled.is_set() {
            return Err(std::io::Error::other("the checkpoint was aborted"));
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}
