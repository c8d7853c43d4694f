//! The asynchronous part of a snapshot: what the worker thread has frozen is written and sealed
//! here, on the background thread, and then acknowledged.
//!
//! Files go where the barrier says: into the job's own namespace, or into the folder of a
//! savepoint. Invariant: a file is either named by an acknowledgement or removed here.

use std::io::{Read, Seek, Write};
use std::sync::Arc;
use std::time::Duration;

use tidegate_state::FrozenKeyedState;
use tidegate_types::message::{DeclineReason, Report, SnapshotMetrics};
use tidegate_types::{
    CheckpointId, FileHandle, KeyGroupRange, KeyedStateHandle, ListState, SnapshotLocation,
    SubtaskId, SubtaskState,
};

use crate::clock::Ticks;
use crate::error::{BoxError, chain};
use crate::logic::Seal;
use crate::metrics::SnapshotStage;
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
    pub(crate) keyed: Option<(FrozenKeyedState, KeyGroupRange)>,
    pub(crate) lists: Vec<ListState>,
    pub(crate) finished: bool,
    pub(crate) seals: Vec<Seal>,
    /// All but the time it takes to write.
    pub(crate) metrics: SnapshotMetrics,
    pub(crate) write: SnapshotWrite,
    /// Shows that it is under way, until it is dropped with the job.
    pub(crate) stage: SnapshotStage,
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
        let keyed = self.write().map_err(SnapshotError::Write)?;
        for seal in self.seals.drain(..) {
            if let Err(error) = seal() {
                for file in keyed.iter().flat_map(KeyedStateHandle::files) {
                    self.files.discard(self.checkpoint, file);
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
        let location = self.location.as_ref();
        let mut file = self.files.create(self.checkpoint, location, &self.name)?;
        let mut writer = CancellableWriter {
            file: &mut file,
            write: &self.write,
        };
        frozen.write_to(&mut writer)?;
        writer.check()?;
        let file = file.finish()?;
        Ok(Some(KeyedStateHandle::of_file(file, key_groups)))
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

/// Stops a long write soon after the checkpoint was aborted.
struct CancellableWriter<'a> {
    file: &'a mut Box<dyn StateFileWrite>,
    write: &'a SnapshotWrite,
}

impl CancellableWriter<'_> {
    fn check(&self) -> std::io::Result<()> {
        match self.write.is_cancelled() {
            true => Err(std::io::Error::other("the checkpoint was aborted")),
            false => Ok(()),
        }
    }
}

impl Write for CancellableWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.check()?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use tidegate_state::{HeapKeyedBackend, SnapshotProgress, StateKey, ValueStateDescriptor};
    use tidegate_types::graph::{JobGraph, OperatorRole, OperatorSpec};
    use tidegate_types::{AttemptNumber, MaxParallelism, OperatorId, OperatorUid, SnapshotKind};

    use super::*;
    use crate::metrics::AttemptMetrics;
    use crate::subtask::TakenSnapshots;

    const CHECKPOINT: CheckpointId = CheckpointId(7);
    const SUBTASK: SubtaskId = SubtaskId {
        operator: OperatorId(0),
        index: 0,
    };

    /// What has happened to files, in order.
    #[derive(Clone, Default)]
    struct Log {
        events: Arc<Mutex<Vec<String>>>,
        full: bool,
    }

    impl Log {
        fn add(&self, event: &str) {
            let events = self.events.lock();
            let mut events = events.unwrap_or_else(PoisonError::into_inner);
            events.push(event.to_owned());
        }
    }

    impl StateFiles for Log {
        fn create(
            &self,
            checkpoint: CheckpointId,
            location: Option<&SnapshotLocation>,
            subtask: &str,
        ) -> Result<Box<dyn StateFileWrite>, BoxError> {
            self.add(&format!("create {checkpoint} {subtask} {location:?}"));
            Ok(Box::new(self.clone()))
        }

        fn open(&self, _file: &FileHandle) -> Result<Box<dyn StateFileRead>, BoxError> {
            Err("nothing is restored".into())
        }

        fn discard(&self, checkpoint: CheckpointId, file: &FileHandle) {
            self.add(&format!("discard {checkpoint} {}", file.name));
        }
    }

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            match self.full {
                true => Err(std::io::Error::other("no space")),
                false => Ok(bytes.len()),
            }
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl StateFileWrite for Log {
        fn finish(self: Box<Self>) -> Result<FileHandle, BoxError> {
            self.add("finish");
            Ok(FileHandle {
                name: "file".to_owned(),
                bytes: 1,
                crc32c: 2,
            })
        }
    }

    fn backend() -> HeapKeyedBackend<u64> {
        let max = MaxParallelism::derive(1);
        let range = max.range(0, 1).unwrap();
        let mut backend = HeapKeyedBackend::<u64>::new(max, range);
        let descriptor = ValueStateDescriptor::<u64>::new("count");
        let counts = backend.value_state(&descriptor).unwrap();
        counts
            .borrow_mut()
            .entry_or_insert_with(5_u64.key_hash(), &5, || 1);
        backend
    }

    /// Runs a job with these seals; returns what happened to files and what was reported.
    fn run(log: Log, seals: Vec<Seal>, cancelled: bool) -> (Vec<String>, Vec<Report>) {
        let metrics = AttemptMetrics::new(&JobGraph {
            operators: vec![OperatorSpec {
                uid: OperatorUid("count".to_owned()),
                parallelism: 1,
                max_parallelism: MaxParallelism::derive(1),
                max_parallelism_derived: true,
                role: OperatorRole::Transform,
            }],
            edges: Vec::new(),
        });
        let reports = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&reports);
        let mut taken = TakenSnapshots::default();
        let write = taken.insert(CHECKPOINT, SnapshotKind::Checkpoint);
        if cancelled {
            taken.cancel_all();
        }
        let mut live = backend();
        let frozen = live.freeze();
        // Written from the thread that would go on copying: all of it now.
        while live.advance_snapshots(usize::MAX) == SnapshotProgress::More {}
        let key_groups = MaxParallelism::derive(1).range(0, 1).unwrap();
        let job = SnapshotJob {
            checkpoint: CHECKPOINT,
            location: None,
            subtask: SUBTASK,
            name: "count[0]".to_owned(),
            keyed: Some((frozen, key_groups)),
            lists: Vec::new(),
            finished: false,
            seals,
            metrics: SnapshotMetrics::default(),
            write,
            stage: metrics.of(SUBTASK).begin_snapshot(CHECKPOINT),
            files: Arc::new(log.clone()),
            reports: Reporter::new(
                AttemptNumber(1),
                Arc::new(move |report| sink.lock().unwrap().push(report.report)),
            ),
        };
        job.run();
        let events = log.events.lock().unwrap().clone();
        let reports = reports.lock().unwrap().clone();
        (events, reports)
    }

    const CREATED: &str = "create chk-7 count[0] None";

    #[test]
    fn a_file_that_is_acknowledged_is_finished_and_sealed_first() {
        let log = Log::default();
        let sealed = log.clone();
        let seal: Seal = Box::new(move || {
            sealed.add("seal");
            Ok(())
        });
        let (events, reports) = run(log, vec![seal], false);
        assert_eq!(events, [CREATED, "finish", "seal"]);
        let [Report::Acknowledged { state, .. }] = &reports[..] else {
            panic!("{reports:?}")
        };
        assert_eq!(
            state.files().map(|file| &file.name).collect::<Vec<_>>(),
            ["file"]
        );
    }

    // J16: what is written already doesn't stay behind when a later part fails.
    #[test]
    fn what_was_written_is_discarded_if_sealing_fails() {
        let seal: Seal = Box::new(|| Err("no sync".into()));
        let (events, reports) = run(Log::default(), vec![seal], false);
        assert_eq!(events, [CREATED, "finish", "discard chk-7 file"]);
        assert!(matches!(&reports[..], [Report::Failed(_)]), "{reports:?}");
    }

    // J16: a file that isn't finished is removed by whoever holds it; see `StateFileWrite`.
    #[test]
    fn a_file_that_cannot_be_written_is_never_finished() {
        let log = Log {
            full: true,
            ..Log::default()
        };
        let (events, reports) = run(log, Vec::new(), false);
        assert_eq!(events, [CREATED]);
        let reason = DeclineReason::WriteFailed {
            cause: "write a keyed state file: no space".to_owned(),
        };
        let declined = Report::Declined {
            checkpoint: CHECKPOINT,
            subtask: SUBTASK,
            reason,
        };
        assert_eq!(reports, [declined]);
    }

    // SC-02
    #[test]
    fn nothing_is_written_of_what_was_aborted_before() {
        let seal: Seal = Box::new(|| Err("never called".into()));
        assert_eq!(run(Log::default(), vec![seal], true), (vec![], vec![]));
    }
}
