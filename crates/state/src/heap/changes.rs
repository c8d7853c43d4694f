//! What has changed in the table of one key group, so that a snapshot can leave out the rest.
//!
//! Changes are kept in two *windows* of time: the recent one reaches from some checkpoint to now,
//! the older one from an earlier checkpoint to where the recent one begins
//! ([`ChangeWindows`](super::windows::ChangeWindows) says which). Each window has one bit per
//! bucket that was written, and the keys that were removed. When the recent window becomes the
//! older one, the bits of a page move when the page is next looked at, which is before anything
//! else changes in it; everything that exists once per table moves at once.
//!
//! Growth, or rehashing in place, moves entries between buckets: the window then says *rewritten*,
//! and a snapshot that it concerns has the table as a whole. So do many removals: there are never
//! more keys of removed entries than [`REMOVED_SPARE`] above what is in the table.
//!
//! Invariant: what a window holds is what changed within it, or more. More is larger, not wrong:
//! whatever is written about a key is what it has at the snapshot's instant.

use std::sync::{Arc, Mutex};

use super::windows::{Cut, Extent};

/// Removed keys that even an empty table remembers before it is rewritten instead.
const REMOVED_SPARE: usize = 64;

/// Removed keys that snapshots share. The lock stands in for a `Sync` bound on keys; only writers
/// ever take it.
pub(super) type Removed<T> = Arc<Mutex<Vec<T>>>;

/// What one window says of the whole table.
struct Window<T> {
    /// The bits mean nothing: entries have moved between buckets, or too many were removed.
    rewritten: bool,
    /// Keys removed since the last snapshot.
    removed: Vec<T>,
    /// Keys removed before, which snapshots may share.
    sealed: Vec<Removed<T>>,
    /// Number of removed keys.
    removed_count: usize,
}

impl<T> Default for Window<T> {
    fn default() -> Self {
        Window {
            rewritten: false,
            removed: Vec::new(),
            sealed: Vec::new(),
            removed_count: 0,
        }
    }
}

impl<T> Window<T> {
    fn of_rewritten() -> Self {
        Window {
            rewritten: true,
            ..Window::default()
        }
    }

    fn seal(&mut self) {
        if !self.removed.is_empty() {
            let removed = std::mem::take(&mut self.removed);
            self.sealed.push(Arc::new(Mutex::new(removed)));
        }
    }
}

/// What of a table belongs into a snapshot of changes.
pub(super) enum TableChanges<T> {
    /// All of it: earlier pieces don't matter.
    Replaced,
    /// What the bits say, and these keys have been removed.
    Since(Vec<Removed<T>>),
}

/// The changes of one table. See the [module](self).
pub(super) struct ShardChanges<T> {
    /// Per page the buckets written in the recent window.
    recent: Vec<u64>,
    /// The same for the older window.
    older: Vec<u64>,
    windows: Box<[Window<T>; 2]>,
}

const RECENT: usize = 0;
const OLDER: usize = 1;

impl<T> ShardChanges<T> {
    /// Begins to keep track of a table with this many pages. What is in it already is not known, so
    /// the recent window has it rewritten.
    pub(super) fn new(pages: usize) -> Self {
        ShardChanges {
            recent: vec![0; pages],
            older: vec![0; pages],
            windows: Box::new([Window::of_rewritten(), Window::default()]),
        }
    }

    /// Notes that a bucket is about to be written, or just was.
    #[inline]
    pub(super) fn on_write(&mut self, page: usize, bucket_in_page: usize) {
        self.recent[page] |= 1 << bucket_in_page;
    }

    /// Notes that `key` was removed and that `left` entries are left.
    pub(super) fn on_remove(&mut self, key: T, left: usize) {
        let window = &mut self.windows[RECENT];
        if window.rewritten {
            return;
        }
        window.removed.push(key);
        window.removed_count += 1;
        if window.removed_count > left + REMOVED_SPARE {
            *window = Window::of_rewritten();
        }
    }

    /// Notes that entries have moved between buckets; there are `pages` pages now.
    pub(super) fn on_rehash(&mut self, pages: usize) {
        self.windows[RECENT] = Window::of_rewritten();
        for bits in [&mut self.recent, &mut self.older] {
            bits.clear();
            bits.resize(pages, 0);
        }
    }

    /// What of the table as a whole belongs into the snapshot of this instant. The bits of its
    /// pages follow, page by page ([`take_page`](Self::take_page)).
    pub(super) fn cut(&mut self, cut: Cut) -> TableChanges<T> {
        let concerned = match cut.extent {
            Extent::Everything => 0..0,
            Extent::Recent => RECENT..OLDER,
            Extent::Both => RECENT..OLDER + 1,
        };
        self.windows[RECENT].seal();
        let windows = &self.windows[concerned];
        let changes = if windows.is_empty() || windows.iter().any(|window| window.rewritten) {
            TableChanges::Replaced
        } else {
            let removed = windows.iter().flat_map(|window| &window.sealed);
            TableChanges::Since(removed.cloned().collect())
        };
        if cut.shifts {
            self.windows[OLDER] = std::mem::take(&mut self.windows[RECENT]);
        }
        changes
    }

    /// Whether nothing in a page has changed in either window.
    #[inline]
    pub(super) fn is_unchanged(&self, page: usize) -> bool {
        self.recent[page] | self.older[page] == 0
    }

    /// The buckets of a page that belong into a snapshot of changes that was cut this way, the
    /// first time that one looks at the page, and in the order of the snapshots.
    pub(super) fn take_page(&mut self, page: usize, cut: Cut) -> u64 {
        let (recent, older) = (self.recent[page], self.older[page]);
        if cut.shifts {
            (self.recent[page], self.older[page]) = (0, recent);
        }
        match cut.extent {
            Extent::Everything => u64::MAX,
            Extent::Recent => recent,
            Extent::Both => recent | older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: Cut = Cut {
        extent: Extent::Everything,
        tracks: true,
        shifts: true,
    };
    const RECENT_CHANGES: Cut = Cut {
        extent: Extent::Recent,
        tracks: true,
        shifts: true,
    };
    const ALL_CHANGES: Cut = Cut {
        extent: Extent::Both,
        tracks: true,
        shifts: false,
    };

    /// Removed keys of the next snapshot, or `None` if it has the table as a whole.
    fn removed(changes: &mut ShardChanges<u32>, cut: Cut) -> Option<Vec<u32>> {
        match changes.cut(cut) {
            TableChanges::Replaced => None,
            TableChanges::Since(segments) => {
                let keys = |segment: Removed<u32>| segment.lock().unwrap().clone();
                Some(segments.into_iter().flat_map(keys).collect())
            }
        }
    }

    /// A table of two pages that both windows know.
    fn tracked() -> ShardChanges<u32> {
        let mut changes = ShardChanges::new(2);
        assert_eq!(removed(&mut changes, EVERYTHING), None);
        assert_eq!(removed(&mut changes, RECENT_CHANGES), Some(vec![]));
        changes
    }

    #[test]
    fn what_was_there_before_is_rewritten_until_a_snapshot_has_it() {
        let mut changes = ShardChanges::new(2);
        assert_eq!(removed(&mut changes, RECENT_CHANGES), None);
        assert_eq!(removed(&mut changes, ALL_CHANGES), None, "older than both");
        assert_eq!(removed(&mut changes, RECENT_CHANGES), Some(vec![]));
        assert_eq!(removed(&mut changes, ALL_CHANGES), Some(vec![]));
    }

    // The bits of a page move when it is looked at; until then both snapshots get more, not less.
    #[test]
    fn bits_move_to_the_older_window_once() {
        let mut changes = tracked();
        changes.on_write(0, 3);
        changes.on_write(1, 63);
        assert_eq!(changes.take_page(0, RECENT_CHANGES), 1 << 3);
        changes.on_write(0, 5);
        assert_eq!(changes.take_page(0, ALL_CHANGES), 1 << 3 | 1 << 5);
        assert_eq!(changes.take_page(0, RECENT_CHANGES), 1 << 5);
        assert_eq!(changes.take_page(0, RECENT_CHANGES), 0);
        assert!(changes.is_unchanged(0));
        assert_eq!(changes.take_page(1, ALL_CHANGES), 1 << 63);
    }

    #[test]
    fn removed_keys_stay_as_long_as_their_window() {
        let mut changes = tracked();
        changes.on_remove(1, 100);
        assert_eq!(removed(&mut changes, ALL_CHANGES), Some(vec![1]));
        changes.on_remove(2, 100);
        assert_eq!(removed(&mut changes, RECENT_CHANGES), Some(vec![1, 2]));
        changes.on_remove(3, 100);
        assert_eq!(removed(&mut changes, ALL_CHANGES), Some(vec![3, 1, 2]));
        assert_eq!(removed(&mut changes, RECENT_CHANGES), Some(vec![3]));
        assert_eq!(removed(&mut changes, ALL_CHANGES), Some(vec![3]));
    }

    #[test]
    fn a_table_that_was_rehashed_is_rewritten_in_both_windows() {
        let mut changes = tracked();
        changes.on_remove(1, 100);
        changes.on_write(1, 1);
        changes.on_rehash(4);
        changes.on_write(3, 1);
        assert_eq!(removed(&mut changes, RECENT_CHANGES), None);
        assert_eq!(
            changes.take_page(1, RECENT_CHANGES),
            0,
            "all is in it anyway"
        );
        changes.on_remove(2, 100);
        assert_eq!(removed(&mut changes, ALL_CHANGES), None);
        assert_eq!(removed(&mut changes, RECENT_CHANGES), Some(vec![2]));
    }

    // Timers come and go: memory is bounded by what is left.
    #[test]
    fn a_table_that_loses_more_than_it_keeps_is_rewritten() {
        let mut changes = tracked();
        for key in 0..1064 {
            changes.on_remove(key, 1000);
        }
        assert_eq!(removed(&mut changes, ALL_CHANGES).unwrap().len(), 1064);
        for key in 0..10_000_000 {
            changes.on_remove(key, 1000);
        }
        let window = &changes.windows[RECENT];
        assert!(window.removed.is_empty() && window.sealed.is_empty());
        assert_eq!(removed(&mut changes, RECENT_CHANGES), None);
        assert_eq!(removed(&mut changes, RECENT_CHANGES), Some(vec![]));
    }
}
