//! Finds the ids of rows in the comments of sources, and says which test each belongs to.
//!
//! In Rust, an id in a comment inside a test function, or directly above it among its attributes,
//! belongs to that function; elsewhere in test code (a table of cases, a macro's arguments, the
//! head of a test's file) it belongs to the file. So does an id in the head of a file of the
//! simulator, or in what defines its invariants and mutations: those are tests of every run. An id
//! in a comment of other code only refers to the row. In a scenario file, `# ` begins a comment.
//!
//! Text in backticks is code and names no row. A row of the checklist has so short an id (`A7`)
//! that it is looked for in test code only.

use super::super::tidy::SourceFile;
use super::super::tidy::mask::{MaskedLine, mask};
use super::super::tidy::regions::{functions, is_test_path, test_lines, test_modules};

/// Folders whose comments count with their file, as those of tests do.
const CHECKING_FOLDERS: [&str; 2] = ["crates/sim/src/invariants", "crates/sim/src/mutation"];
const SIMULATOR: &str = "crates/sim/";
const SCENARIOS: &str = "/tests/scenarios/";

/// What covers a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// The file, from the repository's root.
    pub path: String,
    /// The test function; none when the whole file covers it.
    pub test: Option<String>,
}

/// An id in a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    /// `CC-05`.
    pub id: String,
    /// The file, from the repository's root.
    pub path: String,
    /// From 1.
    pub line: usize,
    /// Whether it is written as the begin of a range, which nobody can search for.
    pub is_range: bool,
    /// What it says is covered; none in code that is no test.
    pub claim: Option<Claim>,
}

/// Whether `text` is the id of a row: `CC-05`, `BC-01`, `G14`.
pub(super) fn is_id(text: &str) -> bool {
    let letters = text.chars().take_while(char::is_ascii_uppercase).count();
    let rest = &text[letters..];
    let digits = match letters {
        1 if text <= "R" => Some(rest),
        2 => rest.strip_prefix('-'),
        _ => None,
    };
    digits.is_some_and(|digits| {
        (1..=3).contains(&digits.len()) && digits.chars().all(|c| c.is_ascii_digit())
    })
}

/// Lists the ids in the comments of all `files`, Rust and scenarios.
pub fn mentions(files: &[SourceFile]) -> Vec<Mention> {
    let masked: Vec<(&SourceFile, Vec<MaskedLine>)> = files
        .iter()
        .filter(|file| file.is_rust())
        .map(|file| (file, mask(&file.text)))
        .collect();
    let test_prefixes: Vec<String> = masked
        .iter()
        .flat_map(|(file, lines)| test_modules(file, lines))
        .collect();
    let mut found = Vec::new();
    for (file, lines) in &masked {
        let is_module = test_prefixes.iter().any(|p| file.path.starts_with(p));
        let is_test = is_module || is_test_path(&file.path) || is_checking(&file.path);
        scan_rust(file, lines, is_test, &mut found);
    }
    let is_scenario = |file: &&SourceFile| !file.is_rust() && file.path.contains(SCENARIOS);
    for file in files.iter().filter(is_scenario) {
        scan_scenario(file, &mut found);
    }
    found
}

fn is_checking(path: &str) -> bool {
    CHECKING_FOLDERS
        .iter()
        .any(|folder| path.starts_with(folder))
}

fn scan_rust(file: &SourceFile, lines: &[MaskedLine], is_test: bool, found: &mut Vec<Mention>) {
    let tests = test_functions(lines);
    let inside = test_lines(lines);
    for (index, line) in lines.iter().enumerate() {
        let test = tests.iter().find(|test| test.lines.contains(&index));
        let is_head = line.comment.starts_with('!') && file.path.starts_with(SIMULATOR);
        let is_covering = test.is_some() || is_test || inside[index] || is_head;
        let claim = is_covering.then(|| Claim {
            path: file.path.clone(),
            test: test.map(|test| test.name.clone()),
        });
        add_mentions(file, index, &line.comment, claim.as_ref(), found);
    }
}

fn scan_scenario(file: &SourceFile, found: &mut Vec<Mention>) {
    let claim = Claim {
        path: file.path.clone(),
        test: None,
    };
    for (index, line) in file.text.lines().enumerate() {
        if let Some(comment) = line.strip_prefix("# ") {
            add_mentions(file, index, comment, Some(&claim), found);
        }
    }
}

fn add_mentions(
    file: &SourceFile,
    index: usize,
    comment: &str,
    claim: Option<&Claim>,
    found: &mut Vec<Mention>,
) {
    for (id, is_range) in ids(comment) {
        if claim.is_some() || id.contains('-') {
            found.push(Mention {
                id,
                path: file.path.clone(),
                line: index + 1,
                is_range,
                claim: claim.cloned(),
            });
        }
    }
}

/// The ids in a comment outside backticks, each with whether a range begins with it.
fn ids(comment: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let prose = comment.split('`').step_by(2);
    for text in prose {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let mut at = 0;
        while let Some(start) = text[at..].find(is_part).map(|start| at + start) {
            let rest = &text[start..];
            let word = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
            at = start + word.len();
            let follows = ["..", "–", "…"]
                .iter()
                .any(|mark| text[at..].starts_with(mark));
            match range_start(word) {
                Some(id) => found.push((id.to_owned(), true)),
                None if is_id(word) => found.push((word.to_owned(), follows)),
                None => {}
            }
        }
    }
    found
}

/// The first id of `CC-05-07` or `CC-05-CC-07`.
fn range_start(word: &str) -> Option<&str> {
    let ends = word.match_indices('-').map(|(at, _)| at);
    let id = ends.map(|at| &word[..at]).find(|start| is_id(start))?;
    let rest = &word[id.len() + 1..];
    (is_id(rest) || rest.chars().all(|c| c.is_ascii_digit())).then_some(id)
}

struct TestFunction {
    name: String,
    /// From its first comment or attribute to its closing brace, from 0.
    lines: std::ops::RangeInclusive<usize>,
}

/// The functions with a test attribute, outer ones first.
fn test_functions(lines: &[MaskedLine]) -> Vec<TestFunction> {
    let mut found = Vec::new();
    for function in functions(lines) {
        let at = function.line - 1;
        let start = preamble_start(lines, at);
        if lines[start..=at]
            .iter()
            .any(|line| has_test_attribute(&line.code))
        {
            found.push(TestFunction {
                name: function.name,
                lines: start..=at + function.lines - 1,
            });
        }
    }
    found
}

/// The first of the comments and attributes that stand directly above the line `at`.
fn preamble_start(lines: &[MaskedLine], at: usize) -> usize {
    let mut start = at;
    let mut in_attribute = false;
    while let Some(line) = start.checked_sub(1).map(|above| &lines[above]) {
        let code = line.code.trim();
        let is_comment = code.is_empty() && !line.comment.is_empty();
        if code.ends_with(']') && !code.starts_with("#[") {
            in_attribute = true;
        } else if code.starts_with("#[") {
            in_attribute = false;
        } else if !in_attribute && (!is_comment || line.comment.starts_with('!')) {
            break;
        }
        start -= 1;
    }
    start
}

/// `#[test]`, also of a runtime (`#[tokio::test(…)]`).
fn has_test_attribute(code: &str) -> bool {
    code.split("#[").skip(1).any(|attribute| {
        let name = attribute
            .split([']', '('])
            .next()
            .unwrap_or_default()
            .trim();
        name == "test" || name.ends_with("::test")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The claims of one file, as `id test`, `id` alone for the file, `(id)` for none.
    fn scan(path: &str, text: &str) -> Vec<String> {
        let found = mentions(&[SourceFile::new(path, text)]);
        let show = |mention: Mention| match mention.claim {
            Some(Claim {
                test: Some(test), ..
            }) => format!("{} {test}", mention.id),
            Some(Claim { test: None, .. }) => mention.id,
            None => format!("({})", mention.id),
        };
        found.into_iter().map(show).collect()
    }

    #[test]
    fn ids_are_told_from_other_words() {
        for id in ["CC-05", "BC-1", "AL-123", "A1", "Q11"] {
            assert!(is_id(id), "{id}");
        }
        for word in [
            "CC05", "CCC-05", "C-05", "R1", "A", "CC-", "A1b", "cc-05", "CC-0a", "",
        ] {
            assert!(!is_id(word), "{word}");
        }
        assert_eq!(
            scan("tests/a.rs", "// UTF-8, xA7, RS-08-like, `AL-01`, E2E\n"),
            [""; 0]
        );
    }

    #[test]
    fn ids_above_and_inside_belong_to_the_test() {
        let text = "// CC-01\n\n/// CC-02, G6: because\n#[test]\n// CC-03\n#[cfg_attr(\n  a,\n)]\n\
                    fn one() {\n    let a = \"CC-04\"; // CC-05\n}\n// CC-06\nfn helper() {}\n";
        let expected = [
            "CC-01",
            "CC-02 one",
            "G6 one",
            "CC-03 one",
            "CC-05 one",
            "CC-06",
        ];
        assert_eq!(scan("crates/a/tests/b.rs", text), expected);
    }

    #[test]
    fn tests_in_macros_and_modules_are_tests() {
        let text = "proptest! {\n    // AL-20, A7\n    #[test]\n    fn any(a in b(),) {\n    }\n\n\
                    }\nmod tests {\n    // AL-01\n    #[tokio::test(flavor = \"x\")]\n    \
                    async fn one() {}\n}\n";
        let expected = ["AL-20 any", "A7 any", "AL-01 one"];
        assert_eq!(scan("crates/a/src/b.rs", text), expected);
        let case = "found! {\n    // BC-02\n    a: B;\n}\n";
        assert_eq!(scan("crates/sim/tests/mutations.rs", case), ["BC-02"]);
    }

    #[test]
    fn other_code_only_refers() {
        let text = "//! BC-57, B2\n// CC-01\nfn one() {\n    // RD-01, B3\n}\n";
        assert_eq!(
            scan("crates/a/src/b.rs", text),
            ["(BC-57)", "(CC-01)", "(RD-01)"]
        );
    }

    #[test]
    fn heads_and_invariants_of_the_simulator_count() {
        let text = "//! BC-01\nfn a() {} // BC-02\n";
        assert_eq!(scan("crates/sim/src/world.rs", text), ["BC-01", "(BC-02)"]);
        let path = "crates/sim/src/invariants/ids.rs";
        assert_eq!(scan(path, text), ["BC-01", "BC-02"]);
    }

    #[test]
    fn comments_of_scenarios_count() {
        let text = "# Why.\n# CC-01, D8\ntrigger CC-02\n----\n";
        let path = "crates/coordinator/tests/scenarios/a/b.txt";
        assert_eq!(scan(path, text), ["CC-01", "D8"]);
        assert_eq!(scan("crates/a/tests/golden/b.txt", text), [""; 0]);
    }

    #[test]
    fn ranges_are_noticed() {
        let ranges = [
            "CC-01..CC-04",
            "CC-01..04",
            "CC-01–04",
            "CC-01-04",
            "CC-01-CC-04",
        ];
        for range in ranges {
            let found = mentions(&[SourceFile::new("tests/a.rs", &format!("// {range}\n"))]);
            assert!(found[0].is_range && found[0].id == "CC-01", "{range}");
        }
        assert!(!mentions(&[SourceFile::new("tests/a.rs", "// CC-01, CC-04.\n")])[0].is_range);
    }
}
