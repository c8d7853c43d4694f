//! Files that grow: complete lines are handed out as they appear.
//!
//! A look at a file finds its last line feed; what lies between that of the last look and this one
//! is handed out in splits, which end like those of files that don't change. So a followed file
//! occupies no reader, and a line that is being written is nobody's until it is complete.
//!
//! A followed file may only grow. That is checked by its length and by a fingerprint of its first
//! bytes, which unlike an inode number survives a move to another machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_runtime::Ticks;
use tidegate_runtime::source::NextSplit;

use crate::file::discover::{FoundFile, discover};
use crate::file::error::FileSourceError;
use crate::file::lines::CHUNK_BYTES;
use crate::file::split::FileSplit;

/// How long to wait before looking again,
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// or this many times as long as the last look took, if that is longer: with very many files,
/// looking must not become all that the worker does.
const PAUSE_PER_LOOK: u32 = 20;

/// Bytes from the start of a file that tell it from another one.
const FINGERPRINT_BYTES: u64 = 1024;

/// Checksum of the first bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Fingerprint {
    bytes: u64,
    crc32c: u32,
}

/// What is known of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Followed {
    /// The first byte that hasn't been handed out.
    assigned: u64,
    /// End of the last complete line that is known; `assigned ≤ known`.
    known: u64,
    fingerprint: Fingerprint,
}

/// All files that have been seen, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::file) struct FollowingState {
    files: BTreeMap<String, Followed>,
}

/// Looks at files again and again.
#[derive(Debug)]
pub(in crate::file) struct Following {
    paths: Vec<PathBuf>,
    split_bytes: u64,
    state: FollowingState,
    /// Lengths at the last look.
    lengths: BTreeMap<String, u64>,
    next_look: Option<Ticks>,
}

impl Following {
    pub(in crate::file) fn new(
        paths: Vec<PathBuf>,
        split_bytes: u64,
        state: FollowingState,
    ) -> Self {
        assert!(split_bytes > 0, "splits of no bytes have no end");
        Following {
            paths,
            split_bytes,
            state,
            lengths: BTreeMap::new(),
            next_look: None,
        }
    }

    pub(super) fn snapshot(&self) -> FollowingState {
        self.state.clone()
    }

    pub(super) fn next(&mut self, now: Ticks) -> Result<NextSplit<FileSplit>, FileSourceError> {
        if let Some(split) = self.cut() {
            return Ok(NextSplit::Split(split));
        }
        if let Some(next_look) = self.next_look.filter(|next_look| now < *next_look) {
            return Ok(NextSplit::At(next_look));
        }
        self.look()?;
        let looked = Ticks::now();
        let pause = looked
            .since(now)
            .saturating_mul(PAUSE_PER_LOOK)
            .max(PAUSE_MIN);
        let next_look = looked.max(now).after(pause);
        self.next_look = Some(next_look);
        Ok(self
            .cut()
            .map_or(NextSplit::At(next_look), NextSplit::Split))
    }

    /// The next split of what is known.
    fn cut(&mut self) -> Option<FileSplit> {
        let mut files = self.state.files.iter_mut();
        let (path, file) = files.find(|(_, file)| file.assigned < file.known)?;
        let start = file.assigned;
        file.assigned = start.saturating_add(self.split_bytes).min(file.known);
        Some(FileSplit {
            path: path.clone(),
            bytes: file.known,
            may_grow: true,
            start,
            end: file.assigned,
            next: None,
            repetition: 0,
        })
    }

    /// Takes in what has changed.
    fn look(&mut self) -> Result<(), FileSourceError> {
        let found = discover(&self.paths)?;
        self.check_renames(&found)?;
        for FoundFile { path, bytes } in found {
            if self.lengths.get(&path) != Some(&bytes) {
                self.grow(&path, bytes)?;
                self.lengths.insert(path, bytes);
            }
        }
        Ok(())
    }

    /// A file that has been seen has changed its length, or is new.
    fn grow(&mut self, path: &str, bytes: u64) -> Result<(), FileSourceError> {
        let io = |cause| FileSourceError::io(path, cause);
        let mut file = File::open(path).map_err(io)?;
        let looked_at = self.lengths.get(path).copied().unwrap_or(0);
        let mut from = looked_at;
        if let Some(followed) = self.state.files.get(path) {
            let expected = followed.known.max(looked_at);
            if bytes < expected {
                let path = path.to_owned();
                return Err(FileSourceError::Truncated {
                    path,
                    expected,
                    found: bytes,
                });
            }
            let expected = followed.fingerprint;
            if fingerprint(&mut file, expected.bytes).map_err(io)? != expected {
                let path = path.to_owned();
                return Err(FileSourceError::Replaced {
                    path,
                    bytes: expected.bytes,
                });
            }
            from = from.max(followed.known);
        } else if bytes < looked_at {
            let (path, expected) = (path.to_owned(), looked_at);
            return Err(FileSourceError::Truncated {
                path,
                expected,
                found: bytes,
            });
        }
        let Some(known) = last_line_end(&mut file, from, bytes).map_err(io)? else {
            return Ok(());
        };
        let fingerprint = fingerprint(&mut file, known.min(FINGERPRINT_BYTES)).map_err(io)?;
        let assigned = self
            .state
            .files
            .get(path)
            .map_or(0, |followed| followed.assigned);
        let followed = Followed {
            assigned,
            known,
            fingerprint,
        };
        self.state.files.insert(path.to_owned(), followed);
        Ok(())
    }

    /// A file that has gone is fine once it has been handed out, unless it has only been renamed:
    /// then it would be read again under the new name.
    fn check_renames(&self, found: &[FoundFile]) -> Result<(), FileSourceError> {
        let there: BTreeSet<_> = found.iter().map(|file| file.path.as_str()).collect();
        let followed = self.state.files.iter();
        let gone: Vec<_> = followed
            .filter(|(path, _)| !there.contains(path.as_str()))
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        for new in found
            .iter()
            .filter(|file| !self.state.files.contains_key(&file.path))
        {
            let io = |cause| FileSourceError::io(new.path.as_str(), cause);
            let mut file = File::open(&new.path).map_err(io)?;
            for (path, followed) in &gone {
                let expected = followed.fingerprint;
                if new.bytes >= followed.known
                    && fingerprint(&mut file, expected.bytes).map_err(io)? == expected
                {
                    let (from, to) = ((*path).clone(), new.path.clone());
                    return Err(FileSourceError::Renamed { from, to });
                }
            }
        }
        Ok(())
    }
}

/// Checksum of the first `bytes` bytes, or of all if there are fewer.
fn fingerprint(file: &mut File, bytes: u64) -> io::Result<Fingerprint> {
    let mut start = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(bytes).read_to_end(&mut start)?;
    Ok(Fingerprint {
        bytes: start.len() as u64,
        crc32c: crc32c::crc32c(&start),
    })
}

/// The offset behind the last line feed in `from..to`; it is searched for from the end.
fn last_line_end(file: &mut File, from: u64, to: u64) -> io::Result<Option<u64>> {
    let mut end = to;
    let mut piece = vec![0; CHUNK_BYTES.min((to - from) as usize)];
    while end > from {
        let start = end.saturating_sub(piece.len() as u64).max(from);
        let piece = &mut piece[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(piece)?;
        if let Some(index) = memchr::memrchr(b'\n', piece) {
            return Ok(Some(start + index as u64 + 1));
        }
        end = start;
    }
    Ok(None)
}
