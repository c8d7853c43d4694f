//! The same work by other means, to compare with.

mod prefetch;
pub(crate) mod timely;
