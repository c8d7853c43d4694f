//! Finds what in a Rust file is a function and what is test code, by counting braces.
//!
//! Test code is an item behind `#[test]` or `#[cfg(test)]` (also `#[cfg(any(test, …))]`), a file
//! below a `tests` or `benches` folder, and the file of a module declared as
//! `#[cfg(test)] mod name;`. Everything else is production code.

use super::SourceFile;
use super::mask::MaskedLine;

/// A function with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name, without path or type.
    pub name: String,
    /// The line of `fn`, from 1.
    pub line: usize,
    /// From the line of `fn` to that of the closing brace, both counted.
    pub lines: usize,
}

/// Lists the functions with a body, nested ones and methods included, in order of their start.
pub fn functions(lines: &[MaskedLine]) -> Vec<Function> {
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        for (column, _) in line.code.match_indices("fn ") {
            let before = line.code[..column].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let rest = line.code[column + 3..].trim_start();
            let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
            match item_end(lines, index, column) {
                Some(ItemEnd::Brace(end)) if !name.is_empty() => {
                    found.push(Function {
                        name,
                        line: index + 1,
                        lines: end - index + 1,
                    });
                }
                _ => {}
            }
        }
    }
    found
}

/// For each line, whether it belongs to a test item inside the file.
pub fn test_lines(lines: &[MaskedLine]) -> Vec<bool> {
    let mut is_test = vec![false; lines.len()];
    for (index, line) in lines.iter().enumerate() {
        if is_test[index] || !is_test_attribute(&line.code) {
            continue;
        }
        let column = line.code.rfind(']').map_or(0, |close| close + 1);
        let end = match item_end(lines, index, column) {
            Some(ItemEnd::Brace(end) | ItemEnd::Semicolon(end)) => end,
            None => lines.len() - 1,
        };
        is_test[index..=end].fill(true);
    }
    is_test
}

/// Lists the path prefixes of the modules that `file` declares for tests only.
pub fn test_modules(file: &SourceFile, lines: &[MaskedLine]) -> Vec<String> {
    let stem = file.path.trim_end_matches(".rs");
    let (parent, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let folder = if ["mod", "lib", "main"].contains(&name) {
        parent
    } else {
        stem
    };
    let is_test = test_lines(lines);
    let mut found = Vec::new();
    for (line, is_test) in lines.iter().zip(is_test) {
        let code = line.code.trim();
        let declared = code
            .rsplit_once("mod ")
            .and_then(|(_, rest)| rest.strip_suffix(';'));
        if let (true, Some(module)) = (is_test, declared) {
            found.push(format!("{folder}/{module}.rs"));
            found.push(format!("{folder}/{module}/"));
        }
    }
    found
}

/// Whether the whole file is test code by its place.
pub fn is_test_path(path: &str) -> bool {
    path.split('/')
        .any(|part| part == "tests" || part == "benches")
        || path.ends_with("/tests.rs")
}

fn is_test_attribute(code: &str) -> bool {
    let code = code.trim_start();
    let names_test = ["(test)", "(test,", " test)", " test,"]
        .iter()
        .any(|t| code.contains(t));
    let is_for_tests = names_test && !code.contains("not(test");
    code.starts_with("#[test]") || (code.starts_with("#[cfg(") && is_for_tests)
}

/// What ends an item, and on which line (from 0).
enum ItemEnd {
    /// The brace closing its first block.
    Brace(usize),
    /// A semicolon before any block.
    Semicolon(usize),
}

/// Finds the end of the item that begins at or after (`index`, `column`).
fn item_end(lines: &[MaskedLine], index: usize, column: usize) -> Option<ItemEnd> {
    let mut braces = 0_usize;
    // Semicolons in `[u8; 4]` and braces in argument positions don't end the item.
    let mut brackets = 0_isize;
    for (offset, line) in lines[index..].iter().enumerate() {
        let code = if offset == 0 {
            &line.code[column..]
        } else {
            &line.code
        };
        for c in code.chars() {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets -= 1,
                '{' => braces += 1,
                '}' if braces == 1 => return Some(ItemEnd::Brace(index + offset)),
                '}' => braces = braces.checked_sub(1)?,
                ';' if braces == 0 && brackets == 0 => {
                    return Some(ItemEnd::Semicolon(index + offset));
                }
                _ => {}
            }
        }
    }
    None
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::super::mask::mask;
    use super::*;

    #[test]
    fn measures_functions() {
        let method = "impl A {\n    fn one(&self) -> [u8; 2]\n    where\n        B: C,\n    {\n";
        let rest =
            "        f(|| { 1 });\n    }\n}\ntrait D { fn two(&self); }\ntype F = fn (u8);\n";
        let found = functions(&mask(&format!("{method}{rest}")));
        assert_eq!(
            found[0],
            Function {
                name: "one".to_owned(),
                line: 2,
                lines: 6
            }
        );
        assert_eq!(
            found.len(),
            1,
            "declarations and types have no body: {found:?}"
        );
    }

    #[test]
    fn finds_test_items() {
        let text = "fn a() {\n}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n\
                    #[cfg(test)]\nuse x;\nfn d() {}\n#[cfg(not(test))]\nfn e() {}\n";
        let expected = [
            false, false, true, true, true, true, false, true, true, false,
        ];
        assert_eq!(test_lines(&mask(text))[..10], expected);
        assert!(test_lines(&mask(text))[10..].iter().all(|is_test| !is_test));
    }

    #[test]
    fn follows_test_modules_to_their_files() {
        let file = SourceFile::new("crates/a/src/lib.rs", "mod b;\n#[cfg(test)]\nmod tests;\n");
        let found = test_modules(&file, &mask(&file.text));
        assert_eq!(found, ["crates/a/src/tests.rs", "crates/a/src/tests/"]);
        let file = SourceFile::new("crates/a/src/b.rs", "#[cfg(test)] mod law;\n");
        assert_eq!(
            test_modules(&file, &mask(&file.text))[0],
            "crates/a/src/b/law.rs"
        );
    }
}
