//! Operators without state.

use crate::batch::Batch;
use crate::error::BoxError;
use crate::logic::{Flow, Logic};
use crate::output::Collector;

/// Any number of records for each. `map` and `filter` are special cases.
pub struct FlatMap<F> {
    function: F,
}

impl<F> FlatMap<F> {
    /// `function` is called once per record, in order.
    pub fn new(function: F) -> Self {
        FlatMap { function }
    }
}

impl<In, Out, F> Logic<In, Out> for FlatMap<F>
where
    In: 'static,
    Out: tidegate_state::Record,
    F: FnMut(In, &mut Collector<Out>) -> Result<(), BoxError> + 'static,
{
    fn process(
        &mut self,
        input: &mut Batch<In>,
        out: &mut Collector<Out>,
    ) -> Result<Flow, BoxError> {
        while !out.is_full() {
            let Some(record) = input.next() else { break };
            (self.function)(record, out)?;
        }
        Ok(Flow::Continue)
    }
}
