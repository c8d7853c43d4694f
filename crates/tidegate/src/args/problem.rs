//! What can be wrong with settings, in the words of whoever set them.
//!
//! A value is shown as it was written, where it was written: `--min-pause soon`,
//! `TIDEGATE_MIN_PAUSE=soon`, or the line of the file. Causes are part of the text, because a list
//! of problems has no single source.

use std::fmt;
use std::path::PathBuf;

use tidegate_coordinator::SettingsError;
use tidegate_storage::StorageError;
use tidegate_types::ErrorChain;

use super::table::Setting;
use super::text::Allowed;

/// Where a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// On the command line, or by the program itself.
    Flag,
    /// In the environment.
    Variable,
    /// By another process of the cluster, which has started this one; to that, in any way.
    Handed,
    /// In a file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

/// A setting's value, as it was written and where. Displays in backticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// Name of the setting.
    pub(crate) name: &'static str,
    /// The value; in a file as TOML.
    pub(crate) text: String,
    /// Where.
    pub(crate) origin: Origin,
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Given { name, text, origin } = self;
        match origin {
            Origin::Flag if text.is_empty() => write!(f, "`--{name} ''`"),
            Origin::Flag => write!(f, "`--{name} {text}`"),
            Origin::Variable => write!(f, "`{}={text}`", Setting::variable_of(name)),
            Origin::Handed => write!(f, "`{name} = {text}`"),
            Origin::File { path, line } => {
                write!(
                    f,
                    "`{name} = {text}` in line {line} of `{}`",
                    path.display()
                )
            }
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// The value is none of its setting's.
    #[error("{given}: must be {allowed}")]
    Value { given: Given, allowed: Allowed },
    /// The value is no text.
    #[error("{given}: is not Unicode")]
    NotUnicode { given: Given },
    /// The value has the wrong TOML type.
    #[error("{given}: must be {wanted}; that is {allowed}")]
    Type {
        given: Given,
        wanted: &'static str,
        allowed: Allowed,
    },
    /// There is no such setting.
    #[error("unknown key `{key}` in line {line} of `{}`{}", path.display(), hint(*nearest))]
    UnknownKey {
        path: PathBuf,
        line: usize,
        key: String,
        nearest: Option<&'static str>,
    },
    /// Tables mean nothing.
    #[error(
        "`{key}` in line {line} of `{}` is a table; settings stand at the top of the file",
        path.display()
    )]
    Table {
        path: PathBuf,
        line: usize,
        key: String,
    },
    /// The file is no TOML, or gives a key twice.
    #[error("{message} in line {line} of `{}`: `{text}`", path.display())]
    Syntax {
        path: PathBuf,
        line: usize,
        message: String,
        text: String,
    },
    /// The file can't be read.
    #[error("{given}: {cause}")]
    Unreadable { given: Given, cause: std::io::Error },
    /// The value is out of its range, or contradicts itself.
    #[error("{cause}{}", Whence(origin.as_ref(), cause.setting()))]
    Range {
        cause: SettingsError,
        origin: Option<Origin>,
    },
    /// The value is no place that can be used.
    #[error("{given}: {}", ErrorChain(&**cause))]
    Location {
        given: Given,
        cause: Box<StorageError>,
    },
    /// The value makes no sense without another setting.
    #[error("{given} needs {needs}: {why}")]
    Needs {
        given: Given,
        needs: &'static str,
        why: &'static str,
    },
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// Where a value came from, unless that is plain: it is looked for on the command line first.
struct Whence<'a>(Option<&'a Origin>, &'a str);

impl fmt::Display for Whence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None | Some(Origin::Flag | Origin::Handed) => Ok(()),
            Some(Origin::Variable) => write!(f, ", from `{}`", Setting::variable_of(self.1)),
            Some(Origin::File { path, line }) => {
                write!(f, ", from line {line} of `{}`", path.display())
            }
        }
    }
}

/// Everything that is wrong with settings; at least one thing. Displays all of it.
#[derive(Debug)]
pub struct InvalidSettings(Vec<Problem>);

impl InvalidSettings {
    /// Fails if there are problems.
    pub(crate) fn check(problems: Vec<Problem>) -> Result<(), InvalidSettings> {
        if problems.is_empty() {
            return Ok(());
        }
        Err(InvalidSettings(problems))
    }

    /// One message for each problem.
    pub fn messages(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(Problem::to_string)
    }
}

impl From<Problem> for InvalidSettings {
    fn from(problem: Problem) -> Self {
        InvalidSettings(vec![problem])
    }
}

impl fmt::Display for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = self.0.as_slice() {
            return write!(f, "invalid setting: {problem}");
        }
        write!(f, "{} invalid settings:", self.0.len())?;
        self.0
            .iter()
            .try_for_each(|problem| write!(f, "\n- {problem}"))
    }
}

impl std::error::Error for InvalidSettings {}
