//! Sources: an enumerator discovers splits and assigns them; readers read them.
//!
//! Assignments are items on an edge of the job graph, so barriers cut them like data: in every
//! snapshot a split is either with the enumerator or with exactly one reader. The window of that
//! edge counts splits, and a reader returns credit when it has *finished* one; so readers that are
//! fast get more, and at most [`SPLITS_AHEAD`] splits wait at each.
//!
//! Behind the barrier of a stop neither is asked for anything any more but snapshots: an enumerator
//! keeps what it has not assigned, a reader the positions it has reached.

mod enumerate;
mod read;

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_state::Record;
use tidegate_types::SubtaskId;

pub(crate) use enumerate::{Enumerate, decode_list};
pub(crate) use read::Read;

use crate::clock::Ticks;
use crate::credit::CreditSettings;
use crate::error::BoxError;
use crate::output::Collector;

/// Splits that are assigned to a reader ahead of its finishing one.
pub const SPLITS_AHEAD: u32 = 2;

/// The window of an assignment edge: a fixed number of splits, each sent at once.
pub(crate) fn assignment_window() -> CreditSettings {
    CreditSettings {
        window_initial: SPLITS_AHEAD,
        window_min: SPLITS_AHEAD,
        window_max: SPLITS_AHEAD,
        batch_max: 1,
        ..CreditSettings::default()
    }
}

/// Where a subtask of a source runs.
#[derive(Clone, Copy, Debug)]
pub struct SourceContext {
    /// The subtask.
    pub subtask: SubtaskId,
    /// How many readers there are.
    pub parallelism: u32,
}

/// A way to read records, in splits that can be read independently.
///
/// The value itself is shared by all subtasks and attempts; what changes lives in the enumerator
/// and the readers.
pub trait Source: Send + Sync + 'static {
    /// What is read.
    type Item: Record;
    /// A part of the whole together with how far it has been read. Splits are kept in checkpoints.
    type Split: Record;
    /// Finds the splits.
    type Enumerator: SplitEnumerator<Split = Self::Split>;
    /// Reads them.
    type Reader: SplitReader<Split = Self::Split, Item = Self::Item>;

    /// Checks the configuration when the job is submitted, before anything runs.
    ///
    /// # Errors
    /// For what can't work, naming it and what to do.
    fn check(&self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Makes the enumerator, from its state in a checkpoint if there is one.
    ///
    /// # Errors
    /// An error ends the attempt.
    fn enumerator(
        &self,
        context: SourceContext,
        restored: Option<<Self::Enumerator as SplitEnumerator>::State>,
    ) -> Result<Self::Enumerator, BoxError>;

    /// Makes a reader without splits.
    ///
    /// # Errors
    /// An error ends the attempt.
    fn reader(&self, context: SourceContext) -> Result<Self::Reader, BoxError>;
}

/// What an enumerator offers next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextSplit<S> {
    /// A split, to be assigned now.
    Split(S),
    /// Nothing new before this moment.
    At(Ticks),
    /// Nothing new, ever.
    End,
}

/// Discovers splits. Its state is what it knows and has not assigned.
pub trait SplitEnumerator: 'static {
    /// What it assigns.
    type Split;
    /// What a checkpoint keeps of it.
    type State: Serialize + DeserializeOwned;

    /// The next split. Called only when some reader has room.
    ///
    /// # Errors
    /// An error ends the attempt.
    fn next(&mut self, now: Ticks) -> Result<NextSplit<Self::Split>, BoxError>;

    /// What a new enumerator needs in order to go on from here. Quick.
    fn snapshot(&self) -> Self::State;
}

/// What a reader can do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStatus {
    /// There is more to read at once.
    More,
    /// Nothing to read before this moment.
    At(Ticks),
    /// Every split it was given is finished.
    Drained,
}

/// Reads the splits that are assigned to it.
pub trait SplitReader: 'static {
    /// What it is assigned.
    type Split;
    /// What it reads.
    type Item;

    /// Takes on one more split, behind those it has.
    fn assign(&mut self, split: Self::Split);

    /// Emits records until the collector is full or about a quarter of a millisecond has gone by.
    /// Never blocks: clients that do run on threads of their own behind a bounded queue.
    ///
    /// # Errors
    /// An error ends the attempt.
    fn poll(&mut self, out: &mut Collector<Self::Item>) -> Result<ReadStatus, BoxError>;

    /// How many of its splits are not finished.
    fn unfinished(&self) -> usize;

    /// All unfinished splits with the position of the next record to emit. Quick.
    fn snapshot(&self) -> Vec<Self::Split>;
}

impl<S: Source> Source for Arc<S> {
    type Item = S::Item;
    type Split = S::Split;
    type Enumerator = S::Enumerator;
    type Reader = S::Reader;

    fn check(&self) -> Result<(), BoxError> {
        S::check(self)
    }

    fn enumerator(
        &self,
        context: SourceContext,
        restored: Option<<Self::Enumerator as SplitEnumerator>::State>,
    ) -> Result<Self::Enumerator, BoxError> {
        S::enumerator(self, context, restored)
    }

    fn reader(&self, context: SourceContext) -> Result<Self::Reader, BoxError> {
        S::reader(self, context)
    }
}
