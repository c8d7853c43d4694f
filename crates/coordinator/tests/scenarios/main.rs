//! Data-driven scenarios: each `*.txt` beside this file is a series of commands to a job with the
//! actions that must come out. `UPDATE=1 cargo test` rewrites the expectations; read the diff.
//!
//! A file consists of a head comment that names what is guaranteed, and blocks of commands, a line
//! `----`, the expected output and an empty line. `world.rs` lists the commands.

// Clippy knows test functions, but not the helpers of an integration test.
#![allow(clippy::unwrap_used)]

mod parse;
mod render;
mod world;

use std::fs;
use std::path::{Path, PathBuf};

use world::World;

const SEPARATOR: &str = "----";

/// A block of a scenario file: what is kept, and what is compared.
struct Block {
    /// Comments and commands up to the separator.
    head: Vec<String>,
    expected: Vec<String>,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    loop {
        let head: Vec<String> = lines
            .by_ref()
            .take_while(|line| *line != SEPARATOR)
            .map(str::to_owned)
            .collect();
        if head.iter().all(|line| line.is_empty()) {
            return blocks;
        }
        let expected = lines
            .by_ref()
            .take_while(|line| !line.is_empty())
            .map(str::to_owned)
            .collect();
        blocks.push(Block { head, expected });
    }
}

/// Runs the file; returns what it should contain, and the first block that came out differently.
fn run(text: &str) -> (String, Option<String>) {
    let mut world = World::default();
    let mut actual_text = String::new();
    let mut difference = None;
    for block in blocks(text) {
        let commands = block
            .head
            .iter()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        let actual: Vec<String> = commands.flat_map(|line| world.command(line)).collect();
        let head = block.head.join("\n");
        if actual != block.expected && difference.is_none() {
            let (expected, actual) = (block.expected.join("\n"), actual.join("\n"));
            difference = Some(format!(
                "{head}\n--- expected\n{expected}\n--- actual\n{actual}"
            ));
        }
        let output: String = actual.iter().map(|line| format!("{line}\n")).collect();
        actual_text += &format!("{head}\n{SEPARATOR}\n{output}\n");
    }
    (actual_text.trim_end().to_owned() + "\n", difference)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let (dirs, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let is_scenario = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "txt");
    let mut files: Vec<PathBuf> = files.into_iter().filter(is_scenario).collect();
    files.extend(dirs.iter().flat_map(|dir| self::files(dir)));
    files.sort();
    files
}

#[test]
fn scenarios() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let update = std::env::var_os("UPDATE").is_some();
    let files = files(&dir);
    assert!(files.len() > 10, "the scenarios were found");
    let mut failed = Vec::new();
    for path in files {
        let name = path.strip_prefix(&dir).unwrap().display().to_string();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{name} says what it guarantees");
        let (actual, difference) = run(&text);
        if update && actual != text {
            fs::write(&path, actual).unwrap();
        } else if let Some(difference) = difference {
            failed.push(format!("=== {name}\n{difference}\n"));
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

#[test]
fn a_wrong_expectation_is_noticed() {
    let text = "# x\njob src:1:enumerator\nstart\n----\nreserve-ids 1\n";
    let (actual, difference) = run(text);
    assert!(difference.is_some());
    assert!(actual.ends_with("----\nreserve-attempt\n"));
}
