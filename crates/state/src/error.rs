//! What can go wrong with keyed state, always with the names of the state or file concerned.

use std::io;

use tidegate_types::{KeyGroup, KeyGroupRange};

use crate::format::FileError;
use crate::key::KeyError;

/// An operation on keyed state failed. Small, since every access to state returns one in its place.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// One name was bound twice, with different types.
    #[error(transparent)]
    AlreadyBound(Box<AlreadyBound>),
    /// The bytes in a checkpoint are those of another type. Nothing of the state was read.
    #[error(transparent)]
    RestoredStateMismatch(Box<RestoredStateMismatch>),
    /// A keyed state file can't be read back; the backend is unusable from here on.
    #[error("restore keyed state from file `{file}`")]
    Restore {
        /// Name of the file as given by the caller.
        file: Box<str>,
        /// What is wrong with it.
        #[source]
        cause: Box<FileError>,
    },
    /// The saved entries of a state don't decode, though their checksum is right.
    #[error("load state `{name}`, key group `{key_group}`")]
    Load {
        /// The state.
        name: Box<str>,
        /// The key group.
        key_group: KeyGroup,
        /// What is wrong.
        #[source]
        cause: Box<LoadError>,
    },
    /// Restoring or binding restored state while a snapshot is being taken.
    #[error("state can't be loaded while `{pending}` snapshots are being copied")]
    SnapshotPending {
        /// How many.
        pending: usize,
    },
    /// A value can't be serialised.
    #[error("serialise a value of state `{name}`, key group `{key_group}`")]
    Serialise {
        /// The state.
        name: Box<str>,
        /// The key group.
        key_group: KeyGroup,
        /// What the serialiser says.
        #[source]
        cause: postcard::Error,
    },
    /// Restored operator state doesn't decode.
    #[error("load operator state `{name}`")]
    LoadOperator {
        /// The state.
        name: Box<str>,
        /// What is wrong.
        #[source]
        cause: Box<LoadError>,
    },
    /// An element of operator state can't be serialised.
    #[error("serialise operator state `{name}`")]
    SerialiseOperator {
        /// The state.
        name: Box<str>,
        /// What the serialiser says.
        #[source]
        cause: postcard::Error,
    },
    /// Writing the file failed. What was written is to be deleted.
    #[error("write a keyed state file")]
    Write {
        /// What the writer says.
        #[source]
        cause: io::Error,
    },
    /// The worker cancelled the snapshot, or its attempt ended, before all was copied.
    #[error("the snapshot of key groups `{key_groups}` was cancelled before it was complete")]
    SnapshotCancelled {
        /// The key groups of the backend.
        key_groups: KeyGroupRange,
    },
}

impl StateError {
    pub(crate) fn load_operator(name: &str, cause: LoadError) -> Self {
        StateError::LoadOperator {
            name: name.into(),
            cause: Box::new(cause),
        }
    }

    pub(crate) fn serialise_operator(name: &str, cause: postcard::Error) -> Self {
        StateError::SerialiseOperator {
            name: name.into(),
            cause,
        }
    }

    pub(crate) fn load(name: &str, key_group: KeyGroup, cause: LoadError) -> Self {
        StateError::Load {
            name: name.into(),
            key_group,
            cause: Box::new(cause),
        }
    }
}

/// A state is bound, and asked for with another type.
#[derive(Debug, thiserror::Error)]
#[error("state `{name}` is already bound as {bound}, so it can't be bound as {requested}")]
pub struct AlreadyBound {
    /// The state.
    pub name: String,
    /// Kind, version and schemas it has.
    pub bound: String,
    /// Kind, version and schemas that were asked for.
    pub requested: String,
}

/// A state was saved with another type.
#[derive(Debug, thiserror::Error)]
#[error("state `{name}` was saved as {saved}, but the job declares {declared}")]
pub struct RestoredStateMismatch {
    /// The state.
    pub name: String,
    /// Kind, version and schemas in the checkpoint.
    pub saved: String,
    /// Kind, version and schemas of the job.
    pub declared: String,
}

/// Saved entries are not what their state's type says.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Lengths don't add up.
    #[error("entry `{entry}` has an impossible length")]
    Length {
        /// Position in its chunk.
        entry: u32,
    },
    /// A key doesn't decode.
    #[error("decode the key of entry `{entry}`")]
    Key {
        /// Position in its chunk.
        entry: u32,
        /// What is wrong.
        #[source]
        cause: KeyError,
    },
    /// A value doesn't decode.
    #[error("decode the value of entry `{entry}`")]
    Value {
        /// Position in its chunk.
        entry: u32,
        /// What the deserialiser says.
        #[source]
        cause: postcard::Error,
    },
    /// A value is followed by bytes it doesn't use.
    #[error("value of entry `{entry}` is followed by `{bytes}` bytes that don't belong to it")]
    TrailingValue {
        /// Position in its chunk.
        entry: u32,
        /// How many.
        bytes: usize,
    },
    /// Operator state without its type beside it.
    #[error("its type is missing: it isn't state of this backend")]
    Untyped,
    /// The type of an operator state is laid out in a way that is not known.
    #[error("its type has the unknown layout `{version}`")]
    Layout {
        /// The version found.
        version: u8,
    },
    /// A list without elements, which is never written.
    #[error("the list of entry `{entry}` is empty")]
    EmptyList {
        /// Position in its chunk.
        entry: u32,
    },
    /// A key is filed under a key group that its hash doesn't give.
    #[error("entry `{entry}` belongs to key group `{belongs}`")]
    KeyGroup {
        /// Position in its chunk.
        entry: u32,
        /// Where the key belongs.
        belongs: KeyGroup,
    },
    /// The same key comes twice: two files overlap, or one was restored twice.
    #[error("the key of entry `{entry}` has been loaded before")]
    Duplicate {
        /// Position in its chunk.
        entry: u32,
    },
}
