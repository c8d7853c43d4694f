//! When a lease may be taken and when it has run out. Pure: whoever drives it has the clock.
//!
//! No two machines' clocks are compared. The holder changes the lease again and again; a challenger
//! takes it only after it has seen the very same lease for a whole term by its own clock. The
//! holder counts a term from the moment it *sent* its last successful renewal, which was before
//! any challenger could see it: so it knows that it may have lost the lease before anybody takes
//! it. If its process stands still just then, it doesn't; the epoch in the records is for that.
//!
//! All times are since a moment that the driver chooses.

use std::time::Duration;

/// A term has this many renewals.
const RENEWALS_PER_TERM: u32 = 3;
/// A challenger looks this often in a term.
const LOOKS_PER_TERM: u32 = 12;

/// Pause between two looks at a lease of this term.
pub(super) fn pause_between_looks(term: Duration) -> Duration {
    term / LOOKS_PER_TERM
}

/// A lease as a challenger sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Its entity tag, another one after each renewal.
    pub(super) tag: String,
    /// Whether it was given back.
    pub(super) vacant: bool,
    /// How long its holder has said it may be trusted.
    pub(super) term: Duration,
}

/// Decides when a lease may be taken.
#[derive(Debug)]
pub(super) struct Challenger {
    term: Duration,
    /// The tag that was seen last, and since when.
    watched: Option<(String, Duration)>,
}

impl Challenger {
    /// One that gives a lease at least `term`.
    pub(super) fn new(term: Duration) -> Challenger {
        Challenger {
            term,
            watched: None,
        }
    }

    /// Whether the lease may be taken. It was read after `asked` and before `now`.
    pub(super) fn may_take(&mut self, asked: Duration, now: Duration, seen: Option<&Seen>) -> bool {
        assert!(asked <= now, "{asked:?} is before {now:?}");
        let Some(seen) = seen.filter(|seen| !seen.vacant) else {
            self.watched = None;
            return true;
        };
        match &self.watched {
            // It has been unchanged between when it was known first and when this was asked.
            Some((tag, since)) if *tag == seen.tag => {
                asked.saturating_sub(*since) >= self.term.max(seen.term)
            }
            _ => {
                self.watched = Some((seen.tag.clone(), now));
                false
            }
        }
    }
}

/// Decides when a lease is renewed, and when it can't be relied on any more.
#[derive(Debug)]
pub(super) struct Holder {
    term: Duration,
    /// When the last renewal that succeeded was sent.
    renewed: Duration,
}

impl Holder {
    /// One that sent its claim at `sent`.
    pub(super) fn new(term: Duration, sent: Duration) -> Holder {
        Holder {
            term,
            renewed: sent,
        }
    }

    /// A renewal that was sent at `sent` has succeeded.
    pub(super) fn on_renewed(&mut self, sent: Duration) {
        self.renewed = self.renewed.max(sent);
    }

    /// How long to wait with the next renewal.
    pub(super) fn until_renewal(&self, now: Duration) -> Duration {
        (self.renewed + self.term / RENEWALS_PER_TERM).saturating_sub(now)
    }

    /// Whether a challenger may have taken it.
    pub(super) fn has_run_out(&self, now: Duration) -> bool {
        now.saturating_sub(self.renewed) >= self.term
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TERM: Duration = Duration::from_secs(6);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn seen(tag: &str) -> Seen {
        Seen {
            tag: tag.to_owned(),
            vacant: false,
            term: TERM,
        }
    }

    #[test]
    fn a_lease_is_taken_after_a_term_without_a_change() {
        let mut challenger = Challenger::new(TERM);
        assert!(!challenger.may_take(at(0), at(100), Some(&seen("a"))));
        assert!(!challenger.may_take(at(5_000), at(9_000), Some(&seen("a"))));
        // Renewed in between: the term begins anew, when the answer is there.
        assert!(!challenger.may_take(at(9_000), at(9_500), Some(&seen("b"))));
        assert!(!challenger.may_take(at(15_499), at(15_600), Some(&seen("b"))));
        assert!(challenger.may_take(at(15_500), at(15_600), Some(&seen("b"))));
    }

    #[test]
    fn no_lease_and_one_given_back_are_taken_at_once() {
        let mut challenger = Challenger::new(TERM);
        assert!(challenger.may_take(at(0), at(1), None));
        let vacant = Seen {
            vacant: true,
            ..seen("a")
        };
        assert!(challenger.may_take(at(1), at(2), Some(&vacant)));
    }

    #[test]
    fn the_longer_term_counts() {
        let long = Seen {
            term: TERM * 2,
            ..seen("a")
        };
        let mut challenger = Challenger::new(TERM);
        assert!(!challenger.may_take(at(0), at(0), Some(&long)));
        assert!(!challenger.may_take(at(11_999), at(12_000), Some(&long)));
        assert!(challenger.may_take(at(12_000), at(12_000), Some(&long)));
    }

    #[test]
    fn a_holder_renews_three_times_a_term_and_counts_from_sending() {
        let mut holder = Holder::new(TERM, at(1_000));
        assert_eq!(holder.until_renewal(at(1_500)), at(1_500));
        assert_eq!(holder.until_renewal(at(9_000)), at(0));
        assert!(!holder.has_run_out(at(6_999)));
        assert!(holder.has_run_out(at(7_000)));
        holder.on_renewed(at(3_000));
        assert!(!holder.has_run_out(at(8_999)));
        holder.on_renewed(at(2_000));
        assert!(!holder.has_run_out(at(8_999)));
        assert!(holder.has_run_out(at(9_000)));
    }

    proptest! {
        /// However requests are delayed, and whatever the clocks say: when a lease is taken, its
        /// holder, asked, says that it has run out.
        #[test]
        fn nobody_takes_a_lease_that_its_holder_relies_on(
            renewals in prop::collection::vec((0u64..2_500, 0u64..2_000), 1..20),
            looks in prop::collection::vec((0u64..2_000, 0u64..1_000, 0u64..1_000), 1..60),
            offset in 0u64..1_000_000,
        ) {
            // In true time: when each renewal is sent, and when it takes effect.
            let mut sent = Vec::new();
            let mut now = 0;
            for (pause, delay) in renewals {
                sent.push((now, now + delay));
                now += delay + pause;
            }
            let mut challenger = Challenger::new(TERM);
            let mut now = 0;
            for (pause, there, back) in looks {
                let asked = now + pause;
                let read = asked + there;
                now = read + back;
                let effective = sent.iter().filter(|(_, effect)| *effect <= read).count();
                let tag = effective.checked_sub(1).map(|last| seen(&last.to_string()));
                let Some(tag) = tag else { continue };
                let (asked, answered) = (at(asked + offset), at(now + offset));
                if challenger.may_take(asked, answered, Some(&tag)) {
                    let holder = Holder::new(TERM, at(sent[effective - 1].0));
                    prop_assert!(holder.has_run_out(at(read)));
                }
            }
        }
    }
}
