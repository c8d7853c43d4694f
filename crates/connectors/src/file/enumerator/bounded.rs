//! Files that don't change, read a given number of times.

use serde::{Deserialize, Serialize};
use tidegate_runtime::source::NextSplit;

use crate::file::discover::FoundFile;
use crate::file::split::FileSplit;

/// What is left to hand out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::file) struct BoundedState {
    /// All files, with the lengths they had when the job first started.
    files: Vec<FoundFile>,
    /// Which reading of all files is under way, from 0.
    repetition: u64,
    /// Index of the file that is being handed out.
    file: usize,
    /// The first of its bytes that hasn't been handed out.
    offset: u64,
}

/// Hands out every file from start to end, then all again.
#[derive(Debug)]
pub(in crate::file) struct Bounded {
    state: BoundedState,
    repeat: u64,
    split_bytes: u64,
}

impl Bounded {
    /// Begins with the first file.
    pub(in crate::file) fn new(files: Vec<FoundFile>, repeat: u64, split_bytes: u64) -> Self {
        let state = BoundedState {
            files,
            repetition: 0,
            file: 0,
            offset: 0,
        };
        Bounded::restored(state, repeat, split_bytes)
    }

    /// Goes on as `state` says.
    pub(in crate::file) fn restored(state: BoundedState, repeat: u64, split_bytes: u64) -> Self {
        assert!(split_bytes > 0, "splits of no bytes have no end");
        Bounded {
            state,
            repeat,
            split_bytes,
        }
    }

    pub(super) fn snapshot(&self) -> BoundedState {
        self.state.clone()
    }

    pub(super) fn next(&mut self) -> NextSplit<FileSplit> {
        let state = &mut self.state;
        if state.files.iter().all(|file| file.bytes == 0) {
            return NextSplit::End;
        }
        while state.repetition < self.repeat {
            let Some(file) = state.files.get(state.file) else {
                state.file = 0;
                state.repetition += 1;
                continue;
            };
            if state.offset >= file.bytes {
                state.file += 1;
                state.offset = 0;
                continue;
            }
            let start = state.offset;
            state.offset = start.saturating_add(self.split_bytes).min(file.bytes);
            return NextSplit::Split(FileSplit {
                path: file.path.clone(),
                bytes: file.bytes,
                may_grow: false,
                start,
                end: state.offset,
                next: None,
                repetition: state.repetition,
            });
        }
        NextSplit::End
    }
}
