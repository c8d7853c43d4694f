//! Errors of user code and of what it touches, as the runtime passes them on.

use std::error::Error;
use std::fmt::{self, Display};

/// Any error that user code, a connector or a state file can give. It ends the attempt, and its
/// text with all its causes is what people see.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// Displays an error followed by all its causes, separated by `: `.
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// The whole chain of `error` as one line.
pub(crate) fn chain(error: &BoxError) -> String {
    ErrorChain(error.as_ref()).to_string()
}
