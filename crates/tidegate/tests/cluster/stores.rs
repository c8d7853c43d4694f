//! Servers that the tests of `storage` know how to start.

#![allow(dead_code, reason = "each test binary uses its part")]

#[path = "../../../storage/tests/support/process.rs"]
mod process;
#[cfg(feature = "s3")]
#[path = "../../../storage/tests/support/s3.rs"]
pub(crate) mod s3;
#[cfg(feature = "zookeeper")]
#[path = "../../../storage/tests/support/zookeeper.rs"]
pub(crate) mod zookeeper;
