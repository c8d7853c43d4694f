//! A sink that prints.

use std::io::{self, Write};
use std::sync::Arc;

use tidegate_runtime::Batch;
use tidegate_runtime::sink::{Sink, SinkContext, SinkWriter};
use tidegate_runtime::{BoxError, Flow};

use crate::line::{Columns, Displayed, FormatWith, LineFormat};

/// Prints each record to standard output, a line each, and in front of it the index of the subtask
/// (`2> `) if there are several.
///
/// For looking at results: at least once, and a reader that does not keep up holds up the job's
/// thread.
#[derive(Clone, Debug)]
pub struct Print<F = Columns> {
    format: Arc<F>,
}

/// Standard output does not take what is printed.
#[derive(Debug, thiserror::Error)]
#[error("print to standard output")]
pub struct PrintError {
    /// Why not.
    #[source]
    pub cause: io::Error,
}

impl Print {
    /// Prints text, numbers and tuples of them (with tabs between), see
    /// [`WriteLine`](crate::WriteLine).
    pub fn new() -> Self {
        Print {
            format: Arc::new(Columns),
        }
    }

    /// Prints what implements [`Display`](std::fmt::Display).
    pub fn displayed() -> Print<Displayed> {
        Print {
            format: Arc::new(Displayed),
        }
    }

    /// Prints what `format` appends to the line; it must not end it.
    pub fn with<T, F>(format: F) -> Print<FormatWith<F>>
    where
        F: Fn(&T, &mut Vec<u8>) + Send + Sync + 'static,
    {
        Print {
            format: Arc::new(FormatWith(format)),
        }
    }
}

impl Default for Print {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: 'static, F: LineFormat<T>> Sink<T> for Print<F> {
    type Writer = PrintWriter<F, io::Stdout>;

    fn writer(&self, context: SinkContext) -> Result<Self::Writer, BoxError> {
        Ok(PrintWriter::new(
            Arc::clone(&self.format),
            &context,
            io::stdout(),
        ))
    }
}

/// Prints for one subtask.
#[derive(Debug)]
pub struct PrintWriter<F, W> {
    format: Arc<F>,
    prefix: String,
    lines: Vec<u8>,
    to: W,
}

impl<F, W> PrintWriter<F, W> {
    fn new(format: Arc<F>, context: &SinkContext, to: W) -> Self {
        let prefix = match context.parallelism {
            0 | 1 => String::new(),
            _ => format!("{}> ", context.subtask.index),
        };
        PrintWriter {
            format,
            prefix,
            lines: Vec::new(),
            to,
        }
    }
}

impl<T, F: LineFormat<T>, W: Write + 'static> SinkWriter<T> for PrintWriter<F, W> {
    fn write(&mut self, records: &mut Batch<T>) -> Result<Flow, BoxError> {
        for record in records {
            self.lines.extend_from_slice(self.prefix.as_bytes());
            self.format.write(&record, &mut self.lines);
            self.lines.push(b'\n');
        }
        // One write for all, so that lines of several subtasks don't mix.
        let printed = self
            .to
            .write_all(&self.lines)
            .and_then(|()| self.to.flush());
        self.lines.clear();
        printed.map_err(|cause| PrintError { cause })?;
        Ok(Flow::Continue)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_types::{AttemptNumber, OperatorId, SubtaskId};

    use super::*;

    fn printed(parallelism: u32) -> String {
        let context = SinkContext {
            subtask: SubtaskId {
                operator: OperatorId(0),
                index: 1,
            },
            uid: "print".to_owned(),
            parallelism,
            attempt: AttemptNumber(1),
        };
        let mut writer = PrintWriter::new(Arc::new(Columns), &context, Vec::new());
        writer.write(&mut vec![("a", 1), ("b", 2)].into()).unwrap();
        String::from_utf8(writer.to).unwrap()
    }

    #[test]
    fn the_subtask_is_named_if_there_are_several() {
        assert_eq!(printed(1), "a\t1\nb\t2\n");
        assert_eq!(printed(2), "1> a\t1\n1> b\t2\n");
    }
}
