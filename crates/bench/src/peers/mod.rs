//! The same work by other means, to compare with.

pub(crate) mod flink;
mod prefetch;
pub(crate) mod renoir;
mod task;
pub(crate) mod timely;

pub(crate) use task::{Kind, Task};
