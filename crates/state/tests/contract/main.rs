//! The contract of keyed state: what any backend must pass. Each backend has a module that includes
//! the same files of tests.
#![allow(clippy::unwrap_used)] // a test that panics has failed
#![allow(clippy::duplicate_mod)] // each backend includes the same tests

mod chained;
mod heap;
mod under_test;
