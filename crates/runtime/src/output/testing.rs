//! A collector that leads nowhere, so that tests can drive an operator or a reader by hand.

use tidegate_state::Record;

use super::Collector;

/// Records that were emitted and not taken out yet.
pub(super) struct Kept<T> {
    records: Vec<T>,
    records_max: usize,
}

impl<T> Kept<T> {
    /// Returns whether there is no room for more.
    pub(super) fn take_in(&mut self, staged: &mut Vec<T>) -> bool {
        self.records.append(staged);
        self.records.len() >= self.records_max
    }
}

impl<T: Record> Collector<T> {
    /// A collector that keeps what is emitted until [`take_collected`](Self::take_collected), and
    /// is full once it holds `records_max` records. As in a running job, fullness shows when a run
    /// of records is routed: up to 512 records or 16 KiB late.
    pub fn collecting(records_max: usize) -> Self {
        let mut collector = Collector::new(Vec::new());
        collector.kept = Some(Kept {
            records: Vec::new(),
            records_max,
        });
        collector
    }

    /// All records emitted since the last call, in order; then there is room again. Empty for a
    /// collector that wasn't made by [`collecting`](Self::collecting).
    pub fn take_collected(&mut self) -> Vec<T> {
        let Some(kept) = &mut self.kept else {
            return Vec::new();
        };
        kept.take_in(&mut self.staged);
        self.staged_bytes = 0;
        self.full = false;
        std::mem::take(&mut kept.records)
    }
}
