//! Errors as people read them: on one line, each cause after what it caused.

use std::error::Error;
use std::fmt;

/// Displays an error followed by all its causes, separated by `: `. A cause that the text so far
/// ends with is not said again. `Debug` is the same.
///
/// ```
/// use tidegate_types::ErrorChain;
///
/// let error = std::io::Error::other("the disk is on fire");
/// assert_eq!(ErrorChain(&error).to_string(), "the disk is on fire");
/// ```
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !said.ends_with(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner")]
    struct Inner(#[source] std::io::Error);

    #[test]
    fn every_cause_is_said_once() {
        let error = Outer(Inner(std::io::Error::other("root")));
        assert_eq!(ErrorChain(&error).to_string(), "outer: inner: root");
        assert_eq!(format!("{:?}", ErrorChain(&error)), "outer: inner: root");
    }
}
