//! What can go wrong with files, always naming the file.

use std::io;
use std::path::PathBuf;

use tidegate_runtime::BoxError;
use tidegate_types::JobId;

/// A file can't be read as asked for.
#[derive(Debug, thiserror::Error)]
pub enum FileSourceError {
    /// There is nothing to read from.
    #[error("no file or folder to read was given")]
    NoPaths,
    /// A file or folder isn't there.
    #[error("no such file or folder: `{path}`")]
    Missing {
        /// What was looked for.
        path: PathBuf,
    },
    /// A file or folder can't be opened, listed or read.
    #[error("read `{path}`")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// A device, pipe or socket: it could not be read again after a failure.
    #[error("`{path}` is neither a file nor a folder")]
    NotAFile {
        /// What it is called.
        path: PathBuf,
    },
    /// Names are kept in checkpoints as text.
    #[error("the name `{path}` is not valid UTF-8; rename it")]
    NameNotUtf8 {
        /// The name, as far as it can be shown.
        path: PathBuf,
    },
    /// Options that exclude each other or make no sense.
    #[error("{problem}")]
    Options {
        /// Which and why.
        problem: &'static str,
    },
    /// A line isn't text.
    #[error(
        "invalid UTF-8 in `{path}` at byte {offset}; allow it with `FileSource::lossy_utf8(true)`"
    )]
    InvalidUtf8 {
        /// The file.
        path: String,
        /// Offset of the first invalid byte, from 0.
        offset: u64,
    },
    /// A line has no end for so long that it may not be kept in memory.
    #[error(
        "`{path}` has no line feed in more than {max} bytes from byte {offset} on; allow longer \
         lines with `FileSource::max_line_bytes`"
    )]
    LineTooLong {
        /// The file.
        path: String,
        /// Where the line begins, or where reading it began, from 0.
        offset: u64,
        /// Bytes that a line may have.
        max: usize,
    },
    /// The parser of [`FileSource::try_parse`](super::FileSource::try_parse) refuses a line.
    #[error("parse the line at byte {offset} of `{path}`")]
    Parse {
        /// The file.
        path: String,
        /// Offset of the line's first byte, from 0.
        offset: u64,
        /// What the parser says.
        #[source]
        cause: BoxError,
    },
    /// A file that should not change while it is read has another length.
    #[error(
        "`{path}` was changed while it was being read: it had {expected} bytes and now has \
         {found}; to read files as they grow use `FileSource::follow(true)`"
    )]
    Changed {
        /// The file.
        path: String,
        /// Length in bytes when it was found.
        expected: u64,
        /// Length in bytes now.
        found: u64,
    },
    /// A file that may only grow has shrunk.
    #[error(
        "`{path}` was truncated or replaced: {expected} bytes of it are known and it now has \
         {found}; a followed file may only grow"
    )]
    Truncated {
        /// The file.
        path: String,
        /// Bytes that were there before.
        expected: u64,
        /// Length in bytes now.
        found: u64,
    },
    /// A file that may only grow begins differently.
    #[error(
        "`{path}` was replaced: its first {bytes} bytes have changed; a followed file may only \
         grow"
    )]
    Replaced {
        /// The file.
        path: String,
        /// How many bytes from its start are compared.
        bytes: u64,
    },
    /// A followed file has gone and the same content has appeared under another name.
    #[error("`{from}` was renamed to `{to}`; a followed file must keep its name")]
    Renamed {
        /// The name that has gone.
        from: String,
        /// The new name.
        to: String,
    },
    /// The state in the checkpoint is that of a source with other options.
    #[error(
        "the checkpoint was taken with `FileSource::follow({restored})`, the job now says \
         `follow({configured})`; give the source another name to start anew"
    )]
    OtherMode {
        /// What the checkpoint holds.
        restored: bool,
        /// What the job asks for.
        configured: bool,
    },
}

impl FileSourceError {
    /// The error for a failed operation on `path`; a file that isn't there gets one of its own.
    pub(super) fn io(path: impl Into<PathBuf>, cause: io::Error) -> Self {
        let path = path.into();
        match cause.kind() {
            io::ErrorKind::NotFound => FileSourceError::Missing { path },
            _ => FileSourceError::Read { path, cause },
        }
    }
}

/// Output files can't be written or published.
#[derive(Debug, thiserror::Error)]
pub enum FileSinkError {
    /// The output folder can't be made or looked into.
    #[error("prepare the output folder `{path}`")]
    Prepare {
        /// The folder or a file in it.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// The path of the output folder is kept in checkpoints as text.
    #[error("the path of the output folder `{path}` is not valid UTF-8; choose another folder")]
    DirNotUtf8 {
        /// The path, as far as it can be shown.
        path: PathBuf,
    },
    /// The file system can't publish files without replacing others.
    #[error("`{path}` is on a file system without hard links, which publishing files needs")]
    NoHardLinks {
        /// Where a link was tried.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// Another job writes, or has written, to the folder.
    #[error(
        "the output folder `{path}` belongs to job `{owner}`, this is job `{job}`; choose \
         another folder or delete that one with what is in it"
    )]
    OtherJob {
        /// The folder.
        path: PathBuf,
        /// Who owns it.
        owner: JobId,
        /// Who asked.
        job: JobId,
    },
    /// Another sink of the same job writes, or has written, to the folder.
    #[error(
        "the output folder `{path}` belongs to the sink `{owner}` of this job, not to `{uid}`; \
         each sink needs a folder of its own"
    )]
    OtherSink {
        /// The folder.
        path: PathBuf,
        /// Which sink owns it.
        owner: String,
        /// Which sink asked.
        uid: String,
    },
    /// The folder that is seen from here isn't the one that the job has claimed.
    #[error(
        "the output folder `{path}` was claimed by no job as it is seen from this machine; is it \
         mounted here? If it was deleted while the job runs, bring it back or start the job anew"
    )]
    NotClaimed {
        /// The folder.
        path: PathBuf,
    },
    /// The owner file isn't one that this version writes.
    #[error("`{path}` is of another version or damaged: `{first_line}` instead of `{expected}`")]
    OwnerFormat {
        /// The owner file.
        path: PathBuf,
        /// What it begins with.
        first_line: String,
        /// What it should begin with.
        expected: &'static str,
    },
    /// The job would mix its output with files that it knows nothing of.
    #[error(
        "the output folder `{path}` is not empty: it has `{example}`; choose another folder or \
         allow that with `FileSink::allow_existing(true)`"
    )]
    NotEmpty {
        /// The folder.
        path: PathBuf,
        /// Name of a file in it.
        example: String,
    },
    /// The job starts anew although it has published output.
    #[error(
        "the output folder `{path}` has output of this job, as `{example}`, but there is no \
         checkpoint to go on from; it would be written again. Restore the checkpoints, or delete \
         the folder"
    )]
    CheckpointsLost {
        /// The folder.
        path: PathBuf,
        /// Name of a published file.
        example: String,
    },
    /// A staged file can't be written; on a full disk, for instance.
    #[error("write `{path}`")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// A staged file can't be made durable.
    #[error("sync `{path}`")]
    Sync {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// A file can't be published for now.
    #[error("publish `{path}`")]
    Publish {
        /// Its final name.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// A file that a checkpoint promised is neither staged nor published.
    #[error(
        "data was lost: `{target}` ({bytes} bytes) of a completed checkpoint is neither published \
         nor staged as `{staged}`"
    )]
    Lost {
        /// Its final name.
        target: PathBuf,
        /// Its staged name.
        staged: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// A staged file isn't what was written.
    #[error(
        "data was lost: `{path}` has {found} bytes, the checkpoint recorded {expected}; it was \
         changed after it had been written"
    )]
    StagedDamaged {
        /// The staged file.
        path: PathBuf,
        /// Length in bytes in the checkpoint.
        expected: u64,
        /// Length in bytes now.
        found: u64,
    },
    /// The final name is taken by a file with another content.
    #[error(
        "`{path}` exists with another content than the checkpoint recorded ({bytes} bytes, \
         CRC-32C {crc32c:08x}); it is not replaced"
    )]
    Conflict {
        /// The final name.
        path: PathBuf,
        /// Length in the checkpoint.
        bytes: u64,
        /// Checksum in the checkpoint.
        crc32c: u32,
    },
    /// A file of a former attempt can't be removed.
    #[error("remove `{path}`")]
    Remove {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
}
