//! Where the bytes of a snapshot's keyed state go: along with the acknowledgement, or into a file.
//!
//! How long serialised state becomes is known only when it is written. So it is collected in memory
//! first, and becomes a file once there is more than may travel inline. Most subtasks of most jobs
//! hold little, and a file of its own for each would cost more than what is in it.
//!
//! Invariants: no more is held in memory than may travel inline; a file is begun only for a piece
//! that is longer than that; a writer that is dropped leaves no file.

use std::io::{self, Write};

use tidegate_types::{CheckpointId, KeyedPiece, SnapshotLocation};

use crate::error::BoxError;
use crate::snapshot::{StateFileWrite, StateFiles};

/// Where the keyed state of a subtask goes when it is snapshotted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatePlacement {
    /// Into files, but for pieces of at most so many bytes: those travel inline.
    Files {
        /// The longest piece that travels inline; with 0, none does.
        inline_bytes_max: u64,
    },
    /// Inline, whatever there is. A snapshot of more bytes than this is declined.
    Inline {
        /// The most that one subtask may have.
        bytes_max: u64,
    },
}

impl StatePlacement {
    /// The longest piece that travels inline unless users say otherwise, as in Flink.
    pub const INLINE_BYTES_DEFAULT: u64 = 20 << 10;
    /// The longest piece that users may let travel inline beside files, as in Flink.
    pub const INLINE_BYTES_LIMIT: u64 = 1 << 20;
    /// The most that a subtask may have if everything travels inline, as in Flink.
    pub const JOB_MANAGER_BYTES_MAX: u64 = 5 << 20;

    fn inline_bytes_max(self) -> u64 {
        match self {
            Self::Files { inline_bytes_max } => inline_bytes_max,
            Self::Inline { bytes_max } => bytes_max,
        }
    }
}

impl Default for StatePlacement {
    fn default() -> Self {
        StatePlacement::Files {
            inline_bytes_max: Self::INLINE_BYTES_DEFAULT,
        }
    }
}

/// A subtask's state is too large to travel inline, and there are no files to put it into.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the keyed state of `{subtask}` takes `{bytes}` bytes, and the checkpoint storage `jobmanager` \
     at most `{bytes_max}` per subtask; set `checkpoint-storage` to `filesystem`"
)]
pub(crate) struct StateTooLarge {
    subtask: String,
    bytes: u64,
    bytes_max: u64,
}

/// One piece in the making.
pub(crate) struct PieceWriter<'a> {
    placement: StatePlacement,
    files: &'a dyn StateFiles,
    checkpoint: CheckpointId,
    location: Option<&'a SnapshotLocation>,
    /// Name for people, as `count[1]`.
    subtask: &'a str,
    /// All there is so far, as long as it may travel inline.
    inline: Vec<u8>,
    file: Option<Box<dyn StateFileWrite>>,
    bytes: u64,
}

impl<'a> PieceWriter<'a> {
    /// Nothing yet. A file would be begun among `files`, for this checkpoint, in its folder.
    pub(crate) fn new(
        placement: StatePlacement,
        files: &'a dyn StateFiles,
        checkpoint: CheckpointId,
        location: Option<&'a SnapshotLocation>,
        subtask: &'a str,
    ) -> Self {
        PieceWriter {
            placement,
            files,
            checkpoint,
            location,
            subtask,
            inline: Vec::new(),
            file: None,
            bytes: 0,
        }
    }

    /// What was written, durable if it is a file.
    ///
    /// # Errors
    /// [`StateTooLarge`], or if the file couldn't be made durable.
    pub(crate) fn finish(self) -> Result<KeyedPiece, BoxError> {
        if let Some(file) = self.file {
            return Ok(KeyedPiece::File(file.finish()?));
        }
        let bytes_max = self.placement.inline_bytes_max();
        if self.bytes > bytes_max {
            return Err(Box::new(StateTooLarge {
                subtask: self.subtask.to_owned(),
                bytes: self.bytes,
                bytes_max,
            }));
        }
        Ok(KeyedPiece::Inline(self.inline.into()))
    }

    /// Moves on from memory to a file.
    fn begin_file(&mut self) -> io::Result<&mut Box<dyn StateFileWrite>> {
        let (checkpoint, location) = (self.checkpoint, self.location);
        let created = self.files.create(checkpoint, location, self.subtask);
        let file = self.file.insert(created.map_err(io::Error::other)?);
        file.write_all(&std::mem::take(&mut self.inline))?;
        Ok(file)
    }
}

impl Write for PieceWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        if let Some(file) = &mut self.file {
            file.write_all(bytes)?;
        } else if self.bytes <= self.placement.inline_bytes_max() {
            self.inline.extend_from_slice(bytes);
        } else {
            match self.placement {
                StatePlacement::Files { .. } => self.begin_file()?.write_all(bytes)?,
                // From here on only counted, to tell how much there is.
                StatePlacement::Inline { .. } => self.inline = Vec::new(),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.flush())
    }
}
