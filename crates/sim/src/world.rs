//! A whole run: processes one after the other, what happens next, faults, healing, the end.
//!
//! Each step draws one thing among all that can happen at that moment. While faults last, anything
//! may go wrong; after that, the job must finish.

use tidegate_coordinator::{DurableFacts, Job, JobEnd, JobEvent, Recovery, Request, RequestId};
use tidegate_types::{AttemptNumber, CheckpointId, JobId};

use crate::attempt::{Lane, Stopping};
use crate::external::State;
use crate::invariants::{
    Checked, STEPS_TO_FINISH_MAX, nothing_left, restorable, restorable_job, stuck, too_slow,
};
use crate::mutation::Mutation;
use crate::outside::Outside;
use crate::process::Process;
use crate::scenario::Faults;
use crate::storage::{self, Op};
use crate::store::Target;
use crate::trace::trace;

/// One thing that can happen.
#[derive(Clone, Copy, Debug)]
enum Choice {
    Subtask(usize),
    Thread(Lane),
    Zombie(usize, Lane),
    Notice(usize),
    SeeStop,
    Gone,
    Report(AttemptNumber, Lane),
    Echo,
    Answer,
    Op(usize),
}

pub(crate) struct World {
    pub(crate) outside: Outside,
    process: Option<Process>,
    /// By kind of work, in the order of [`Pace::weights`](crate::scenario::Pace::weights).
    choices: [Vec<Choice>; 5],
    busy: Vec<usize>,
    healed: bool,
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
            finished: false,
        }
    }

    /// Runs until the job has finished for good.
    pub(crate) fn run(&mut self) -> Checked {
        let heal_at = self.outside.scenario.heal_at;
        while !self.finished {
            let step = self.outside.tally.steps;
            self.outside.trace.moment = (step, self.outside.now);
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
            now,
            wall,
            ..
        } = &mut self.outside;
        // When healed, checkpoints with a short timeout must get through.
        let millis = match self.healed {
            true => u64::from(rng.chance(0.02)),
            false => rng.between(0, scenario.pace.step_millis_max),
        };
        *now += millis;
        *wall = wall.wrapping_add(millis);
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
        restorable(&outside.store)?;
        let completed = outside.store.recover().map_err(stuck)?;
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
        };
        let graph = outside.scenario.topology.graph(&mut outside.rng);
        let settings = outside.scenario.settings.clone();
        let parallelism: Vec<u32> = graph.operators.iter().map(|op| op.parallelism).collect();
        trace!(
            outside,
            "a process starts, parallelism {parallelism:?}, {facts:?}"
        );
        let recovery = Recovery {
            completed,
            origin: None,
            facts,
        };
        let job = Job::new(JobId(1), graph.clone(), settings, recovery)
            .map_err(|error| restorable_job(&error))?;
        let mut process = Process::new(job, graph);
        process.feed(JobEvent::Start, outside)?;
        self.process = Some(process);
        Ok(())
    }

    /// Things that go wrong by themselves.
    fn disturb(&mut self) -> Checked {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        let outside = &mut self.outside;
        let faults = outside.faults.clone();
        if outside.rng.chance(faults.crash) {
            return self.crash();
        }
        if outside.rng.chance(faults.subtask)
            && let Some(attempt) = &mut process.attempt
        {
            attempt.fail_one(outside);
        }
        if outside.rng.chance(faults.stream) {
            process.lose_stream(outside);
        }
        if outside.rng.chance(faults.silent_stop) {
            process.stop_silently(outside);
        }
        if outside.rng.chance(faults.pause) {
            process.asleep = outside.rng.between(1, 200);
            outside.now += outside.rng.between(0, 5_000);
            trace!(outside, "the driver stands still");
        }
        if outside.rng.chance(faults.clock_jump) {
            outside.wall = outside.rng.next() >> 20;
            outside.now += outside.rng.between(0, 100);
        }
        if outside.rng.chance(faults.cancel) {
            trace!(outside, "somebody cancels");
            process.feed(JobEvent::CancelRequested, outside)?;
        }
        if !self.healed && outside.rng.chance(0.001) {
            let request = RequestId(outside.rng.next());
            let what = Request::Checkpoint { format: None };
            process.feed(JobEvent::Requested { request, what }, outside)?;
        }
        if !process.late.is_empty() && outside.rng.chance(0.005) {
            let at = outside.rng.below(process.late.len());
            let write = process.late.swap_remove(at);
            storage::apply(&write, outside)?;
        }
        Ok(())
    }

    /// The process dies: what is under way comes to pass, or doesn't.
    fn crash(&mut self) -> Checked {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        let outside = &mut self.outside;
        trace!(outside, "the process dies");
        outside.tally.crashes += 1;
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
        Ok(())
    }

    /// Everything that was issued is done: the process leaves.
    fn conclude(&mut self) -> Checked {
        let Some(process) = self.process.take() else {
            return Ok(());
        };
        let outside = &mut self.outside;
        resolve_late(process.late, outside)?;
        if outside.scenario.faults.delete == 0.0 {
            process.ownership.on_leave(&outside.store)?;
        }
        if process.end != Some(JobEnd::Finished) {
            trace!(outside, "the process leaves, to be started again");
            return Ok(());
        }
        let mut swept = true;
        for orphan in outside.store.orphans() {
            let overlooked = outside.has(Mutation::SweepOverlooksMetadata)
                && matches!(orphan, Target::Metadata(_));
            if outside.rng.chance(outside.faults.delete) {
                swept = false;
            } else if !overlooked {
                storage::delete(&orphan, outside)?;
            }
        }
        if swept {
            nothing_left(&outside.store, &outside.external)?;
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
        invariants.output.on_finished(scenario, external)
    }

    /// Wakes the driver when the job wants it, sooner or later.
    fn maybe_tick(&mut self) -> Checked {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        process.asleep = process.asleep.saturating_sub(1);
        let due = process
            .job
            .next_deadline()
            .is_some_and(|at| at.0 <= self.outside.now);
        if due && process.asleep == 0 && self.outside.rng.chance(0.3) {
            process.feed(JobEvent::Tick, &mut self.outside)?;
        }
        Ok(())
    }

    fn collect_choices(&mut self) {
        self.choices.iter_mut().for_each(Vec::clear);
        let Some(process) = &mut self.process else {
            return;
        };
        let [subtasks, threads, notices, reports, ops] = &mut self.choices;
        if let Some(attempt) = &process.attempt {
            self.busy.clear();
            attempt.busy_subtasks(&self.outside, &mut self.busy);
            subtasks.extend(self.busy.iter().map(|at| Choice::Subtask(*at)));
            threads.extend(attempt.busy_threads().into_iter().map(Choice::Thread));
            notices.extend(attempt.noticed_workers().into_iter().map(Choice::Notice));
            if attempt.stopping == Stopping::Asked {
                notices.push(Choice::SeeStop);
            }
            if attempt.is_gone() {
                notices.push(Choice::Gone);
            }
        }
        for (index, zombie) in process.zombies.iter().enumerate() {
            let lanes = zombie.busy_threads().into_iter();
            threads.extend(lanes.map(|lane| Choice::Zombie(index, lane)));
        }
        if process.asleep > 0 {
            return;
        }
        let lanes = process.reports.keys();
        reports.extend(lanes.map(|(attempt, lane)| Choice::Report(*attempt, *lane)));
        if !process.echoes.is_empty() && self.outside.rng.chance(0.2) {
            reports.push(Choice::Echo);
        }
        if !process.answers.is_empty() {
            reports.push(Choice::Answer);
        }
        ops.extend((0..process.ops.len()).map(Choice::Op));
    }

    fn choose(&mut self) -> Option<Choice> {
        let Outside {
            rng,
            scenario,
            trace,
            ..
        } = &mut self.outside;
        let weight = |at: usize| match self.choices[at].is_empty() {
            true => 0,
            false => scenario.pace.weights[at],
        };
        let total: u64 = (0..5).map(weight).sum();
        if total == 0 {
            return None;
        }
        let mut drawn = rng.below(total as usize) as u64;
        let mut kind = 0;
        while drawn >= weight(kind) {
            drawn -= weight(kind);
            kind += 1;
        }
        let mut choice = *rng.pick(&self.choices[kind]);
        for _ in 0..4 {
            match choice {
                Choice::Subtask(at) if scenario.pace.slow & (1 << (at % 5)) != 0 => {
                    choice = *rng.pick(&self.choices[kind]);
                }
                _ => break,
            }
        }
        trace.mix(kind as u64 ^ drawn << 3);
        Some(choice)
    }

    fn perform(&mut self, choice: Choice) -> Checked {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        let outside = &mut self.outside;
        match choice {
            Choice::SeeStop => process.on_stop_seen(),
            Choice::Gone => process.on_gone(outside),
            Choice::Zombie(at, lane) => process.zombies[at].work_in_background(lane, outside)?,
            Choice::Subtask(_) | Choice::Thread(_) | Choice::Notice(_) => {
                let Some(attempt) = &mut process.attempt else {
                    return Ok(());
                };
                match choice {
                    Choice::Subtask(at) => attempt.activate(at, outside)?,
                    Choice::Thread(lane) => attempt.work_in_background(lane, outside)?,
                    Choice::Notice(worker) => attempt.deliver_notice(worker, outside),
                    _ => unreachable!("matched above"),
                }
            }
            Choice::Report(attempt, lane) => {
                if let Some(report) = process.take_report((attempt, lane), outside) {
                    process.feed(JobEvent::Report(report), outside)?;
                }
            }
            Choice::Echo => {
                let at = outside.rng.below(process.echoes.len());
                let report = process.echoes.swap_remove(at);
                process.feed(JobEvent::Report(report), outside)?;
            }
            Choice::Answer => {
                if let Some(event) = process.answers.pop_front() {
                    process.feed(event, outside)?;
                }
            }
            Choice::Op(at) => carry_on(process, at, outside)?,
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
        if let Some(deadline) = process.job.next_deadline() {
            outside.now = outside.now.max(deadline.0);
            outside.trace.moment.1 = outside.now;
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

/// One storage call gets on.
fn carry_on(process: &mut Process, at: usize, outside: &mut Outside) -> Checked {
    if let Op::Delete(deletion) = &mut process.ops[at] {
        if deletion.step(outside)? {
            return Ok(());
        }
        let asked_for = deletion.asked_for;
        process.ops.swap_remove(at);
        return match asked_for {
            Some(checkpoint) => process.feed(JobEvent::Deleted { checkpoint }, outside),
            None => Ok(()),
        };
    }
    let event = match process.ops.swap_remove(at) {
        Op::Write(write) => storage::resolve(write, &mut process.late, outside)?,
        Op::Recover(Some(ids)) => storage::read_completed(&ids, outside),
        Op::Recover(None) => {
            let ids = storage::list_completed(&mut process.late, outside)?;
            process.ops.push(Op::Recover(Some(ids)));
            return Ok(());
        }
        Op::Delete(_) => unreachable!("handled above"),
    };
    process.feed(event, outside)
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
