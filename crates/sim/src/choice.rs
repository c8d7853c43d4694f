//! What can happen next, and which of it does.

use tidegate_coordinator::JobEvent;
use tidegate_types::AttemptNumber;

use crate::attempt::{Lane, Stopping};
use crate::invariants::Checked;
use crate::mutation::Mutation;
use crate::outside::Outside;
use crate::process::Process;
use crate::storage::{self, Op};
use crate::world::World;

/// One thing that can happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    Subtask(usize),
    Thread(Lane),
    Zombie(usize, Lane),
    Notice(usize),
    SeeStop,
    Gone,
    Report(AttemptNumber, Lane),
    Echo,
    Ghost,
    Answer,
    Op(usize),
}

impl World {
    pub(crate) fn collect_choices(&mut self) {
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
        if !self.ghosts.is_empty() && self.outside.rng.chance(0.05) {
            reports.push(Choice::Ghost);
        }
        if !process.answers.is_empty() {
            reports.push(Choice::Answer);
        }
        ops.extend((0..process.ops.len()).map(Choice::Op));
    }

    pub(crate) fn choose(&mut self) -> Option<Choice> {
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

    pub(crate) fn perform(&mut self, choice: Choice) -> Checked {
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
            Choice::Ghost => {
                let at = outside.rng.below(self.ghosts.len());
                let mut report = self.ghosts.swap_remove(at);
                if outside.has(Mutation::GhostBelieved) {
                    report.attempt = AttemptNumber(outside.store.attempts_reserved);
                }
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
}

/// One storage call gets on.
fn carry_on(process: &mut Process, at: usize, outside: &mut Outside) -> Checked {
    if let Op::Delete(deletion) = &mut process.ops[at] {
        if outside.rng.chance(outside.faults.slow_delete) {
            return Ok(());
        }
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
