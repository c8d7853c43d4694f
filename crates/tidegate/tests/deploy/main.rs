//! What is in `deploy/` fits the program: its manifests and units are read as they are, their flags
//! and variables are known, and a cluster with exactly those settings counts words exactly,
//! addresses and folders being those of this machine. Containers and nodes aren't to be had.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[cfg(feature = "tls")]
mod cluster;
mod known;
mod kubernetes;
mod manifests;
#[cfg(feature = "tls")]
#[path = "../../examples/support/oracle.rs"]
mod oracle;
#[path = "../support/mod.rs"]
mod support;
mod systemd;

use std::path::{Path, PathBuf};

/// A file or folder of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn text(path: &str) -> String {
    let path = repository(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("read {}: {e}", path.display()))
}
