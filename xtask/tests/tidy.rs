//! The rules of tidy, applied to this repository.

use std::sync::OnceLock;

use xtask::tidy::{
    SourceFile, Violation, layers, lengths, links, read_repository, report, repository_root, words,
};

fn repository() -> &'static [SourceFile] {
    static FILES: OnceLock<Vec<SourceFile>> = OnceLock::new();
    FILES.get_or_init(|| read_repository(&repository_root()).expect("the work tree is readable"))
}

#[track_caller]
fn expect_none(violations: Vec<Violation>) {
    assert!(
        violations.is_empty(),
        "violations: {}{}",
        violations.len(),
        report(violations)
    );
}

#[test]
fn the_whole_repository_is_read() {
    for path in [
        "Cargo.toml",
        "crates/types/src/lib.rs",
        "data/README.md",
        ".ci/run",
        "justfile",
    ] {
        assert!(
            repository().iter().any(|file| file.path == path),
            "`{path}` was not read"
        );
    }
}

#[test]
fn rust_files_open_with_what_they_are_for() {
    expect_none(lengths::check_heads(repository()));
}

#[test]
fn lines_fit_the_screen() {
    expect_none(lengths::check_lines(repository()));
}

#[test]
fn functions_are_short() {
    expect_none(lengths::check_functions(repository()));
}

#[test]
fn files_are_short() {
    expect_none(lengths::check_files(repository()));
}

#[test]
fn code_leaves_nothing_behind_and_keeps_clocks_in_their_place() {
    expect_none(words::check_code(repository()));
}

#[test]
fn open_ends_name_an_issue() {
    expect_none(words::check_comments(repository()));
}

#[test]
fn no_file_names_a_path_of_one_machine() {
    expect_none(words::check_machine_paths(repository()));
}

#[test]
fn dependencies_between_crates_point_down() {
    expect_none(layers::check_arrows(repository()));
}

#[test]
fn only_runtime_names_timely() {
    expect_none(layers::check_timely(repository()));
}

#[test]
fn cores_are_small_and_not_asynchronous() {
    expect_none(layers::check_small(repository()));
}

#[test]
fn packages_below_crates_stay_apart() {
    expect_none(layers::check_apart(repository()));
}

#[test]
fn crates_take_lints_and_versions_from_the_workspace() {
    expect_none(layers::check_inheritance(repository()));
}

#[test]
fn links_in_documents_lead_somewhere() {
    expect_none(links::check(repository(), &repository_root()));
}
