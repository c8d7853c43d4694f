//! Which changes a snapshot has to contain, by the checkpoint that it rests on.
//!
//! Tables keep their changes in two windows (see [`changes`](super::changes)); this says which
//! checkpoints bound them, for all tables of a backend together. Bases only grow. Once one has
//! reached the beginning of the recent window, no later snapshot needs what came before it: the
//! recent window becomes the older one, and a new one begins at this snapshot.
//!
//! So with one checkpoint at a time a snapshot contains exactly what changed since its base, also
//! if checkpoints in between were aborted. The first after aborted ones, and those that overlap,
//! may contain some more; never longer back than two windows. Savepoints and other snapshots on
//! which nothing may rest leave the windows alone.
//!
//! Invariant: `older` ≤ `recent` ≤ the last snapshot's id.

use tidegate_types::CheckpointId;

/// What of the changes a snapshot contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// It is whole by itself.
    Everything,
    /// The recent window.
    Recent,
    /// Both windows.
    Both,
}

/// How a snapshot divides time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) extent: Extent,
    /// Whether later snapshots may rest on it, so that changes are kept track of from here on.
    pub(super) tracks: bool,
    /// Whether the recent window becomes the older one, and a new one begins here.
    pub(super) shifts: bool,
}

impl Cut {
    /// A snapshot on which nothing may rest.
    pub(super) const APART: Cut = Cut {
        extent: Extent::Everything,
        tracks: false,
        shifts: false,
    };
}

/// A snapshot on which later ones may rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackedSnapshot {
    /// The checkpoint it is for. Ids grow from one snapshot of a backend to the next.
    pub checkpoint: CheckpointId,
    /// The latest completed checkpoint, as its barrier says; what changed before it need not be
    /// remembered any longer.
    pub base: Option<CheckpointId>,
    /// Whether it must be whole by itself though there is a base: nobody has the base's pieces, or
    /// there are too many.
    pub whole: bool,
}

/// Where the two windows begin.
#[derive(Clone, Copy, Debug)]
struct Windows {
    older: CheckpointId,
    recent: CheckpointId,
    last: CheckpointId,
}

/// The windows of a backend, once anything is kept track of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChangeWindows(Option<Windows>);

impl ChangeWindows {
    /// Whether there are any.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Cuts at the instant of a snapshot.
    ///
    /// # Panics
    /// If ids don't grow: changes would be attributed to the wrong checkpoint.
    pub(super) fn cut(&mut self, snapshot: &TrackedSnapshot) -> Cut {
        let &TrackedSnapshot {
            checkpoint,
            base,
            whole,
        } = snapshot;
        let Some(windows) = &mut self.0 else {
            self.0 = Some(Windows {
                older: checkpoint,
                recent: checkpoint,
                last: checkpoint,
            });
            return Cut {
                extent: Extent::Everything,
                tracks: true,
                shifts: true,
            };
        };
        assert!(
            checkpoint > windows.last && base.is_none_or(|base| base < checkpoint),
            "`{checkpoint}` with base `{base:?}` comes after `{}`",
            windows.last
        );
        windows.last = checkpoint;
        let since = base.filter(|base| *base >= windows.older);
        let extent = match since {
            Some(_) if whole => Extent::Everything,
            Some(base) if base >= windows.recent => Extent::Recent,
            Some(_) => Extent::Both,
            None => Extent::Everything,
        };
        let shifts = since.is_some_and(|base| base >= windows.recent);
        if shifts {
            (windows.older, windows.recent) = (windows.recent, checkpoint);
        }
        Cut {
            extent,
            tracks: true,
            shifts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Extent::{Both, Everything, Recent};

    /// What snapshots with these ids and bases contain.
    fn extents(snapshots: &[(u64, u64)]) -> Vec<Extent> {
        let mut windows = ChangeWindows::default();
        let mut extent = |&(checkpoint, base): &(u64, u64)| {
            let snapshot = TrackedSnapshot {
                checkpoint: CheckpointId(checkpoint),
                base: (base > 0).then_some(CheckpointId(base)),
                whole: false,
            };
            windows.cut(&snapshot).extent
        };
        snapshots.iter().map(&mut extent).collect()
    }

    #[test]
    fn one_after_the_other() {
        let extents = extents(&[(1, 0), (2, 1), (3, 2), (7, 3)]);
        assert_eq!(extents, [Everything, Recent, Recent, Recent]);
    }

    // RX-03, RX-09: what isn't complete is no base; changes since the last that is are repeated.
    #[test]
    fn aborted_ones_in_between() {
        let extents = extents(&[(1, 0), (2, 1), (3, 1), (4, 1), (5, 4), (6, 5)]);
        assert_eq!(extents, [Everything, Recent, Both, Both, Recent, Recent]);
    }

    #[test]
    fn several_at_once_never_reach_back_more_than_two_windows() {
        let snapshots: Vec<_> = (1..20u64).map(|id| (id, id.saturating_sub(2))).collect();
        let extents = extents(&snapshots);
        assert_eq!(extents[..3], [Everything, Everything, Recent]);
        let recent = extents[3..].iter().filter(|extent| **extent == Recent);
        assert_eq!(recent.count(), 8, "every other one: {extents:?}");
        assert!(!extents[3..].contains(&Everything));
    }

    // Of an earlier attempt, or from before anything was kept track of.
    #[test]
    fn bases_that_are_too_old_are_none() {
        let extents = extents(&[(5, 3), (6, 4), (7, 5), (8, 4), (9, 7)]);
        assert_eq!(
            extents,
            [Everything, Everything, Recent, Everything, Recent]
        );
    }

    // A base that nobody can read from any more is still reached.
    #[test]
    fn whole_ones_begin_a_window_too() {
        let mut windows = ChangeWindows::default();
        let mut cut = |checkpoint, base: u64, whole| {
            windows.cut(&TrackedSnapshot {
                checkpoint: CheckpointId(checkpoint),
                base: (base > 0).then_some(CheckpointId(base)),
                whole,
            })
        };
        cut(1, 0, false);
        let rewritten = Cut {
            extent: Everything,
            tracks: true,
            shifts: true,
        };
        assert_eq!(cut(2, 1, true), rewritten);
        assert_eq!(cut(3, 1, false).extent, Both, "`chk-2` was aborted");
        assert_eq!(cut(4, 3, false).extent, Recent);
    }

    #[test]
    #[should_panic(expected = "comes after")]
    fn ids_grow() {
        extents(&[(2, 0), (2, 0)]);
    }
}
