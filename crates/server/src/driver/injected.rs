//! Failures on purpose, for tests of a user's own pipeline.
//!
//! A failure takes the place of a report that a subtask sends, at a moment that the seed chooses:
//! an acknowledgement that never arrives, a commit that nobody hears of. The attempt's threads are
//! at work meanwhile, so what is lost in them differs from run to run; what may not differ is the
//! result.

use std::sync::{Arc, Mutex, PoisonError};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_runtime::ReportSink;
use tidegate_types::message::{AddressedReport, Report, SubtaskFailure};

use crate::options::InjectedFailures;

/// Most reports that pass between two failures.
const REPORTS_BETWEEN: u32 = 40;

/// Chooses the reports that failures take the place of.
struct Chooser {
    random: StdRng,
    failures_left: u32,
    reports_left: u32,
}

impl Chooser {
    fn new(injected: &InjectedFailures) -> Self {
        let mut random = StdRng::seed_from_u64(injected.seed);
        let reports_left = random.random_range(1..=REPORTS_BETWEEN);
        Chooser {
            random,
            failures_left: injected.failures,
            reports_left,
        }
    }

    /// Whether a failure takes the place of the next report.
    fn strikes(&mut self) -> bool {
        if self.failures_left == 0 {
            return false;
        }
        self.reports_left -= 1;
        if self.reports_left > 0 {
            return false;
        }
        self.failures_left -= 1;
        self.reports_left = self.random.random_range(1..=REPORTS_BETWEEN);
        true
    }
}

/// Injects failures into the attempts of a job.
pub(super) struct Injector(Option<Arc<Mutex<Chooser>>>);

impl Injector {
    pub(super) fn new(injected: Option<&InjectedFailures>) -> Self {
        let chooser = injected.map(|injected| Arc::new(Mutex::new(Chooser::new(injected))));
        Injector(chooser)
    }

    /// Puts failures in the place of some of the reports that an attempt sends.
    pub(super) fn wrap(&self, reports: ReportSink) -> ReportSink {
        let Some(chooser) = &self.0 else {
            return reports;
        };
        let chooser = Arc::clone(chooser);
        Arc::new(move |addressed: AddressedReport| {
            let strikes = {
                // Nothing in there can panic halfway.
                let mut chooser = chooser.lock().unwrap_or_else(PoisonError::into_inner);
                chooser.strikes()
            };
            if !strikes {
                return reports(addressed);
            }
            let failure = SubtaskFailure::here(None, "injected failure");
            reports(AddressedReport {
                attempt: addressed.attempt,
                report: Report::Failed(failure),
            });
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strikes(seed: u64, failures: u32) -> Vec<u32> {
        let mut chooser = Chooser::new(&InjectedFailures { seed, failures });
        (0..10_000).filter(|_| chooser.strikes()).collect()
    }

    #[test]
    fn the_seed_chooses_and_the_number_limits() {
        assert!(strikes(1, 0).is_empty());
        let ten = strikes(1, 10);
        assert_eq!(ten.len(), 10);
        assert_eq!(ten, strikes(1, 10), "again");
        assert_ne!(ten, strikes(2, 10), "another seed");
        let gaps = ten.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.clone().all(|gap| (1..=REPORTS_BETWEEN).contains(&gap)));
    }
}
