//! What an election and its records promise when the network or the store fails: every test runs
//! on each kind of store behind a network, a real server, through a proxy that fails on demand.

#![allow(
    clippy::unwrap_used,
    reason = "clippy takes what tests share for a program"
)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use support::meeting::{LEASE, Remote, remotes};
use support::proxy::{Lose, Proxy};
use tidegate_storage::{
    Candidate, ErrorKind, Expected, LeaderElection, Leadership, RecordStore, RecordVersion, Written,
};
use tokio::runtime::Runtime;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn on_each<F: Future<Output = ()>>(test: impl Fn(Arc<dyn Remote>, Proxy) -> F) {
    let runtime = Runtime::new().unwrap();
    for remote in remotes() {
        eprintln!("on {}", remote.kind());
        let ended = async {
            let proxy = Proxy::to(remote.port()).await;
            tokio::time::timeout(LONG, test(remote, proxy)).await
        };
        runtime.block_on(ended).expect("it ends in time");
    }
}

async fn win(election: &dyn LeaderElection, address: &str) -> Leadership {
    election.campaign(&Candidate::new(address)).await.unwrap()
}

async fn read(records: &dyn RecordStore) -> Option<(Bytes, RecordVersion)> {
    let found = records.read("value").await.unwrap();
    found.map(|found| (found.bytes, found.version))
}

async fn value(records: &dyn RecordStore) -> Option<Bytes> {
    read(records).await.map(|(bytes, _)| bytes)
}

async fn put(records: &dyn RecordStore, value: &'static str, expected: Expected) -> Written {
    records.write("value", Bytes::from(value), expected).await
}

#[track_caller]
fn done(written: Written) {
    assert!(matches!(written, Written::Done), "{written:?}");
}

// BC-02: whatever of a write gets lost, its outcome is found out, and it happens once.
#[test]
fn a_write_whose_request_or_answer_is_lost_is_done() {
    on_each(async |remote, proxy| {
        let leader = win(&*remote.election_at(proxy.port), "1").await;
        let records = leader.records();
        for what in [Lose::Request, Lose::Answer] {
            let next_write_is_lost = || proxy.lose(what, remote.is_write());
            next_write_is_lost();
            done(put(&*records, "one", Expected::Absent).await);
            assert!(proxy.has_lost());
            let (bytes, version) = read(&*records).await.unwrap();
            assert_eq!(bytes, "one");

            next_write_is_lost();
            done(put(&*records, "two", Expected::Version(version.clone())).await);
            assert!(proxy.has_lost());
            assert_eq!(value(&*records).await.unwrap(), "two");

            // What isn't as expected isn't written, answered or not.
            next_write_is_lost();
            let refused = put(&*records, "three", Expected::Version(version)).await;
            assert!(matches!(refused, Written::NotDone(_)), "{refused:?}");
            assert_eq!(value(&*records).await.unwrap(), "two");

            next_write_is_lost();
            done(records.remove("value").await);
            assert_eq!(value(&*records).await, None);

            next_write_is_lost();
            let _ = records.confirm().await;
        }
        assert_eq!(leader.loss().cause(), None);
        leader.release().await.unwrap();
    });
}

// BC-10, ID-05
#[test]
fn an_outage_shorter_than_the_lease_disturbs_nothing() {
    on_each(async |remote, proxy| {
        let leader = win(&*remote.election_at(proxy.port), "1").await;
        let (records, other) = (leader.records(), remote.election());
        for value in ["one", "two", "three"] {
            let expected = read(&*records).await;
            let expected = expected.map_or(Expected::Absent, |(_, v)| Expected::Version(v));
            proxy.cut();
            let during = put(&*records, value, expected);
            let back = async {
                tokio::time::sleep(LEASE / 5).await;
                proxy.open();
            };
            let (written, ()) = tokio::join!(during, back);
            done(written);
        }
        assert_eq!(value(&*records).await.unwrap(), "three");
        assert_eq!(leader.loss().cause(), None);
        let seen = other.current_leader().await.unwrap();
        assert_eq!(seen.as_ref(), Some(leader.info()));
    });
}

// BC-12: nothing is written as long as it is gone, nothing is lost, and it heals by itself.
#[test]
fn an_outage_longer_than_the_lease_ends_the_leadership_and_loses_nothing() {
    on_each(async |remote, proxy| {
        let election = remote.election_at(proxy.port);
        let old = win(&*election, "1").await;
        let records = old.records();
        done(put(&*records, "kept", Expected::Absent).await);
        let (_, version) = read(&*records).await.unwrap();

        proxy.cut();
        let lost = put(&*records, "lost", Expected::Version(version)).await;
        assert!(matches!(lost, Written::Unknown(_)), "{lost:?}");
        let error = records.confirm().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retryable, "{error}");
        old.loss().lost().await;
        let campaign = tokio::spawn(async move {
            let won = win(&*election, "2").await;
            (won.epoch(), value(&*won.records()).await)
        });
        tokio::time::sleep(LEASE / 2).await;
        assert!(!campaign.is_finished());
        proxy.open();
        let (epoch, value) = campaign.await.unwrap();
        assert!(epoch > old.epoch());
        // The proxy has let nothing through, so it is known here that it didn't happen.
        assert_eq!(value.unwrap(), "kept");
    });
}

// BC-11, BC-57: the leader is cut off in the middle of a write, another one leads, and then the
// write arrives.
#[test]
fn a_write_that_arrives_late_changes_nothing() {
    on_each(async |remote, proxy| {
        let old = win(&*remote.election_at(proxy.port), "1").await;
        let records = old.records();
        done(put(&*records, "one", Expected::Absent).await);
        let (_, version) = read(&*records).await.unwrap();

        proxy.hold();
        let late = tokio::spawn({
            let (records, version) = (Arc::clone(&records), version.clone());
            async move { put(&*records, "late", Expected::Version(version)).await }
        });
        let new = win(&*remote.election(), "2").await;
        assert!(new.epoch() > old.epoch());
        let theirs = new.records();
        let (bytes, version) = read(&*theirs).await.unwrap();
        assert_eq!(bytes, "one");
        proxy.open();
        let late = late.await.unwrap();
        assert!(!matches!(late, Written::Done), "{late:?}");
        done(put(&*theirs, "two", Expected::Version(version)).await);
        old.loss().lost().await;
        let again = put(&*records, "again", Expected::Absent).await;
        assert!(!matches!(again, Written::Done), "{again:?}");
        assert_eq!(value(&*theirs).await.unwrap(), "two");
        assert_eq!(new.loss().cause(), None);
    });
}

#[test]
fn a_store_that_answers_slowly_is_waited_for() {
    on_each(async |remote, proxy| {
        proxy.slow(LEASE / 20);
        let election = remote.election_at(proxy.port);
        let leader = win(&*election, "1").await;
        let records = leader.records();
        let mut expected = Expected::Absent;
        for value in ["one", "two", "three"] {
            done(put(&*records, value, expected).await);
            let (bytes, version) = read(&*records).await.unwrap();
            assert_eq!(bytes, value);
            expected = Expected::Version(version);
        }
        assert_eq!(leader.loss().cause(), None);
        leader.release().await.unwrap();
        assert_eq!(election.current_leader().await.unwrap(), None);
    });
}

#[test]
fn a_candidate_that_is_cut_off_waits_on() {
    on_each(async |remote, proxy| {
        let first = win(&*remote.election(), "1").await;
        let waiting = remote.election_at(proxy.port);
        let campaign = tokio::spawn(async move { win(&*waiting, "2").await });
        // It is a candidate, loses its session, and becomes one again.
        for _ in 0..2 {
            tokio::time::sleep(LEASE / 2).await;
            proxy.cut();
            tokio::time::sleep(LEASE * 2).await;
            proxy.open();
        }
        assert!(!campaign.is_finished());
        assert_eq!(first.loss().cause(), None);
        let epoch = first.epoch();
        first.release().await.unwrap();
        let second = campaign.await.unwrap();
        assert!(second.epoch() > epoch);
    });
}

#[test]
fn who_follows_sees_the_next_leader_after_an_outage() {
    on_each(async |remote, proxy| {
        let follower = remote.election_at(proxy.port);
        let first = win(&*remote.election(), "1").await;
        let seen = follower.leader_changed(None).await.unwrap();
        assert_eq!(seen.as_ref(), Some(first.info()));
        let following = tokio::spawn({
            let mut seen = seen.clone();
            async move {
                loop {
                    seen = follower.leader_changed(seen.as_ref()).await.unwrap();
                    if seen.as_ref().is_some_and(|leader| leader.address == "2") {
                        return seen;
                    }
                }
            }
        });
        proxy.cut();
        first.release().await.unwrap();
        let second = win(&*remote.election(), "2").await;
        tokio::time::sleep(LEASE * 2).await;
        assert!(!following.is_finished());
        proxy.open();
        assert_eq!(following.await.unwrap().as_ref(), Some(second.info()));
    });
}
