//! What only ZooKeeper does: it is restarted, and its nodes can be seen and damaged.

#![cfg(feature = "zookeeper")]
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes what tests share for a program"
)]

mod support;

use std::time::Duration;

use bytes::Bytes;
use support::zookeeper::ZooKeeper;
use tidegate_storage::{Candidate, ErrorKind, Expected, HaLocation, Written};
use tokio::runtime::Runtime;
use zookeeper_client::Client;

/// Longer than a restart takes.
const LEASE: Duration = Duration::from_secs(2);

fn location(zookeeper: &ZooKeeper) -> HaLocation {
    let url = format!("zk://127.0.0.1:{}/tidegate", zookeeper.port);
    HaLocation::parse(&url).unwrap()
}

#[test]
fn a_restart_within_the_lease_disturbs_nothing() {
    let mut zookeeper = ZooKeeper::start();
    let runtime = Runtime::new().unwrap();
    let election = location(&zookeeper).election_with("job", LEASE).unwrap();
    let candidate = Candidate::new("1");
    let leader = runtime.block_on(election.campaign(&candidate)).unwrap();
    let records = leader.records();
    let write = |name: &'static str| async {
        let written = records
            .write(name, Bytes::from("1"), Expected::Absent)
            .await;
        assert!(matches!(written, Written::Done), "{written:?}");
    };
    runtime.block_on(write("completed/1"));
    zookeeper.kill();
    // This one waits for it.
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| runtime.block_on(write("completed/2")));
        zookeeper.restart();
        waiting.join()
    });
    waiting.unwrap();
    let mut listed = runtime.block_on(records.list("completed")).unwrap();
    listed.sort();
    assert_eq!(listed, ["1", "2"]);
    assert_eq!(leader.loss().cause(), None);
    runtime.block_on(leader.release()).unwrap();
}

#[test]
fn jobs_do_not_see_each_other_and_lie_where_the_documentation_says() {
    let zookeeper = ZooKeeper::start();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let (one, two) = (location(&zookeeper), location(&zookeeper));
        let (one, two) = (one.election("job").unwrap(), two.election("a/b").unwrap());
        let first = one.campaign(&Candidate::new("1")).await.unwrap();
        let second = two.campaign(&Candidate::new("2")).await.unwrap();
        let records = first.records();
        let written = records.write("job", Bytes::from("x"), Expected::Absent);
        assert!(matches!(written.await, Written::Done));
        assert_eq!(second.records().read("job").await.unwrap(), None);

        let client = Client::connect(&format!("127.0.0.1:{}", zookeeper.port))
            .await
            .unwrap();
        let mut jobs = client.list_children("/tidegate").await.unwrap();
        jobs.sort();
        assert_eq!(jobs, ["a=2Fb", "job"]);
        let (bytes, _) = client.get_data("/tidegate/job/records/job").await.unwrap();
        assert_eq!(bytes, b"x");
        assert_eq!(
            records.describe("job"),
            format!("zk://127.0.0.1:{}/tidegate/job/records/job", zookeeper.port)
        );
        let mut nodes = client.list_children("/tidegate/job").await.unwrap();
        nodes.sort();
        assert_eq!(nodes, ["election", "epoch", "leader", "records"]);
        first.release().await.unwrap();
        let left = client
            .list_children("/tidegate/job/election")
            .await
            .unwrap();
        assert_eq!(left, Vec::<String>::new());
    });
}

#[test]
fn a_damaged_epoch_is_named_and_not_waited_for() {
    let zookeeper = ZooKeeper::start();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let election = location(&zookeeper).election_with("job", LEASE).unwrap();
        let first = election.campaign(&Candidate::new("1")).await.unwrap();
        first.release().await.unwrap();
        let client = Client::connect(&format!("127.0.0.1:{}", zookeeper.port))
            .await
            .unwrap();
        client
            .set_data("/tidegate/job/epoch", b"damaged", None)
            .await
            .unwrap();
        let error = election.campaign(&Candidate::new("2")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("/tidegate/job/epoch"), "{error}");
    });
}
