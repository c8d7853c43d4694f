//! The same work by other means, to compare with.

pub(crate) mod flink;
mod prefetch;
pub(crate) mod timely;
