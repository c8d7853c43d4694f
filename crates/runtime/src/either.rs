//! Records of two types on one input.

use serde::{Deserialize, Serialize};
use tidegate_state::Record;

/// What an operator takes whose inputs carry different types; one record comes on one of them.
///
/// An operator has one logic and one order of records, barriers and watermarks, however many inputs
/// it has. So what its inputs carry is told apart by a value: see
/// [`JobPlan::connect_as`](crate::JobPlan::connect_as).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Either<L, R> {
    /// From the first input.
    Left(L),
    /// From the second.
    Right(R),
}

impl<L: Record, R: Record> Record for Either<L, R> {
    #[inline]
    fn heap_bytes(&self) -> usize {
        match self {
            Either::Left(left) => left.heap_bytes(),
            Either::Right(right) => right.heap_bytes(),
        }
    }
}
