//! A plain sink as an operator.

use std::marker::PhantomData;

use super::{Sink, SinkContext, SinkWriter};
use crate::batch::Batch;
use crate::error::BoxError;
use crate::logic::{Flow, Logic, SubtaskContext};
use crate::output::Collector;

pub(crate) struct Plain<T, W> {
    writer: W,
    records: PhantomData<fn(T)>,
}

impl<T, W: SinkWriter<T>> Plain<T, W> {
    pub(crate) fn open<S: Sink<T, Writer = W>>(
        sink: &S,
        context: &SubtaskContext,
    ) -> Result<Self, BoxError> {
        let writer = sink.writer(SinkContext::of(context))?;
        Ok(Plain {
            writer,
            records: PhantomData,
        })
    }
}

impl SinkContext {
    pub(super) fn of(context: &SubtaskContext) -> SinkContext {
        SinkContext {
            subtask: context.subtask,
            uid: context.uid.clone(),
            parallelism: context.parallelism,
            attempt: context.attempt,
        }
    }
}

impl<T: 'static, W: SinkWriter<T>> Logic<T, ()> for Plain<T, W> {
    fn process(
        &mut self,
        input: &mut Batch<T>,
        _out: &mut Collector<()>,
    ) -> Result<Flow, BoxError> {
        self.writer.write(input)
    }

    fn finish(&mut self, _out: &mut Collector<()>) -> Result<(), BoxError> {
        self.writer.flush()
    }

    fn prepare_snapshot(&mut self) -> Result<(), BoxError> {
        self.writer.flush()
    }
}
