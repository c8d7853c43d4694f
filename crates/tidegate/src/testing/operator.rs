//! Operators driven by hand.

use std::sync::Arc;
use std::time::Duration;

use tidegate_coordinator::plan_restore;
use tidegate_runtime::process::{
    BroadcastProcessFunction, Connected, Keyed, KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction, KeyedOpenContext, KeyedProcessFunction, One, OneWithBroadcast,
    OpenContext, OutputTag, ProcessFunction, Single, Unkeyed, WithBroadcast,
};
use tidegate_runtime::{
    BoxError, ByValue, Either, HarnessSetup, Logic, OperatorHarness as Driven, SubtaskContext,
};
use tidegate_state::Record;
use tidegate_types::graph::{JobGraph, OperatorRole, OperatorSpec};
use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, EventTime, HASH_ID, JobId, MaxParallelism,
    OperatorCheckpoint, OperatorUid, Owner, SnapshotKind, SubtaskState, UnixMillis,
};

type Make<In, Out> =
    Arc<dyn Fn(&SubtaskContext) -> Result<Box<dyn Logic<In, Out>>, BoxError> + Send + Sync>;

/// A user's function, ready to be opened as often as a test needs it: afresh, from a snapshot, as
/// any subtask of any number. Made by [`keyed_process`] and its siblings.
pub struct OperatorUnderTest<In, Out> {
    make: Make<In, Out>,
    max_parallelism: MaxParallelism,
}

/// All state of an operator at one checkpoint.
#[derive(Clone, Debug)]
pub struct OperatorSnapshot {
    checkpoint: CheckpointId,
    subtasks: Vec<SubtaskState>,
}

impl OperatorSnapshot {
    /// The snapshot of an operator from those of its subtasks, in the order of their indexes.
    ///
    /// # Panics
    /// If there are none.
    pub fn of_subtasks(parts: impl IntoIterator<Item = OperatorSnapshot>) -> OperatorSnapshot {
        let mut parts = parts.into_iter();
        let mut whole = parts.next().expect("an operator has at least one subtask");
        for part in parts {
            whole.checkpoint = whole.checkpoint.max(part.checkpoint);
            whole.subtasks.extend(part.subtasks);
        }
        whole
    }
}

fn under_test<In: Record, Out: Record, L: Logic<In, Out>>(
    make: impl Fn(&SubtaskContext) -> Result<L, BoxError> + Send + Sync + 'static,
) -> OperatorUnderTest<In, Out> {
    OperatorUnderTest {
        make: Arc::new(move |context| Ok(Box::new(make(context)?))),
        max_parallelism: MaxParallelism::derive(1),
    }
}

/// A [`KeyedProcessFunction`]: `key` finds the key of a record, and `open` is what a job passes to
/// `process`.
pub fn keyed_process<F: KeyedProcessFunction>(
    key: impl Fn(&F::In) -> F::Key + Clone + Send + Sync + 'static,
    open: impl Fn(&mut KeyedOpenContext<'_, F::Key>) -> Result<F, BoxError> + Send + Sync + 'static,
) -> OperatorUnderTest<F::In, F::Out> {
    under_test(move |context| {
        let selector = ByValue::new(key.clone());
        Keyed::open(context, |states| Ok(Single::new(selector, open(states)?)))
    })
}

/// A [`KeyedCoProcessFunction`]: `left` and `right` find the keys.
pub fn keyed_co_process<F: KeyedCoProcessFunction>(
    left: impl Fn(&F::Left) -> F::Key + Clone + Send + Sync + 'static,
    right: impl Fn(&F::Right) -> F::Key + Clone + Send + Sync + 'static,
    open: impl Fn(&mut KeyedOpenContext<'_, F::Key>) -> Result<F, BoxError> + Send + Sync + 'static,
) -> OperatorUnderTest<Either<F::Left, F::Right>, F::Out> {
    under_test(move |context| {
        let (left, right) = (ByValue::new(left.clone()), ByValue::new(right.clone()));
        Keyed::open(context, |states| {
            Ok(Connected::new(left, right, open(states)?))
        })
    })
}

/// A [`KeyedBroadcastProcessFunction`]: the left input is the keyed one.
pub fn keyed_broadcast_process<F: KeyedBroadcastProcessFunction>(
    key: impl Fn(&F::In) -> F::Key + Clone + Send + Sync + 'static,
    open: impl Fn(&mut KeyedOpenContext<'_, F::Key>) -> Result<F, BoxError> + Send + Sync + 'static,
) -> OperatorUnderTest<Either<F::In, F::Broadcast>, F::Out> {
    under_test(move |context| {
        let selector = ByValue::new(key.clone());
        Keyed::open(context, |states| {
            Ok(WithBroadcast::new(selector, open(states)?))
        })
    })
}

/// A [`ProcessFunction`].
pub fn process<F: ProcessFunction>(
    open: impl Fn(&mut OpenContext<'_>) -> Result<F, BoxError> + Send + Sync + 'static,
) -> OperatorUnderTest<F::In, F::Out> {
    under_test(move |context| Unkeyed::open(context, |states| Ok(One(open(states)?))))
}

/// A [`BroadcastProcessFunction`]: the right input is the broadcast one.
pub fn broadcast_process<F: BroadcastProcessFunction>(
    open: impl Fn(&mut OpenContext<'_>) -> Result<F, BoxError> + Send + Sync + 'static,
) -> OperatorUnderTest<Either<F::In, F::Broadcast>, F::Out> {
    under_test(move |context| Unkeyed::open(context, |states| Ok(OneWithBroadcast(open(states)?))))
}

impl<In: Record, Out: Record> OperatorUnderTest<In, Out> {
    /// Opens the only subtask of an operator without state.
    ///
    /// # Errors
    /// What the function's `open` says.
    pub fn open(&self) -> Result<OperatorHarness<In, Out>, BoxError> {
        self.open_subtask(0, 1)
    }

    /// Opens one of several subtasks, without state. It has its own part of the keys, and panics
    /// at a record of another's.
    ///
    /// # Errors
    /// What the function's `open` says.
    pub fn open_subtask(
        &self,
        index: u32,
        parallelism: u32,
    ) -> Result<OperatorHarness<In, Out>, BoxError> {
        self.open_from(None, index, parallelism)
    }

    /// Opens the only subtask from a snapshot.
    ///
    /// # Errors
    /// If the snapshot doesn't fit the states that `open` binds, or what `open` says.
    pub fn restore(&self, from: &OperatorSnapshot) -> Result<OperatorHarness<In, Out>, BoxError> {
        self.restore_subtask(from, 0, 1)
    }

    /// Opens one of several subtasks from a snapshot, whatever the parallelism was then.
    ///
    /// # Errors
    /// As for [`restore`](Self::restore).
    pub fn restore_subtask(
        &self,
        from: &OperatorSnapshot,
        index: u32,
        parallelism: u32,
    ) -> Result<OperatorHarness<In, Out>, BoxError> {
        self.open_from(Some(from), index, parallelism)
    }

    fn open_from(
        &self,
        from: Option<&OperatorSnapshot>,
        index: u32,
        parallelism: u32,
    ) -> Result<OperatorHarness<In, Out>, BoxError> {
        const UID: &str = "operator";
        let uid = OperatorUid(UID.to_owned());
        let operator = OperatorSpec {
            uid: uid.clone(),
            parallelism,
            max_parallelism: self.max_parallelism,
            max_parallelism_derived: false,
            role: OperatorRole::Transform,
        };
        let graph = JobGraph {
            operators: vec![operator],
            edges: Vec::new(),
        };
        let checkpoint = from.map(|snapshot| CompletedCheckpoint {
            id: snapshot.checkpoint,
            job: JobId(0),
            attempt: AttemptNumber(1),
            kind: SnapshotKind::Checkpoint,
            location: None,
            owner: Owner::Job,
            triggered_at: UnixMillis(0),
            hash_id: HASH_ID.to_owned(),
            operators: vec![OperatorCheckpoint {
                uid,
                max_parallelism: self.max_parallelism,
                subtasks: snapshot.subtasks.clone(),
            }],
        });
        let plan = plan_restore(&graph, checkpoint.as_ref(), false)?;
        let restore = plan.operators[0].get(index as usize);
        let setup = HarnessSetup {
            uid: UID.to_owned(),
            index,
            parallelism,
            max_parallelism: self.max_parallelism,
            restored: from.map(|snapshot| snapshot.checkpoint),
            restore: restore.ok_or("there is no such subtask")?.clone(),
            processing_time: UnixMillis(0),
        };
        let driven = Driven::open(setup, |context| (self.make)(context))?;
        Ok(OperatorHarness { driven })
    }
}

/// One subtask of an operator, driven by hand. Its clock stands at 0 until it is moved; a call
/// returns when everything it leads to has been done.
pub struct OperatorHarness<In, Out> {
    driven: Driven<In, Out>,
}

impl<In: Record, Out: Record> OperatorHarness<In, Out> {
    /// Lets the function work on a record.
    ///
    /// # Errors
    /// What the function says.
    pub fn process(&mut self, record: In) -> Result<(), BoxError> {
        self.driven.process(record)
    }

    /// Moves event time on, and fires the timers that are due.
    ///
    /// # Errors
    /// What the function says.
    pub fn watermark(&mut self, watermark: EventTime) -> Result<(), BoxError> {
        self.driven.watermark(watermark)
    }

    /// Time on its clock.
    pub fn processing_time(&self) -> UnixMillis {
        self.driven.processing_time()
    }

    /// Lets time go by on its clock, and fires the timers that are due.
    ///
    /// # Errors
    /// What the function says.
    pub fn advance_processing_time(&mut self, duration: Duration) -> Result<(), BoxError> {
        self.driven.advance_processing_time(duration)
    }

    /// Ends the input: event time comes to its end, and what is due fires.
    ///
    /// # Errors
    /// What the function says.
    pub fn end_input(&mut self) -> Result<(), BoxError> {
        self.driven.end_input()
    }

    /// What the function has emitted since the last call.
    pub fn take_output(&mut self) -> Vec<Out> {
        self.driven.take_output()
    }

    /// What the function has emitted to this side output since the last call.
    ///
    /// # Errors
    /// If it emits records of another type there, or has no such output.
    pub fn take_side_output<T: Record>(&mut self, tag: &OutputTag<T>) -> Result<Vec<T>, BoxError> {
        self.driven.take_side_output(tag.name())
    }

    /// A checkpoint barrier: all state as it is now.
    ///
    /// # Errors
    /// If state can't be serialised.
    pub fn snapshot(&mut self) -> Result<OperatorSnapshot, BoxError> {
        let (checkpoint, state) = self.driven.snapshot()?;
        Ok(OperatorSnapshot {
            checkpoint,
            subtasks: vec![state],
        })
    }

    /// Tells the function that the checkpoint of this snapshot has completed.
    ///
    /// # Errors
    /// What the function says.
    pub fn notify_checkpoint_complete(
        &mut self,
        snapshot: &OperatorSnapshot,
    ) -> Result<(), BoxError> {
        self.driven.notify_checkpoint_complete(snapshot.checkpoint)
    }
}

impl<L: Record, R: Record, Out: Record> OperatorHarness<Either<L, R>, Out> {
    /// A record on the first input.
    ///
    /// # Errors
    /// What the function says.
    pub fn process_left(&mut self, record: L) -> Result<(), BoxError> {
        self.process(Either::Left(record))
    }

    /// A record on the second input.
    ///
    /// # Errors
    /// What the function says.
    pub fn process_right(&mut self, record: R) -> Result<(), BoxError> {
        self.process(Either::Right(record))
    }
}
