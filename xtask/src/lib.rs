//! Rules about this repository that neither rustc nor clippy checks, run as ordinary tests.
//!
//! `cargo test -p xtask` reads every source file and compares it with the rules of [`tidy`]:
//! heads, lengths, words that must not be left behind, which crate may depend on which, links.
//! What deviates is listed with its reason in [`tidy::exceptions`]; the lists may only shrink.
//! It also compares `docs/conformance.md` with what the tests say they cover: [`conformance`].
//!
//! Deliberately simple: text and counted braces, no parser, no dependency, done in milliseconds.

pub mod conformance;
pub mod tidy;
