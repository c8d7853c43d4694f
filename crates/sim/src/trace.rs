//! What happened in a run: a hash of everything, the last lines of it, and all of it on request.

use std::collections::VecDeque;

/// How many lines a failure shows.
pub const LINES_SHOWN: usize = 40;

/// Takes each line of a trace as it comes.
pub type TraceSink = Box<dyn FnMut(&str)>;

/// Records what happens. Equal hashes mean equal runs.
pub(crate) struct Trace {
    hash: u64,
    recent: VecDeque<String>,
    sink: Option<TraceSink>,
    /// Put before each line.
    pub(crate) moment: (u64, u64),
}

impl Trace {
    pub(crate) fn new(sink: Option<TraceSink>) -> Self {
        Trace {
            hash: 0xcbf2_9ce4_8422_2325,
            recent: VecDeque::new(),
            sink,
            moment: (0, 0),
        }
    }

    /// Notes a decision that is not worth a line.
    pub(crate) fn mix(&mut self, value: u64) {
        self.hash = (self.hash ^ value)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(29);
    }

    pub(crate) fn line(&mut self, text: std::fmt::Arguments<'_>) {
        let (step, now) = self.moment;
        let line = format!("{step:>6} {now:>7}ms  {text}");
        for chunk in line.as_bytes().chunks(8) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(bytes));
        }
        if let Some(sink) = &mut self.sink {
            sink(&line);
        }
        self.recent.push_back(line);
        if self.recent.len() > LINES_SHOWN {
            self.recent.pop_front();
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn recent(&self) -> Vec<String> {
        self.recent.iter().cloned().collect()
    }
}

/// Adds a line to the trace in an [`Outside`](crate::outside::Outside).
macro_rules! trace {
    ($outside:expr, $($text:tt)*) => { $outside.trace.line(format_args!($($text)*)) };
}
pub(crate) use trace;
