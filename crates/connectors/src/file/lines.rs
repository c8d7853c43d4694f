//! Lines of one file, read in large pieces.
//!
//! Lines are handed out in runs, as many at a time as a reader goes through between two looks at
//! the clock; finding a run and reading more of the file are separate steps for the same reason.
//! Invariants: `consumed ≤ scanned ≤ filled ≤ buffer.len()`; there is no line feed in
//! `consumed..scanned`; `buffer[consumed]` is the file's byte at `position`.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use super::error::FileSourceError;
use super::split::FileSplit;

/// Bytes that are read at once, unless a line is longer.
pub const CHUNK_BYTES: usize = 128 << 10;

/// A run of lines has at most so many bytes, unless it is a single line.
const RUN_BYTES_MAX: usize = 16 << 10;

/// The first line of a run, in bytes.
pub(super) struct FirstLine {
    /// Without its line feed.
    pub(super) length: usize,
    /// With it, if it has one.
    pub(super) taken: usize,
}

impl FirstLine {
    #[inline]
    pub(super) fn of(run: &[u8]) -> Self {
        let line_feed = memchr::memchr(b'\n', run);
        FirstLine {
            length: line_feed.unwrap_or(run.len()),
            taken: line_feed.map_or(run.len(), |length| length + 1),
        }
    }
}

/// A file that is open for reading.
#[derive(Debug)]
pub(super) struct FileLines {
    path: String,
    file: File,
    /// Reading ends here; a line that is open at this point ends with it.
    bytes: u64,
    buffer: Vec<u8>,
    filled: usize,
    scanned: usize,
    consumed: usize,
    position: u64,
    line_bytes_max: usize,
}

impl FileLines {
    /// Opens the file of `split` at byte `position`; lines may have up to `line_bytes_max` bytes.
    ///
    /// # Errors
    /// If it can't be read, or doesn't have the bytes that are known; more are fine if it may grow.
    pub(super) fn open(
        split: &FileSplit,
        position: u64,
        line_bytes_max: usize,
    ) -> Result<Self, FileSourceError> {
        let FileSplit {
            ref path,
            bytes,
            may_grow,
            ..
        } = *split;
        let io = |cause| FileSourceError::io(path.as_str(), cause);
        let mut file = File::open(path).map_err(io)?;
        let found = file.metadata().map_err(io)?.len();
        let path = path.clone();
        if found < bytes && may_grow {
            return Err(FileSourceError::Truncated {
                path,
                expected: bytes,
                found,
            });
        }
        if found != bytes && !may_grow {
            return Err(FileSourceError::Changed {
                path,
                expected: bytes,
                found,
            });
        }
        file.seek(SeekFrom::Start(position)).map_err(io)?;
        let left = bytes.saturating_sub(position).max(1);
        let chunk = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let chunk = chunk.min(line_bytes_max.saturating_add(1));
        Ok(FileLines {
            path,
            file,
            bytes,
            buffer: vec![0; chunk],
            filled: 0,
            scanned: 0,
            consumed: 0,
            position,
            line_bytes_max,
        })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Offset of the next line in the file.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Whole lines with their line feeds, at least one, if enough has been read. The file's last
    /// line may have no line feed. What has been dealt with is to be [consumed](Self::consume).
    pub(super) fn next_run(&mut self) -> Option<&[u8]> {
        let end = self.find_run()?;
        Some(&self.buffer[self.consumed..end])
    }

    /// Goes past one line. Returns whether enough has been read for that.
    pub(super) fn skip_line(&mut self) -> bool {
        let Some(run) = self.next_run() else {
            return false;
        };
        let FirstLine { taken, .. } = FirstLine::of(run);
        self.consume(taken);
        true
    }

    fn find_run(&mut self) -> Option<usize> {
        let bound = self.filled.min(self.consumed + RUN_BYTES_MAX);
        let open = self.scanned..bound.max(self.scanned);
        if let Some(distance) = memchr::memrchr(b'\n', &self.buffer[open]) {
            return Some(self.scanned + distance + 1);
        }
        self.scanned = bound.max(self.scanned);
        if let Some(distance) = memchr::memchr(b'\n', &self.buffer[self.scanned..self.filled]) {
            return Some(self.scanned + distance + 1);
        }
        self.scanned = self.filled;
        let is_last = self.is_read() && self.consumed < self.filled;
        is_last.then_some(self.filled)
    }

    /// Goes past the first `bytes` bytes of a run, which are whole lines.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.consumed += bytes;
        debug_assert!(self.consumed <= self.filled, "what was handed out");
        self.position += bytes as u64;
        self.scanned = self.consumed;
    }

    /// Whether all bytes are in the buffer.
    fn is_read(&self) -> bool {
        self.position + (self.filled - self.consumed) as u64 >= self.bytes
    }

    /// Reads on. Call it when there is no [`next_run`](Self::next_run); returns whether there is
    /// anything new, which need not be a whole line.
    ///
    /// # Errors
    /// If the file can't be read or ends early, or a line is too long.
    pub(super) fn read_more(&mut self) -> Result<bool, FileSourceError> {
        if self.is_read() {
            return Ok(false);
        }
        self.make_room()?;
        let known = self.position + (self.filled - self.consumed) as u64;
        let room = (self.buffer.len() - self.filled) as u64;
        let wanted = room.min(self.bytes - known) as usize;
        let target = &mut self.buffer[self.filled..self.filled + wanted];
        match self.file.read(target) {
            Ok(0) => Err(FileSourceError::Truncated {
                path: self.path.clone(),
                expected: self.bytes,
                found: known,
            }),
            Ok(read) => {
                self.filled += read;
                Ok(true)
            }
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(cause) => Err(FileSourceError::io(self.path.as_str(), cause)),
        }
    }

    fn make_room(&mut self) -> Result<(), FileSourceError> {
        self.buffer.copy_within(self.consumed..self.filled, 0);
        self.filled -= self.consumed;
        self.scanned -= self.consumed;
        self.consumed = 0;
        if self.filled == self.buffer.len() {
            // One line fills it all. The longest has room together with its line feed.
            let length = (self.buffer.len() * 2).min(self.line_bytes_max.saturating_add(1));
            if length <= self.filled {
                return Err(FileSourceError::LineTooLong {
                    path: self.path.clone(),
                    offset: self.position,
                    max: self.line_bytes_max,
                });
            }
            self.buffer.resize(length, 0);
        }
        Ok(())
    }
}
