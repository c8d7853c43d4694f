//! Files that grow: complete lines are handed out as they appear.
//!
//! A look at a file finds its last line feed; what lies between that of the last look and this one
//! is handed out in splits, which end like those of files that don't change. So a followed file
//! occupies no reader, and a line that is being written is nobody's until it is complete.
//!
//! A followed file may only grow. That is checked by its length and by a fingerprint of its first
//! bytes, which unlike an inode number survives a move to another machine. One that has gone may be
//! one that was renamed, or may come back when its file system does: it is remembered for long, but
//! not for ever.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_runtime::Ticks;
use tidegate_runtime::source::NextSplit;

use super::identity::{FINGERPRINT_BYTES, Fingerprint, Identity};
use crate::file::discover::{FoundFile, discover};
use crate::file::error::FileSourceError;
use crate::file::lines::CHUNK_BYTES;
use crate::file::split::FileSplit;

/// How long to wait before looking again,
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// or this many times as long as the last look took, if that is longer: with very many files,
/// looking must not become all that the worker does.
const PAUSE_PER_LOOK: u32 = 20;

/// Files that have gone and are remembered, at most.
const GONE_MAX: usize = 4096;

/// What is known of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Followed {
    /// The first byte that hasn't been handed out.
    assigned: u64,
    /// End of the last complete line that is known; `assigned ≤ known`.
    known: u64,
    fingerprint: Fingerprint,
    identity: Identity,
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
    /// Files that have gone, in that order as far as it is known.
    gone: VecDeque<String>,
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
            gone: VecDeque::new(),
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
        self.forget_gone(&found, GONE_MAX);
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
            if Fingerprint::of(&mut file, expected.bytes).map_err(io)? != expected {
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
        let fingerprint = Fingerprint::of(&mut file, known.min(FINGERPRINT_BYTES)).map_err(io)?;
        let identity = Identity::of(&file.metadata().map_err(io)?);
        let assigned = self
            .state
            .files
            .get(path)
            .map_or(0, |followed| followed.assigned);
        let followed = Followed {
            assigned,
            known,
            fingerprint,
            identity,
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
        let is_new = |file: &&FoundFile| !self.state.files.contains_key(&file.path);
        for new in found.iter().filter(is_new) {
            let io = |cause| FileSourceError::io(new.path.as_str(), cause);
            let mut file = NewFile::open(new).map_err(io)?;
            for (path, followed) in &gone {
                if file.was(followed).map_err(io)? {
                    let (from, to) = ((*path).clone(), new.path.clone());
                    return Err(FileSourceError::Renamed { from, to });
                }
            }
        }
        Ok(())
    }

    /// Forgets all but the last `max` of the files that have gone and been handed out. Should one
    /// come back, it is a new file.
    fn forget_gone(&mut self, found: &[FoundFile], max: usize) {
        let there: BTreeSet<_> = found.iter().map(|file| file.path.as_str()).collect();
        self.lengths.retain(|path, _| there.contains(path.as_str()));
        self.gone.retain(|path| !there.contains(path.as_str()));
        let known: BTreeSet<_> = self.gone.iter().cloned().collect();
        let gone = self.state.files.iter().filter(|(path, file)| {
            let is_handed_out = file.assigned == file.known;
            is_handed_out && !there.contains(path.as_str()) && !known.contains(*path)
        });
        self.gone.extend(gone.map(|(path, _)| path.clone()));
        // A folder without any file may be one that isn't mounted now.
        let holds_files =
            |root: &PathBuf| there.iter().any(|path| Path::new(path).starts_with(root));
        if !self.paths.iter().all(holds_files) {
            return;
        }
        let surplus = self.gone.len().saturating_sub(max);
        for path in self.gone.drain(..surplus) {
            self.state.files.remove(&path);
        }
    }
}

/// A file that has not been seen under this name.
struct NewFile {
    file: File,
    bytes: u64,
    identity: Identity,
    /// Bytes of its complete lines; found out once, when that matters.
    lines: Option<u64>,
}

impl NewFile {
    fn open(found: &FoundFile) -> io::Result<Self> {
        let file = File::open(&found.path)?;
        Ok(NewFile {
            identity: Identity::of(&file.metadata()?),
            file,
            bytes: found.bytes,
            lines: None,
        })
    }

    /// Whether this is a file that was followed under a name that has gone.
    fn was(&mut self, followed: &Followed) -> io::Result<bool> {
        let is_likely = self.bytes >= followed.known
            && match self.identity.is(&followed.identity) {
                Some(is_same) => is_same,
                None => self.lines()? == followed.known,
            };
        let expected = followed.fingerprint;
        Ok(is_likely && Fingerprint::of(&mut self.file, expected.bytes)? == expected)
    }

    fn lines(&mut self) -> io::Result<u64> {
        if let Some(lines) = self.lines {
            return Ok(lines);
        }
        let lines = last_line_end(&mut self.file, 0, self.bytes)?.unwrap_or(0);
        self.lines = Some(lines);
        Ok(lines)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn following(root: &str, paths: &[&str]) -> Following {
        let mut following = Following::new(vec![root.into()], 1, FollowingState::default());
        for path in paths {
            let file = Followed {
                assigned: 1,
                known: 1,
                fingerprint: Fingerprint::of(&mut tempfile::tempfile().unwrap(), 0).unwrap(),
                identity: Identity::default(),
            };
            following.state.files.insert((*path).to_owned(), file);
        }
        following
    }

    fn look(following: &mut Following, there: &[&str]) -> Vec<String> {
        let found = |path: &&str| FoundFile {
            path: (*path).to_owned(),
            bytes: 1,
        };
        let found: Vec<_> = there.iter().map(found).collect();
        following.forget_gone(&found, 2);
        following.state.files.keys().cloned().collect()
    }

    #[test]
    fn only_the_last_files_that_have_gone_are_remembered() {
        let mut following = following("in", &["in/a", "in/b", "in/c", "in/d"]);
        assert_eq!(look(&mut following, &["in/a", "in/c", "in/d"]).len(), 4);
        assert_eq!(look(&mut following, &["in/c", "in/d"]).len(), 4);
        let without_b = ["in/a", "in/c", "in/d"];
        assert_eq!(look(&mut following, &["in/d"]), without_b, "`b` went first");
        // One that comes back is as if it had never gone.
        assert_eq!(look(&mut following, &["in/a"]), without_b);
        assert_eq!(following.gone, ["in/c", "in/d"]);
    }

    #[test]
    fn nothing_is_forgotten_that_has_not_been_handed_out() {
        let mut following = following("in", &["in/a", "in/b", "in/c", "in/d"]);
        following.state.files.get_mut("in/a").unwrap().known = 2;
        assert_eq!(look(&mut following, &["in/d"]).len(), 4);
        assert_eq!(look(&mut following, &["in/e"]), ["in/a", "in/c", "in/d"]);
    }

    // As when a file system isn't mounted, for a while.
    #[test]
    fn an_empty_folder_makes_nothing_forgotten() {
        let mut following = following("in", &["in/a", "in/b", "in/c"]);
        assert_eq!(look(&mut following, &[]).len(), 3);
        assert_eq!(look(&mut following, &["other/a"]).len(), 3);
        assert_eq!(look(&mut following, &["in/e"]).len(), 2);
    }
}
