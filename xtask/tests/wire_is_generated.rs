//! The code that is checked in is what `proto/cluster.proto` says. `UPDATE=1` makes it so; nobody
//! who only builds Tidegate needs a compiler for it.

use std::path::Path;

const SERVER: &str = "../crates/server";
const GENERATED: &str = "src/cluster/wire/generated.rs";

#[test]
fn the_code_for_messages_is_that_of_their_definition() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(SERVER);
    let proto = root.join("proto");
    let definition = protox::compile(["cluster.proto"], [&proto]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .out_dir(folder.path())
        .compile_fds(definition)
        .unwrap();
    let fresh = std::fs::read_to_string(folder.path().join("tidegate.cluster.rs")).unwrap();
    let checked_in = root.join(GENERATED);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&checked_in, &fresh).unwrap();
    }
    let found = std::fs::read_to_string(&checked_in).unwrap();
    assert!(
        found == fresh,
        "`{GENERATED}` is not up to date; UPDATE=1 makes it so"
    );
}
