//! Settings from a TOML file: a flat list of keys, named as the flags are.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::problem::{Given, Origin, Problem};
use super::table::{CONFIG, Kind, Setting};

/// A key of a file that is a setting, with a value of the right type.
pub(super) struct Entry {
    pub(super) setting: &'static Setting,
    /// The value as it would be written behind a flag.
    pub(super) text: String,
    /// The value as it stands in the file.
    pub(super) given: Given,
}

/// The text of a file, where it came from.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn path(&self) -> PathBuf {
        self.path.to_owned()
    }

    /// The line that holds this byte, from 1.
    fn line(&self, at: usize) -> usize {
        let before = self.text.bytes().take(at);
        before.filter(|byte| *byte == b'\n').count() + 1
    }

    /// What stands here, at most one line of it.
    fn piece(&self, span: Range<usize>) -> String {
        let piece = self.text.get(span).unwrap_or_default();
        piece.lines().next().unwrap_or_default().to_owned()
    }
}

/// Takes a file apart. `Ok` entries are settings, in alphabetical order, each at most once.
pub(super) fn entries(path: &Path, text: &str) -> Vec<Result<Entry, Problem>> {
    let source = Source { path, text };
    match DeTable::parse(text) {
        Err(error) => vec![Err(syntax(&source, &error))],
        Ok(table) => table
            .get_ref()
            .iter()
            .map(|(key, value)| {
                let line = source.line(key.span().start);
                let shown = source.piece(value.span());
                entry(&source, key.get_ref(), value.get_ref(), line, shown)
            })
            .collect(),
    }
}

fn syntax(source: &Source<'_>, error: &toml::de::Error) -> Problem {
    let line = source.line(error.span().map_or(0, |span| span.start));
    let text = source.text.lines().nth(line - 1).unwrap_or_default();
    Problem::Syntax {
        path: source.path(),
        line,
        message: error.message().to_owned(),
        text: text.trim().to_owned(),
    }
}

fn entry(
    source: &Source<'_>,
    key: &str,
    value: &DeValue<'_>,
    line: usize,
    shown: String,
) -> Result<Entry, Problem> {
    let path = source.path();
    let key = key.to_owned();
    let Some(setting) = Setting::find(&key) else {
        return Err(match value {
            DeValue::Table(_) => Problem::Table { path, line, key },
            _ => Problem::UnknownKey {
                nearest: Setting::nearest(&key).filter(|name| *name != CONFIG),
                path,
                line,
                key,
            },
        });
    };
    let given = Given {
        name: setting.name,
        text: shown,
        origin: Origin::File { path, line },
    };
    match text_of(setting.kind, value) {
        Ok(text) => Ok(Entry {
            setting,
            text,
            given,
        }),
        Err(wanted) => Err(Problem::Type {
            given,
            wanted,
            allowed: (setting.field.allowed)(),
        }),
    }
}

/// The value as text, or the TOML type that it should have.
fn text_of(kind: Kind, value: &DeValue<'_>) -> Result<String, &'static str> {
    match (kind, value) {
        (Kind::Text | Kind::CountOrWord, DeValue::String(text)) => Ok(text.to_string()),
        (Kind::Count | Kind::CountOrWord, DeValue::Integer(number)) => {
            let digits = number.as_str();
            let value = i128::from_str_radix(digits, number.radix());
            Ok(value.map_or_else(|_| digits.to_owned(), |value| value.to_string()))
        }
        (Kind::Switch, DeValue::Boolean(on)) => Ok(on.to_string()),
        (Kind::Text, _) => Err("a string"),
        (Kind::Count, _) => Err("an integer"),
        (Kind::CountOrWord, _) => Err("an integer or a string"),
        (Kind::Switch, _) => Err("a boolean"),
    }
}
