//! What an election promises whatever it is held in: every test runs on each kind of store.

#![allow(
    clippy::unwrap_used,
    reason = "clippy takes what tests share for a program"
)]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use support::meeting::{Meeting, meetings};
use tidegate_storage::{
    Candidate, ErrorKind, Expected, LeaderElection, Leadership, LossCause, RecordStore, Written,
};
use tokio::runtime::Runtime;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn on_each<F: Future<Output = ()>>(test: impl Fn(Arc<dyn Meeting>) -> F) {
    let runtime = Runtime::new().unwrap();
    for meeting in meetings() {
        eprintln!("on {}", meeting.kind());
        let ended = async { tokio::time::timeout(LONG, test(meeting)).await };
        runtime.block_on(ended).expect("it ends in time");
    }
}

async fn win(election: &dyn LeaderElection, address: &str) -> Leadership {
    election.campaign(&Candidate::new(address)).await.unwrap()
}

async fn write(records: &dyn RecordStore, value: &str) -> Written {
    let found = records.read("value").await.unwrap();
    let expected = found.map_or(Expected::Absent, |found| Expected::Version(found.version));
    records
        .write("value", Bytes::from(value.to_owned()), expected)
        .await
}

async fn value(records: &dyn RecordStore) -> Option<Bytes> {
    records
        .read("value")
        .await
        .unwrap()
        .map(|found| found.bytes)
}

#[test]
fn a_leader_is_found_and_followed() {
    on_each(async |meeting| {
        let (observer, one) = (meeting.election(), meeting.election());
        assert_eq!(observer.current_leader().await.unwrap(), None);
        let first = win(&*one, "10.0.0.1:1").await;
        let seen = observer.leader_changed(None).await.unwrap().unwrap();
        assert_eq!(&seen, first.info());
        assert_eq!(
            (seen.address.as_str(), seen.epoch),
            ("10.0.0.1:1", first.epoch())
        );
        assert_eq!(
            observer.current_leader().await.unwrap().as_ref(),
            Some(&seen)
        );
        assert_eq!(first.loss().cause(), None);

        // Nothing changes as long as it leads, and others wait.
        let two = meeting.election();
        let candidate = Candidate::new("10.0.0.2:2");
        let mut campaign = two.campaign(&candidate);
        let mut change = observer.leader_changed(Some(&seen));
        assert!((&mut campaign).now_or_never().is_none());
        assert!((&mut change).now_or_never().is_none());

        let (mut loss, records) = (first.loss(), first.records());
        first.release().await.unwrap();
        assert_eq!(loss.lost().await, LossCause::Released);
        let second = campaign.await.unwrap();
        assert!(second.epoch() > seen.epoch);
        let mut next = change.await.unwrap();
        if next.is_none() {
            next = observer.leader_changed(None).await.unwrap();
        }
        assert_eq!(next.as_ref(), Some(second.info()));

        // What has given the lead back writes no more.
        let Written::NotDone(error) = write(&*records, "late").await else {
            panic!("it has given the lead back");
        };
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        assert_eq!(value(&*second.records()).await, None);
        second.release().await.unwrap();
        assert_eq!(observer.current_leader().await.unwrap(), None);
    });
}

#[test]
fn whoever_gives_up_its_candidacy_is_not_waited_for() {
    on_each(async |meeting| {
        let first = win(&*meeting.election(), "1").await;
        let (impatient, patient) = (meeting.election(), meeting.election());
        let (second, third) = (Candidate::new("2"), Candidate::new("3"));
        let given_up =
            tokio::time::timeout(Duration::from_millis(200), impatient.campaign(&second));
        assert!(given_up.await.is_err());
        let waiting = async {
            first.release().await.unwrap();
        };
        let (won, ()) = tokio::join!(patient.campaign(&third), waiting);
        assert_eq!(won.unwrap().info().address, "3");
    });
}

// BC-12: what a leader leaves by ending, however, is taken up by the next.
#[test]
fn a_leader_that_is_gone_is_followed_by_another() {
    on_each(async |meeting| {
        let first = win(&*meeting.election(), "1").await;
        assert!(matches!(
            write(&*first.records(), "kept").await,
            Written::Done
        ));
        let epoch = first.epoch();
        drop(first);
        let second = win(&*meeting.election(), "2").await;
        assert!(second.epoch() > epoch);
        assert_eq!(value(&*second.records()).await, Some(Bytes::from("kept")));
    });
}

// BC-11, BC-62: two lead, and the older doesn't know.
#[test]
fn a_deposed_leader_changes_nothing_and_gets_to_know() {
    on_each(async |meeting| {
        let old = win(&*meeting.election(), "1").await;
        assert!(matches!(write(&*old.records(), "old").await, Written::Done));
        meeting.lose_leader().await;
        let new = win(&*meeting.election(), "2").await;
        assert!(new.epoch() > old.epoch());
        assert!(matches!(write(&*new.records(), "new").await, Written::Done));

        let records = old.records();
        let Written::NotDone(error) = write(&*records, "late").await else {
            panic!("another one leads");
        };
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        let Written::NotDone(error) = records.remove("value").await else {
            panic!("another one leads");
        };
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        assert_eq!(
            records.confirm().await.unwrap_err().kind(),
            ErrorKind::Fenced
        );
        let lost = old.loss().lost().await;
        assert!(!matches!(lost, LossCause::Released), "{lost}");
        assert!(old.release().await.is_err());

        assert_eq!(value(&*new.records()).await, Some(Bytes::from("new")));
        assert_eq!(new.loss().cause(), None);
        let seen = meeting.election().current_leader().await.unwrap();
        assert_eq!(seen.as_ref(), Some(new.info()));
    });
}

// BC-62: epochs only grow, and each leader sees all that its predecessors did.
#[test]
fn many_candidates_lead_one_after_the_other() {
    const CANDIDATES: u64 = 4;
    const TERMS: u64 = 3;
    on_each(async |meeting| {
        let lead = |index: u64| {
            let election = meeting.election();
            tokio::spawn(async move {
                let candidate = Candidate::new(&index.to_string());
                let mut epochs = Vec::new();
                for _ in 0..TERMS {
                    let won = election.campaign(&candidate).await.unwrap();
                    let records = won.records();
                    let count = value(&*records).await.map_or(0, |bytes| {
                        std::str::from_utf8(&bytes).unwrap().parse::<u64>().unwrap()
                    });
                    let written = write(&*records, &(count + 1).to_string()).await;
                    assert!(matches!(written, Written::Done), "{written:?}");
                    epochs.push(won.epoch());
                    won.release().await.unwrap();
                }
                epochs
            })
        };
        let leaders: Vec<_> = (0..CANDIDATES).map(lead).collect();
        let mut epochs = BTreeSet::new();
        for leader in leaders {
            epochs.extend(leader.await.unwrap());
        }
        assert_eq!(epochs.len() as u64, CANDIDATES * TERMS, "{epochs:?}");
        let last = win(&*meeting.election(), "last").await;
        assert!(Some(&last.epoch()) > epochs.last());
        let count = value(&*last.records()).await.unwrap();
        assert_eq!(count, (CANDIDATES * TERMS).to_string());
    });
}
