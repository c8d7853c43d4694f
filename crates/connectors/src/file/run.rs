//! Goes through a run of lines that lies in a reader's buffer.
//!
//! A run is checked for being text as a whole, not line by line: for lines of the usual length that
//! is half of the time. Lines in front of one that isn't text are still parsed.

use tidegate_runtime::{BoxError, Collector};

use super::error::FileSourceError;
use super::lines::{FileLines, FirstLine};
use super::parse::LineParser;

/// A parser that takes many lines is given no more bytes, unless they are of a single one: enough
/// for what is done once, and few enough records to look at the collector behind them.
const MANY_BYTES: usize = 1 << 10;

/// How far a run is gone through, and how.
pub(super) struct Bounds {
    /// At least 1.
    pub(super) lines_max: u64,
    /// The first byte of the file at which no line may start any more; beyond the run's start.
    pub(super) end: u64,
    /// Whether what isn't text is replaced.
    pub(super) lossy_utf8: bool,
}

/// How far that has got.
#[derive(Default)]
struct Parsed {
    lines: u64,
    bytes: usize,
}

/// Parses the lines at hand, until one of the bounds or until the collector is full; reads on if
/// there are none. Returns the number of lines.
///
/// # Errors
/// If the file can't be read, or a line can't be parsed or isn't text.
pub(super) fn parse_run<P: LineParser>(
    parser: &mut P,
    lines: &mut FileLines,
    bounds: &Bounds,
    out: &mut Collector<P::Record>,
) -> Result<u64, FileSourceError> {
    let start = lines.position();
    let Some(run) = lines.next_run() else {
        let has_more = lines.read_more()?;
        debug_assert!(has_more, "a split ends within its file");
        return Ok(0);
    };
    let mut parsed = Parsed::default();
    let outcome = match text_of(run) {
        Ok(text) => {
            let until_end = usize::try_from(bounds.end - start).unwrap_or(usize::MAX);
            let bytes_max = until_end.min(text.len());
            parse_text(
                parser,
                text,
                (bytes_max, bounds.lines_max),
                &mut parsed,
                out,
            )
        }
        Err(_) if bounds.lossy_utf8 => parse_lossy(parser, run, &mut parsed, out),
        Err(valid) => {
            let (path, offset) = (lines.path().to_owned(), start + valid as u64);
            return Err(FileSourceError::InvalidUtf8 { path, offset });
        }
    };
    lines.consume(parsed.bytes);
    outcome.map_err(|cause| FileSourceError::Parse {
        path: lines.path().to_owned(),
        offset: lines.position(),
        cause,
    })?;
    Ok(parsed.lines)
}

/// The lines with which a run begins, as far as they are text. If the first isn't, how many of its
/// bytes are.
fn text_of(run: &[u8]) -> Result<&str, usize> {
    let valid = match str::from_utf8(run) {
        Ok(text) => return Ok(text),
        Err(error) => error.valid_up_to(),
    };
    let line_feed = memchr::memrchr(b'\n', &run[..valid]).ok_or(valid)?;
    str::from_utf8(&run[..=line_feed]).map_err(|error| error.valid_up_to())
}

/// Parses lines of `text` until so many of its bytes or lines have been dealt with. Of lines whose
/// parser fails, nothing counts as dealt with.
#[inline]
fn parse_text<P: LineParser>(
    parser: &mut P,
    text: &str,
    (bytes_max, lines_max): (usize, u64),
    parsed: &mut Parsed,
    out: &mut Collector<P::Record>,
) -> Result<(), BoxError> {
    while parsed.bytes < bytes_max && parsed.lines < lines_max && !out.is_full() {
        let rest = &text[parsed.bytes..];
        if P::TAKES_MANY {
            let bytes_max = MANY_BYTES.min(bytes_max - parsed.bytes);
            let many = many_lines(rest.as_bytes(), bytes_max, lines_max - parsed.lines);
            parser.parse(&rest[..many.bytes], out)?;
            parsed.bytes += many.bytes;
            parsed.lines += many.lines;
        } else {
            let line = FirstLine::of(rest.as_bytes());
            parser.parse(&rest[..line.length], out)?;
            parsed.bytes += line.taken;
            parsed.lines += 1;
        }
    }
    Ok(())
}

/// The lines of `run` that end within so many bytes, but no more than `lines_max`; the first in any
/// case.
fn many_lines(run: &[u8], bytes_max: usize, lines_max: u64) -> Parsed {
    let within = &run[..run.len().min(bytes_max)];
    let end = memchr::memrchr(b'\n', within).map_or(0, |at| at + 1);
    let lines = memchr::memchr_iter(b'\n', &within[..end]).count() as u64;
    if (1..=lines_max).contains(&lines) {
        return Parsed { lines, bytes: end };
    }
    // Where lines are counted out, or one is long.
    Parsed {
        lines: 1,
        bytes: FirstLine::of(run).taken,
    }
}

/// Parses the first line of `run`, with replacements for what isn't text.
#[cold]
fn parse_lossy<P: LineParser>(
    parser: &mut P,
    run: &[u8],
    parsed: &mut Parsed,
    out: &mut Collector<P::Record>,
) -> Result<(), BoxError> {
    let line = FirstLine::of(run);
    let length = if P::TAKES_MANY {
        line.taken
    } else {
        line.length
    };
    parser.parse(&String::from_utf8_lossy(&run[..length]), out)?;
    *parsed = Parsed {
        lines: 1,
        bytes: line.taken,
    };
    Ok(())
}
