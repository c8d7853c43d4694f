//! One operator driven by hand, for tests of what users write: records, watermarks, the clock,
//! checkpoints and restores, one call each.
//!
//! There are no channels and no timely here; a call returns when all it leads to has been done. The
//! output has room without end.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use tidegate_state::{FrozenKeyedState, Record, SnapshotProgress};
use tidegate_types::{
    AttemptNumber, CheckpointBarrier, CheckpointId, EventTime, FileHandle, KeyedPiece,
    KeyedStateHandle, MaxParallelism, OperatorId, SnapshotFormat, SnapshotKind, SnapshotLocation,
    SubtaskId, SubtaskRestore, SubtaskState, UnixMillis,
};

use crate::background::Background;
use crate::batch::Batch;
use crate::clock::{Clock, ManualClock};
use crate::error::BoxError;
use crate::logic::{Activity, Flow, Logic, Snapshot, SubtaskContext, WatermarkProgress};
use crate::output::{Collector, SideOutputs};
use crate::report::Reporter;
use crate::snapshot::{StateFileRead, StateFileWrite, StateFiles};

/// Which subtask of which operator is driven, and what it starts from.
#[derive(Clone, Debug)]
pub struct HarnessSetup {
    /// Name of the operator.
    pub uid: String,
    /// Index of the subtask.
    pub index: u32,
    /// Number of subtasks.
    pub parallelism: u32,
    /// Number of key groups.
    pub max_parallelism: MaxParallelism,
    /// The checkpoint that `restore` comes from, if any.
    pub restored: Option<CheckpointId>,
    /// The state to start from.
    pub restore: SubtaskRestore,
    /// Where the clock stands.
    pub processing_time: UnixMillis,
}

/// An operator's subtask without anything around it.
pub struct OperatorHarness<In, Out> {
    logic: Box<dyn Logic<In, Out>>,
    context: SubtaskContext,
    out: Collector<Out>,
    collected: Vec<Out>,
    clock: ManualClock,
    taken: CheckpointId,
}

impl<In: Record, Out: Record> OperatorHarness<In, Out> {
    /// Makes the operator and restores its state.
    ///
    /// # Errors
    /// What `make` says.
    pub fn open(
        setup: HarnessSetup,
        make: impl FnOnce(&SubtaskContext) -> Result<Box<dyn Logic<In, Out>>, BoxError>,
    ) -> Result<Self, BoxError> {
        let clock = ManualClock::at(setup.processing_time);
        let taken = setup.restored.unwrap_or(CheckpointId::NONE);
        let context = context(setup, &clock)?;
        let logic = make(&context)?;
        Ok(OperatorHarness {
            logic,
            context,
            out: Collector::collecting(usize::MAX),
            collected: Vec::new(),
            clock,
            taken,
        })
    }

    /// Limits the room of its output, which is then full time and again, and emptied.
    #[cfg(test)]
    pub(crate) fn limit_output(&mut self, records_max: usize) {
        self.out = Collector::collecting(records_max);
    }

    /// Lets it work on a record.
    ///
    /// # Errors
    /// What the operator says.
    pub fn process(&mut self, record: In) -> Result<(), BoxError> {
        self.process_batch(vec![record])
    }

    /// Lets it work on records that come together.
    pub(crate) fn process_batch(&mut self, records: Vec<In>) -> Result<(), BoxError> {
        let mut input = Batch::from(records);
        while input.len() > 0 {
            let flow = self.logic.process(&mut input, &mut self.out)?;
            self.collect();
            if let Flow::PauseUntil(until) = flow {
                let wait = until.since(Clock::Manual(self.clock.clone()).ticks());
                self.clock.advance(wait);
            }
        }
        Ok(())
    }

    /// Tells it that event time has come to `watermark`, and fires what is due.
    ///
    /// # Errors
    /// What the operator says.
    pub fn watermark(&mut self, watermark: EventTime) -> Result<(), BoxError> {
        loop {
            let progress = self.logic.on_watermark(watermark, &mut self.out)?;
            self.collect();
            if progress == WatermarkProgress::Done {
                return Ok(());
            }
        }
    }

    /// Time on its clock.
    pub fn processing_time(&self) -> UnixMillis {
        Clock::Manual(self.clock.clone()).wall()
    }

    /// Lets time go by on its clock, and does what is due then.
    ///
    /// # Errors
    /// What the operator says.
    pub fn advance_processing_time(&mut self, duration: Duration) -> Result<(), BoxError> {
        self.clock.advance(duration);
        self.poll(false)
    }

    /// Tells it that all input has come to its end, and lets it finish.
    ///
    /// # Errors
    /// What the operator says.
    pub fn end_input(&mut self) -> Result<(), BoxError> {
        self.watermark(EventTime::MAX)?;
        self.poll(true)?;
        self.logic.finish(&mut self.out)?;
        self.collect();
        Ok(())
    }

    fn poll(&mut self, inputs_ended: bool) -> Result<(), BoxError> {
        loop {
            let activity = self.logic.poll(inputs_ended, &mut self.out)?;
            self.collect();
            let now = Clock::Manual(self.clock.clone()).ticks();
            match activity {
                Activity::Busy => {}
                Activity::At(at) if at <= now => {}
                Activity::At(_) | Activity::Idle | Activity::Ended => return Ok(()),
            }
        }
    }

    fn collect(&mut self) {
        self.collected.append(&mut self.out.take_collected());
    }

    /// What it has emitted since the last call.
    pub fn take_output(&mut self) -> Vec<Out> {
        std::mem::take(&mut self.collected)
    }

    /// What it has emitted to the side output with this tag since the last call.
    ///
    /// # Errors
    /// If it emits records of another type there, or has no such output.
    pub fn take_side_output<T: Record>(&mut self, tag: &str) -> Result<Vec<T>, BoxError> {
        let context = &self.context;
        context.side_outputs.check_taken(&context.uid, tag)?;
        Ok(self.context.side_output::<T>(tag)?.take_collected())
    }

    /// A barrier: cuts a snapshot, with all state written and sealed.
    ///
    /// # Errors
    /// What the operator says, or why its state can't be written.
    pub fn snapshot(&mut self) -> Result<(CheckpointId, SubtaskState), BoxError> {
        self.taken = self.taken.next();
        let barrier = CheckpointBarrier {
            checkpoint: self.taken,
            kind: SnapshotKind::Checkpoint,
            format: SnapshotFormat::Full,
            base: None,
            location: None,
            created: self.processing_time(),
        };
        self.logic.prepare_snapshot()?;
        let Snapshot {
            keyed,
            lists,
            seals,
        } = self.logic.snapshot(&barrier)?;
        let keyed = match keyed {
            Some(keyed) => Some(self.write(keyed.frozen)?),
            None => None,
        };
        for seal in seals {
            seal()?;
        }
        let state = SubtaskState {
            keyed,
            lists,
            finished: false,
        };
        Ok((self.taken, state))
    }

    /// Writes frozen state beside the operator, as a job does, while it goes on copying for it.
    fn write(&mut self, frozen: FrozenKeyedState) -> Result<KeyedStateHandle, BoxError> {
        let (written, result) = channel();
        let on_panic = {
            let written = written.clone();
            move |cause: String| drop(written.send(Err(cause.into())))
        };
        let write = move || {
            let mut bytes = Vec::new();
            let outcome = frozen.write_to(&mut bytes);
            let outcome = outcome.map(|_| bytes).map_err(BoxError::from);
            // Waited for below.
            let _ = written.send(outcome);
        };
        self.context.background.run(write, on_panic);
        while self.logic.advance_snapshots() != SnapshotProgress::Done {}
        let bytes = result.recv().map_err(BoxError::from)??;
        Ok(KeyedStateHandle {
            pieces: vec![KeyedPiece::Inline(bytes.into())],
            key_groups: self.context.key_groups(),
        })
    }

    /// Tells it that a checkpoint it took part in has completed.
    ///
    /// # Errors
    /// What the operator says.
    pub fn notify_checkpoint_complete(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        self.logic.on_completed(checkpoint)
    }
}

fn context(setup: HarnessSetup, clock: &ManualClock) -> Result<SubtaskContext, BoxError> {
    let HarnessSetup {
        uid,
        index,
        parallelism,
        max_parallelism,
        restored,
        restore,
        processing_time: _,
    } = setup;
    // The threads end with the handles, which are in the context.
    let (background, _writes) = Background::start(format!("{uid}[{index}] snapshots"))?;
    let (commits, _commits) = Background::start(format!("{uid}[{index}] commits"))?;
    let attempt = AttemptNumber(1);
    Ok(SubtaskContext {
        placement: crate::piece::StatePlacement::default(),
        subtask: SubtaskId {
            operator: OperatorId(0),
            index,
        },
        name: format!("{uid}[{index}]"),
        uid,
        parallelism,
        max_parallelism,
        attempt,
        restored,
        restore,
        files: Arc::new(NoFiles),
        clock: Clock::Manual(clock.clone()),
        side_outputs: SideOutputs::collecting(),
        background,
        commits,
        reports: Reporter::new(attempt, Arc::new(|_| {})),
    })
}

/// State that is driven by hand is never in files.
struct NoFiles;

impl StateFiles for NoFiles {
    fn create(
        &self,
        _checkpoint: CheckpointId,
        _location: Option<&SnapshotLocation>,
        subtask: &str,
    ) -> Result<Box<dyn StateFileWrite>, BoxError> {
        Err(format!("`{subtask}` is driven by hand and has no files").into())
    }

    fn open(&self, file: &FileHandle) -> Result<Box<dyn StateFileRead>, BoxError> {
        Err(format!(
            "`{}` can't be read by an operator driven by hand",
            file.name
        )
        .into())
    }

    fn discard(&self, _checkpoint: CheckpointId, _file: &FileHandle) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stateless::FlatMap;

    fn setup() -> HarnessSetup {
        let max_parallelism = MaxParallelism::derive(1);
        HarnessSetup {
            uid: "sort".to_owned(),
            index: 0,
            parallelism: 1,
            max_parallelism,
            restored: None,
            restore: SubtaskRestore {
                key_groups: max_parallelism.range(0, 1).unwrap(),
                keyed: Vec::new(),
                lists: Vec::new(),
                finished: false,
            },
            processing_time: UnixMillis(0),
        }
    }

    // O1
    #[test]
    fn an_operator_without_state_has_nothing_in_a_checkpoint() {
        let mut harness = OperatorHarness::<u64, u64>::open(setup(), |_| {
            let double = |number: u64, out: &mut Collector<u64>| {
                out.emit(2 * number);
                Ok(())
            };
            Ok(Box::new(FlatMap::new(double)))
        })
        .unwrap();
        harness.process(4).unwrap();
        let (_, state) = harness.snapshot().unwrap();
        assert_eq!(state, SubtaskState::default());
        assert_eq!(harness.take_output(), [8]);
    }

    #[test]
    fn what_goes_to_side_outputs_is_kept() {
        let mut harness = OperatorHarness::<u64, u64>::open(setup(), |context| {
            let odd = context.side_output::<String>("odd")?;
            let sort = move |number: u64, out: &mut Collector<u64>| {
                match number % 2 {
                    0 => out.emit(number),
                    _ => odd.emit(number.to_string()),
                }
                Ok(())
            };
            Ok(Box::new(FlatMap::new(sort)))
        })
        .unwrap();
        for number in 1..=4 {
            harness.process(number).unwrap();
        }
        assert_eq!(harness.take_output(), [2, 4]);
        assert_eq!(
            harness.take_side_output::<String>("odd").unwrap(),
            ["1", "3"]
        );
        assert!(
            harness
                .take_side_output::<String>("odd")
                .unwrap()
                .is_empty()
        );
        assert!(harness.take_side_output::<u64>("odd").is_err());
        let mistaken = harness.take_side_output::<String>("old").unwrap_err();
        assert_eq!(
            mistaken.to_string(),
            "operator `sort` emits to no side output `old`; it has `odd`"
        );
    }
}
