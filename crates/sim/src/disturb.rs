//! Things that go wrong by themselves, whatever else happens.

use tidegate_coordinator::{JobEvent, Request, RequestId};
use tidegate_types::SnapshotLocation;

use crate::invariants::Checked;
use crate::outside::Outside;
use crate::process::Process;
use crate::storage;
use crate::topology::PARALLELISM_MAX;
use crate::trace::trace;
use crate::world::World;

impl World {
    /// Things that go wrong by themselves.
    pub(crate) fn disturb(&mut self) -> Checked {
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
            stand_still(process, outside);
        }
        if outside.rng.chance(faults.clock_jump) {
            let leap_max = 2 * timeout_millis(outside);
            outside.clock.disturb(leap_max, &mut outside.rng);
            trace!(outside, "the clocks show {:?}", outside.clocks());
        }
        if outside.rng.chance(faults.cancel) {
            let event = match outside.rng.chance(0.5) {
                true => JobEvent::CancelRequested,
                false => JobEvent::SuspendRequested,
            };
            trace!(outside, "somebody stops the job: {event:?}");
            process.feed(event, outside)?;
        }
        if !self.healed && outside.rng.chance(outside.scenario.users.slots) {
            let slots = outside.rng.between(0, u64::from(PARALLELISM_MAX) + 1) as u32;
            trace!(outside, "there are {slots} slots");
            process.feed(JobEvent::Slots { slots }, outside)?;
        }
        if !self.healed
            && let Some(what) = wish(process, outside)
        {
            let request = RequestId(outside.rng.next());
            trace!(outside, "{request}: {what:?}");
            process.feed(JobEvent::Requested { request, what }, outside)?;
        }
        if !process.late.is_empty() && outside.rng.chance(0.005) {
            let at = outside.rng.below(process.late.len());
            let write = process.late.swap_remove(at);
            storage::apply(&write, outside)?;
        }
        Ok(())
    }
}

/// What somebody asks for at this moment, if anybody does.
fn wish(process: &Process, outside: &mut Outside) -> Option<Request> {
    let Outside { rng, scenario, .. } = outside;
    let users = &scenario.users;
    if rng.chance(users.checkpoint) {
        return Some(Request::Checkpoint { format: None });
    }
    let named = SnapshotLocation::new("mem://elsewhere/savepoints");
    if rng.chance(users.savepoint) {
        let directory = rng.chance(0.3).then_some(named);
        return Some(Request::Savepoint { directory });
    }
    if rng.chance(users.stop) {
        return Some(Request::StopWithSavepoint {
            directory: rng.chance(0.3).then_some(named),
            drain: rng.chance(users.drain),
        });
    }
    if rng.chance(users.rescale) {
        let parallelism = rng.between(1, u64::from(PARALLELISM_MAX)) as u32;
        return Some(Request::Rescale { parallelism });
    }
    if rng.chance(users.abort) {
        let checkpoint = process.watch.newest()?;
        return Some(Request::Abort { checkpoint });
    }
    None
}

/// The driver stops for a while, for longer than checkpoints may take if it comes to the worst.
fn stand_still(process: &mut Process, outside: &mut Outside) {
    process.asleep = outside.rng.between(1, 200);
    let long = outside.rng.chance(0.5);
    let millis = if long {
        2 * timeout_millis(outside)
    } else {
        500
    };
    outside.clock.pass(outside.rng.between(0, millis));
    trace!(outside, "the driver stands still");
}

fn timeout_millis(outside: &Outside) -> u64 {
    outside.scenario.settings.checkpoints.timeout.as_millis() as u64
}
