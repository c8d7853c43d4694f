//! What an operator does, apart from everything that is the same for all of them.
//!
//! A [`Logic`] is single-threaded and never blocks. The [subtask](crate::subtask) around it takes
//! care of channels, barriers, alignment, credit, acknowledgements and failures.

use std::sync::Arc;

use tidegate_state::{Record, SnapshotProgress};
use tidegate_types::{
    AttemptNumber, CheckpointBarrier, CheckpointId, EventTime, KeyGroupRange, ListState,
    MaxParallelism, SubtaskId, SubtaskRestore,
};

use crate::batch::Batch;
use crate::chains::KeyedSnapshot;
use crate::clock::{Clock, Ticks};
use crate::error::BoxError;
use crate::output::{Collector, SideCollector, SideOutputTypeError, SideOutputs};
use crate::piece::StatePlacement;
use crate::snapshot::StateFiles;

/// Whether a logic takes more records now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It took all it was given, or the collector is full.
    Continue,
    /// It can't take more before this moment.
    PauseUntil(Ticks),
}

/// What a logic has to do besides its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// More at once.
    Busy,
    /// Nothing until input, credit or a wake-up comes.
    Idle,
    /// Nothing until this moment.
    At(Ticks),
    /// Nothing ever again.
    Ended,
}

/// Whether everything has been done that a watermark is the sign for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatermarkProgress {
    /// Yes: the watermark may go downstream.
    Done,
    /// Not yet: call again as soon as the collector has room.
    More,
}

/// Makes part of a snapshot durable, on a thread where it may block.
pub type Seal = Box<dyn FnOnce() -> Result<(), BoxError> + Send>;

/// Everything a subtask puts into a checkpoint, frozen. Taking it must be quick.
#[derive(Default)]
pub struct Snapshot {
    /// Keyed state, still to be written.
    pub keyed: Option<KeyedSnapshot>,
    /// Operator state.
    pub lists: Vec<ListState>,
    /// What must be durable before the checkpoint may be acknowledged.
    pub seals: Vec<Seal>,
}

/// The behaviour of one operator subtask.
pub trait Logic<In, Out>: 'static {
    /// Takes records until `input` is empty, the collector is full, or it must pause. What is left
    /// in `input` is offered again.
    ///
    /// # Errors
    /// An error ends the attempt; the job restarts from the latest checkpoint.
    fn process(
        &mut self,
        input: &mut Batch<In>,
        out: &mut Collector<Out>,
    ) -> Result<Flow, BoxError>;

    /// Works on what doesn't come from its input. Called whenever the collector has room; never
    /// again once the barrier of a stop has been passed on.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn poll(
        &mut self,
        inputs_ended: bool,
        _out: &mut Collector<Out>,
    ) -> Result<Activity, BoxError> {
        Ok(if inputs_ended {
            Activity::Ended
        } else {
            Activity::Idle
        })
    }

    /// All input has got as far as `watermark` in event time: only records with later times are to
    /// be expected. It is greater than all before in this attempt; the last is
    /// [`EventTime::MAX`], before [`finish`](Self::finish), unless the job is stopped earlier.
    ///
    /// Does some of what is due, such as firing timers: until there is no more, the collector is
    /// full, or some hundred microseconds have gone by. Called again until it is
    /// [`Done`](WatermarkProgress::Done); until then nothing else is taken from any channel, no
    /// barrier either. Then the watermark goes downstream, behind all that was emitted.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn on_watermark(
        &mut self,
        _watermark: EventTime,
        _out: &mut Collector<Out>,
    ) -> Result<WatermarkProgress, BoxError> {
        Ok(WatermarkProgress::Done)
    }

    /// Records have arrived that it can't be given yet, since an alignment blocks their channel.
    /// Told before every [`poll`](Self::poll) as long as that is so, for operators to which it
    /// matters whether their input is silent.
    fn on_records_waiting(&mut self) {}

    /// Whether it says by itself how far event time has got, with
    /// [`Collector::emit_watermark`]. What it receives then doesn't go downstream, but for
    /// [`EventTime::MAX`]. The answer must never change.
    fn generates_watermarks(&self) -> bool {
        false
    }

    /// Emits what is left when all input has ended. Called once per job, not per attempt; again,
    /// over the state that it left, only if parallelism or partitioning was changed while it had
    /// run for some subtasks and not for all. So what it emits, it takes out of its state.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn finish(&mut self, _out: &mut Collector<Out>) -> Result<(), BoxError> {
        Ok(())
    }

    /// Lets go of what it holds back and has no place in its state. Called before each
    /// [`snapshot`](Self::snapshot), with nothing in between.
    ///
    /// Apart from `snapshot`, since it may fail half done: records that it has let go of without
    /// success are in no state, so a later checkpoint must not complete without them.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn prepare_snapshot(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Freezes the state as it is now, for the checkpoint of `barrier`.
    ///
    /// # Errors
    /// An error declines the checkpoint; the job goes on. So nothing may be lost by it: the next
    /// snapshot has everything that this one would have had.
    fn snapshot(&mut self, _barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        Ok(Snapshot::default())
    }

    /// Copies some of what a pending snapshot still shares with the live state.
    fn advance_snapshots(&mut self) -> SnapshotProgress {
        SnapshotProgress::Done
    }

    /// A checkpoint that this subtask took part in, in this attempt, is durable.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn on_completed(&mut self, _checkpoint: CheckpointId) -> Result<(), BoxError> {
        Ok(())
    }

    /// Nobody wants the snapshot any more that this subtask took for a checkpoint: it was aborted,
    /// or a newer one has completed. Nothing is rolled back; what is kept for its writing may go.
    fn on_aborted(&mut self, _checkpoint: CheckpointId) {}

    /// How much of its input's window it has worked off since the last call. `None` if that
    /// happens as records are taken.
    fn take_worked_off(&mut self) -> Option<u64> {
        None
    }
}

/// What a logic is made with, and restores itself from.
pub struct SubtaskContext {
    /// Which subtask it is.
    pub subtask: SubtaskId,
    /// Name for people, as `count[1]`.
    pub name: String,
    /// The operator's uid.
    pub uid: String,
    /// The operator's parallelism.
    pub parallelism: u32,
    /// The operator's number of key groups.
    pub max_parallelism: MaxParallelism,
    /// The run of the job this subtask belongs to.
    pub attempt: AttemptNumber,
    /// Whether the attempt starts from a checkpoint, and from which.
    pub restored: Option<CheckpointId>,
    /// The state to start from.
    pub restore: SubtaskRestore,
    /// Where state files are read.
    pub files: Arc<dyn StateFiles>,
    /// What [`Flow::PauseUntil`] and [`Activity::At`] refer to, and everything else that goes by
    /// the clock.
    pub clock: Clock,
    /// Where keyed state goes in snapshots.
    pub(crate) placement: StatePlacement,
    pub(crate) side_outputs: SideOutputs,
    /// Writes snapshots.
    pub(crate) background: crate::background::Background,
    /// Commits transactions, beside the writing of snapshots.
    pub(crate) commits: crate::background::Background,
    pub(crate) reports: crate::report::Reporter,
}

impl SubtaskContext {
    /// The key groups this subtask owns.
    pub fn key_groups(&self) -> KeyGroupRange {
        self.restore.key_groups
    }

    /// The side output with this tag. What is emitted there goes nowhere if the job doesn't take
    /// anything from it. To be taken while the logic is made, in every subtask, whether it has
    /// anything to emit or not: what the job takes from an output that nobody emits to is an error.
    ///
    /// # Errors
    /// If the job takes records of another type from it.
    pub fn side_output<T: Record>(
        &self,
        tag: &str,
    ) -> Result<SideCollector<T>, SideOutputTypeError> {
        self.side_outputs.take(tag)
    }

    /// Elements of an operator list state that fall to this subtask; empty if there are none.
    pub fn restored_list(&self, name: &str) -> &[Vec<u8>] {
        let list = self.restore.lists.iter().find(|list| list.name == name);
        list.map_or(&[], |list| &list.elements)
    }
}
