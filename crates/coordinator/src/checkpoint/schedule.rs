//! When a checkpoint is due that nobody asked for.
//!
//! Two things make one due: the interval, and the end of all sources, which asks for the final one
//! until it succeeds. A periodic checkpoint that comes due while it may not start waits and then
//! starts once: time that has passed meanwhile is not made up for, so a driver that was stopped
//! causes no burst (BC-57).

use std::time::Duration;

use tidegate_types::{CheckpointId, Millis};

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
    last_completion: Option<Millis>,
}

impl Schedule {
    pub(crate) fn new(settings: &CheckpointSettings) -> Self {
        Schedule {
            interval: settings.interval.map(|i| i.max(settings.min_pause)),
            min_pause: settings.min_pause,
            mode: Mode::Stopped,
            last_completion: None,
        }
    }

    /// Every subtask runs: the first periodic checkpoint is due one interval from now.
    pub(crate) fn start(&mut self, now: Millis) {
        let due = self.interval.map(|interval| now.after(interval));
        self.mode = Mode::Periodic { due };
    }

    /// Stops triggering.
    pub(crate) fn stop(&mut self) {
        self.mode = Mode::Stopped;
    }

    /// Whether nothing is to be triggered any more, not even on request.
    pub(crate) fn is_stopped(&self) -> bool {
        self.mode == Mode::Stopped
    }

    /// Whether an interval makes checkpoints due.
    pub(crate) fn is_periodic(&self) -> bool {
        matches!(self.mode, Mode::Periodic { due: Some(_) })
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

    /// Whether the final checkpoint is to be triggered now. It waits for no room.
    pub(crate) fn final_due(&self, now: Millis) -> bool {
        matches!(self.mode, Mode::FinalDue { at, .. } if at <= now)
    }

    /// Whether a periodic checkpoint is to be triggered now, if there is room for one.
    pub(crate) fn periodic_due(&self, now: Millis) -> bool {
        self.periodic_at().is_some_and(|at| at <= now)
    }

    fn periodic_at(&self) -> Option<Millis> {
        match self.mode {
            Mode::Periodic { due: Some(due) } => Some(due.max(self.pause_end())),
            _ => None,
        }
    }

    fn pause_end(&self) -> Millis {
        self.last_completion
            .map_or(Millis(0), |last| last.after(self.min_pause))
    }

    /// What is left of the minimum pause, if it holds a periodic checkpoint back.
    pub(crate) fn pause_left(&self, now: Millis) -> Option<Duration> {
        match self.mode {
            Mode::Periodic { due: Some(due) } if due <= now && self.pause_end() > now => {
                Some(self.pause_end().since(now))
            }
            _ => None,
        }
    }

    /// The final checkpoint has been triggered as `id`.
    pub(crate) fn on_final_triggered(&mut self, id: CheckpointId) {
        if let Mode::FinalDue { failures, .. } = self.mode {
            self.mode = Mode::FinalTriggered { id, failures };
        }
    }

    /// The final checkpoint could not be triggered: it is tried again.
    pub(crate) fn on_final_not_triggered(&mut self, now: Millis) {
        if let Mode::FinalDue { failures, .. } = self.mode {
            self.retry_final(now, failures);
        }
    }

    /// A periodic checkpoint has been triggered, or could not be. Keeps the beat where possible;
    /// beats that were missed are left out.
    pub(crate) fn next_period(&mut self, now: Millis) {
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
            _ => self.periodic_at().filter(|_| has_room),
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
            if schedule.periodic_due(Millis(now)) {
                schedule.next_period(Millis(now));
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
        assert!(!schedule.periodic_due(Millis(1 << 60)));
        assert_eq!(schedule.deadline(true), Some(Millis(u64::MAX)));
    }

    // RD-10
    #[test]
    fn the_pause_holds_back_periodic_checkpoints() {
        let mut schedule = schedule(Some(100), Duration::from_millis(80));
        schedule.on_completed(Millis(90));
        assert_eq!(schedule.pause_left(Millis(99)), None);
        assert!(!schedule.periodic_due(Millis(100)));
        assert_eq!(
            schedule.pause_left(Millis(100)),
            Some(Duration::from_millis(70))
        );
        assert_eq!(schedule.deadline(true), Some(Millis(170)));
        assert!(!schedule.periodic_due(Millis(169)));
        assert!(schedule.periodic_due(Millis(170)));
        assert_eq!(schedule.pause_left(Millis(170)), None);
    }

    // BC-57
    #[test]
    fn missed_beats_are_not_made_up_for() {
        let mut schedule = schedule(Some(10), Duration::ZERO);
        assert!(schedule.periodic_due(Millis(1005)));
        schedule.next_period(Millis(1005));
        assert!(!schedule.periodic_due(Millis(1005)));
        assert_eq!(schedule.deadline(true), Some(Millis(1015)));
        // Exactly one beat late.
        schedule.next_period(Millis(1025));
        assert_eq!(schedule.deadline(true), Some(Millis(1035)));
        assert_eq!(schedule.deadline(false), None);
    }

    #[test]
    fn the_final_checkpoint_needs_no_room_and_is_retried_with_growing_delays() {
        let mut schedule = schedule(None, Duration::MAX);
        schedule.on_sources_ended(Millis(5));
        let mut now = Millis(5);
        let mut delays = Vec::new();
        for id in 0..9 {
            assert!(schedule.final_due(now) && !schedule.periodic_due(now));
            schedule.on_final_triggered(CheckpointId(id));
            assert!(!schedule.final_due(now));
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
        assert!(schedule.is_periodic() && !schedule.is_stopped());
        schedule.stop();
        assert!(!schedule.is_periodic() && schedule.is_stopped());
        schedule.on_sources_ended(Millis(11));
        assert!(!schedule.periodic_due(Millis(1000)) && !schedule.final_due(Millis(1000)));
        assert_eq!(schedule.deadline(true), None);
    }
}
