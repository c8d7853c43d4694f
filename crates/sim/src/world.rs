//! A whole run: processes one after the other, what happens next, faults, healing, the end.
//!
//! Each step draws one thing among all that can happen at that moment. While faults last, anything
//! may go wrong; after that, the job must finish.

use tidegate_coordinator::{DurableFacts, Job, JobEnd, JobEvent, Recovery};
use tidegate_types::message::AddressedReport;
use tidegate_types::{AttemptNumber, CheckpointId, SnapshotLocation};

use crate::choice::Choice;
use crate::core::{Core, misread};
use crate::external::State;
use crate::invariants::{
    Checked, STEPS_TO_FINISH_MAX, claimed_is_gone, has_finished, keeps, nothing_left, published,
    refused, restorable, restorable_job, stuck, too_slow,
};
use crate::mutation::Mutation;
use crate::outside::Outside;
use crate::process::Process;
use crate::scenario::Faults;
use crate::storage::{self, Op};
use crate::store::Target;
use crate::trace::trace;

pub(crate) struct World {
    pub(crate) outside: Outside,
    pub(crate) process: Option<Process>,
    /// By kind of work, in the order of [`Pace::weights`](crate::scenario::Pace::weights).
    pub(crate) choices: [Vec<Choice>; 5],
    pub(crate) busy: Vec<usize>,
    pub(crate) healed: bool,
    /// Reports of dead processes that are still on their way.
    pub(crate) ghosts: Vec<AddressedReport>,
    /// What the namespace went on from, if it is the job's now.
    claimed: Option<SnapshotLocation>,
    finished: bool,
}

impl World {
    pub(crate) fn new(outside: Outside) -> Self {
        World {
            outside,
            process: None,
            choices: Default::default(),
            busy: Vec::new(),
            healed: false,
            ghosts: Vec::new(),
            claimed: None,
            finished: false,
        }
    }

    /// Runs until the job has finished for good.
    pub(crate) fn run(&mut self) -> Checked {
        let heal_at = self.outside.scenario.heal_at;
        while !self.finished {
            let step = self.outside.tally.steps;
            self.outside.trace.moment = (step, self.outside.clock.now);
            if step >= heal_at && !self.healed {
                self.heal();
            }
            if step > heal_at + STEPS_TO_FINISH_MAX {
                return Err(too_slow());
            }
            self.step()?;
            self.outside.tally.steps += 1;
        }
        Ok(())
    }

    fn heal(&mut self) {
        trace!(self.outside, "no more faults");
        self.outside.faults = Faults::default();
        self.outside.clock.heal();
        self.healed = true;
        if let Some(process) = &mut self.process {
            process.asleep = 0;
            if process.is_damaged() {
                process.lose_stream(&mut self.outside);
            }
        }
    }

    fn step(&mut self) -> Checked {
        if self.process.is_none() {
            return self.open();
        }
        self.let_time_pass();
        self.disturb()?;
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        if process.doomed {
            return self.crash();
        }
        process.collect_reports(&mut self.outside);
        if process.end.is_some() && process.ops.is_empty() && process.attempt.is_none() {
            return self.conclude();
        }
        self.maybe_tick()?;
        self.collect_choices();
        match self.choose() {
            Some(choice) => self.perform(choice),
            None => self.wait(),
        }
    }

    fn let_time_pass(&mut self) {
        let Outside {
            rng,
            scenario,
            clock,
            ..
        } = &mut self.outside;
        // When healed, checkpoints with a short timeout must get through.
        let millis = match self.healed {
            true => u64::from(rng.chance(0.005)),
            false => rng.between(0, scenario.pace.step_millis_max),
        };
        clock.pass(millis);
    }

    /// Starts a process: reads what is durable, sweeps, makes a job.
    fn open(&mut self) -> Checked {
        let outside = &mut self.outside;
        if let Some(checkpoint) = outside.store.finished {
            trace!(
                outside,
                "a new process finds the job finished with {checkpoint}"
            );
            return self.check_finished();
        }
        if std::mem::take(&mut outside.store.ended) {
            trace!(
                outside,
                "a new process finds that somebody has ended the job"
            );
            return Ok(());
        }
        restorable(&outside.store)?;
        let mut completed = outside.store.recover().map_err(stuck)?;
        let is_stop = completed.last().is_some_and(|latest| latest.kind.stops());
        if outside.has(Mutation::LatestOverlooked)
            || outside.has(Mutation::StopForgotten) && is_stop
        {
            completed.pop();
        }
        for orphan in outside.store.orphans() {
            if outside.rng.chance(outside.faults.crash * 10.0) {
                trace!(outside, "the process dies while it sweeps");
                return Ok(());
            }
            storage::delete(&orphan, outside)?;
        }
        let checkpoint_max = match outside.has(Mutation::VolatileIdCounter) {
            true => CheckpointId::NONE,
            false => outside.store.ids_used(),
        };
        let facts = DurableFacts {
            checkpoint_max,
            attempt_max: AttemptNumber(outside.store.attempts_reserved),
            asked: match outside.has(Mutation::ParallelismOverlooked) {
                true => None,
                false => outside.store.asked.0,
            },
        };
        let (graph, scaling) = outside.scenario.topology.graph(&mut outside.rng);
        let settings = misread(outside.scenario.settings.clone(), outside.mutation);
        let parallelism: Vec<u32> = graph.operators.iter().map(|op| op.parallelism).collect();
        trace!(
            outside,
            "a process starts, parallelism {parallelism:?}, {facts:?}"
        );
        let recovery = Recovery {
            completed,
            origin: outside.store.origin.clone(),
            facts,
        };
        let followed = scaling.followed();
        let job = Job::new(outside.store.job(), graph.clone(), settings, recovery)
            .map_err(|error| restorable_job(&error))?
            .with_scaling(scaling);
        outside.invariants.parallelism.on_process(followed);
        let core = Core::new(job, outside.store.origin.clone(), outside.mutation);
        let mut process = Process::new(core, graph, outside);
        process.feed(JobEvent::Start, outside)?;
        self.process = Some(process);
        Ok(())
    }

    /// The process dies: what is under way comes to pass, or doesn't.
    pub(crate) fn crash(&mut self) -> Checked {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        let outside = &mut self.outside;
        trace!(outside, "the process dies");
        outside.tally.crashes += 1;
        let reports = process
            .reports
            .into_iter()
            .flat_map(|((attempt, _), queue)| {
                queue
                    .into_iter()
                    .map(move |report| AddressedReport { attempt, report })
            });
        let ghosts = reports.chain(process.echoes);
        let ghosts = ghosts.filter(|_| outside.rng.chance(outside.faults.ghost_report));
        self.ghosts.extend(ghosts);
        for op in process.ops {
            match op {
                Op::Write(write) => process.late.push(write),
                Op::Recover(_) => {}
                Op::Delete(mut deletion) => {
                    while outside.rng.chance(0.7) && deletion.step(outside)? {}
                }
            }
        }
        resolve_late(process.late, outside)?;
        outside.invariants.attempts.on_stopped();
        tear(outside);
        if process.watch.kept.is_given_up() && outside.store.finished.is_none() {
            return self.give_up();
        }
        Ok(())
    }

    /// Everything that was issued is done: the process leaves.
    fn conclude(&mut self) -> Checked {
        let Some(process) = self.process.take() else {
            return Ok(());
        };
        let outside = &mut self.outside;
        resolve_late(process.late, outside)?;
        outside.store.ended = false;
        if outside.scenario.faults.delete == 0.0 {
            process.watch.ownership.on_leave(&outside.store)?;
        }
        let end = process
            .end
            .expect("a process leaves when its job has ended");
        if let JobEnd::Stopped { location, .. } = &end {
            outside.tally.stops += 1;
            let savepoint = outside.store.elsewhere.get(location);
            let savepoint = savepoint.expect("a savepoint that was kept is there");
            published(savepoint, &outside.external)?;
        }
        if has_finished(&end) {
            return self.sweep_and_check();
        }
        match keeps(&end, outside.scenario.settings.checkpoints.retention) {
            true => self.go_on(),
            false => self.give_up(),
        }
    }

    /// The next process goes on, in the same namespace or in a new one.
    fn go_on(&mut self) -> Checked {
        let outside = &mut self.outside;
        let users = outside.scenario.users.clone();
        if outside.store.pointers.is_empty() || !outside.rng.chance(users.moves) {
            trace!(outside, "the process leaves, to be started again");
            return Ok(());
        }
        let claim = outside.rng.chance(users.claims);
        if let Some(drained) = outside.store.latest().filter(|from| from.kind.drains()) {
            refused(drained, outside.store.next_job())?;
            trace!(outside, "no new namespace goes on from {}", drained.id);
            return Ok(());
        }
        let from = outside.store.move_on(claim);
        let from = from.expect("there is something to go on from");
        trace!(
            outside,
            "a new namespace goes on from {from}, claimed: {claim}"
        );
        if outside.has(Mutation::ClaimedIsKept) {
            outside.store.forget_claimed();
        }
        self.claimed = claim.then(|| from.clone());
        self.ghosts.clear();
        outside.tally.moves += 1;
        let invariants = &mut outside.invariants;
        invariants.attempts.on_namespace();
        invariants.parallelism.on_namespace();
        if let Some(latest) = outside.store.latest() {
            invariants.ids.on_namespace(latest.id);
        }
        match claim {
            true => invariants.savepoints.claim(&from),
            false => invariants.savepoints.keep(from, &outside.store)?,
        }
        restorable(&outside.store)
    }

    /// Nobody can go on from what is left: the run is over.
    fn give_up(&mut self) -> Checked {
        trace!(self.outside, "nothing is kept to go on from");
        self.finished = true;
        let Outside {
            invariants, store, ..
        } = &self.outside;
        invariants.savepoints.are_intact(store)
    }

    fn sweep_and_check(&mut self) -> Checked {
        let outside = &mut self.outside;
        let mut swept = true;
        for orphan in outside.store.orphans() {
            let overlooked = outside.has(Mutation::SweepOverlooksMetadata)
                && matches!(orphan, Target::Metadata(..));
            if outside.rng.chance(outside.faults.delete) {
                swept = false;
            } else if !overlooked {
                storage::delete(&orphan, outside)?;
            }
        }
        if swept {
            nothing_left(&outside.store, &outside.external)?;
        }
        if let Some(claimed) = self.claimed.as_ref().filter(|_| swept) {
            claimed_is_gone(claimed, &outside.store)?;
        }
        self.check_finished()
    }

    fn check_finished(&mut self) -> Checked {
        self.finished = true;
        let Outside {
            invariants,
            scenario,
            external,
            store,
            ..
        } = &self.outside;
        restorable(store)?;
        invariants.savepoints.are_intact(store)?;
        invariants.output.on_finished(scenario, external)
    }

    /// Wakes the driver when the job wants it, sooner or later.
    fn maybe_tick(&mut self) -> Checked {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        process.asleep = process.asleep.saturating_sub(1);
        let due = process
            .core
            .job
            .next_deadline()
            .is_some_and(|at| at.0 <= self.outside.clock.now);
        if due && process.asleep == 0 && self.outside.rng.chance(0.3) {
            process.feed(JobEvent::Tick, &mut self.outside)?;
        }
        Ok(())
    }

    /// Nothing can happen but that time passes.
    fn wait(&mut self) -> Checked {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        let outside = &mut self.outside;
        if process.asleep > 0 || !process.echoes.is_empty() {
            return Ok(());
        }
        if let Some(deadline) = process.core.job.next_deadline() {
            outside.clock.wait_until(deadline.0);
            outside.trace.moment.1 = outside.clock.now;
            return process.feed(JobEvent::Tick, outside);
        }
        match process.late.pop() {
            Some(write) => storage::apply(&write, outside),
            // Whoever waits for what is lost waits until the loss is noticed.
            None if process.is_damaged() => {
                process.lose_stream(outside);
                Ok(())
            }
            None => Err(stuck(process.describe())),
        }
    }
}

/// Nothing of a process can come to pass after it is gone: all is decided now.
fn resolve_late(mut late: Vec<storage::Write>, outside: &mut Outside) -> Checked {
    while !late.is_empty() {
        let at = outside.rng.below(late.len());
        let write = late.swap_remove(at);
        if outside.rng.chance(0.5) {
            storage::apply(&write, outside)?;
        }
    }
    Ok(())
}

/// What was not durable may be gone.
fn tear(outside: &mut Outside) {
    let Outside {
        external,
        rng,
        faults,
        ..
    } = outside;
    external.transactions.retain(|_, transaction| {
        let durable = matches!(transaction.state, State::Sealed | State::Committed);
        durable || !rng.chance(faults.torn)
    });
}
