//! Servers that the tests of `storage` know how to start.

#[path = "../../../storage/tests/support/process.rs"]
mod process;
#[path = "../../../storage/tests/support/zookeeper.rs"]
pub(crate) mod zookeeper;
