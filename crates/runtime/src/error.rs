//! Errors of user code and of what it touches, as the runtime passes them on.

use std::error::Error;

use tidegate_types::ErrorChain;

/// Any error that user code, a connector or a state file can give. It ends the attempt, and its
/// text with all its causes is what people see.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// The whole chain of `error` as one line.
pub(crate) fn chain(error: &BoxError) -> String {
    ErrorChain(error.as_ref()).to_string()
}
