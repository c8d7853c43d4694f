//! Cuts files into splits and hands them out.

mod bounded;
mod follow;
mod identity;

use serde::{Deserialize, Serialize};
use tidegate_runtime::source::{NextSplit, SplitEnumerator};
use tidegate_runtime::{BoxError, Ticks};

pub(super) use bounded::Bounded;
pub(super) use follow::Following;

use super::split::FileSplit;

/// Hands out the splits of a [`FileSource`](super::FileSource).
#[derive(Debug)]
pub struct FileEnumerator(pub(super) Mode);

#[derive(Debug)]
pub(super) enum Mode {
    Bounded(Bounded),
    Following(Following),
}

/// What a [`FileEnumerator`] knows and has not handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEnumeratorState(pub(super) State);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Bounded(bounded::BoundedState),
    Following(follow::FollowingState),
}

impl SplitEnumerator for FileEnumerator {
    type Split = FileSplit;
    type State = FileEnumeratorState;

    fn next(&mut self, now: Ticks) -> Result<NextSplit<FileSplit>, BoxError> {
        match &mut self.0 {
            Mode::Bounded(bounded) => Ok(bounded.next()),
            Mode::Following(following) => Ok(following.next(now)?),
        }
    }

    fn snapshot(&self) -> FileEnumeratorState {
        FileEnumeratorState(match &self.0 {
            Mode::Bounded(bounded) => State::Bounded(bounded.snapshot()),
            Mode::Following(following) => State::Following(following.snapshot()),
        })
    }
}
