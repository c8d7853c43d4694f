//! What to read, and how.

use std::path::PathBuf;

use tidegate_runtime::source::{Source, SourceContext};
use tidegate_runtime::{BoxError, Collector};
use tidegate_state::Record;

use super::discover::{check_readable, discover};
use super::enumerator::{Bounded, FileEnumerator, FileEnumeratorState, Following, Mode, State};
use super::error::FileSourceError;
use super::parse::{LineParser, OwnedLines, ParseWith};
use super::reader::FileReader;
use super::split::FileSplit;
use crate::rate::{self, RateLimit};

/// Size of splits if nothing is said,
const SPLIT_BYTES: u64 = 16 << 20;
/// and if there is a rate: it is shared by the readers, so all of them must have something to read.
const SPLIT_BYTES_LIMITED: u64 = 64 << 10;

/// Bytes that a line may have if nothing is said.
const LINE_BYTES_MAX: usize = 64 << 20;

/// Reads the lines of files and folders.
///
/// A line is what lies between two line feeds; what follows the last one is a line, too, unless it
/// is empty. Only the line feed is removed: a carriage return before it stays. Folders are read at
/// any depth, in order of their files' paths, without what begins with `.` or `_`. A file that is
/// named twice is read once.
///
/// Large files are read in parallel, in splits. With one reader, lines come in order.
///
/// The list of files and their lengths are found when the job first starts, and kept in its
/// checkpoints: a file that has another length when it is read, or has gone, is an error. Files may
/// be moved between two runs only if their paths, as given, still lead to them.
///
/// ```no_run
/// use tidegate_connectors::FileSource;
///
/// let logs = FileSource::lines(["logs", "more/today.log"]).rate(10_000.0);
/// ```
///
/// Lines need not become strings of their own: [`parse`](Self::parse) makes records of them where
/// they lie.
#[derive(Clone, Debug)]
pub struct FileSource<P = OwnedLines> {
    paths: Vec<PathBuf>,
    parser: P,
    repeat: u64,
    per_second: Option<f64>,
    follow: bool,
    lossy_utf8: bool,
    split_bytes: Option<u64>,
    line_bytes_max: usize,
}

impl FileSource {
    /// Reads the lines of these files and folders, each as a `String`.
    pub fn lines(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        FileSource::new(paths, OwnedLines)
    }

    /// Reads what `function` makes of the lines of these files and folders: any number of records
    /// of each line, in order. Faster than [`lines`](Self::lines) with an operator behind it that
    /// takes lines apart, since no line becomes a `String`.
    ///
    /// In a checkpoint the position is that of a line, so its records are emitted together or not
    /// at all. Options that count, such as [`rate`](Self::rate), count lines.
    ///
    /// ```
    /// use tidegate_connectors::FileSource;
    /// use tidegate_runtime::Collector;
    /// use tidegate_state::CompactString;
    ///
    /// let words = FileSource::parse(["texts"], |line, out: &mut Collector<CompactString>| {
    ///     line.split_whitespace().for_each(|word| out.emit(word.into()));
    /// });
    /// ```
    pub fn parse<T: Record>(
        paths: impl IntoIterator<Item = impl Into<PathBuf>>,
        mut function: impl FnMut(&str, &mut Collector<T>) + Clone + Send + Sync + 'static,
    ) -> FileSource<impl LineParser<Record = T>> {
        FileSource::try_parse(paths, move |line: &str, out: &mut Collector<T>| {
            function(line, out);
            Ok(())
        })
    }

    /// Like [`parse`](Self::parse). An error ends the attempt, and the job restarts from the latest
    /// checkpoint; the failure names the file and where in it the line begins.
    pub fn try_parse<T, F>(
        paths: impl IntoIterator<Item = impl Into<PathBuf>>,
        function: F,
    ) -> FileSource<ParseWith<F, T>>
    where
        T: Record,
        F: FnMut(&str, &mut Collector<T>) -> Result<(), BoxError> + Clone + Send + Sync + 'static,
    {
        FileSource::new(paths, ParseWith::new(function))
    }

    /// Like [`parse`](Self::parse), but `function` is given several lines at a time, with their
    /// line feeds (which the last line of a file may lack): some that have up to 1024 bytes
    /// together, or one that is longer. For what needn't know where lines end, or finds that out
    /// itself and faster.
    ///
    /// In a checkpoint the position is that of a line, so the records of all lines that were given
    /// together are emitted together or not at all.
    ///
    /// ```
    /// use tidegate_connectors::FileSource;
    /// use tidegate_runtime::Collector;
    /// use tidegate_state::{CompactString, text::words};
    ///
    /// let words = FileSource::parse_lines(["texts"], |lines, out: &mut Collector<CompactString>| {
    ///     words(lines).for_each(|word| out.emit(word.into()));
    /// });
    /// ```
    pub fn parse_lines<T: Record>(
        paths: impl IntoIterator<Item = impl Into<PathBuf>>,
        mut function: impl FnMut(&str, &mut Collector<T>) + Clone + Send + Sync + 'static,
    ) -> FileSource<impl LineParser<Record = T>> {
        FileSource::try_parse_lines(paths, move |lines: &str, out: &mut Collector<T>| {
            function(lines, out);
            Ok(())
        })
    }

    /// Like [`parse_lines`](Self::parse_lines). An error ends the attempt, and the job restarts
    /// from the latest checkpoint; the failure names the file and where in it the first of the
    /// lines begins.
    pub fn try_parse_lines<T, F>(
        paths: impl IntoIterator<Item = impl Into<PathBuf>>,
        function: F,
    ) -> FileSource<ParseWith<F, T, true>>
    where
        T: Record,
        F: FnMut(&str, &mut Collector<T>) -> Result<(), BoxError> + Clone + Send + Sync + 'static,
    {
        FileSource::new(paths, ParseWith::new(function))
    }
}

impl<P> FileSource<P> {
    fn new(paths: impl IntoIterator<Item = impl Into<PathBuf>>, parser: P) -> Self {
        FileSource {
            paths: paths.into_iter().map(Into::into).collect(),
            parser,
            repeat: 1,
            per_second: None,
            follow: false,
            lossy_utf8: false,
            split_bytes: None,
            line_bytes_max: LINE_BYTES_MAX,
        }
    }

    /// Reads everything so many times, one time after the other. Default 1.
    #[must_use]
    pub fn repeat(mut self, times: u64) -> Self {
        self.repeat = times;
        self
    }

    /// Reads at most so many lines per second in total; each reader reads an equal part. Without
    /// [`split_bytes`](Self::split_bytes), splits are then small (64 KiB), so that every reader has
    /// something to read.
    #[must_use]
    pub fn rate(mut self, lines_per_second: f64) -> Self {
        self.per_second = Some(lines_per_second);
        self
    }

    /// Goes on with what is appended to files, and with new files in folders, for ever. Looks every
    /// 100 ms. A line is read once its line feed is there.
    ///
    /// A file may only grow: one that is truncated, replaced or renamed is an error. One that has
    /// been read may be deleted; a new one may have the same beginning, and a copy is a new one.
    /// Lines of one file keep their order only if there is one reader.
    ///
    /// A rename is told from a new file by what the file system says, as far as that goes. Where it
    /// keeps no times of creation (NFS doesn't), a new file that begins like one that was deleted,
    /// ends as late, and has been given its number, is taken for that one, renamed; and one that
    /// has grown since it was renamed isn't. The 4096 files that went last are remembered: if one
    /// of them comes back, it is still the same; an older one would be read anew.
    #[must_use]
    pub fn follow(mut self, follow: bool) -> Self {
        self.follow = follow;
        self
    }

    /// Replaces what is not valid UTF-8 by `U+FFFD` instead of failing.
    #[must_use]
    pub fn lossy_utf8(mut self, lossy: bool) -> Self {
        self.lossy_utf8 = lossy;
        self
    }

    /// Cuts files into splits of so many bytes. Default 16 MiB. Smaller ones spread a file over
    /// more readers; each costs an assignment and opening the file.
    #[must_use]
    pub fn split_bytes(mut self, bytes: u64) -> Self {
        self.split_bytes = Some(bytes);
        self
    }

    /// A line may have so many bytes, without its line feed; a longer one is an error that names
    /// the file and where in it the line begins. Default 64 MiB. A reader keeps a whole line in
    /// memory, and reads no more than one of this length at once.
    #[must_use]
    pub fn max_line_bytes(mut self, bytes: usize) -> Self {
        self.line_bytes_max = bytes;
        self
    }

    fn check_options(&self) -> Result<(), BoxError> {
        let problem = match self {
            _ if self.paths.is_empty() => return Err(FileSourceError::NoPaths.into()),
            FileSource {
                split_bytes: Some(0),
                ..
            } => "splits must have at least 1 byte",
            FileSource {
                line_bytes_max: 0, ..
            } => "lines must be allowed to have at least 1 byte",
            FileSource { repeat: 0, .. } => "files must be read at least once, not 0 times",
            FileSource {
                follow: true,
                repeat: 2..,
                ..
            } => "files that are followed have no end after which they could be repeated",
            _ => return Ok(self.per_second.map_or(Ok(()), rate::check)?),
        };
        Err(FileSourceError::Options { problem }.into())
    }
}

impl<P: LineParser> Source for FileSource<P> {
    type Item = P::Record;
    type Split = FileSplit;
    type Enumerator = FileEnumerator;
    type Reader = FileReader<P>;

    fn check(&self) -> Result<(), BoxError> {
        self.check_options()?;
        let files = discover(&self.paths)?;
        check_readable(&files)?;
        if files.is_empty() && !self.follow {
            tracing::warn!(paths = ?self.paths, "no files to read");
        }
        Ok(())
    }

    fn enumerator(
        &self,
        _context: SourceContext,
        restored: Option<FileEnumeratorState>,
    ) -> Result<FileEnumerator, BoxError> {
        let default = self.per_second.map_or(SPLIT_BYTES, |_| SPLIT_BYTES_LIMITED);
        let split_bytes = self.split_bytes.unwrap_or(default);
        let follow = |state| Following::new(self.paths.clone(), split_bytes, state);
        let mode = match restored.map(|state| state.0) {
            None if self.follow => Mode::Following(follow(Default::default())),
            None => Mode::Bounded(Bounded::new(
                discover(&self.paths)?,
                self.repeat,
                split_bytes,
            )),
            Some(State::Following(state)) if self.follow => Mode::Following(follow(state)),
            Some(State::Bounded(state)) if !self.follow => {
                Mode::Bounded(Bounded::restored(state, self.repeat, split_bytes))
            }
            Some(_) => {
                let (restored, configured) = (!self.follow, self.follow);
                return Err(FileSourceError::OtherMode {
                    restored,
                    configured,
                }
                .into());
            }
        };
        Ok(FileEnumerator(mode))
    }

    fn reader(&self, context: SourceContext) -> Result<FileReader<P>, BoxError> {
        let readers = f64::from(context.parallelism.max(1));
        let limit = self
            .per_second
            .map(|per_second| RateLimit::new(per_second / readers));
        Ok(FileReader::new(
            self.parser.clone(),
            self.lossy_utf8,
            self.line_bytes_max,
            limit,
        ))
    }
}
