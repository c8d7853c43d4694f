//! How fast an attempt gets to work, told in the log: when all its subtasks run, when the first
//! record has been processed, when its first checkpoint is committed.
//!
//! After a failure, times count from when the job learned of it, so they are what a user waits for
//! output; otherwise from the start of the attempt. An attempt that fails before it is through
//! leaves the rest to the next one, and the times go on counting.
//!
//! Nobody tells that the first record has been processed: it is seen in the attempt's counters,
//! which are looked at more often the fresher the attempt is ([`look_interval`]).
//!
//! Invariant: each of the three is told at most once per attempt, in this order.

use std::time::Duration;

use tidegate_runtime::AttemptMetrics;
use tidegate_types::graph::{JobGraph, OperatorRole};
use tidegate_types::{AttemptNumber, SubtaskId};

/// Counters are looked at this often at most.
const LOOK_MIN: Duration = Duration::from_millis(5);

/// How long after the last look at an attempt's counters the next is due, as long as no record has
/// been processed: what is found is late by a twentieth of the time it took, or 5 ms.
pub(crate) fn look_interval(waited: Duration) -> Duration {
    (waited / 20).max(LOOK_MIN)
}

/// Whether records that a subtask takes have got past the sources: what readers take is splits.
pub(crate) fn takes_records(graph: &JobGraph, subtask: SubtaskId) -> bool {
    match graph.operator(subtask.operator).role {
        OperatorRole::Enumerator | OperatorRole::Reader => false,
        OperatorRole::Transform | OperatorRole::Sink | OperatorRole::CommittingSink => true,
    }
}

/// Whether any record has got past the sources.
pub(super) fn processes(graph: &JobGraph, metrics: &AttemptMetrics) -> bool {
    let subtasks = graph.subtasks().into_iter();
    let mut taking = subtasks.filter(|&subtask| takes_records(graph, subtask));
    taking.any(|subtask| metrics.records_in(subtask) > 0)
}

/// How far the attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Starting,
    Running,
    Processing,
    Committing,
}

/// The attempt that runs.
#[derive(Debug)]
struct Watched {
    attempt: AttemptNumber,
    stage: Stage,
    started: Duration,
    /// When its counters are to be looked at, if nothing has been processed.
    look_due: Duration,
}

/// See the [module](self). Times are since any common moment.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// When the first of the attempts failed that have come to nothing since.
    failed: Option<Duration>,
    watched: Option<Watched>,
}

/// Something worth telling: what, of which attempt, and after how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Milestone {
    pub(super) what: &'static str,
    pub(super) attempt: AttemptNumber,
    pub(super) after: Duration,
}

impl Recovery {
    /// An attempt has failed.
    pub(super) fn on_failure(&mut self, now: Duration) {
        let through = |watched: &Watched| watched.stage == Stage::Committing;
        if self.watched.take().as_ref().is_some_and(through) {
            self.failed = None;
        }
        self.failed.get_or_insert(now);
    }

    pub(super) fn on_attempt(&mut self, now: Duration, attempt: AttemptNumber) {
        self.watched = Some(Watched {
            attempt,
            stage: Stage::Starting,
            started: now,
            look_due: Duration::ZERO,
        });
    }

    /// All subtasks have restored their state.
    pub(super) fn on_running(&mut self, now: Duration) -> Option<Milestone> {
        self.reach(Stage::Running, "all subtasks run", now)
    }

    /// Whether to look for the first record now. Saying so counts as a look.
    pub(super) fn look_due(&mut self, now: Duration) -> bool {
        let since = self.since().unwrap_or(now);
        let Some(watched) = self.awaiting_mut().filter(|w| w.look_due <= now) else {
            return false;
        };
        watched.look_due = now + look_interval(now.saturating_sub(since));
        true
    }

    /// How long until [`look_due`](Self::look_due) says so.
    pub(super) fn until_look(&self, now: Duration) -> Option<Duration> {
        let watched = self.watched.as_ref()?;
        let awaits = watched.stage == Stage::Running;
        awaits.then(|| watched.look_due.saturating_sub(now))
    }

    fn awaiting_mut(&mut self) -> Option<&mut Watched> {
        let watched = self.watched.as_mut();
        watched.filter(|watched| watched.stage == Stage::Running)
    }

    pub(super) fn on_record(&mut self, now: Duration) -> Option<Milestone> {
        self.reach(Stage::Processing, "the first record is processed", now)
    }

    /// A sink of this attempt has published everything up to a checkpoint.
    pub(super) fn on_committed(
        &mut self,
        now: Duration,
        attempt: AttemptNumber,
    ) -> Option<Milestone> {
        let stage = self
            .watched
            .as_ref()
            .filter(|w| w.attempt == attempt)?
            .stage;
        // What is committed before anything was processed is nothing that anybody waits for.
        if stage != Stage::Processing {
            return None;
        }
        self.reach(Stage::Committing, "the first checkpoint is committed", now)
    }

    fn since(&self) -> Option<Duration> {
        let started = self.watched.as_ref()?.started;
        Some(self.failed.unwrap_or(started))
    }

    fn reach(&mut self, stage: Stage, what: &'static str, now: Duration) -> Option<Milestone> {
        let since = self.since()?;
        let watched = self.watched.as_mut().filter(|w| w.stage < stage)?;
        watched.stage = stage;
        Some(Milestone {
            what,
            attempt: watched.attempt,
            after: now.saturating_sub(since),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn told(milestone: Option<Milestone>) -> Option<(u64, u128)> {
        milestone.map(|told| (told.attempt.0, told.after.as_millis()))
    }

    #[test]
    fn times_count_from_the_failure_and_each_is_told_once() {
        let (mut recovery, first) = (Recovery::default(), AttemptNumber(1));
        recovery.on_attempt(at(100), first);
        assert_eq!(recovery.on_committed(at(105), first), None, "nothing runs");
        assert_eq!(told(recovery.on_running(at(110))), Some((1, 10)));
        assert_eq!(recovery.on_running(at(111)), None, "again");
        assert_eq!(recovery.on_committed(at(112), first), None, "no record yet");
        assert_eq!(told(recovery.on_record(at(120))), Some((1, 20)));
        assert_eq!(told(recovery.on_committed(at(200), first)), Some((1, 100)));
        assert_eq!(recovery.on_committed(at(300), first), None, "again");

        recovery.on_failure(at(1_000));
        assert_eq!(recovery.on_committed(at(1_001), first), None, "it is over");
        recovery.on_attempt(at(1_050), AttemptNumber(2));
        assert_eq!(told(recovery.on_running(at(1_120))), Some((2, 120)));
        assert_eq!(recovery.on_committed(at(1_121), first), None, "it is over");
        assert_eq!(told(recovery.on_record(at(1_130))), Some((2, 130)));
    }

    #[test]
    fn an_attempt_that_comes_to_nothing_does_not_stop_the_clock() {
        let mut recovery = Recovery::default();
        recovery.on_failure(at(1_000));
        recovery.on_attempt(at(1_100), AttemptNumber(2));
        assert_eq!(told(recovery.on_running(at(1_200))), Some((2, 200)));
        recovery.on_failure(at(1_300));
        recovery.on_attempt(at(1_400), AttemptNumber(3));
        assert_eq!(told(recovery.on_running(at(1_500))), Some((3, 500)));
        let _ = recovery.on_record(at(1_510));
        let _ = recovery.on_committed(at(1_600), AttemptNumber(3));
        // It was through: this is a failure of its own.
        recovery.on_failure(at(5_000));
        recovery.on_attempt(at(5_010), AttemptNumber(4));
        assert_eq!(told(recovery.on_running(at(5_100))), Some((4, 100)));
    }

    #[test]
    fn a_fresh_attempt_is_looked_at_more_often() {
        let mut recovery = Recovery::default();
        recovery.on_attempt(at(0), AttemptNumber(1));
        assert!(!recovery.look_due(at(5)), "it doesn't run yet");
        assert_eq!(recovery.until_look(at(5)), None);
        let _ = recovery.on_running(at(10));
        assert!(recovery.look_due(at(20)));
        assert_eq!(recovery.until_look(at(21)), Some(at(4)));
        assert!(!recovery.look_due(at(24)));
        assert!(recovery.look_due(at(2_000)));
        assert_eq!(recovery.until_look(at(2_000)), Some(at(100)));
        let _ = recovery.on_record(at(2_100));
        assert_eq!(recovery.until_look(at(2_200)), None, "it has been seen");
        assert!(!recovery.look_due(at(9_000)));
    }
}
