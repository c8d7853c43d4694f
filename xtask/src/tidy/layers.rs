//! Which crate may depend on which: the layers of ARCHITECTURE.md, checked.
//!
//! - Arrows between the workspace's crates are those of [`ARROWS`]; tests included, so that no
//!   layer is tested through one above it.
//! - A package below a crate's folder is a workspace of its own, that no crate depends on: so
//!   `bench` compares with an engine whose licence the product can't have.
//! - `runtime` alone names timely, and `bench`, where an operator written by hand is a peer.
//! - `types` and `coordinator` stay small and know nothing asynchronous.
//! - Every crate takes the workspace's lints (so that `missing_docs` is denied everywhere), and
//!   every version is stated once, in the root.

use super::exceptions::{ARROWS, TEST_ARROWS};
use super::manifest::{Dependency, Manifest, parse};
use super::{SourceFile, Violation};

/// Most direct dependencies of the crates in `SMALL`, those for tests left out.
pub const SMALL_DEPENDENCIES_MAX: usize = 5;

const SMALL: [&str; 2] = ["types", "coordinator"];
const ASYNC_NAMES: [&str; 8] = [
    "tokio",
    "futures",
    "async-",
    "object_store",
    "tonic",
    "hyper",
    "reqwest",
    "smol",
];

/// Checks the arrows between the workspace's own crates.
pub fn check_arrows(files: &[SourceFile]) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, folder, manifest) in crates(files) {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == folder) else {
            let message = "a crate without a layer: add it to `ARROWS` and ARCHITECTURE.md";
            found.push(Violation::new(&file.path, 0, message));
            continue;
        };
        for dependency in &manifest.dependencies {
            let below = match dependency.name.strip_prefix("tidegate-") {
                Some(below) => below,
                None if dependency.name == "tidegate" => "tidegate",
                None => continue,
            };
            let for_tests = dependency.is_dev
                && TEST_ARROWS
                    .iter()
                    .any(|(from, to, _)| *from == folder && *to == below);
            if !allowed.contains(&below) && !for_tests {
                let message = format!("`{folder}` must not depend on `{below}`");
                found.push(Violation::new(&file.path, dependency.line, message));
            }
        }
    }
    found
}

/// Where timely may be named: what the product is made of, and what it is compared with.
const TIMELY: [&str; 2] = ["runtime", "bench"];

/// Checks that only [`TIMELY`] depend on timely, also in tests.
pub fn check_timely(files: &[SourceFile]) -> Vec<Violation> {
    let is_timely = |dependency: &Dependency| dependency.name.starts_with("timely");
    find_dependencies(files, |folder, dependency| {
        let message = "only `runtime` (and `bench`, to compare) names timely";
        (!TIMELY.contains(&folder) && is_timely(dependency)).then(|| message.to_owned())
    })
}

/// Checks that the crates without IO are small and know nothing asynchronous.
pub fn check_small(files: &[SourceFile]) -> Vec<Violation> {
    let mut found = find_dependencies(files, |folder, dependency| {
        let is_async = ASYNC_NAMES
            .iter()
            .any(|name| dependency.name.starts_with(name));
        let message = format!(
            "`{folder}` performs no IO: `{}` is not for it",
            dependency.name
        );
        (SMALL.contains(&folder) && is_async).then_some(message)
    });
    for (file, folder, manifest) in crates(files) {
        let count = manifest
            .dependencies
            .iter()
            .filter(|found| !found.is_dev)
            .count();
        if SMALL.contains(&folder) && count > SMALL_DEPENDENCIES_MAX {
            let message = format!("{count} direct dependencies, at most {SMALL_DEPENDENCIES_MAX}");
            found.push(Violation::new(&file.path, 0, message));
        }
    }
    found
}

/// Checks that a package within a crate's folder is a workspace of its own, and that no crate
/// depends on it: what it depends on, with whatever licence, is no part of the product.
pub fn check_apart(files: &[SourceFile]) -> Vec<Violation> {
    let is_apart = |file: &SourceFile| file.text.lines().any(|line| line.trim() == "[workspace]");
    let mut found = Vec::new();
    for (file, folder, _) in manifests(files).filter(|(_, folder, _)| folder.contains('/')) {
        if !is_apart(file) {
            let message = "a package below a crate: add `[workspace]`, or move it to `crates`";
            found.push(Violation::new(&file.path, 0, message));
        }
        let name = folder.replace('/', "-");
        found.extend(find_dependencies(files, |_, dependency| {
            let message = format!("`{}` is a workspace of its own", dependency.name);
            (dependency.name == format!("tidegate-{name}")).then_some(message)
        }));
    }
    found
}

/// Checks that each crate takes lints and versions from the workspace, and that those lints
/// demand documentation.
pub fn check_inheritance(files: &[SourceFile]) -> Vec<Violation> {
    let mut found = find_dependencies(files, |_, dependency| {
        let message = format!(
            "`{}`: state the version in the root's table",
            dependency.name
        );
        (!dependency.is_inherited).then_some(message)
    });
    for (file, _, manifest) in crates(files) {
        if !manifest.inherits_lints {
            let message = "add `[lints]` with `workspace = true`";
            found.push(Violation::new(&file.path, 0, message));
        }
    }
    let root = files.iter().find(|file| file.path == "Cargo.toml");
    if !root.is_some_and(|root| {
        root.text
            .lines()
            .any(|l| l.trim() == "missing_docs = \"deny\"")
    }) {
        found.push(Violation::new(
            "Cargo.toml",
            0,
            "`missing_docs` must be denied",
        ));
    }
    found
}

/// The workspace's crates: manifest file, folder below `crates`, what the manifest says. A package
/// further down is a workspace of its own, and [`check_apart`] keeps it that.
fn crates(files: &[SourceFile]) -> impl Iterator<Item = (&SourceFile, &str, Manifest)> {
    manifests(files).filter(|(_, folder, _)| !folder.contains('/'))
}

fn manifests(files: &[SourceFile]) -> impl Iterator<Item = (&SourceFile, &str, Manifest)> {
    files.iter().filter_map(|file| {
        let folder = file
            .path
            .strip_prefix("crates/")?
            .strip_suffix("/Cargo.toml")?;
        Some((file, folder, parse(&file.text)))
    })
}

fn find_dependencies(
    files: &[SourceFile],
    objection: impl Fn(&str, &Dependency) -> Option<String>,
) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, folder, manifest) in crates(files) {
        for dependency in &manifest.dependencies {
            if let Some(message) = objection(folder, dependency) {
                found.push(Violation::new(&file.path, dependency.line, message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(folder: &str, dependencies: &[&str]) -> [SourceFile; 2] {
        let mut text = "[lints]\nworkspace = true\n[dependencies]\n".to_owned();
        for name in dependencies {
            text.push_str(&format!("{name}.workspace = true\n"));
        }
        let root = "[workspace.lints.rust]\nmissing_docs = \"deny\"\n";
        let path = format!("crates/{folder}/Cargo.toml");
        [
            SourceFile::new("Cargo.toml", root),
            SourceFile::new(&path, &text),
        ]
    }

    #[test]
    fn an_arrow_that_points_up_is_found() {
        assert_eq!(check_arrows(&manifest("state", &["tidegate-types"])), []);
        for (folder, above) in [
            ("types", "tidegate-state"),
            ("runtime", "tidegate-coordinator"),
            ("coordinator", "tidegate-runtime"),
            ("runtime", "tidegate"),
            ("storage", "tidegate-server"),
        ] {
            let found = check_arrows(&manifest(folder, &["serde", above]));
            assert_eq!(found.len(), 1, "{folder} -> {above}");
            assert_eq!(found[0].line, 5);
        }
    }

    #[test]
    fn a_crate_without_a_layer_is_found() {
        assert_eq!(check_arrows(&manifest("utils", &[])).len(), 1);
    }

    #[test]
    fn the_drawn_arrows_have_no_cycle() {
        let rank = |name: &str| {
            ARROWS
                .iter()
                .position(|(crate_name, _)| *crate_name == name)
        };
        for (from, targets) in ARROWS {
            for target in *targets {
                assert!(
                    rank(target) < rank(from),
                    "{from} -> {target}: list lower crates first"
                );
            }
        }
    }

    #[test]
    fn timely_outside_runtime_is_found() {
        assert_eq!(check_timely(&manifest("runtime", &["timely"])), []);
        assert_eq!(check_timely(&manifest("server", &["timely"])).len(), 1);
        assert_eq!(
            check_timely(&manifest("state", &["timely_communication"])).len(),
            1
        );
    }

    #[test]
    fn a_package_below_a_crate_is_a_workspace_of_its_own_and_nobody_depends_on_it() {
        let apart = |head: &str| {
            let text = format!("{head}[package]\n[dependencies]\ngpl = \"1\"\n");
            SourceFile::new("crates/bench/peer/Cargo.toml", &text)
        };
        let [root, bench] = manifest("bench", &["serde"]);
        let good = [root.clone(), bench.clone(), apart("[workspace]\n")];
        for check in [check_apart, check_arrows, check_inheritance] {
            assert_eq!(check(&good), []);
        }
        assert_eq!(check_apart(&[root, bench, apart("")]).len(), 1);
        let [root, bench] = manifest("bench", &["tidegate-bench-peer"]);
        let used = [root, bench, apart("[workspace]\n")];
        assert_eq!(check_apart(&used).len(), 1);
    }

    #[test]
    fn a_large_or_asynchronous_core_is_found() {
        assert_eq!(
            check_small(&manifest("types", &["a", "b", "c", "d", "e"])),
            []
        );
        assert_eq!(
            check_small(&manifest("types", &["a", "b", "c", "d", "e", "f"])).len(),
            1
        );
        assert_eq!(check_small(&manifest("coordinator", &["tokio"])).len(), 1);
        assert_eq!(check_small(&manifest("server", &["tokio"])), []);
    }

    #[test]
    fn a_crate_with_lints_or_versions_of_its_own_is_found() {
        let good = manifest("types", &["serde"]);
        assert_eq!(check_inheritance(&good), []);
        let [root, member] = &good;
        let without_lints = SourceFile::new(&member.path, &member.text.replace("[lints]", "[x]"));
        assert_eq!(check_inheritance(&[root.clone(), without_lints]).len(), 1);
        let version = member
            .text
            .replace("serde.workspace = true", "serde = \"1\"");
        let own_version = SourceFile::new(&member.path, &version);
        assert_eq!(check_inheritance(&[root.clone(), own_version]).len(), 1);
        assert_eq!(check_inheritance(std::slice::from_ref(member)).len(), 1);
    }
}
