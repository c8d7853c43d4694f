//! How much others have used the machine while something was measured, from `/proc`.

use std::fs;
use std::time::Instant;

/// Ticks in which Linux tells processor time, per second.
const TICKS_PER_SECOND: f64 = 100.0;

/// What was used up to some moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    at: Instant,
    /// Processor time of everybody, in seconds.
    machine: f64,
    /// Processor time of this process and all that it has started, in seconds.
    own: f64,
}

impl Look {
    /// Now; `clusters` is the processor time of processes that this one has started and not yet
    /// waited for.
    pub(crate) fn now(clusters: f64) -> Self {
        let seconds = |path, ticks: fn(&str) -> Option<u64>| {
            let text = fs::read_to_string(path).unwrap_or_default();
            ticks(&text).unwrap_or(0) as f64 / TICKS_PER_SECOND
        };
        Look {
            at: Instant::now(),
            machine: seconds("/proc/stat", busy_ticks),
            own: seconds("/proc/self/stat", own_ticks) + clusters,
        }
    }

    /// How many cores others have used since `before`.
    pub(crate) fn foreign_cores_since(&self, before: &Look) -> f64 {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        cores(
            self.machine - before.machine,
            self.own - before.own,
            seconds,
        )
    }
}

/// The kernel counts in ticks, and for processes and machine apart: what comes out below nothing is
/// nothing.
fn cores(machine: f64, own: f64, seconds: f64) -> f64 {
    match seconds > 0.0 {
        true => ((machine - own) / seconds).max(0.0),
        false => 0.0,
    }
}

/// Everything in the first line of `/proc/stat` but idling, waiting for disks, and guests, which
/// are part of user time. What the host has taken away (steal) disturbs as much as the rest.
fn busy_ticks(stat: &str) -> Option<u64> {
    let all = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Option<Vec<u64>> = all.split_whitespace().map(|one| one.parse().ok()).collect();
    let [
        user,
        nice,
        system,
        _idle,
        _wait,
        interrupts,
        soft,
        steal,
        ..,
    ] = fields?[..]
    else {
        return None;
    };
    Some(user + nice + system + interrupts + soft + steal)
}

/// The 14th to 17th field of `/proc/self/stat`: user and system time of the process, and of those
/// of its children that it has waited for. Before is a name in parentheses, which may contain
/// anything.
fn own_ticks(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = behind.split_whitespace().skip(11).take(4).collect();
    let known: Option<Vec<u64>> = fields.iter().map(|one| one.parse().ok()).collect();
    known
        .filter(|fields| fields.len() == 4)
        .map(|fields| fields.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_foreign() {
        assert_eq!(cores(10.0, 8.0, 4.0), 0.5);
        assert_eq!(cores(8.0, 8.01, 4.0), 0.0);
        assert_eq!(cores(8.0, 1.0, 0.0), 0.0);
    }

    #[test]
    fn children_are_ours() {
        let stat = "71 (a (b) c) S 1 71 71 0 -1 4194304 90 0 0 0 1200 34 560 7 20 0 19 0 88 9 2\n";
        assert_eq!(own_ticks(stat), Some(1801));
        assert_eq!(own_ticks("71 (java) S 1 71"), None);
        assert_eq!(own_ticks("71 (java"), None);
    }

    #[test]
    fn a_machine_is_not_busy_when_it_waits_for_a_disk() {
        let stat = "cpu  100 20 30 9000 500 4 5 6 70 8\ncpu0 1 2 3\n";
        assert_eq!(busy_ticks(stat), Some(165));
        assert_eq!(busy_ticks("cpu0 1 2 3\n"), None);
    }

    #[test]
    fn the_kernel_tells_of_this_machine() {
        let look = Look::now(0.0);
        assert!(look.machine > look.own, "{look:?}");
    }
}
