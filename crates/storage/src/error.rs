//! What can go wrong with durable bytes, and what a caller should do about it.
//!
//! Every error names the file it is about by its full path, since that is what a person can look
//! at. [`StorageError::kind`] is what code branches on; the text is for people.

use std::io;
use std::path::PathBuf;

use tidegate_types::{CheckpointId, JobId, LeaderEpoch, SnapshotLocation};

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Try again later: a full disk, a storage that doesn't answer.
    Retryable,
    /// Somebody else owns the namespace: stop.
    Fenced,
    /// The request or the configuration is wrong: change it.
    Invalid,
    /// Durable bytes are missing or altered: data is at risk, a person must look.
    Corrupt,
    /// The bytes are of another version or another job.
    Incompatible,
    /// A bug in Tidegate.
    Internal,
}

/// Why an operation on durable state failed.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// No such kind of storage in this build.
    #[error(
        "`{location}` has the scheme `{scheme}`, which this build can't keep snapshots in; it \
         supports {}{}",
        supported_places(),
        missing_feature(scheme)
    )]
    UnsupportedScheme {
        /// The scheme asked for.
        scheme: String,
        /// The whole location.
        location: String,
    },
    /// No such kind of store for high availability in this build.
    #[error(
        "`{location}` has the scheme `{scheme}`, which this build can't keep leadership in; it \
         supports {}{}",
        supported_ha(),
        missing_feature(scheme)
    )]
    UnsupportedHa {
        /// The scheme asked for.
        scheme: String,
        /// The whole location.
        location: String,
    },
    /// The location can't be used.
    #[error("the location `{location}` {reason}")]
    InvalidLocation {
        /// What was given.
        location: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process (or another store in this one) owns the namespace.
    #[error(
        "the namespace of this job is in use{}: `{}` is locked; stop that run first, or give \
         this one another job name or checkpoint directory",
        .owner.map(|pid| format!(" by process {pid}")).unwrap_or_default(),
        .lock.display()
    )]
    Locked {
        /// The lock file.
        lock: PathBuf,
        /// Process id of the owner, if it could be read. Only a hint.
        owner: Option<u32>,
    },
    /// An operation of the file system or the storage failed.
    #[error("{action} `{file}`")]
    Io {
        /// What was attempted, as a verb.
        action: &'static str,
        /// The file it was attempted on.
        file: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// An operation of the storage failed for a reason that isn't an IO error.
    #[error("{action} `{file}`")]
    Object {
        /// What was attempted, as a verb.
        action: &'static str,
        /// The file it was attempted on.
        file: String,
        /// Why it failed.
        #[source]
        source: Box<object_store::Error>,
    },
    /// A file that must be there isn't.
    #[error("`{file}` is missing")]
    Missing {
        /// The file.
        file: String,
    },
    /// A file of a checkpoint that should lie in another folder isn't there.
    #[error(
        "`{file}` is missing, which the checkpoint in `{snapshot}` needs: files of an incremental \
         checkpoint also lie in sibling folders, so it can't be copied or moved alone; a savepoint \
         can"
    )]
    MissingSibling {
        /// The file.
        file: String,
        /// The folder of the checkpoint.
        snapshot: SnapshotLocation,
    },
    /// A file is shorter or longer than what was written.
    #[error("`{file}` has {actual} bytes instead of {expected}; it was truncated or replaced")]
    WrongLength {
        /// The file.
        file: String,
        /// Its recorded length in bytes.
        expected: u64,
        /// Its length now.
        actual: u64,
    },
    /// The bytes are not those that were written.
    #[error("`{file}` is damaged: its CRC-32C is {actual:08x} instead of {expected:08x}")]
    WrongChecksum {
        /// The file.
        file: String,
        /// The recorded checksum.
        expected: u32,
        /// The checksum of what was read.
        actual: u32,
    },
    /// The bytes aren't of the expected format.
    #[error("`{file}` is damaged or not a file of Tidegate: {reason}")]
    Malformed {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is of a format version that this build can't read.
    #[error(
        "`{file}` has format version {found}; this build of Tidegate reads version {supported}"
    )]
    Version {
        /// The file.
        file: String,
        /// Its version.
        found: u32,
        /// The version that this build reads and writes.
        supported: u32,
    },
    /// The file belongs to another job.
    #[error("`{file}` belongs to job `{found}`, not to job `{expected}`")]
    OtherJob {
        /// The file.
        file: String,
        /// The job whose namespace is open.
        expected: JobId,
        /// The job named in the file.
        found: JobId,
    },
    /// The metadata is that of another checkpoint.
    #[error("`{file}` is the metadata of `{found}`, not of `{expected}`; it was replaced")]
    OtherCheckpoint {
        /// The file.
        file: String,
        /// The checkpoint it should be of.
        expected: CheckpointId,
        /// The checkpoint it is of.
        found: CheckpointId,
    },
    /// What was given as a snapshot to go on from is none.
    #[error("`{path}` is no checkpoint or savepoint: {reason}")]
    NotASnapshot {
        /// What was given.
        path: String,
        /// What it is instead.
        reason: String,
    },
    /// A snapshot was given to begin a job with that has checkpoints already.
    #[error(
        "the job has completed checkpoints of its own in `{namespace}`, the latest is `{latest}`; \
         go on without giving a snapshot, or give the job another name or checkpoint directory"
    )]
    HasCheckpoints {
        /// The namespace's folder.
        namespace: String,
        /// The newest of them.
        latest: CheckpointId,
    },
    /// A snapshot was given to a job whose checkpoints were deleted when it ended.
    #[error(
        "the job in `{namespace}` ended, and its checkpoints up to `{discarded}` were deleted; \
         it can't be begun from a snapshot again; give it another name or checkpoint directory"
    )]
    HistoryDiscarded {
        /// The namespace's folder.
        namespace: String,
        /// The newest of them.
        discarded: CheckpointId,
    },
    /// The job was begun from another snapshot, or in another mode, than is given now.
    #[error(
        "the job in `{namespace}` was begun from {recorded}, not from {given}; give the same or \
         none, or give the job another name or checkpoint directory"
    )]
    OtherOrigin {
        /// The namespace's folder.
        namespace: String,
        /// What it was begun from.
        recorded: String,
        /// What is given now.
        given: String,
    },
    /// The snapshot that the job is to go on from can't be read.
    #[error("can't go on from the snapshot `{location}`")]
    UnreadableOrigin {
        /// Its folder.
        location: SnapshotLocation,
        /// What is wrong.
        #[source]
        cause: Box<StorageError>,
    },
    /// There is something where a savepoint should be made.
    #[error("the savepoint folder `{folder}` exists already; nothing in it was touched")]
    SavepointExists {
        /// The folder.
        folder: String,
    },
    /// The namespace belongs to a job with another name.
    #[error(
        "`{file}` says that this folder belongs to the job named `{found}`, not `{expected}`; \
         give another checkpoint directory"
    )]
    OtherJobName {
        /// The identity file.
        file: String,
        /// The name asked for.
        expected: String,
        /// The name in the file.
        found: String,
    },
    /// Somebody else has taken the lead over the namespace since this handle did.
    #[error(
        "`{found}` has taken the lead of this job, as `{record}` says; what `{ours}` writes is \
         rejected"
    )]
    Fenced {
        /// Where the epochs are recorded.
        record: String,
        /// The epoch of this handle.
        ours: LeaderEpoch,
        /// The epoch that leads now.
        found: LeaderEpoch,
    },
    /// This handle has given its leadership back.
    #[error("`{ours}` has given back the lead of this job; what it writes is rejected")]
    Released {
        /// The epoch of this handle.
        ours: LeaderEpoch,
    },
    /// The file exists already, with other contents.
    #[error("`{file}` exists already with other contents; another process writes to this folder")]
    Conflict {
        /// The file.
        file: String,
    },
    /// A completed checkpoint can't be read.
    #[error(
        "can't read completed checkpoint `{checkpoint}`; repair or bring back its files; \
         docs/operations.md says how to fall back to an older checkpoint, if one was retained, by \
         deleting `{pointer}`"
    )]
    UnreadableCheckpoint {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The file that says it is completed.
        pointer: String,
        /// What is wrong.
        #[source]
        cause: Box<StorageError>,
    },
    /// A deletion would break a completed checkpoint.
    #[error("refused to delete files of `{checkpoint}`: `{pointer}` says that it is completed")]
    StillReferenced {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The file that says so.
        pointer: String,
    },
    /// Some files couldn't be deleted; the others are gone.
    #[error("{count} files couldn't be deleted; the first is this")]
    Undeletable {
        /// How many.
        count: usize,
        /// What happened to the first of them.
        #[source]
        first: Box<StorageError>,
    },
    /// A checkpoint's metadata is too large to be written.
    #[error(
        "the metadata of `{checkpoint}` would take more than {limit} bytes; operator state that \
         large belongs into keyed state"
    )]
    MetadataTooLarge {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The limit in bytes.
        limit: u64,
    },
    /// A checkpoint that breaks the rules of its own format.
    #[error("the metadata of `{checkpoint}` can't be written: {reason}")]
    Unencodable {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The rule it breaks.
        reason: String,
    },
    /// A state file was used after it had failed.
    #[error("`{file}` can't be written any more, since an earlier write failed ({cause})")]
    WriterFailed {
        /// The file.
        file: String,
        /// Why the earlier write failed, for people.
        cause: String,
    },
    /// Blocking work ended without a result.
    #[error("a background task ended early")]
    TaskLost(#[source] tokio::task::JoinError),
}

impl StorageError {
    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::UnsupportedScheme { .. }
            | Self::UnsupportedHa { .. }
            | Self::InvalidLocation { .. }
            | Self::NotASnapshot { .. }
            | Self::HasCheckpoints { .. }
            | Self::HistoryDiscarded { .. }
            | Self::OtherOrigin { .. }
            | Self::SavepointExists { .. }
            | Self::MetadataTooLarge { .. } => ErrorKind::Invalid,
            Self::Locked { .. }
            | Self::Conflict { .. }
            | Self::Fenced { .. }
            | Self::Released { .. } => ErrorKind::Fenced,
            Self::Io { source, .. } => kind_of_io(source.kind()),
            Self::Object { source, .. } => match **source {
                object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. } => ErrorKind::Invalid,
                _ => ErrorKind::Retryable,
            },
            Self::WriterFailed { .. } => ErrorKind::Retryable,
            Self::Missing { .. }
            | Self::MissingSibling { .. }
            | Self::WrongLength { .. }
            | Self::WrongChecksum { .. }
            | Self::OtherCheckpoint { .. }
            | Self::Malformed { .. } => ErrorKind::Corrupt,
            Self::Version { .. } | Self::OtherJob { .. } | Self::OtherJobName { .. } => {
                ErrorKind::Incompatible
            }
            Self::UnreadableCheckpoint { cause, .. } | Self::UnreadableOrigin { cause, .. } => {
                cause.kind()
            }
            Self::Undeletable { first, .. } => first.kind(),
            Self::StillReferenced { .. } | Self::Unencodable { .. } | Self::TaskLost(_) => {
                ErrorKind::Internal
            }
        }
    }

    /// Wraps an error of `object_store`, by what is underneath it.
    pub(crate) fn from_object(
        action: &'static str,
        file: String,
        source: object_store::Error,
    ) -> StorageError {
        match source {
            object_store::Error::NotFound { .. } => Self::Missing { file },
            object_store::Error::AlreadyExists { .. } => Self::Conflict { file },
            other => match io_cause(&other) {
                Some(source) => Self::Io {
                    action,
                    file,
                    source,
                },
                None => Self::Object {
                    action,
                    file,
                    source: Box::new(other),
                },
            },
        }
    }

    /// Whether trying again at once may help.
    pub(crate) fn is_transient(&self) -> bool {
        use io::ErrorKind::*;
        match self {
            Self::Io { source, .. } => matches!(
                source.kind(),
                Interrupted | WouldBlock | TimedOut | ResourceBusy | StaleNetworkFileHandle
            ),
            _ => false,
        }
    }
}

/// The kinds of places for snapshots that are compiled in.
fn supported_places() -> &'static str {
    match cfg!(feature = "s3") {
        true => "`file` (a path, or `file:///path`) and `s3`",
        false => "`file` (a path, or `file:///path`)",
    }
}

/// What to do about a scheme that is known, but isn't compiled in.
fn missing_feature(scheme: &str) -> &'static str {
    match scheme {
        "s3" if cfg!(not(feature = "s3")) => "; build the program with the feature `s3`",
        "zk" if cfg!(not(feature = "zookeeper")) => {
            "; build the program with the feature `zookeeper`"
        }
        _ => "",
    }
}

/// The kinds of stores that are compiled in.
fn supported_ha() -> &'static str {
    match (cfg!(feature = "zookeeper"), cfg!(feature = "s3")) {
        (true, true) => "`dir`, `zk` and `s3`",
        (true, false) => "`dir` and `zk`",
        (false, true) => "`dir` and `s3`",
        (false, false) => "`dir`",
    }
}

fn kind_of_io(kind: io::ErrorKind) -> ErrorKind {
    use io::ErrorKind::*;
    match kind {
        PermissionDenied | ReadOnlyFilesystem | NotADirectory | IsADirectory | InvalidFilename => {
            ErrorKind::Invalid
        }
        NotFound | UnexpectedEof => ErrorKind::Corrupt,
        _ => ErrorKind::Retryable,
    }
}

/// A copy of the IO error at the bottom of `error`, whose types in between are private.
fn io_cause(error: &object_store::Error) -> Option<io::Error> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(match io.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(io.kind(), io.to_string()),
            });
        }
        cause = error.source();
    }
    None
}

/// Keeps the kind of an IO error underneath, so that a full disk still is one.
impl From<StorageError> for io::Error {
    fn from(error: StorageError) -> io::Error {
        let kind = match &error {
            StorageError::Io { source, .. } => source.kind(),
            StorageError::Missing { .. } | StorageError::MissingSibling { .. } => {
                io::ErrorKind::NotFound
            }
            StorageError::WrongLength { .. }
            | StorageError::WrongChecksum { .. }
            | StorageError::Malformed { .. } => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
