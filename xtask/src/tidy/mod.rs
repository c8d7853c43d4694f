//! Tidy: one module per kind of rule, each a function from [`SourceFile`]s to [`Violation`]s.
//!
//! A rule never stops at its first finding, and names file, line and remedy. Every rule is also
//! tested on a small bad sample, so that a rule that can no longer fail is noticed.

pub mod exceptions;
pub mod layers;
pub mod lengths;
pub mod links;
pub mod manifest;
pub mod mask;
pub mod regions;
pub mod words;

mod repository;
mod violation;

pub use repository::{SourceFile, read_files, read_repository, repository_root};
pub use violation::{Violation, report};
