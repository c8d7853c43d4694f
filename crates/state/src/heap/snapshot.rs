//! Copying pages out of the live tables for pending snapshots.
//!
//! Each table numbers its snapshots. A page remembers the newest snapshot it was copied for; those
//! with larger numbers lack it, so starting a snapshot is incrementing a number. A copy goes to all
//! that lack it at once. Behind the writes a cursor sweeps over all pages, round after round;
//! a snapshot is complete once the cursor has passed every shard since it began.

use std::sync::{Arc, Mutex};

use tidegate_types::KeyGroup;

use super::link::{EntryPage, FrozenPage, FrozenPart, SnapshotLink, SnapshotTicket};
use super::shards::Shards;
use crate::descriptor::StateValue;
use crate::key::StateKey;

/// Bytes of a page's buckets that are worth copying at once.
const PAGE_BYTES: usize = 16 << 10;

/// Pages that are skipped, since they were copied before, at the cost of one copied page.
const SKIPS_PER_COPY: usize = 64;

/// How far copying for pending snapshots has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotProgress {
    /// No snapshot is pending: nothing to do until the next freeze.
    Done,
    /// The budget is used up and there is more to copy: call again, between batches.
    More,
    /// The writers have enough to do: call again in a millisecond or so.
    WritersBehind,
}

impl SnapshotProgress {
    /// Whether no snapshot is pending.
    pub fn is_done(self) -> bool {
        self == SnapshotProgress::Done
    }
}

/// A snapshot that may still lack pages of this table.
pub(super) struct PendingSnapshot {
    link: SnapshotLink,
    /// Index of this state in the snapshot.
    state: u32,
    sequence: u32,
    /// Shards that the cursor has yet to pass.
    shards_left: usize,
}

/// Where background copying goes on.
#[derive(Default)]
pub(super) struct Cursor {
    shard: usize,
    page: usize,
}

impl<K: StateKey, V: StateValue> Shards<K, V> {
    /// Buckets per page. Entries that own heap memory may be large and slow to clone, so a page has
    /// fewer of them.
    const PAGE_BUCKETS: usize = {
        let size = if size_of::<(K, V)>() == 0 {
            1
        } else {
            size_of::<(K, V)>()
        };
        let fitting = (PAGE_BYTES / size).next_power_of_two();
        let most = if std::mem::needs_drop::<(K, V)>() {
            128
        } else {
            1024
        };
        if fitting > most { most } else { fitting }
    };

    /// The instant of a snapshot: from here on, changes are not part of it.
    pub(super) fn begin_snapshot(&mut self, link: SnapshotLink, state: u32) {
        self.drop_abandoned();
        if self.pending.is_empty() {
            self.sequence = 0;
            for shard in &mut self.shards {
                let pages = shard.entries.num_buckets().div_ceil(Self::PAGE_BUCKETS);
                shard.copied.clear();
                shard.copied.resize(pages, 0);
            }
        }
        self.sequence = self
            .sequence
            .checked_add(1)
            .expect("fewer than 2^32 pending snapshots");
        let (sequence, shards_left) = (self.sequence, self.shards.len());
        self.pending.push(PendingSnapshot {
            link,
            state,
            sequence,
            shards_left,
        });
        // The shard under the cursor counts for this snapshot only as a whole.
        self.cursor.page = 0;
    }

    /// Gives up one snapshot.
    pub(super) fn cancel(&mut self, ticket: SnapshotTicket) {
        self.pending
            .retain(|snapshot| snapshot.link.ticket != ticket);
    }

    /// Copies up to `budget` pages, and takes what it used from it.
    pub(super) fn advance(&mut self, budget: &mut usize, throttle: bool) -> SnapshotProgress {
        let mut skipped = 0;
        while !self.pending.is_empty() {
            if *budget == 0 {
                return SnapshotProgress::More;
            }
            let Cursor { shard, page } = self.cursor;
            let Some(&copied) = self.shards[shard].copied.get(page) else {
                self.pass_shard();
                continue;
            };
            if copied == self.sequence || self.shards[shard].entries.is_empty() {
                skipped += 1;
                if skipped % SKIPS_PER_COPY == 0 {
                    *budget -= 1;
                }
            } else {
                self.drop_abandoned();
                let behind = |snapshot: &PendingSnapshot| snapshot.link.is_writer_behind();
                if throttle && self.pending.iter().any(behind) {
                    return SnapshotProgress::WritersBehind;
                }
                self.copy_page(shard, page, None);
                *budget -= 1;
            }
            self.cursor.page += 1;
        }
        SnapshotProgress::Done
    }

    /// Moves the cursor to the next shard and completes the snapshots that have seen all.
    fn pass_shard(&mut self) {
        self.cursor.page = 0;
        self.cursor.shard = (self.cursor.shard + 1) % self.shards.len();
        self.pending.retain_mut(|snapshot| {
            snapshot.shards_left -= 1;
            if snapshot.shards_left > 0 {
                return true;
            }
            snapshot.link.send(FrozenPart::StateDone);
            false
        });
    }

    /// Copies the page of `bucket` out unless every pending snapshot has it, leaving out the bucket
    /// `fresh` that has just been filled.
    #[inline]
    pub(super) fn ensure_copied(&mut self, shard: usize, bucket: usize, fresh: Option<usize>) {
        let page = bucket / Self::PAGE_BUCKETS;
        if self.shards[shard].copied[page] < self.sequence {
            self.copy_page(shard, page, fresh);
        }
    }

    /// Copies all pages of a shard out that some pending snapshot lacks.
    pub(super) fn copy_shard(&mut self, shard: usize) {
        for page in 0..self.shards[shard].copied.len() {
            if self.shards[shard].copied[page] < self.sequence {
                self.copy_page(shard, page, None);
            }
        }
    }

    /// Notes after growth that all pages, of which there are more now, are in all snapshots.
    pub(super) fn mark_shard_copied(&mut self, shard: usize) {
        let shard = &mut self.shards[shard];
        let pages = shard.entries.num_buckets().div_ceil(Self::PAGE_BUCKETS);
        shard.copied.clear();
        shard.copied.resize(pages, self.sequence);
    }

    fn drop_abandoned(&mut self) {
        self.pending
            .retain(|snapshot| !snapshot.link.is_abandoned());
    }

    #[cold]
    #[inline(never)]
    fn copy_page(&mut self, shard: usize, page: usize, fresh: Option<usize>) {
        let key_group = KeyGroup(self.key_groups.start + shard as u16);
        let Self {
            shards,
            pending,
            sequence,
            ..
        } = self;
        let shard = &mut shards[shard];
        let copied = std::mem::replace(&mut shard.copied[page], *sequence);
        let mut lacking = pending
            .iter()
            .filter(|snapshot| snapshot.sequence > copied && !snapshot.link.is_abandoned())
            .peekable();
        if lacking.peek().is_none() {
            return;
        }
        let first = page * Self::PAGE_BUCKETS;
        let last = (first + Self::PAGE_BUCKETS).min(shard.entries.num_buckets());
        let entries: Vec<(K, V)> = (first..last)
            .filter(|bucket| Some(*bucket) != fresh)
            .filter_map(|bucket| shard.entries.get_bucket(bucket).cloned())
            .collect();
        if entries.is_empty() {
            return;
        }
        let page: Arc<dyn FrozenPage> = Arc::new(EntryPage(Mutex::new(entries)));
        for snapshot in lacking {
            let (state, page) = (snapshot.state, Arc::clone(&page));
            snapshot.link.send(FrozenPart::Page {
                state,
                key_group,
                page,
            });
        }
    }
}
