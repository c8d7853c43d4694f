//! The code that is checked in is what `proto/*.proto` say. `UPDATE=1` makes it so; nobody who only
//! builds Tidegate needs a compiler for it.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;

const SERVER: &str = "../crates/server";

fn check(proto: &str, generated: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(SERVER);
    let definition = protox::compile([format!("{proto}.proto")], [root.join("proto")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .out_dir(folder.path())
        .compile_fds(definition)
        .unwrap();
    let fresh = folder.path().join(format!("tidegate.{proto}.rs"));
    let fresh = std::fs::read_to_string(fresh).unwrap();
    let checked_in = root.join(generated);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&checked_in, &fresh).unwrap();
    }
    let found = std::fs::read_to_string(&checked_in).unwrap();
    assert!(
        found == fresh,
        "`{generated}` is not up to date; UPDATE=1 makes it so"
    );
}

#[test]
fn the_code_for_messages_is_that_of_their_definition() {
    check("cluster", "src/cluster/wire/generated.rs");
    check("control", "src/cluster/control/generated.rs");
}
