//! Copying pages out of the live tables for pending snapshots.
//!
//! Each table numbers its snapshots. A page remembers the newest snapshot it was copied for; those
//! with larger numbers lack it, so starting a snapshot is incrementing a number. A copy goes to all
//! that lack it at once. Behind the writes a cursor sweeps over all pages, round after round;
//! a snapshot is complete once the cursor has passed every shard since it began.
//!
//! Pages are small (1 KiB, less where entries own memory), since right after a freeze almost every
//! write has to copy one. Copies are gathered in an outbox and sent on in larger packs.
//!
//! A snapshot of changes gets of a page what changed in it ([`changes`](super::changes)), unless it
//! gets the whole table. Snapshots that want different entries of the same page don't share.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashTable;
use tidegate_types::KeyGroup;

use super::changes::{ShardChanges, TableChanges};
use super::content::Content;
use super::entry_key::EntryKey;
use super::link::{FrozenPart, SnapshotLink, SnapshotTicket};
use super::pack::{Pack, RemovedPack};
use super::prefetch::prefetch_between;
use super::shards::{Shard, Shards};
use super::windows::Cut;
use crate::key::StateKey;

/// Bytes of the buckets of one page.
const PAGE_BYTES: usize = 1 << 10;

/// Buckets of a page, however large an entry is.
const PAGE_BUCKETS_MIN: usize = 8;

/// Buckets of a page, however small an entry is.
const PAGE_BUCKETS_MAX: usize = 64;

/// Below this number of buckets they are looked at one by one.
const SPARSE_BUCKETS: u32 = 16;

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
pub(super) struct PendingSnapshot<K, C, N> {
    link: SnapshotLink,
    /// Index of this state in the snapshot.
    state: u32,
    sequence: u32,
    cut: Cut,
    /// Per shard whether it wants all entries, not only those that have changed.
    whole: Vec<bool>,
    /// Shards that the cursor has yet to pass.
    shards_left: usize,
    /// Copies for this snapshot and all later ones, not sent yet.
    outbox: Pack<K, C, N>,
    /// Copies for this snapshot alone, not sent yet.
    own: Pack<K, C, N>,
}

impl<K, C, N> PendingSnapshot<K, C, N> {
    /// The buckets that it wants of a page, which it sees for the first time.
    fn take_page(&self, index: usize, shard: &mut Shard<K, C, N>, page: usize) -> u64 {
        let changed = shard
            .changes
            .as_mut()
            .map(|changes| changes.take_page(page, self.cut));
        match changed {
            Some(changed) if !self.whole[index] => changed,
            _ => u64::MAX,
        }
    }
}

/// Where background copying goes on.
#[derive(Default)]
pub(super) struct Cursor {
    shard: usize,
    page: usize,
}

impl<K: StateKey, C: Content, N: StateKey> Shards<K, C, N> {
    /// Buckets per page. At least a few, however large an entry is, and no more where entries own
    /// memory: how much that is can't be seen, and all of it is copied.
    pub(super) const PAGE_BUCKETS: usize = clamp(
        PAGE_BYTES / max(size_of::<(EntryKey<K, N>, C)>(), 1),
        PAGE_BUCKETS_MIN,
        match std::mem::needs_drop::<(EntryKey<K, N>, C)>() {
            true => PAGE_BUCKETS_MIN,
            false => PAGE_BUCKETS_MAX,
        },
    );

    /// Pages that a write copies at once. What it costs to fetch a page from memory is mostly the
    /// first access, so neighbours come cheaply, unless their entries own memory elsewhere.
    const PAGES_AT_ONCE: usize = match std::mem::needs_drop::<(EntryKey<K, N>, C)>() {
        true => 1,
        false => 4,
    };

    /// The instant of a snapshot: from here on, changes are not part of it. Returns the key groups
    /// that it gets as a whole, in order.
    pub(super) fn begin_snapshot(
        &mut self,
        link: SnapshotLink,
        state: u32,
        cut: Cut,
    ) -> Vec<KeyGroup> {
        self.drop_abandoned();
        if self.pending.is_empty() {
            self.renew_marks();
        }
        // Ordering: what was gathered before this instant is not for the new snapshot, which would
        // receive it and the same pages once more.
        (0..self.pending.len()).for_each(|at| self.send_outbox(at));
        self.sequence = self
            .sequence
            .checked_add(1)
            .expect("marks were renewed at the limit");
        let whole = self.cut_changes(&link, state, cut);
        let groups = self.key_groups.iter().zip(&whole);
        let replaced = groups.filter(|(_, whole)| **whole).map(|(group, _)| group);
        let replaced = replaced.collect();
        self.pending.push(PendingSnapshot {
            link,
            state,
            sequence: self.sequence,
            cut,
            whole,
            shards_left: self.shards.len(),
            outbox: Pack::default(),
            own: Pack::default(),
        });
        // The shard under the cursor counts for this snapshot only as a whole.
        self.cursor.page = 0;
        replaced
    }

    /// Which shards a snapshot gets as a whole. Sends it the keys that are gone from the others.
    fn cut_changes(&mut self, link: &SnapshotLink, state: u32, cut: Cut) -> Vec<bool> {
        let mut whole = vec![true; self.shards.len()];
        if !cut.tracks {
            return whole;
        }
        if !std::mem::replace(&mut self.tracked, true) {
            for shard in &mut self.shards {
                shard.changes = Some(ShardChanges::new(Self::pages(&shard.entries)));
            }
        }
        let mut gone = RemovedPack::<K, C, N>::default();
        for ((group, shard), whole) in self.key_groups.iter().zip(&mut self.shards).zip(&mut whole)
        {
            let changes = shard.changes.as_mut().map(|changes| changes.cut(cut));
            if let Some(TableChanges::Since(removed)) = changes {
                *whole = false;
                gone.push(group, removed);
            }
        }
        if !gone.is_empty() {
            let pack = Arc::new(gone);
            link.send(FrozenPart::Pack { state, pack });
        }
        whole
    }

    /// Number of pages of a table.
    pub(super) fn pages(entries: &HashTable<(EntryKey<K, N>, C)>) -> usize {
        entries.num_buckets().div_ceil(Self::PAGE_BUCKETS)
    }

    /// Brings the marks of all pages up to date with what happened while nothing was pending. They
    /// are old enough already where a table has not grown.
    fn renew_marks(&mut self) {
        let restart = self.sequence > u32::MAX / 2;
        if restart {
            self.sequence = 0;
        }
        for shard in &mut self.shards {
            let pages = Self::pages(&shard.entries);
            if restart || shard.copied.len() != pages {
                shard.copied.clear();
                shard.copied.resize(pages, 0);
            }
        }
    }

    /// Gives up one snapshot.
    pub(super) fn cancel(&mut self, ticket: SnapshotTicket) {
        self.remove_pending(|snapshot| snapshot.link.ticket == ticket);
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
            let done = copied == self.sequence || self.shards[shard].entries.is_empty();
            let mut skip = done || self.pass_unchanged(shard, page);
            if !skip {
                self.drop_abandoned();
                if self.pending.is_empty() {
                    break;
                }
                let behind = |snapshot: &PendingSnapshot<K, C, N>| snapshot.link.is_writer_behind();
                // A writer that keeps up is never made to wait for another, which may be waiting
                // for it in turn: a thread that writes one snapshot after the other.
                if throttle && self.pending.iter().all(behind) {
                    return SnapshotProgress::WritersBehind;
                }
                skip = !self.copy_page(shard, page, None);
            }
            skipped += usize::from(skip);
            if !skip || skipped % SKIPS_PER_COPY == 0 {
                *budget -= 1;
            }
            self.cursor.page += 1;
        }
        SnapshotProgress::Done
    }

    /// Passes over a page in which nothing has changed, if that is all that anybody wants to know.
    #[inline]
    fn pass_unchanged(&mut self, index: usize, page: usize) -> bool {
        let shard = &mut self.shards[index];
        let unchanged = match &shard.changes {
            Some(changes) => changes.is_unchanged(page),
            None => false,
        };
        let unchanged = unchanged && self.pending.iter().all(|snapshot| !snapshot.whole[index]);
        if unchanged {
            shard.copied[page] = self.sequence;
        }
        unchanged
    }

    /// Moves the cursor to the next shard and completes the snapshots that have seen all.
    fn pass_shard(&mut self) {
        self.cursor.page = 0;
        self.cursor.shard = (self.cursor.shard + 1) % self.shards.len();
        for snapshot in &mut self.pending {
            snapshot.shards_left -= 1;
        }
        // The oldest complete first, and what is gathered for one is also for the later ones.
        while self
            .pending
            .first()
            .is_some_and(|oldest| oldest.shards_left == 0)
        {
            self.send_outbox(0);
            self.send_own(0);
            let complete = self.pending.remove(0);
            complete.link.send(FrozenPart::StateDone);
        }
    }

    /// Copies the page of `bucket` out unless every pending snapshot has it, leaving out the bucket
    /// `fresh` that has just been filled.
    #[inline]
    pub(super) fn ensure_copied(&mut self, shard: usize, bucket: usize, fresh: Option<usize>) {
        let page = bucket / Self::PAGE_BUCKETS;
        if self.shards[shard].copied[page] < self.sequence {
            self.copy_around(shard, page, fresh);
        }
    }

    /// Copies a page out, and those beside it that have not been copied either.
    #[inline(never)]
    fn copy_around(&mut self, shard: usize, page: usize, fresh: Option<usize>) {
        let first = page - page % Self::PAGES_AT_ONCE;
        let last = (first + Self::PAGES_AT_ONCE).min(self.shards[shard].copied.len());
        // Of a page that changes are kept track of, often little is copied.
        let looks_ahead = Self::PAGES_AT_ONCE > 1 && !self.tracked;
        if looks_ahead {
            self.prefetch_page(shard, first);
        }
        for page in first..last {
            if looks_ahead && page + 1 < last {
                self.prefetch_page(shard, page + 1);
            }
            if self.shards[shard].copied[page] < self.sequence {
                self.copy_page(shard, page, fresh);
            }
        }
    }

    /// Asks for the entries of a page that some snapshot lacks.
    #[inline]
    fn prefetch_page(&self, shard: usize, page: usize) {
        let shard = &self.shards[shard];
        if shard.copied[page] == self.sequence {
            return;
        }
        let first = page * Self::PAGE_BUCKETS;
        let last = ((page + 1) * Self::PAGE_BUCKETS).min(shard.entries.num_buckets());
        let mut full = (first..last).filter_map(|bucket| shard.entries.get_bucket(bucket));
        if let Some(first) = full.next()
            && let Some(last) = full.next_back()
        {
            prefetch_between(first, last, PAGE_BYTES);
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
        let pages = Self::pages(&shard.entries);
        shard.copied.clear();
        shard.copied.resize(pages, self.sequence);
    }

    fn drop_abandoned(&mut self) {
        if self
            .pending
            .iter()
            .any(|snapshot| snapshot.link.is_abandoned())
        {
            self.remove_pending(|snapshot| snapshot.link.is_abandoned());
        }
    }

    /// Removes snapshots that nobody wants. Their outboxes may hold what later ones need.
    fn remove_pending(&mut self, unwanted: impl Fn(&PendingSnapshot<K, C, N>) -> bool) {
        for at in 0..self.pending.len() {
            if unwanted(&self.pending[at]) {
                self.send_outbox(at);
            }
        }
        self.pending.retain(|snapshot| !unwanted(snapshot));
    }

    /// Copies a page out for all that lack it; `false` if none of them wants anything of it.
    #[inline(never)]
    fn copy_page(&mut self, index: usize, page: usize, fresh: Option<usize>) -> bool {
        let shard = &mut self.shards[index];
        let copied = std::mem::replace(&mut shard.copied[page], self.sequence);
        let lacks = |snapshot: &PendingSnapshot<K, C, N>| snapshot.sequence > copied;
        let Some(at) = self.pending.iter().position(lacks) else {
            return false;
        };
        // Ordering: from the oldest on, as each may begin a window of changes.
        let wanted = self.pending[at].take_page(index, shard, page);
        let later: Vec<u64> = self.pending[at + 1..]
            .iter()
            .map(|snapshot| snapshot.take_page(index, shard, page))
            .collect();
        if later.iter().all(|later| *later == wanted) {
            return self.copy_buckets(at, (index, page, wanted), fresh, false);
        }
        let mut copied = self.copy_buckets(at, (index, page, wanted), fresh, true);
        for (at, wanted) in (at + 1..).zip(later) {
            copied |= self.copy_buckets(at, (index, page, wanted), fresh, true);
        }
        copied
    }

    /// Copies buckets of a page out, for the snapshot at this position alone or for the later ones,
    /// too. Returns whether there was any.
    fn copy_buckets(
        &mut self,
        at: usize,
        (index, page, wanted): (usize, usize, u64),
        fresh: Option<usize>,
        alone: bool,
    ) -> bool {
        if wanted == 0 {
            return false;
        }
        let shard = &self.shards[index];
        let first = page * Self::PAGE_BUCKETS;
        let last = (first + Self::PAGE_BUCKETS).min(shard.entries.num_buckets());
        let snapshot = &mut self.pending[at];
        let outbox = match alone {
            true => &mut snapshot.own,
            false => &mut snapshot.outbox,
        };
        if outbox.is_empty() {
            outbox.begin(self.len, Self::PAGE_BUCKETS, &snapshot.link.pool);
        }
        let before = outbox.len();
        let key_group = KeyGroup(self.key_groups.start + index as u16);
        gather(
            &shard.entries,
            (first..last, wanted),
            fresh,
            outbox,
            key_group,
        );
        let copied = outbox.len() - before;
        outbox.end_run(key_group);
        if outbox.is_full() {
            match alone {
                true => self.send_own(at),
                false => self.send_outbox(at),
            }
        }
        copied > 0
    }

    /// Sends what was gathered for the snapshot at this position and the later ones.
    fn send_outbox(&mut self, at: usize) {
        let outbox = std::mem::take(&mut self.pending[at].outbox);
        if outbox.is_empty() {
            return;
        }
        let pack = outbox.share();
        for snapshot in &self.pending[at..] {
            let (state, pack) = (snapshot.state, Arc::clone(&pack));
            snapshot.link.send(FrozenPart::Pack { state, pack });
        }
    }

    /// Sends what was gathered for the snapshot at this position alone.
    fn send_own(&mut self, at: usize) {
        let snapshot = &mut self.pending[at];
        let own = std::mem::take(&mut snapshot.own);
        if !own.is_empty() {
            let (state, pack) = (snapshot.state, own.share());
            snapshot.link.send(FrozenPart::Pack { state, pack });
        }
    }
}

/// Adds the entries in the wanted ones of at most 64 buckets, but for the fresh one.
#[inline]
fn gather<K: StateKey, C: Content, N: StateKey>(
    entries: &HashTable<(EntryKey<K, N>, C)>,
    (buckets, mut wanted): (Range<usize>, u64),
    fresh: Option<usize>,
    outbox: &mut Pack<K, C, N>,
    key_group: KeyGroup,
) {
    let first = buckets.start;
    if let Some(fresh) = fresh
        && buckets.contains(&fresh)
    {
        wanted &= !(1 << (fresh - first));
    }
    // Which buckets are full is unpredictable, so it is found out first, without branches.
    if wanted.count_ones() >= SPARSE_BUCKETS {
        wanted &= full_buckets(entries, buckets);
    }
    let wanted = std::iter::from_fn(|| {
        let bucket = first + wanted.trailing_zeros() as usize;
        wanted &= wanted.checked_sub(1)?;
        Some(bucket)
    });
    outbox.extend(
        wanted.filter_map(|bucket| entries.get_bucket(bucket)),
        key_group,
    );
}

/// Which of at most 64 buckets are full, as bits.
///
/// In a form that compilers turn into a few instructions for many buckets at once: the indices are
/// seen to be in range, and each answer has a byte of its own.
#[inline]
fn full_buckets<T>(entries: &HashTable<T>, buckets: Range<usize>) -> u64 {
    assert!(
        buckets.start <= buckets.end && buckets.end <= entries.num_buckets(),
        "a table has its pages"
    );
    let mut full = [0u8; PAGE_BUCKETS_MAX];
    let answers = &mut full[..buckets.end - buckets.start];
    for bucket in buckets.clone() {
        answers[bucket - buckets.start] = u8::from(entries.get_bucket(bucket).is_some());
    }
    let mut bits = 0;
    for (at, eight) in full.as_chunks::<8>().0.iter().enumerate() {
        // The product moves the lowest bit of each byte to a place of its own in the highest byte.
        let product = u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080);
        bits |= (product >> 56) << (8 * at);
    }
    bits
}

pub(super) const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

pub(super) const fn clamp(value: usize, least: usize, most: usize) -> usize {
    if value < least {
        least
    } else if value > most {
        most
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_buckets_are_found_whatever_the_range() {
        let hash = |key: &u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut table = HashTable::new();
        for key in 0..150u64 {
            table.insert_unique(hash(&key), key, hash);
        }
        for start in 0..table.num_buckets() {
            for end in start..(start + PAGE_BUCKETS_MAX + 1).min(table.num_buckets() + 1) {
                let expected = (start..end).filter(|bucket| table.get_bucket(*bucket).is_some());
                let expected = expected.map(|bucket| 1 << (bucket - start)).sum::<u64>();
                assert_eq!(full_buckets(&table, start..end), expected, "{start}..{end}");
            }
        }
    }
}
