//! Which flags and variables the program knows, by its own help.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::example;
use crate::{repository, text};

/// The flags (`--name`) and variables that the help of a role names.
pub(crate) fn known(role: &str) -> BTreeSet<String> {
    let output = Command::new(example("wordcount"))
        .args([role, "--help"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let mut known = names_in(&String::from_utf8(output.stdout).unwrap());
    // Known to both, and no flag on purpose.
    known.insert("TIDEGATE_CLUSTER_SECRET".to_owned());
    known
}

/// Whatever looks like a flag or like a variable of ours.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let words = text.split(|c| !is_part(c));
    let ours = words.filter(|word| {
        let flag = word.strip_prefix("--");
        flag.is_some_and(|flag| flag.starts_with(|c: char| c.is_ascii_lowercase()))
            || word
                .strip_prefix("TIDEGATE_")
                .is_some_and(|rest| !rest.is_empty())
    });
    ours.map(str::to_owned).collect()
}

#[test]
fn the_guide_names_no_flag_or_variable_that_there_is_not() {
    let ours: BTreeSet<String> = ["jobmanager", "taskmanager"]
        .into_iter()
        .flat_map(known)
        .collect();
    let documented = names_in(&text("docs/deploy.md"));
    // Of other programs, in the commands that are shown.
    let foreign = [
        "--from-literal",
        "--from-file",
        "--now",
        "--system",
        "--example",
        "--features",
        "--target",
    ];
    let foreign: BTreeSet<String> = foreign.map(str::to_owned).into();
    let unknown: Vec<&String> = documented
        .difference(&ours)
        .filter(|f| !foreign.contains(*f))
        .collect();
    assert_eq!(unknown, Vec::<&String>::new());
    for settings in ["--ha", "--heartbeat-timeout", "TIDEGATE_CLUSTER_SECRET"] {
        assert!(documented.contains(settings), "{settings}");
    }
}

#[test]
fn the_image_is_built_from_what_there_is() {
    let dockerfile = text("deploy/Dockerfile");
    let default = |argument: &str| {
        let line = dockerfile
            .lines()
            .find_map(|line| line.strip_prefix(&format!("ARG {argument}=")));
        line.unwrap().trim_matches('"').to_owned()
    };
    let manifest = text("crates/tidegate/Cargo.toml");
    for feature in default("FEATURES").split(',') {
        assert!(manifest.contains(&format!("\n{feature} = [")), "{feature}");
    }
    assert_eq!(default("TARGET"), "-p tidegate --example wordcount");
    assert_eq!(default("BINARY"), "examples/wordcount");
    assert!(repository("crates/tidegate/examples/wordcount.rs").is_file());
    let workspace = text("Cargo.toml");
    assert!(
        dockerfile.contains("--profile production") && workspace.contains("[profile.production]")
    );
    let version = workspace
        .split("rust-version = \"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    assert!(
        dockerfile.contains(&format!("FROM rust:{version}-")),
        "{version}"
    );
}
