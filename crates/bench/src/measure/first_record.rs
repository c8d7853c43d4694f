//! Notes when the first record reaches a sink, and how many do.
//!
//! The sink around which this is put does its own work; what is added is a branch and an addition
//! per batch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tidegate::sink::{Sink, SinkContext, SinkWriter};
use tidegate::{Batch, BoxError, Flow};

static PROCESS_START: OnceLock<Instant> = OnceLock::new();

/// The first thing that `main` does.
pub(crate) fn note_process_start() {
    PROCESS_START.get_or_init(Instant::now);
}

/// Time since `main` was entered.
fn since_process_start() -> Duration {
    PROCESS_START.get_or_init(Instant::now).elapsed()
}

/// What has arrived so far. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals {
    first: Arc<OnceLock<Duration>>,
    records: Arc<AtomicU64>,
}

impl Arrivals {
    /// Notes that a batch of so many records is there.
    pub(crate) fn add(&self, records: usize) {
        if records > 0 {
            self.first.get_or_init(since_process_start);
            self.records.fetch_add(records as u64, Ordering::Relaxed);
        }
    }

    /// From the start of the process to the first record.
    pub(crate) fn first(&self) -> Option<Duration> {
        self.first.get().copied()
    }

    /// How many records.
    pub(crate) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }
}

/// A sink whose arrivals are noted.
#[derive(Clone, Debug)]
pub(crate) struct Arriving<S> {
    /// Does the work.
    pub(crate) sink: S,
    /// Notes.
    pub(crate) arrivals: Arrivals,
}

impl<T: 'static, S: Sink<T>> Sink<T> for Arriving<S> {
    type Writer = Arriving<S::Writer>;

    fn check(&self) -> Result<(), BoxError> {
        self.sink.check()
    }

    fn writer(&self, context: SinkContext) -> Result<Self::Writer, BoxError> {
        Ok(Arriving {
            sink: self.sink.writer(context)?,
            arrivals: self.arrivals.clone(),
        })
    }
}

impl<T: 'static, W: SinkWriter<T>> SinkWriter<T> for Arriving<W> {
    fn write(&mut self, records: &mut Batch<T>) -> Result<Flow, BoxError> {
        let offered = records.len();
        let flow = self.sink.write(records)?;
        self.arrivals.add(offered - records.len());
        Ok(flow)
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        self.sink.flush()
    }
}
