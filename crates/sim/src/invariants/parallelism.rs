//! Whoever was told that a parallelism is recorded finds the job so large, whichever process goes
//! on with it, as long as it is started as it was.
//!
//! Source: the coordinator's contract for [`Rescaled::recorded`]; Flink, which keeps a job's
//! resource requirements with its graph (FLIP-291).

use tidegate_coordinator::{Answer, JobAction, Rescaled};
use tidegate_types::{AskedParallelism, Scale};

use super::{Checked, ensure};

const NAME: &str = "parallelism";

#[derive(Debug, Default)]
pub(crate) struct Parallelism {
    /// What this process was to record last.
    latest: Option<AskedParallelism>,
    /// What somebody was told of, and nobody has changed since.
    promised: Option<AskedParallelism>,
    /// What the first attempt of this process is to have.
    due: Option<u32>,
}

impl Parallelism {
    /// A new namespace has no record.
    pub(crate) fn on_namespace(&mut self) {
        *self = Parallelism::default();
    }

    /// A process starts the job with this parallelism.
    pub(crate) fn on_process(&mut self, declared: Option<u32>) {
        let holds = |promised: &AskedParallelism| Some(promised.declared) == declared;
        let promised = self.promised.filter(holds);
        self.due = promised.map(|promised| promised.asked);
        self.latest = None;
    }

    pub(crate) fn on_action(&mut self, action: &JobAction) -> Checked {
        match action {
            JobAction::RecordParallelism { asked } => {
                (self.latest, self.promised) = (*asked, None);
                Ok(())
            }
            JobAction::RecordEnd { .. } => {
                (self.latest, self.promised) = (None, None);
                Ok(())
            }
            JobAction::Answer { answer, .. } => {
                if let Answer::Rescaled(Rescaled { recorded: true, .. }) = **answer {
                    self.promised = self.latest;
                }
                Ok(())
            }
            JobAction::StartAttempt { scale, .. } => self.on_start(*scale),
            _ => Ok(()),
        }
    }

    fn on_start(&mut self, scale: Scale) -> Checked {
        let Some(due) = self.due.take() else {
            return Ok(());
        };
        ensure(scale.parallelism == Some(due), NAME, || {
            format!("a parallelism of {due} was recorded, and an attempt is at {scale:?}")
        })
    }
}
