//! What a [`FileSource`](super::FileSource) makes of each line.
//!
//! A line is parsed where it lies in the reader's buffer, so nothing is copied that the records
//! don't keep. The position in a checkpoint is that of a line: its records are emitted together,
//! and the collector's fullness is looked at between lines.

use std::marker::PhantomData;

use tidegate_runtime::{BoxError, Collector};
use tidegate_state::Record;

/// Makes any number of records of each line; what Flink calls a deserialization schema. Each reader
/// has a clone of its own.
pub trait LineParser: Clone + Send + Sync + 'static {
    /// What lines are made into.
    type Record: Record;

    /// Emits the records of one line, which has no line feed at its end.
    ///
    /// # Errors
    /// An error ends the attempt. Where the line is, is added to it.
    fn parse(&mut self, line: &str, out: &mut Collector<Self::Record>) -> Result<(), BoxError>;
}

/// Each line as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnedLines;

impl LineParser for OwnedLines {
    type Record = String;

    #[inline]
    fn parse(&mut self, line: &str, out: &mut Collector<String>) -> Result<(), BoxError> {
        out.emit(line.to_owned());
        Ok(())
    }
}

/// As a closure does.
#[derive(Clone, Copy, Debug)]
pub struct ParseWith<F, T> {
    function: F,
    record: PhantomData<fn() -> T>,
}

impl<F, T> ParseWith<F, T> {
    pub(super) fn new(function: F) -> Self {
        ParseWith {
            function,
            record: PhantomData,
        }
    }
}

impl<F, T> LineParser for ParseWith<F, T>
where
    T: Record,
    F: FnMut(&str, &mut Collector<T>) -> Result<(), BoxError> + Clone + Send + Sync + 'static,
{
    type Record = T;

    #[inline]
    fn parse(&mut self, line: &str, out: &mut Collector<T>) -> Result<(), BoxError> {
        (self.function)(line, out)
    }
}
