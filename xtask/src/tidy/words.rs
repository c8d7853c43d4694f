//! Words that must not be left behind, or belong to a few places only.
//!
//! Code and comments are told apart first (see [`super::mask`]), so that a rule's own definition
//! and a sentence about `unwrap` don't count.

use super::exceptions::{CLOCKS_AND_THREADS, PRINTING, UNSAFE};
use super::mask::{MaskedLine, mask};
use super::regions::{is_test_path, test_lines, test_modules};
use super::{SourceFile, Violation};

/// A word that is not allowed in code.
struct Word {
    text: &'static str,
    /// Whether it is fine in test code.
    is_for_tests: bool,
    /// Path prefixes where it is fine.
    places: &'static [(&'static str, &'static str)],
    remedy: &'static str,
}

const fn leftover(text: &'static str) -> Word {
    Word {
        text,
        is_for_tests: false,
        places: &[],
        remedy: "finish or remove it",
    }
}

const fn printing(text: &'static str) -> Word {
    Word {
        text,
        is_for_tests: true,
        places: PRINTING,
        remedy: "use `tracing`",
    }
}

const fn clock(text: &'static str) -> Word {
    let remedy = "take the time as an argument, or list the module in `exceptions`";
    Word {
        text,
        is_for_tests: true,
        places: CLOCKS_AND_THREADS,
        remedy,
    }
}

const WORDS: [Word; 16] = [
    leftover("dbg!"),
    leftover("todo!"),
    leftover("unimplemented!"),
    printing("println!"),
    printing("print!"),
    printing("eprintln!"),
    printing("eprint!"),
    Word {
        text: ".unwrap()",
        is_for_tests: true,
        places: &[],
        remedy: "return an error, or `expect` with why it holds",
    },
    Word {
        text: "process::exit",
        is_for_tests: true,
        places: PRINTING,
        remedy: "return an error: libraries do not end their caller",
    },
    clock("Instant::now"),
    clock("SystemTime::now"),
    clock("thread::sleep"),
    clock("thread::spawn"),
    clock("thread::scope"),
    clock("thread::Builder"),
    // Also what turns the lint off, `unsafe_code`.
    Word {
        text: "unsafe",
        is_for_tests: false,
        places: UNSAFE,
        remedy: "do without, or list the module in `exceptions`, and say there why it is sound",
    },
];

/// Folders at the root of a machine that only one machine has.
const MACHINE_FOLDERS: [&str; 3] = ["home", "work", "root"];

/// Checks code for `WORDS`.
pub fn check_code(files: &[SourceFile]) -> Vec<Violation> {
    let masked: Vec<(&SourceFile, Vec<MaskedLine>)> = files
        .iter()
        .filter(|f| f.is_rust())
        .map(|file| (file, mask(&file.text)))
        .collect();
    let test_prefixes: Vec<String> = masked
        .iter()
        .flat_map(|(file, lines)| test_modules(file, lines))
        .collect();
    let mut found = Vec::new();
    for (file, lines) in &masked {
        let is_test_module = test_prefixes
            .iter()
            .any(|prefix| file.path.starts_with(prefix));
        let is_test_file = is_test_module || is_test_path(&file.path);
        for (index, (line, is_test)) in lines.iter().zip(test_lines(lines)).enumerate() {
            let words = words_in(&line.code, &file.path, is_test || is_test_file);
            found.extend(words.map(|word| {
                let message = format!("`{}`: {}", word.text, word.remedy);
                Violation::new(&file.path, index + 1, message)
            }));
        }
    }
    found
}

/// Checks that a comment's open end names an issue: `TODO(#12): …`.
pub fn check_comments(files: &[SourceFile]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for (index, line) in mask(&file.text).iter().enumerate() {
            let is_open = ["TODO", "FIXME", "XXX"].iter().any(|word| {
                let mut rests = line.comment.match_indices(word);
                rests.any(|(at, _)| !line.comment[at + word.len()..].starts_with("(#"))
            });
            if is_open {
                let message = "name the issue, as in `TODO(#12): …`, or do it";
                found.push(Violation::new(&file.path, index + 1, message));
            }
        }
    }
    found
}

/// Checks that no file names a path of somebody's machine.
pub fn check_machine_paths(files: &[SourceFile]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in files {
        for (index, line) in file.text.lines().enumerate() {
            if MACHINE_FOLDERS
                .iter()
                .any(|folder| names_folder(line, folder))
            {
                let message = "a path of one machine: make it relative or a placeholder";
                found.push(Violation::new(&file.path, index + 1, message));
            }
        }
    }
    found
}

fn words_in(code: &str, path: &str, is_test: bool) -> impl Iterator<Item = &'static Word> {
    WORDS.iter().filter(move |word| {
        let is_placed = word
            .places
            .iter()
            .any(|(prefix, _)| path.starts_with(prefix));
        let is_fine = is_placed || (is_test && word.is_for_tests);
        !is_fine && contains_word(code, word.text)
    })
}

/// Whether `text` occurs in `code` other than as the end of a longer word.
fn contains_word(code: &str, text: &str) -> bool {
    code.match_indices(text).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        text.starts_with('.') || !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// Whether a line names `/folder/` as an absolute path, also as one in a `file://` address.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(&format!("/{folder}/")).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let is_inside = |c: char| c.is_alphanumeric() || "_-.:*}>)/".contains(c);
        !before.is_some_and(is_inside) || line[..at].ends_with("//")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<usize> {
        let found = check_code(&[SourceFile::new(path, text)]);
        found.into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn each_word_is_found_in_production_code() {
        for word in &WORDS {
            // `.unwrap()` needs something to be called on.
            let receiver = if word.text.starts_with('.') { "b" } else { "" };
            let text = format!("fn a() {{\n    {receiver}{};\n}}\n", word.text);
            assert_eq!(check("crates/a/src/b.rs", &text), [2], "{}", word.text);
        }
    }

    #[test]
    fn tests_may_unwrap_but_leave_nothing_behind() {
        let test = "#[cfg(test)]\nmod tests {\n    fn a() { b().unwrap(); }\n}\n";
        assert_eq!(check("crates/a/src/b.rs", test), []);
        assert_eq!(check("crates/a/tests/b.rs", "fn a() { b().unwrap(); }"), []);
        assert_eq!(check("crates/a/tests/b.rs", "fn a() { todo!(); }"), [1]);
    }

    #[test]
    fn a_word_in_text_or_comment_or_longer_word_is_none() {
        let text = "// dbg! .unwrap()\nlet a = \"todo!\";\nmy_println!(b);\nc.unwrap_or(1);\n";
        assert_eq!(check("crates/a/src/b.rs", text), []);
    }

    #[test]
    fn clocks_and_printing_have_their_places() {
        let text = "fn a() { println!(); Instant::now(); }\n";
        assert_eq!(check("crates/tidegate/examples/b.rs", text), []);
        assert_eq!(check("crates/coordinator/src/b.rs", text), [1, 1]);
    }

    #[test]
    fn memory_is_safe_but_in_its_places() {
        let text = "#![allow(unsafe_code)]\nfn a() { unsafe { b() } }\n";
        assert_eq!(check("crates/bench/src/peers/prefetch.rs", text), []);
        assert_eq!(check("crates/state/src/heap/shards.rs", text), [1, 2]);
        assert_eq!(check("crates/bench/tests/prefetch.rs", text), [1, 2]);
    }

    #[test]
    fn test_modules_in_files_of_their_own_are_tests() {
        let files = [
            SourceFile::new("crates/a/src/lib.rs", "#[cfg(test)]\nmod law;\n"),
            SourceFile::new("crates/a/src/law.rs", "fn a() { b().unwrap(); }\n"),
        ];
        assert_eq!(check_code(&files), []);
    }

    #[test]
    fn an_open_end_without_issue_is_found() {
        let file = SourceFile::new("a.rs", "// TODO: later\n// TODO(#12): later\nTODO();\n");
        let found = check_comments(&[file]);
        assert_eq!(found.iter().map(|v| v.line).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_machine_path_is_found() {
        for folder in MACHINE_FOLDERS {
            let bad = [format!("\"/{folder}/a\""), format!("file:///{folder}/a")];
            for text in bad {
                let found = check_machine_paths(&[SourceFile::new("a.md", &text)]);
                assert_eq!(found.len(), 1, "{text}");
            }
            let good = format!("docs/{folder}/a");
            assert_eq!(check_machine_paths(&[SourceFile::new("a.md", &good)]), []);
        }
    }
}
