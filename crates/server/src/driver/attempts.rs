//! The attempt that runs, and what is counted of it and of those before.

use std::sync::Arc;

use tidegate_runtime::AttemptMetrics;
use tidegate_types::{AttemptNumber, CheckpointId, RestorePlan, Scale};

use crate::waiting::Observed;

use super::Driver;
use super::execution::Launch;

impl Driver {
    pub(super) fn start(
        &mut self,
        number: AttemptNumber,
        (restored, restore): (Option<CheckpointId>, RestorePlan),
        scale: Scale,
    ) {
        self.recovery.on_attempt(self.clock.elapsed(), number);
        self.fit_plan(scale);
        let statistics = self.job.statistics();
        self.observer
            .on_attempt(statistics.latest_restored.as_ref());
        let metrics = AttemptMetrics::new(self.plan.graph());
        let observed = Observed {
            attempt: number,
            metrics: metrics.clone(),
        };
        self.shared.observe(Some(observed.clone()));
        self.observed = Some(observed);
        self.execution.start(Launch {
            number,
            plan: Arc::clone(&self.plan),
            scale,
            restored,
            restore,
            metrics,
        });
    }

    fn fit_plan(&mut self, scale: Scale) {
        if self.plan.graph() != &**self.job.graph() {
            self.plan = Arc::new(self.plan.at(scale));
            self.shared.set_graph(Arc::clone(self.job.graph()));
        }
    }

    pub(super) fn stop(&mut self, attempt: AttemptNumber) {
        if let Some(observed) = self.observed.take_if(|o| o.attempt == attempt) {
            self.take_leave_of(&observed);
        }
        self.execution.stop(attempt);
    }

    /// Records emitted by the job's sources, in all attempts.
    pub(super) fn records(&self) -> u64 {
        let metrics = self.observed.as_ref().map(|observed| &observed.metrics);
        let graph = self.plan.graph();
        self.records_before + metrics.map_or(0, |metrics| metrics.records_of_sources(graph))
    }

    /// Counts what an attempt has emitted; nobody looks at it any more.
    pub(super) fn take_leave_of(&mut self, observed: &Observed) {
        self.records_before += observed.metrics.records_of_sources(self.plan.graph());
        self.shared.observe(None);
    }
}
