//! Links in markdown lead somewhere: every relative link names a file or folder that exists.
//!
//! Code blocks and code spans are skipped; addresses with a scheme are not looked up.

use std::path::Path;

use super::{SourceFile, Violation};

/// Checks the relative links of all markdown files against the files below `root`.
pub fn check(files: &[SourceFile], root: &Path) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        let folder = root.join(&file.path);
        let folder = folder.parent().expect("a file lies in a folder");
        for (line, target) in targets(&file.text) {
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !folder.join(path).exists() {
                let message = format!("`{path}` does not exist");
                found.push(Violation::new(&file.path, line, message));
            }
        }
    }
    found
}

/// Lists the targets of inline links and of link definitions, without those that have a scheme.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            in_block = !in_block;
        } else if !in_block {
            let line = without_code_spans(line);
            let inline = line
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next());
            let defined = line
                .strip_prefix('[')
                .and_then(|rest| rest.split_once("]: "));
            let all = inline.chain(defined.map(|(_, target)| target));
            found.extend(
                all.filter_map(file_target)
                    .map(|target| (index + 1, target)),
            );
        }
    }
    found
}

/// The target without its title, unless it has a scheme.
fn file_target(target: &str) -> Option<String> {
    let target = target.split_whitespace().next()?.trim_matches(['<', '>']);
    let has_scheme = target.contains("://") || target.starts_with("mailto:");
    (!has_scheme).then(|| target.to_owned())
}

fn without_code_spans(line: &str) -> String {
    let mut is_code = false;
    let mut text = String::new();
    for part in line.split('`') {
        text.push_str(if is_code { "code" } else { part });
        is_code = !is_code;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::repository_root;
    use super::*;

    fn check_text(text: &str) -> Vec<usize> {
        let found = check(&[SourceFile::new("docs/a.md", text)], &repository_root());
        found.into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_link_to_nowhere_is_found() {
        assert_eq!(check_text("see [this](../no-such-file.md#part)\n"), [1]);
        assert_eq!(
            check_text("[good](../Cargo.toml) and [bad](nowhere/)\n"),
            [1]
        );
        assert_eq!(check_text("\n[bad]: nowhere.md \"title\"\n"), [2]);
    }

    #[test]
    fn good_links_code_and_addresses_pass() {
        let text = "[a](../Cargo.toml#x) [b](https://example.org/c) [d](#part) `[e](nowhere)`\n\
                    ```\n[f](nowhere)\n```\n[g](mailto:a@example.org)\n";
        assert_eq!(check_text(text), []);
    }
}
