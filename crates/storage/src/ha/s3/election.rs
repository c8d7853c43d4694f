//! The election: candidates look at the lease until they may take it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use tidegate_types::LeaderEpoch;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::lease::{Challenger, Seen, pause_between_looks};
use super::records::{Current, Leading, S3Records};
use super::table::Table;
use super::{LEASE, Object, Objects, Put, RECORDS, S3Location};
use crate::error::{ErrorKind, StorageError};
use crate::ha::election::{Candidate, LeaderElection, LeaderInfo, Leadership, Led, LossReporter};
use crate::ha::trouble::Trouble;
use crate::record;

/// Shortest term: its requests get a third of it.
const TERM_MIN: Duration = Duration::from_millis(300);

/// What the object `lease` holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    led: Led,
    term: Duration,
    renewals: u64,
}

impl Lease {
    pub(super) fn renewed(&self) -> Lease {
        Lease {
            renewals: self.renewals + 1,
            ..self.clone()
        }
    }

    pub(super) fn given_back(&self) -> Lease {
        let mut vacant = self.renewed();
        vacant.led.leader = None;
        vacant
    }

    pub(super) fn encode(&self) -> Bytes {
        let [epoch, instance, address] = self.led.fields();
        let term = self.term.as_millis().to_string();
        let renewals = self.renewals.to_string();
        record::LEASE
            .encode(&[&epoch, &instance, &address, &term, &renewals])
            .into()
    }

    fn decode(file: &str, bytes: &[u8]) -> Result<Lease, StorageError> {
        let values = record::LEASE.decode(file, bytes)?;
        let term = record::parse_number(file, &values[3])?;
        Ok(Lease {
            led: Led::of_fields(file, &values[0], &values[1], &values[2])?,
            term: Duration::from_millis(term),
            renewals: record::parse_number(file, &values[4])?,
        })
    }
}

/// The election of one job's leader in a bucket.
#[derive(Debug)]
pub(crate) struct S3Election {
    objects: Objects,
    term: Duration,
}

impl S3Election {
    pub(in crate::ha) fn of(
        location: &S3Location,
        job: &str,
        term: Duration,
    ) -> Result<S3Election, StorageError> {
        let term = term.max(TERM_MIN);
        Ok(S3Election {
            objects: Objects::of(location, job, term / 3)?,
            term,
        })
    }

    async fn win(&self, candidate: &Candidate) -> Result<Leadership, StorageError> {
        let mut challenger = Challenger::new(self.term);
        let begun = Instant::now();
        let mut trouble = Trouble::default();
        loop {
            match self.challenge(candidate, &mut challenger, begun).await {
                Err(error) if error.kind() == ErrorKind::Retryable => {
                    trouble.on_failure("the lead can't be taken", &error);
                }
                answer => {
                    trouble.on_answer();
                    if let Some(won) = answer? {
                        return Ok(won);
                    }
                }
            }
            tokio::time::sleep(pause_between_looks(self.term)).await;
        }
    }

    /// Looks at the lease and takes it if it may be taken; none if not, or if somebody was faster.
    async fn challenge(
        &self,
        candidate: &Candidate,
        challenger: &mut Challenger,
        begun: Instant,
    ) -> Result<Option<Leadership>, StorageError> {
        let asked = begun.elapsed();
        let found = self.objects.get(LEASE).await?;
        let answered = begun.elapsed();
        let lease = found.as_ref().map(|found| self.decode(found)).transpose()?;
        let seen = found.iter().zip(&lease).next().map(|(found, lease)| Seen {
            tag: found.tag.clone(),
            vacant: lease.led.leader.is_none(),
            term: lease.term,
        });
        if !challenger.may_take(asked, answered, seen.as_ref()) {
            return Ok(None);
        }
        // A lease that somebody has deleted doesn't take the epochs with it.
        let table = self.table().await?;
        let latest = table
            .as_ref()
            .map_or(LeaderEpoch(0), |found| found.table.epoch);
        let latest = lease.map_or(latest, |lease| lease.led.epoch.max(latest));
        let claim = Lease {
            led: Led::by(LeaderInfo::of(candidate, LeaderEpoch(latest.0 + 1))),
            term: self.term,
            renewals: 0,
        };
        let sent = Instant::now();
        let Some(tag) = self.claim(&claim, found.as_ref()).await? else {
            return Ok(None);
        };
        let Some(current) = self.seal(table, claim.led.epoch).await? else {
            return Ok(None);
        };
        Ok(Some(self.lead(claim, tag, current, sent)))
    }

    fn lead(&self, claim: Lease, tag: String, current: Current, sent: Instant) -> Leadership {
        let info = claim
            .led
            .leader
            .clone()
            .expect("it was claimed by somebody");
        let loss = LossReporter::new();
        let watched = loss.loss();
        let leading = Leading {
            objects: self.objects.clone(),
            info: info.clone(),
            term: self.term,
            loss,
            current: Mutex::new(Some(current)),
            lease: Mutex::new((claim, tag)),
        };
        Leadership::new(info, Arc::new(S3Records::new(leading, sent)), watched)
    }

    fn decode(&self, found: &Object) -> Result<Lease, StorageError> {
        Lease::decode(&self.objects.describe(LEASE), &found.bytes)
    }

    async fn table(&self) -> Result<Option<Current>, StorageError> {
        let Some(found) = self.objects.get(RECORDS).await? else {
            return Ok(None);
        };
        Ok(Some(Current {
            table: Table::decode(&self.objects.describe(RECORDS), &found.bytes)?,
            tag: found.tag,
        }))
    }

    /// Puts our lease in the place of the one that was seen. Returns its tag.
    async fn claim(
        &self,
        claim: &Lease,
        seen: Option<&Object>,
    ) -> Result<Option<String>, StorageError> {
        let expected = seen.map(|seen| seen.tag.as_str());
        match self.objects.put(LEASE, claim.encode(), expected).await {
            Put::Done(tag) => Ok(Some(tag)),
            Put::Refused => Ok(None),
            // If it happens later, it is a lease that nobody renews.
            Put::InDoubt(error) => match self.objects.get(LEASE).await {
                Ok(Some(found)) if found.bytes == claim.encode() => Ok(Some(found.tag)),
                Ok(_) => Ok(None),
                Err(_) => Err(error),
            },
        }
    }

    /// Makes the records ours: from now on a former leader can't replace them.
    async fn seal(
        &self,
        mut found: Option<Current>,
        epoch: LeaderEpoch,
    ) -> Result<Option<Current>, StorageError> {
        loop {
            let sealed = match &found {
                // Another one has claimed the lease since, and is ahead of us.
                Some(found) if found.table.epoch >= epoch => return Ok(None),
                Some(found) => found.table.sealed(epoch),
                None => Table::empty(epoch),
            };
            let tag = found.as_ref().map(|found| found.tag.as_str());
            match self.objects.put(RECORDS, sealed.encode().into(), tag).await {
                Put::Done(tag) => return Ok(Some(Current { table: sealed, tag })),
                // The former leader has written in between.
                Put::Refused => found = self.table().await?,
                Put::InDoubt(error) => match self.table().await? {
                    Some(now) if now.table == sealed => return Ok(Some(now)),
                    // It may happen yet; then it is sealed for an epoch in which nobody leads.
                    _ => return Err(error),
                },
            }
        }
    }

    async fn read(&self) -> Result<Option<LeaderInfo>, StorageError> {
        let found = self.objects.get(LEASE).await?;
        let lease = found.map(|found| self.decode(&found)).transpose()?;
        Ok(lease.and_then(|lease| lease.led.leader))
    }

    async fn peek_at(&self, name: &str) -> Result<Option<Bytes>, StorageError> {
        let found = self.table().await?;
        Ok(found
            .and_then(|found| found.table.get(name))
            .map(|found| found.bytes))
    }

    async fn change(&self, known: Option<&LeaderInfo>) -> Result<Option<LeaderInfo>, StorageError> {
        loop {
            match self.read().await {
                Ok(found) if found.as_ref() != known => return Ok(found),
                Err(error) if error.kind() != ErrorKind::Retryable => return Err(error),
                _ => tokio::time::sleep(pause_between_looks(self.term)).await,
            }
        }
    }
}

impl LeaderElection for S3Election {
    fn campaign<'a>(
        &'a self,
        candidate: &'a Candidate,
    ) -> BoxFuture<'a, Result<Leadership, StorageError>> {
        self.win(candidate).boxed()
    }

    fn peek<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, StorageError>> {
        self.peek_at(name).boxed()
    }

    fn current_leader(&self) -> BoxFuture<'_, Result<Option<LeaderInfo>, StorageError>> {
        self.read().boxed()
    }

    fn leader_changed<'a>(
        &'a self,
        known: Option<&'a LeaderInfo>,
    ) -> BoxFuture<'a, Result<Option<LeaderInfo>, StorageError>> {
        self.change(known).boxed()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ha::election::InstanceId;

    #[test]
    fn the_golden_file_is_what_a_leader_writes() {
        let candidate = Candidate {
            instance: InstanceId(Uuid::from_u128(0xffee_ddcc_bbaa_9988_7766_5544_3322_1100)),
            address: "10.0.0.7:6123".to_owned(),
        };
        let claim = Lease {
            led: Led::by(LeaderInfo::of(&candidate, LeaderEpoch(8))),
            term: Duration::from_secs(6),
            renewals: 0,
        };
        let renewed = claim.renewed();
        let golden = include_str!("../../../tests/golden/lease-v1.txt");
        assert_eq!(renewed.encode(), golden);
        assert_eq!(Lease::decode("f", golden.as_bytes()).unwrap(), renewed);
        let vacant = renewed.given_back();
        assert_eq!(Lease::decode("f", &vacant.encode()).unwrap(), vacant);
        assert_eq!(
            (vacant.led.epoch, vacant.led.leader),
            (LeaderEpoch(8), None)
        );
    }
}
