//! A two-phase sink as an operator: which transactions are open, pre-committed, committed.
//!
//! Invariants: a snapshot lists every transaction that isn't known to be committed; an abort rolls
//! nothing back, the transactions go out with the next completed checkpoint; commits run one at a
//! time in order on the background thread, and `Committed(n)` is reported after all up to *n*.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidegate_types::message::Report;
use tidegate_types::{CheckpointBarrier, CheckpointId, ListState, Redistribution};

use super::{Committer, PreCommitted, SinkContext, TransactionWriter, TwoPhaseSink};
use crate::background::Background;
use crate::batch::Batch;
use crate::error::{BoxError, chain};
use crate::logic::{Flow, Logic, Seal, Snapshot, SubtaskContext};
use crate::output::Collector;
use crate::source::decode_list;

/// Name of the list state that holds the uncommitted transactions, one an element.
const STATE: &str = "transactions";

/// A pre-committed transaction, as the snapshot keeps it.
#[derive(Clone, Serialize, Deserialize)]
struct Kept<X> {
    /// The checkpoint it was pre-committed for.
    checkpoint: CheckpointId,
    transaction: X,
}

/// A pre-committed transaction that isn't known to be committed.
#[derive(Clone)]
struct Pending<X> {
    kept: Kept<X>,
    seal: SharedSeal,
}

/// Makes a transaction durable once, on behalf of whichever checkpoint first gets that far.
///
/// A checkpoint that is aborted may never run its seals, but its transactions are part of the
/// next one: so every snapshot carries the seals of all pending transactions. A failure is kept:
/// after a failed sync a second one may claim success for data that was dropped.
#[derive(Clone)]
struct SharedSeal(Arc<Mutex<SealState>>);

enum SealState {
    Open(Seal),
    Sealed,
    Failed(String),
}

/// Sealing has failed before, and can't be trusted to work now.
#[derive(Debug, thiserror::Error)]
#[error("a transaction could not be made durable: {cause}")]
struct SealError {
    cause: String,
}

impl SharedSeal {
    fn new(seal: Seal) -> Self {
        SharedSeal(Arc::new(Mutex::new(SealState::Open(seal))))
    }

    /// Whether there is nothing to do any more. Never waits: a seal that is running may take long,
    /// and running it again costs nothing.
    fn is_sealed(&self) -> bool {
        let state = self.0.try_lock();
        state.is_ok_and(|state| matches!(*state, SealState::Sealed))
    }

    fn run(&self) -> Result<(), SealError> {
        let mut state = lock(&self.0);
        if let SealState::Open(_) = *state {
            let lost = SealState::Failed("sealing was interrupted by a panic".to_owned());
            let SealState::Open(seal) = std::mem::replace(&mut *state, lost) else {
                unreachable!("matched above")
            };
            *state = match seal() {
                Ok(()) => SealState::Sealed,
                Err(error) => SealState::Failed(chain(&error)),
            };
        }
        match &*state {
            SealState::Failed(cause) => Err(SealError {
                cause: cause.clone(),
            }),
            SealState::Open(_) | SealState::Sealed => Ok(()),
        }
    }
}

pub(crate) struct TwoPhase<T, S: TwoPhaseSink<T>> {
    writer: S::Writer,
    committer: Arc<Mutex<S::Committer>>,
    /// Not known to be committed, oldest first. Shared with commits under way.
    pending: Arc<Mutex<Vec<Pending<S::Transaction>>>>,
    commits: Commits,
    /// Leftovers of former attempts are still to be removed, by this subtask.
    cleans_up: Arc<AtomicBool>,
    records: PhantomData<fn(T)>,
}

/// What a commit needs besides the transactions.
#[derive(Clone)]
struct Commits {
    background: Background,
    reports: crate::report::Reporter,
    context: SinkContext,
}

impl<T: 'static, S: TwoPhaseSink<T>> TwoPhase<T, S> {
    pub(crate) fn open(sink: &S, context: &SubtaskContext) -> Result<Self, BoxError> {
        let place = SinkContext::of(context);
        let restored: Vec<Kept<S::Transaction>> = decode_list(context, STATE)?;
        let mut committer = sink.committer(place.clone())?;
        // Before anything new is written: what the checkpoint promised becomes visible.
        for kept in &restored {
            committer.commit(&kept.transaction)?;
        }
        Ok(TwoPhase {
            writer: sink.writer(place.clone())?,
            committer: Arc::new(Mutex::new(committer)),
            pending: Arc::default(),
            cleans_up: Arc::new(AtomicBool::new(place.subtask.index == 0)),
            commits: Commits {
                background: context.commits.clone(),
                reports: context.reports.clone(),
                context: place,
            },
            records: PhantomData,
        })
    }

    fn commit_up_to(&self, checkpoint: CheckpointId) {
        let committer = Arc::clone(&self.committer);
        let pending = Arc::clone(&self.pending);
        let cleans_up = Arc::clone(&self.cleans_up);
        let commits = self.commits.clone();
        let subtask = commits.context.subtask;
        let reports = commits.reports.clone();
        let commit = move || {
            let mut committer = lock(&committer);
            if let Err(error) = commit_pending(&mut *committer, &pending, checkpoint) {
                commits.reports.fail(Some(subtask), chain(&error));
                return;
            }
            // A completed checkpoint of this attempt means that every subtask has restored.
            if cleans_up.load(Ordering::Relaxed) && commits.clean_up(&mut *committer) {
                cleans_up.store(false, Ordering::Relaxed);
            }
            let committed = Report::Committed {
                checkpoint,
                subtask,
            };
            commits.reports.send(committed);
        };
        let on_panic = move |cause| reports.fail(Some(subtask), cause);
        self.commits.background.run(commit, on_panic);
    }
}

impl Commits {
    /// Returns whether it worked; if not, the next commit tries again.
    fn clean_up(&self, committer: &mut impl Committer) -> bool {
        let outcome = committer.clean_up(self.context.attempt);
        if let Err(error) = &outcome {
            tracing::warn!(
                operator = self.context.uid,
                error = chain(error),
                "could not remove what former attempts left"
            );
        }
        outcome.is_ok()
    }
}

/// A panic in user code while the lock was held ends the attempt; until then, others may go on.
fn lock<X>(mutex: &Mutex<X>) -> MutexGuard<'_, X> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Commits everything up to `checkpoint`. One failure doesn't keep the others from being tried;
/// the first is returned.
fn commit_pending<C: Committer>(
    committer: &mut C,
    pending: &Mutex<Vec<Pending<C::Transaction>>>,
    checkpoint: CheckpointId,
) -> Result<(), BoxError>
where
    C::Transaction: Clone,
{
    let due: Vec<_> = lock(pending)
        .iter()
        .filter(|entry| entry.kept.checkpoint <= checkpoint)
        .map(|entry| entry.kept.transaction.clone())
        .collect();
    let outcomes: Vec<_> = due
        .iter()
        .map(|transaction| committer.commit(transaction))
        .collect();
    let failed = outcomes.into_iter().find_map(Result::err);
    match failed {
        Some(error) => Err(error),
        None => {
            lock(pending).retain(|entry| entry.kept.checkpoint > checkpoint);
            Ok(())
        }
    }
}

fn encode<X: Serialize + DeserializeOwned>(pending: &[Pending<X>]) -> Result<ListState, BoxError> {
    let encode = |entry: &Pending<X>| postcard::to_stdvec(&entry.kept);
    let elements = pending.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
    Ok(ListState {
        name: STATE.to_owned(),
        redistribution: Redistribution::Split,
        elements,
    })
}

impl<T: 'static, S: TwoPhaseSink<T>> Logic<T, ()> for TwoPhase<T, S> {
    fn process(
        &mut self,
        input: &mut Batch<T>,
        _out: &mut Collector<()>,
    ) -> Result<Flow, BoxError> {
        self.writer.write(input)
    }

    fn snapshot(&mut self, barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        let checkpoint = barrier.checkpoint;
        let ended = self.writer.pre_commit(checkpoint)?;
        let mut pending = lock(&self.pending);
        pending.extend(
            ended
                .into_iter()
                .map(|PreCommitted { transaction, seal }| Pending {
                    kept: Kept {
                        checkpoint,
                        transaction,
                    },
                    seal: SharedSeal::new(seal),
                }),
        );
        let unsealed = pending.iter().map(|entry| entry.seal.clone());
        let seals = unsealed
            .filter(|seal| !seal.is_sealed())
            .map(|seal| Box::new(move || Ok(seal.run()?)) as Seal)
            .collect();
        Ok(Snapshot {
            lists: vec![encode(&pending)?],
            seals,
            ..Snapshot::default()
        })
    }

    fn on_completed(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        self.commit_up_to(checkpoint);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
