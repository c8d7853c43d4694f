//! What the end-to-end tests share: texts to count, places to work in, and the word count as a
//! process of its own that can be killed.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses a part of it"
)]

pub mod place;
pub mod process;
pub mod text;

pub use place::{Place, files};
pub use process::{Process, example, wait_until};
