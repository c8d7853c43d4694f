//! Heads and lengths: every Rust file says what it is for, lines fit the screen, functions and
//! files can be read in one go.

use super::exceptions::{LONG_FILES, LONG_FUNCTIONS};
use super::mask::mask;
use super::regions::functions;
use super::{SourceFile, Violation};

/// Longest line of Rust, shell, TOML, in columns.
pub const LINE_COLUMNS_MAX: usize = 100;
/// Longest function, from `fn` to its closing brace.
pub const FUNCTION_LINES_MAX: usize = 70;
/// Longest file.
pub const FILE_LINES_MAX: usize = 600;

/// Checks that each Rust file opens with `//!`.
pub fn check_heads(files: &[SourceFile]) -> Vec<Violation> {
    let headless = |file: &&SourceFile| file.is_rust() && !file.text.starts_with("//! ");
    let message = "begin the file with `//! ` and what it is for";
    files
        .iter()
        .filter(headless)
        .map(|file| Violation::new(&file.path, 1, message))
        .collect()
}

/// Checks the length of lines, except of those that can't be broken and of markdown files.
pub fn check_lines(files: &[SourceFile]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !file.path.ends_with(".md")) {
        for (index, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > LINE_COLUMNS_MAX && can_be_broken(file, line) {
                let message = format!("{columns} columns, at most {LINE_COLUMNS_MAX}");
                found.push(Violation::new(&file.path, index + 1, message));
            }
        }
    }
    found
}

/// What can't be broken: a single word such as an address, a row of a table in documentation, an
/// inline table in TOML.
fn can_be_broken(file: &SourceFile, line: &str) -> bool {
    let text = line.trim_start().trim_start_matches(['/', '#', '!']).trim();
    let is_word = !text.contains(' ');
    let is_row = text.starts_with('|') && text.ends_with('|');
    let is_inline_table = file.path.ends_with(".toml") && text.contains('{');
    !(is_word || is_row || is_inline_table)
}

/// Checks the length of functions against the limit and [`LONG_FUNCTIONS`].
pub fn check_functions(files: &[SourceFile]) -> Vec<Violation> {
    check_functions_except(files, LONG_FUNCTIONS)
}

/// Checks the length of files against the limit and [`LONG_FILES`].
pub fn check_files(files: &[SourceFile]) -> Vec<Violation> {
    check_files_except(files, LONG_FILES)
}

fn check_functions_except(files: &[SourceFile], allowed: &[(&str, &str, usize)]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut used = vec![0; allowed.len()];
    for file in files.iter().filter(|file| file.is_rust()) {
        for function in functions(&mask(&file.text)) {
            if function.lines <= FUNCTION_LINES_MAX {
                continue;
            }
            let entry = allowed.iter().position(|(path, name, lines)| {
                (*path, *name) == (&file.path, &function.name) && function.lines <= *lines
            });
            match entry {
                Some(entry) => used[entry] = function.lines.max(used[entry]),
                None => found.push(too_long(
                    file,
                    &function.name,
                    function.line,
                    function.lines,
                )),
            }
        }
    }
    for ((path, name, lines), used) in allowed.iter().zip(used) {
        if used < *lines {
            found.push(stale(path, &format!("function `{name}`"), used, *lines));
        }
    }
    found
}

fn check_files_except(files: &[SourceFile], allowed: &[(&str, usize)]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let lines = file.text.lines().count();
        let entry = allowed.iter().find(|(path, _)| *path == file.path);
        let max = entry.map_or(FILE_LINES_MAX, |(_, lines)| *lines);
        if lines > max {
            found.push(Violation::new(
                &file.path,
                0,
                format!("{lines} lines, at most {max}"),
            ));
        }
    }
    for (path, max) in allowed {
        let file = files.iter().find(|file| file.path == *path);
        let lines = file.map_or(0, |file| file.text.lines().count());
        if lines < *max {
            found.push(stale(
                path,
                "file",
                if lines > FILE_LINES_MAX { lines } else { 0 },
                *max,
            ));
        }
    }
    found
}

fn too_long(file: &SourceFile, name: &str, line: usize, lines: usize) -> Violation {
    let message = format!("`{name}` has {lines} lines, at most {FUNCTION_LINES_MAX}: split it");
    Violation::new(&file.path, line, message)
}

fn stale(path: &str, what: &str, used: usize, listed: usize) -> Violation {
    let remedy = match used {
        0 => "remove its exception".to_owned(),
        used => format!("lower its exception from {listed} to {used}"),
    };
    Violation::new(path, 0, format!("{what} became shorter: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> [SourceFile; 1] {
        [SourceFile::new("crates/a/src/lib.rs", text)]
    }

    fn long_function(lines: usize) -> [SourceFile; 1] {
        rust(&format!(
            "//! a\nfn long() {{\n{}}}\n",
            "    b();\n".repeat(lines - 2)
        ))
    }

    #[test]
    fn a_missing_head_is_found() {
        assert_eq!(check_heads(&rust("use a;\n")).len(), 1);
        assert_eq!(check_heads(&rust("//! What for.\n")), []);
    }

    #[test]
    fn a_long_line_is_found_unless_it_cannot_be_broken() {
        let long = format!("//! a\n// {}\n", "word ".repeat(20));
        assert_eq!(check_lines(&rust(&long))[0].line, 2);
        for good in [
            format!("// {}\n", "x".repeat(120)),
            format!("//! |{}|\n", " a |".repeat(40)),
        ] {
            assert_eq!(check_lines(&rust(&good)), []);
        }
    }

    #[test]
    fn a_long_function_is_found() {
        assert_eq!(check_functions_except(&long_function(70), &[]), []);
        let found = check_functions_except(&long_function(71), &[]);
        assert_eq!(found[0].line, 2);
    }

    #[test]
    fn exceptions_for_functions_can_only_shrink() {
        let path = "crates/a/src/lib.rs";
        assert_eq!(
            check_functions_except(&long_function(80), &[(path, "long", 80)]),
            []
        );
        assert_eq!(
            check_functions_except(&long_function(81), &[(path, "long", 80)]).len(),
            2
        );
        let found = check_functions_except(&long_function(75), &[(path, "long", 80)]);
        assert!(found[0].message.contains("from 80 to 75"), "{}", found[0]);
        let found = check_functions_except(&long_function(60), &[(path, "long", 80)]);
        assert!(found[0].message.contains("remove"), "{}", found[0]);
    }

    #[test]
    fn a_long_file_is_found_and_its_exception_can_only_shrink() {
        let file = rust(&"//! a\n".repeat(700));
        assert_eq!(check_files_except(&file, &[]).len(), 1);
        assert_eq!(
            check_files_except(&file, &[("crates/a/src/lib.rs", 700)]),
            []
        );
        let found = check_files_except(&file, &[("crates/a/src/lib.rs", 800)]);
        assert!(found[0].message.contains("from 800 to 700"), "{}", found[0]);
    }
}
