//! Where and how to write.

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_runtime::BoxError;
use tidegate_runtime::sink::{SinkContext, SubmitContext, TwoPhaseSink};
use tidegate_types::OperatorUid;

use super::commit::FileCommitter;
use super::error::FileSinkError;
use super::layout::Layout;
use super::owner::{Owner, claim, claimed_by};
use super::writer::{FileTransaction, FileWriter};
use crate::line::{Columns, Displayed, FormatWith, LineFormat};

/// Size at which a file is closed if nothing is said.
const ROLL_BYTES: u64 = 128 << 20;

/// Writes each record as a line, into files that become visible exactly once.
///
/// Files appear in the output folder when the checkpoint that covers them has completed, whole and
/// for good: they are never changed, renamed or replaced. There is one per subtask and checkpoint,
/// more if they would become large, none if there was nothing to write. Names that begin with `.`
/// are not output. Files appear one by one: commits are atomic per file, not per checkpoint.
///
/// The folder belongs to one sink of one job, for as long as it exists. It must be on a file
/// system with hard links, and one that all subtasks share; its path must be UTF-8. Whoever moves
/// published files away should leave those of the last checkpoints for a while: a restored job
/// looks whether they have been published, and takes a file that is nowhere for lost.
///
/// The folder may be moved as a whole while the job doesn't run. The job may also go on with
/// another one: new output goes there, the old one stays where it is, and what the restored
/// checkpoint lists of it is published there if it isn't yet.
///
/// ```
/// use tidegate_connectors::{FileSink, WriteLine};
///
/// // Numbers, text and tuples of them need no format: `word<TAB>count`.
/// let counts = FileSink::new("counts");
///
/// struct Reading { sensor: String, value: f64 }
/// let readings = FileSink::lines("readings", |reading: &Reading, line: &mut Vec<u8>| {
///     (&reading.sensor, reading.value).write_line(line)
/// });
/// # let _ = (counts, readings);
/// ```
#[derive(Debug)]
pub struct FileSink<F = Columns> {
    dir: PathBuf,
    roll_bytes: u64,
    allow_existing: bool,
    format: Arc<F>,
}

impl<F> Clone for FileSink<F> {
    fn clone(&self) -> Self {
        FileSink {
            dir: self.dir.clone(),
            format: Arc::clone(&self.format),
            ..*self
        }
    }
}

impl FileSink {
    /// Writes text, numbers and tuples of them (with tabs between) to the folder `dir`; see
    /// [`WriteLine`](crate::WriteLine).
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        FileSink::with_format(dir, Columns)
    }

    /// Writes what implements [`Display`](std::fmt::Display) to the folder `dir`.
    pub fn displayed(dir: impl Into<PathBuf>) -> FileSink<Displayed> {
        FileSink::with_format(dir, Displayed)
    }

    /// Writes what `format` appends to the line, to the folder `dir`. The sink itself ends lines.
    pub fn lines<T, F>(dir: impl Into<PathBuf>, format: F) -> FileSink<FormatWith<F>>
    where
        F: Fn(&T, &mut Vec<u8>) + Send + Sync + 'static,
    {
        FileSink::with_format(dir, FormatWith(format))
    }
}

impl<F> FileSink<F> {
    /// Writes to the folder `dir` in a format of one's own.
    pub fn with_format(dir: impl Into<PathBuf>, format: F) -> Self {
        FileSink {
            dir: dir.into(),
            roll_bytes: ROLL_BYTES,
            allow_existing: false,
            format: Arc::new(format),
        }
    }

    /// Begins a new file within a checkpoint once one has at least so many bytes. Default 128 MiB.
    /// Every file stays open until the next checkpoint, so very small ones may exceed what the
    /// system allows a process to have open.
    #[must_use]
    pub fn roll_bytes(mut self, bytes: u64) -> Self {
        self.roll_bytes = bytes;
        self
    }

    /// Takes a folder that already has files of somebody else's.
    #[must_use]
    pub fn allow_existing(mut self, allow: bool) -> Self {
        self.allow_existing = allow;
        self
    }
}

impl<T: 'static, F: LineFormat<T>> TwoPhaseSink<T> for FileSink<F> {
    type Transaction = FileTransaction;
    type Writer = FileWriter<F>;
    type Committer = FileCommitter;

    fn check(&self, uid: &OperatorUid, context: SubmitContext) -> Result<(), BoxError> {
        let layout = Layout::new(&self.dir);
        layout.recorded()?;
        let owner = Owner {
            job: context.job,
            uid: uid.clone(),
        };
        claim(&layout, &owner, self.allow_existing)?;
        if !context.fresh || self.allow_existing {
            return Ok(());
        }
        let path = self.dir.clone();
        match layout.visible() {
            Ok(names) => match names.into_iter().next() {
                Some(example) => Err(FileSinkError::CheckpointsLost { path, example }.into()),
                None => Ok(()),
            },
            Err(cause) => Err(FileSinkError::Prepare { path, cause }.into()),
        }
    }

    /// Makes nothing before it is known that the folder is the one that was claimed: a machine that
    /// hasn't mounted it would else publish to a folder of its own that nobody reads.
    fn writer(&self, context: SinkContext) -> Result<FileWriter<F>, BoxError> {
        let layout = Layout::new(&self.dir);
        let owner = claimed_by(&layout, &context.uid)?;
        if !layout.staging().is_dir() {
            let path = self.dir.clone();
            layout
                .create()
                .map_err(|cause| FileSinkError::Prepare { path, cause })?;
        }
        let format = Arc::clone(&self.format);
        let writer = FileWriter::new(layout, owner.job, &context, format, self.roll_bytes)?;
        Ok(writer)
    }

    fn committer(&self, context: SinkContext) -> Result<FileCommitter, BoxError> {
        let layout = Layout::new(&self.dir);
        let owner = claimed_by(&layout, &context.uid)?;
        Ok(FileCommitter::new(layout, owner))
    }
}
