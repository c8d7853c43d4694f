//! An enumerator as an operator: no input, splits as output, triggered by the coordinator.

use serde::de::DeserializeOwned;
use tidegate_types::{CheckpointBarrier, ListState, Redistribution};

use super::{NextSplit, Source, SourceContext, SplitEnumerator};
use crate::batch::Batch;
use crate::clock::Ticks;
use crate::error::BoxError;
use crate::logic::{Activity, Flow, Logic, Snapshot, SubtaskContext};
use crate::output::Collector;

/// Name of the list state that holds the enumerator's state as its single element.
const STATE: &str = "enumerator";

pub(crate) struct Enumerate<S: Source> {
    enumerator: S::Enumerator,
}

/// The state found in a checkpoint can't be read.
#[derive(Debug, thiserror::Error)]
#[error("decode state `{name}` of `{operator}` from the checkpoint")]
pub(crate) struct DecodeStateError {
    pub(crate) name: &'static str,
    pub(crate) operator: String,
    #[source]
    pub(crate) cause: postcard::Error,
}

/// Decodes the elements of a list state that were encoded with postcard.
pub(crate) fn decode_list<T: DeserializeOwned>(
    context: &SubtaskContext,
    name: &'static str,
) -> Result<Vec<T>, DecodeStateError> {
    let decode = |element: &Vec<u8>| {
        postcard::from_bytes(element).map_err(|cause| DecodeStateError {
            name,
            operator: context.uid.clone(),
            cause,
        })
    };
    context.restored_list(name).iter().map(decode).collect()
}

impl<S: Source> Enumerate<S> {
    pub(crate) fn open(source: &S, context: &SubtaskContext) -> Result<Self, BoxError> {
        let restored = decode_list(context, STATE)?.pop();
        let place = SourceContext {
            subtask: context.subtask,
            parallelism: context.parallelism,
        };
        Ok(Enumerate {
            enumerator: source.enumerator(place, restored)?,
        })
    }
}

impl<S: Source> Logic<(), S::Split> for Enumerate<S> {
    fn process(
        &mut self,
        input: &mut Batch<()>,
        _out: &mut Collector<S::Split>,
    ) -> Result<Flow, BoxError> {
        debug_assert_eq!(input.len(), 0, "an enumerator has no input");
        Ok(Flow::Continue)
    }

    fn poll(
        &mut self,
        _inputs_ended: bool,
        out: &mut Collector<S::Split>,
    ) -> Result<Activity, BoxError> {
        let now = Ticks::now();
        match self.enumerator.next(now)? {
            NextSplit::Split(split) => {
                out.emit(split);
                // Each split goes out by itself: fullness is known only after it is sent.
                out.flush();
                Ok(Activity::Busy)
            }
            NextSplit::At(at) => Ok(Activity::At(at)),
            NextSplit::End => Ok(Activity::Ended),
        }
    }

    fn snapshot(&mut self, _barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        let element = postcard::to_stdvec(&self.enumerator.snapshot())?;
        let list = ListState {
            name: STATE.to_owned(),
            redistribution: Redistribution::Split,
            elements: vec![element],
        };
        Ok(Snapshot {
            lists: vec![list],
            ..Snapshot::default()
        })
    }
}
