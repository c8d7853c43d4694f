//! When the next checkpoint is due.
//!
//! Three things ask for one, in this order: the end of all sources (exempt from every limit and
//! tried until it succeeds), a request (exempt from interval and pause), and the interval. A
//! periodic checkpoint that comes due while it may not start waits and then starts once: time that
//! has passed meanwhile is not made up for, so a driver that was stopped causes no burst (BC-57).

use std::time::Duration;

use tidegate_types::{CheckpointId, Millis, SnapshotKind};

use crate::request::RequestId;
use crate::settings::CheckpointSettings;

/// Delay before the final checkpoint is tried again; doubles with every failure in a row.
const FINAL_RETRY_MIN: Duration = Duration::from_millis(100);
/// Longest such delay.
const FINAL_RETRY_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, PartialEq, Eq)]
enum Mode {
    /// No attempt runs, or the job is as good as over.
    Stopped,
    /// Sources read on. Without an interval nothing is ever due.
    Periodic { due: Option<Millis> },
    /// Every source has ended: one checkpoint is still wanted.
    FinalDue { at: Millis, failures: u32 },
    /// It is under way.
    FinalTriggered { id: CheckpointId, failures: u32 },
}

/// Decides when to trigger, apart from limits that depend on what is under way.
#[derive(Debug)]
pub(crate) struct Schedule {
    interval: Option<Duration>,
    min_pause: Duration,
    mode: Mode,
    /// A request that waits for its turn.
    requested: Option<RequestId>,
    last_completion: Option<Millis>,
}

impl Schedule {
    pub(crate) fn new(settings: &CheckpointSettings) -> Self {
        Schedule {
            interval: settings.interval.map(|i| i.max(settings.min_pause)),
            min_pause: settings.min_pause,
            mode: Mode::Stopped,
            requested: None,
            last_completion: None,
        }
    }

    /// Every subtask runs: the first periodic checkpoint is due one interval from now.
    pub(crate) fn start(&mut self, now: Millis) {
        let due = self.interval.map(|interval| now.after(interval));
        self.mode = Mode::Periodic { due };
    }

    /// Stops triggering; returns the request that comes to nothing by that.
    pub(crate) fn stop(&mut self) -> Option<RequestId> {
        self.mode = Mode::Stopped;
        self.requested.take()
    }

    /// Every source has ended: periodic checkpoints give way to the final one.
    pub(crate) fn on_sources_ended(&mut self, now: Millis) {
        if matches!(self.mode, Mode::Periodic { .. }) {
            self.mode = Mode::FinalDue {
                at: now,
                failures: 0,
            };
        }
    }

    /// Queues a request; false if one is queued already.
    pub(crate) fn request(&mut self, request: RequestId) -> bool {
        let free = self.requested.is_none();
        self.requested.get_or_insert(request);
        free
    }

    /// What is to be triggered now, if anything. `has_room` says whether the number of concurrent
    /// checkpoints allows another one.
    pub(crate) fn due(&self, now: Millis, has_room: bool) -> Option<SnapshotKind> {
        match self.mode {
            Mode::Stopped => return None,
            Mode::FinalDue { at, .. } if at <= now => return Some(SnapshotKind::Final),
            _ => {}
        }
        if !has_room {
            return None;
        }
        if self.requested.is_some() {
            return Some(SnapshotKind::Checkpoint);
        }
        let Mode::Periodic { due: Some(due) } = self.mode else {
            return None;
        };
        (due.max(self.pause_end()) <= now).then_some(SnapshotKind::Checkpoint)
    }

    fn pause_end(&self) -> Millis {
        self.last_completion
            .map_or(Millis(0), |last| last.after(self.min_pause))
    }

    /// What [`due`](Self::due) returned has been triggered as `id`.
    pub(crate) fn on_triggered(&mut self, now: Millis, id: CheckpointId) {
        match self.mode {
            Mode::FinalDue { at, failures } if at <= now => {
                self.mode = Mode::FinalTriggered { id, failures };
            }
            _ if self.requested.take().is_some() => {}
            _ => self.next_period(now),
        }
    }

    /// What was due could not be triggered: everything waits for its next turn. Returns the
    /// request that comes to nothing by that.
    pub(crate) fn on_trigger_failed(&mut self, now: Millis) -> Option<RequestId> {
        match self.mode {
            Mode::FinalDue { at, failures } if at <= now => self.retry_final(now, failures),
            Mode::Periodic { due: Some(due) } if due <= now => self.next_period(now),
            _ => {}
        }
        self.requested.take()
    }

    /// Keeps the beat where possible; beats that were missed are left out.
    fn next_period(&mut self, now: Millis) {
        if let (Mode::Periodic { due: Some(due) }, Some(interval)) = (&self.mode, self.interval) {
            let on_beat = due.after(interval);
            let due = if on_beat > now {
                on_beat
            } else {
                now.after(interval)
            };
            self.mode = Mode::Periodic { due: Some(due) };
        }
    }

    /// A checkpoint completed: the minimum pause starts.
    pub(crate) fn on_completed(&mut self, now: Millis) {
        self.last_completion = Some(now);
    }

    /// A checkpoint was aborted: the final one is tried again.
    pub(crate) fn on_aborted(&mut self, now: Millis, checkpoint: CheckpointId) {
        if let Mode::FinalTriggered { id, failures } = self.mode
            && id == checkpoint
        {
            self.retry_final(now, failures);
        }
    }

    fn retry_final(&mut self, now: Millis, failures: u32) {
        let factor = 1u32 << failures.min(10);
        let delay = FINAL_RETRY_MIN.saturating_mul(factor).min(FINAL_RETRY_MAX);
        self.mode = Mode::FinalDue {
            at: now.after(delay),
            failures: failures.saturating_add(1),
        };
    }

    /// When something comes due next.
    pub(crate) fn deadline(&self, has_room: bool) -> Option<Millis> {
        match self.mode {
            Mode::FinalDue { at, .. } => Some(at),
            Mode::Periodic { due } if has_room => due.map(|due| due.max(self.pause_end())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(interval: Option<u64>, min_pause: Duration) -> Schedule {
        let mut schedule = Schedule::new(&CheckpointSettings {
            interval: interval.map(Duration::from_millis),
            min_pause,
            ..CheckpointSettings::default()
        });
        schedule.start(Millis(0));
        schedule
    }

    /// The moments at which one who looks every millisecond triggers, completing at once.
    fn triggers(mut schedule: Schedule, until: u64) -> Vec<u64> {
        let mut moments = Vec::new();
        for now in 0..=until {
            if schedule.due(Millis(now), true).is_some() {
                schedule.on_triggered(Millis(now), CheckpointId(now));
                schedule.on_completed(Millis(now));
                moments.push(now);
            }
        }
        moments
    }

    // CC-29, C7
    #[test]
    fn the_first_trigger_comes_one_interval_after_the_start() {
        let schedule = schedule(Some(10), Duration::ZERO);
        assert_eq!(schedule.deadline(true), Some(Millis(10)));
        assert_eq!(triggers(schedule, 35), [10, 20, 30]);
        assert_eq!(triggers(self::schedule(None, Duration::ZERO), 100), []);
    }

    // CC-28, B2, B4
    #[test]
    fn a_longer_pause_stretches_the_interval() {
        let schedule = schedule(Some(12), Duration::from_millis(50));
        assert_eq!(triggers(schedule, 160), [50, 100, 150]);
    }

    // B4
    #[test]
    fn an_endless_pause_does_not_overflow() {
        let mut schedule = schedule(Some(5), Duration::ZERO);
        schedule.min_pause = Duration::MAX;
        schedule.on_completed(Millis(7));
        assert_eq!(schedule.due(Millis(1 << 60), true), None);
        assert_eq!(schedule.deadline(true), Some(Millis(u64::MAX)));
    }

    // RD-10, RD-11
    #[test]
    fn the_pause_holds_back_periodic_checkpoints_only() {
        let mut schedule = schedule(Some(100), Duration::from_millis(80));
        schedule.on_completed(Millis(90));
        assert_eq!(schedule.due(Millis(100), true), None);
        assert_eq!(schedule.deadline(true), Some(Millis(170)));
        assert!(schedule.request(RequestId(1)));
        assert_eq!(
            schedule.due(Millis(101), true),
            Some(SnapshotKind::Checkpoint)
        );
        schedule.on_triggered(Millis(101), CheckpointId(1));
        assert_eq!(schedule.due(Millis(169), true), None);
        assert!(schedule.due(Millis(170), true).is_some());
    }

    // BC-57
    #[test]
    fn missed_beats_are_not_made_up_for() {
        let mut schedule = schedule(Some(10), Duration::ZERO);
        assert!(schedule.due(Millis(1005), true).is_some());
        schedule.on_triggered(Millis(1005), CheckpointId(1));
        assert_eq!(schedule.due(Millis(1005), true), None);
        assert_eq!(schedule.deadline(true), Some(Millis(1015)));
    }

    #[test]
    fn what_waits_for_room_starts_once_when_there_is_some() {
        let mut schedule = schedule(Some(10), Duration::ZERO);
        assert_eq!(schedule.due(Millis(47), false), None);
        assert_eq!(schedule.deadline(false), None);
        assert!(schedule.due(Millis(48), true).is_some());
        schedule.on_triggered(Millis(48), CheckpointId(1));
        assert_eq!(schedule.due(Millis(49), true), None);
    }

    #[test]
    fn the_final_checkpoint_needs_no_room_and_is_retried_with_growing_delays() {
        let mut schedule = schedule(None, Duration::MAX);
        schedule.on_sources_ended(Millis(5));
        let mut now = Millis(5);
        let mut delays = Vec::new();
        for id in 0..9 {
            assert_eq!(schedule.due(now, false), Some(SnapshotKind::Final));
            schedule.on_triggered(now, CheckpointId(id));
            assert_eq!(schedule.due(now, false), None);
            schedule.on_aborted(now, CheckpointId(id));
            let next = schedule.deadline(false).unwrap();
            delays.push(next.since(now).as_millis());
            now = next;
        }
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000]);
    }

    // CC-29, C8
    #[test]
    fn nothing_is_due_after_a_stop() {
        let mut schedule = schedule(Some(10), Duration::ZERO);
        schedule.request(RequestId(1));
        assert_eq!(schedule.stop(), Some(RequestId(1)));
        schedule.on_sources_ended(Millis(11));
        assert_eq!(schedule.due(Millis(1000), true), None);
        assert_eq!(schedule.deadline(true), None);
    }
}
