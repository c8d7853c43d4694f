//! Reads the lines of splits.

use std::collections::VecDeque;

use tidegate_runtime::source::{ReadStatus, SplitReader};
use tidegate_runtime::{BoxError, Collector};

use super::error::FileSourceError;
use super::lines::FileLines;
use super::parse::{LineParser, OwnedLines};
use super::run::{Bounds, parse_run};
use super::split::FileSplit;
use crate::budget::Budget;
use crate::rate::RateLimit;

/// The clock is read at least every so many lines.
const LINES_PER_STEP: u64 = 256;

/// Reads splits one after the other.
#[derive(Debug)]
pub struct FileReader<P = OwnedLines> {
    parser: P,
    lossy_utf8: bool,
    line_bytes_max: usize,
    limit: Option<RateLimit>,
    splits: VecDeque<FileSplit>,
    /// The file of the first split, if reading it has begun.
    open: Option<FileLines>,
}

impl<P: LineParser> FileReader<P> {
    pub(super) fn new(
        parser: P,
        lossy_utf8: bool,
        line_bytes_max: usize,
        limit: Option<RateLimit>,
    ) -> Self {
        FileReader {
            parser,
            lossy_utf8,
            line_bytes_max,
            limit,
            splits: VecDeque::new(),
            open: None,
        }
    }

    /// Emits what up to `lines_max` lines of the first split contain, or reads one more piece of
    /// its file. Returns the number of lines.
    pub(super) fn step(
        &mut self,
        lines_max: u64,
        out: &mut Collector<P::Record>,
    ) -> Result<u64, FileSourceError> {
        let Some(split) = self.splits.front_mut() else {
            return Ok(0);
        };
        let lines = match &mut self.open {
            Some(lines) => lines,
            None => self.open.insert(open(split, self.line_bytes_max)?),
        };
        if split.next.is_none() && !find_first_line(split, lines)? {
            return Ok(0);
        }
        let mut taken = 0;
        if lines.position() < split.end {
            let bounds = Bounds {
                lines_max,
                end: split.end,
                lossy_utf8: self.lossy_utf8,
            };
            taken = parse_run(&mut self.parser, lines, &bounds, out)?;
        }
        split.next = Some(lines.position());
        if lines.position() >= split.end {
            self.splits.pop_front();
            self.open = None;
        }
        Ok(taken)
    }
}

/// Opens the file of `split` where its next line starts; if that isn't known, one byte before the
/// split: if that byte is a line feed, a line starts with the split.
fn open(split: &FileSplit, line_bytes_max: usize) -> Result<FileLines, FileSourceError> {
    let position = split.next.unwrap_or(split.start.saturating_sub(1));
    FileLines::open(split, position, line_bytes_max)
}

/// Goes past the line that belongs to the split before this one. Returns whether that is done.
fn find_first_line(split: &mut FileSplit, lines: &mut FileLines) -> Result<bool, FileSourceError> {
    if split.start > 0 && !lines.skip_line() {
        lines.read_more()?;
        return Ok(false);
    }
    split.next = Some(lines.position());
    Ok(true)
}

impl<P: LineParser> SplitReader for FileReader<P> {
    type Split = FileSplit;
    type Item = P::Record;

    fn assign(&mut self, split: FileSplit) {
        self.splits.push_back(split);
    }

    fn poll(&mut self, out: &mut Collector<P::Record>) -> Result<ReadStatus, BoxError> {
        let budget = Budget::start();
        let mut allowed = match &mut self.limit {
            Some(limit) => limit.available(budget.began()),
            None => u64::MAX,
        };
        while !self.splits.is_empty() {
            if let Some(limit) = self.limit.as_ref().filter(|_| allowed == 0) {
                return Ok(ReadStatus::At(limit.next(budget.began())));
            }
            let lines = self.step(LINES_PER_STEP.min(allowed), out)?;
            if let Some(limit) = &mut self.limit {
                allowed -= lines;
                limit.spend(lines);
            }
            if out.is_full() || budget.is_spent() {
                break;
            }
        }
        Ok(if self.splits.is_empty() {
            ReadStatus::Drained
        } else {
            ReadStatus::More
        })
    }

    fn unfinished(&self) -> usize {
        self.splits.len()
    }

    fn snapshot(&self) -> Vec<FileSplit> {
        self.splits.iter().cloned().collect()
    }
}
