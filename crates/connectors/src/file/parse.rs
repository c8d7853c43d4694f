//! What a [`FileSource`](super::FileSource) makes of each line.
//!
//! A line is parsed where it lies in the reader's buffer, so nothing is copied that the records
//! don't keep; a parser may take several lines at a time, if it knows itself where they end or
//! needn't know. The position in a checkpoint is that of a line: what is parsed together is emitted
//! together, and the collector's fullness is looked at in between.

use std::marker::PhantomData;

use tidegate_runtime::{BoxError, Collector};
use tidegate_state::Record;

/// Makes any number of records of each line; what Flink calls a deserialization schema. Each reader
/// has a clone of its own.
pub trait LineParser: Clone + Send + Sync + 'static {
    /// What lines are made into.
    type Record: Record;

    /// Whether it is given several lines at a time.
    const TAKES_MANY: bool = false;

    /// Emits the records of one line, which has no line feed at its end; or, if it
    /// [takes many](Self::TAKES_MANY), of some lines with their line feeds, which the last line of
    /// a file may lack.
    ///
    /// # Errors
    /// An error ends the attempt. Where the first of the lines is, is added to it.
    fn parse(&mut self, lines: &str, out: &mut Collector<Self::Record>) -> Result<(), BoxError>;
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

/// As a closure does, line by line or `MANY` lines at a time.
#[derive(Clone, Copy, Debug)]
pub struct ParseWith<F, T, const MANY: bool = false> {
    function: F,
    record: PhantomData<fn() -> T>,
}

impl<F, T, const MANY: bool> ParseWith<F, T, MANY> {
    pub(super) fn new(function: F) -> Self {
        ParseWith {
            function,
            record: PhantomData,
        }
    }
}

impl<F, T, const MANY: bool> LineParser for ParseWith<F, T, MANY>
where
    T: Record,
    F: FnMut(&str, &mut Collector<T>) -> Result<(), BoxError> + Clone + Send + Sync + 'static,
{
    type Record = T;

    const TAKES_MANY: bool = MANY;

    #[inline]
    fn parse(&mut self, lines: &str, out: &mut Collector<T>) -> Result<(), BoxError> {
        (self.function)(lines, out)
    }
}
