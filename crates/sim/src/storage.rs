//! Storage calls of the driver on their way: each may be done, not done, done without anybody
//! knowing, or hang and be resolved either way later.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tidegate_coordinator::JobEvent;
use tidegate_types::message::WriteOutcome;
use tidegate_types::{
    AskedParallelism, AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, OrderedEnd,
    Owner, SnapshotKind, SnapshotLocation,
};

use crate::invariants::{Checked, Violation, may_delete, restorable};
use crate::mutation::Mutation;
use crate::outside::Outside;
use crate::store::{Pointer, Target};
use crate::trace::trace;

/// A durable write that the job waits for.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Attempt,
    Ids(CheckpointId),
    Metadata(Arc<CompletedCheckpoint>),
    Pointer(CheckpointId, Pointer),
    /// The folder of a savepoint.
    Folder(CheckpointId, SnapshotLocation),
    Finished(CheckpointId),
    End(OrderedEnd),
    /// If it has come late, in place of the version that it has seen.
    Parallelism(Option<AskedParallelism>, Option<u64>),
}

/// Deletions in the order in which they must come.
#[derive(Debug)]
pub(crate) struct Deletion {
    /// The checkpoint it is about.
    pub(crate) of: CheckpointId,
    /// Whether that must not have a pointer.
    guarded: bool,
    /// Whose end the job waits to hear of, if it asked for it.
    pub(crate) asked_for: Option<CheckpointId>,
    steps: VecDeque<Target>,
    /// Files that were written for others: as long as older ones are listed, they may need them.
    older: BTreeSet<String>,
}

/// The completed-checkpoint store as it was when it was read.
pub(crate) type Listed = BTreeMap<CheckpointId, Pointer>;

#[derive(Debug)]
pub(crate) enum Op {
    Write(Write),
    /// Reading the list of completed checkpoints, and then what it leads to.
    Recover(Option<Listed>),
    Delete(Deletion),
}

impl Deletion {
    /// The pointer first, so that no crash leaves one that leads nowhere.
    pub(crate) fn completed(checkpoint: &CompletedCheckpoint, spared: &[FileHandle]) -> Self {
        let id = checkpoint.id;
        let older = checkpoint.files().filter(|file| !checkpoint.owns(file));
        let older = older.map(|file| file.name.clone()).collect();
        // Of what was claimed only its own folder was.
        let files = checkpoint
            .files()
            .filter(|file| checkpoint.location.is_none() || checkpoint.owns(file))
            .filter(|file| !spared.contains(file))
            .map(|file| Target::File(file.name.clone()));
        let location = checkpoint.location.clone();
        let folder = location.clone().map(Target::Folder);
        let rest = std::iter::once(Target::Metadata(id, location))
            .chain(files)
            .chain(folder);
        let is_ours = checkpoint.owner == Owner::Job;
        let steps = std::iter::once(Target::Pointer(id)).chain(rest.filter(|_| is_ours));
        Deletion {
            of: id,
            guarded: false,
            asked_for: Some(id),
            steps: steps.collect(),
            older,
        }
    }

    pub(crate) fn discarded(
        (id, location): (CheckpointId, Option<SnapshotLocation>),
        files: Vec<FileHandle>,
        metadata: bool,
    ) -> Self {
        let folder = location.clone().map(Target::Folder);
        let older = files
            .iter()
            .filter(|file| !file.is_of(id, location.as_ref()));
        let older = older.map(|file| file.name.clone()).collect();
        let metadata = metadata.then_some(Target::Metadata(id, location));
        let files = files.into_iter().map(|file| Target::File(file.name));
        let files = files.chain(folder);
        Deletion {
            of: id,
            guarded: true,
            asked_for: Some(id),
            steps: metadata.into_iter().chain(files).collect(),
            older,
        }
    }

    /// One after the other, until nothing is left.
    pub(crate) fn then(mut self, next: Deletion) -> Self {
        self.steps.extend(next.steps);
        self.older.extend(next.older);
        self
    }

    /// One that the job hasn't asked for.
    pub(crate) fn unasked(self) -> Self {
        Deletion {
            asked_for: None,
            ..self
        }
    }

    /// Leaves everything else where it is.
    pub(crate) fn pointer_only(mut self) -> Self {
        self.steps.truncate(1);
        self
    }

    /// In the wrong order.
    pub(crate) fn reversed(mut self) -> Self {
        self.steps.make_contiguous().reverse();
        self
    }

    /// Deletes one thing; false if that was the last.
    pub(crate) fn step(&mut self, outside: &mut Outside) -> Result<bool, Violation> {
        let guarded = std::mem::take(&mut self.guarded);
        if guarded && outside.store.pointers.contains_key(&self.of) {
            return Ok(false);
        }
        let Some(target) = self.steps.pop_front() else {
            return Ok(false);
        };
        let needed = matches!(&target, Target::File(name) if self.older.contains(name))
            && outside.store.pointers.keys().any(|id| *id < self.of);
        if needed {
            return Ok(!self.steps.is_empty());
        }
        if outside.rng.chance(outside.faults.delete) {
            // What a pointer still leads to is left alone.
            return Ok(!matches!(target, Target::Pointer(_)));
        }
        delete(&target, outside)?;
        Ok(!self.steps.is_empty())
    }
}

/// Deletes, and checks that nobody needed it.
pub(crate) fn delete(target: &Target, outside: &mut Outside) -> Checked {
    may_delete(&outside.store, target)?;
    outside.invariants.savepoints.may_delete(target)?;
    outside.store.delete(target);
    restorable(&outside.store)
}

/// Makes a write come to pass.
pub(crate) fn apply(write: &Write, outside: &mut Outside) -> Checked {
    let store = &mut outside.store;
    match write {
        Write::Attempt => store.attempts_reserved += 1,
        Write::Ids(up_to) => store.ids_reserved = store.ids_reserved.max(up_to.0),
        Write::Metadata(checkpoint) => {
            let checkpoint = (**checkpoint).clone();
            if checkpoint.kind == SnapshotKind::Savepoint {
                let (scenario, external) = (&outside.scenario, &outside.external);
                let cut = &outside.invariants.cut;
                cut.on_savepoint(&checkpoint, scenario, store, external)?;
            }
            match checkpoint.location.clone() {
                None => store.metadata.entry(checkpoint.id).or_insert(checkpoint),
                Some(folder) => store.elsewhere.entry(folder).or_insert(checkpoint),
            };
        }
        Write::Folder(_, location) => {
            store.make_folder(location);
        }
        // One that was late and doesn't count any more.
        Write::Pointer(id, _) if Some(*id) <= store.discarded => {}
        Write::Pointer(id, pointer) => {
            store.pointers.insert(*id, pointer.clone());
            restorable(store)?;
            let checkpoint = store.completed(*id).expect("what is restorable is there");
            let invariants = &mut outside.invariants;
            invariants.transactions.on_pointer(checkpoint);
            invariants.output.on_pointer(checkpoint);
            let (scenario, external) = (&outside.scenario, &outside.external);
            let cut = &mut invariants.cut;
            cut.on_pointer(checkpoint, scenario, store, external)?;
        }
        Write::Finished(id) => {
            // One that was late says nothing new.
            store.finished = store.finished.max(Some(*id));
        }
        Write::End(_) => {
            store.ended = outside.mutation != Some(Mutation::EndUnrecorded);
            store.asked = (None, store.asked.1 + 1);
        }
        Write::Parallelism(asked, seen) => {
            let (stored, version) = &mut store.asked;
            if seen.is_none_or(|seen| seen == *version) {
                (*stored, *version) = (*asked, *version + 1);
            }
        }
    }
    trace!(outside, "durable: {}", name(write));
    Ok(())
}

fn name(write: &Write) -> String {
    match write {
        Write::Attempt => "attempt number".to_owned(),
        Write::Ids(up_to) => format!("ids up to {up_to}"),
        Write::Metadata(checkpoint) => format!("metadata of {}", checkpoint.id),
        Write::Pointer(id, _) => format!("pointer to {id}"),
        Write::Folder(id, location) => format!("folder of {id}: {location}"),
        Write::Finished(id) => format!("finished with {id}"),
        Write::End(end) => format!("end: {end}"),
        Write::Parallelism(asked, _) => format!("{asked:?}"),
    }
}

/// Lets a write end, in one of its ways; what may still come to pass is added to `late`.
pub(crate) fn resolve(
    write: Write,
    late: &mut Vec<Write>,
    outside: &mut Outside,
) -> Result<JobEvent, Violation> {
    let faults = &outside.faults;
    let (not_done, done) = (faults.not_done, faults.unknown_done);
    let (undone, hang) = (faults.unknown_not_done, faults.hang);
    let rng = &mut outside.rng;
    let cause = "injected".to_owned();
    let early = outside.mutation == Some(Mutation::PointerReportedEarly);
    let outcome = if rng.chance(not_done) {
        WriteOutcome::NotDone { cause }
    } else if rng.chance(done) {
        apply(&write, outside)?;
        WriteOutcome::Unknown { cause }
    } else if rng.chance(undone) {
        WriteOutcome::Unknown { cause }
    } else if rng.chance(hang) {
        let mut write = write.clone();
        if let Write::Parallelism(_, seen) = &mut write {
            *seen = Some(outside.store.asked.1);
        }
        late.push(write);
        WriteOutcome::Unknown { cause }
    } else if early && matches!(write, Write::Pointer(..)) {
        late.push(write.clone());
        WriteOutcome::Done
    } else {
        apply(&write, outside)?;
        WriteOutcome::Done
    };
    if outcome != WriteOutcome::Done {
        outside.tally.failed_writes += 1;
        trace!(outside, "{outcome:?}: {}", name(&write));
    }
    Ok(event(&write, told(outcome, outside), outside))
}

/// What the driver makes of an outcome.
fn told(outcome: WriteOutcome, outside: &Outside) -> WriteOutcome {
    match outcome {
        WriteOutcome::Unknown { cause } if outside.has(Mutation::UnknownIsNotDone) => {
            WriteOutcome::NotDone { cause }
        }
        outcome => outcome,
    }
}

fn event(write: &Write, outcome: WriteOutcome, outside: &Outside) -> JobEvent {
    match write {
        Write::Attempt => {
            let attempt = AttemptNumber(outside.store.attempts_reserved);
            JobEvent::AttemptReserved { attempt, outcome }
        }
        Write::Ids(up_to) => JobEvent::IdsReserved {
            up_to: *up_to,
            outcome,
        },
        Write::Metadata(checkpoint) => JobEvent::MetadataPublished {
            checkpoint: checkpoint.id,
            outcome,
        },
        Write::Pointer(checkpoint, _) => JobEvent::PointerStored {
            checkpoint: *checkpoint,
            outcome,
        },
        Write::Folder(checkpoint, _) => JobEvent::SavepointPrepared {
            checkpoint: *checkpoint,
            outcome,
        },
        Write::Finished(_) => JobEvent::MarkedFinished { outcome },
        Write::End(_) => JobEvent::EndRecorded { outcome },
        Write::Parallelism(..) => JobEvent::ParallelismRecorded { outcome },
    }
}

/// Reads the list of completed checkpoints.
///
/// Reading settles what is in doubt: a pointer that is not there by then never will be. Without
/// that a job may restore checkpoint 1, write for 3 what 2 had written already, then find 2 and
/// publish it, then find 3 and publish the same again. A store whose writes can outlive the call
/// must repeat or fence them before it reads.
pub(crate) fn list_completed(
    late: &mut Vec<Write>,
    outside: &mut Outside,
) -> Result<Listed, Violation> {
    if !outside.has(Mutation::LateAfterRead) {
        let is_pointer = |write: &mut Write| matches!(write, Write::Pointer(..));
        for write in late.extract_if(.., is_pointer) {
            if outside.rng.chance(0.5) {
                apply(&write, outside)?;
            }
        }
    }
    Ok(outside.store.pointers.clone())
}

/// Reads what the list has led to. A checkpoint that was being dropped may be gone meanwhile.
pub(crate) fn read_completed(listed: &Listed, outside: &mut Outside) -> JobEvent {
    let store = &outside.store;
    let read = |(id, pointer): (&CheckpointId, &Pointer)| store.read(*id, pointer);
    let completed = match outside.rng.chance(outside.faults.read) {
        true => Err("injected".to_owned()),
        false => listed.iter().map(read).collect(),
    };
    trace!(
        outside,
        "recovered: {:?}",
        completed.as_ref().map(|_: &Vec<_>| listed.keys())
    );
    JobEvent::Recovered { completed }
}
