//! Two contenders for the lead, each on a network of its own that fails at random, write the
//! history of what they did into one record.
//!
//! Whatever happens, that history is linear: what is done is in it once, what isn't done never,
//! and no entry of an epoch follows one of a newer epoch. A seed draws the faults and their times;
//! `TIDEGATE_ELECTION_SEED` gives another one.

#![allow(
    clippy::unwrap_used,
    reason = "clippy takes what tests share for a program"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use support::meeting::{LEASE, Remote, remotes};
use support::proxy::{Lose, Proxy};
use tidegate_storage::{Candidate, Expected, LeaderElection, Leadership, RecordStore, Written};
use tidegate_types::LeaderEpoch;
use tokio::runtime::Runtime;

/// How long faults happen.
const TURMOIL: Duration = Duration::from_secs(12);
/// How long healing takes at most.
const HEALING_MAX: Duration = Duration::from_secs(30);

/// What became of the entries that were written.
#[derive(Default)]
struct Outcomes {
    done: BTreeSet<String>,
    not_done: BTreeSet<String>,
    unknown: BTreeSet<String>,
    leaders: BTreeMap<LeaderEpoch, String>,
}

/// What both contenders and the test see.
struct Run {
    outcomes: Mutex<Outcomes>,
    over: AtomicBool,
}

// BC-11, BC-62, BC-02
#[test]
fn two_contenders_write_one_history() {
    let seed = std::env::var("TIDEGATE_ELECTION_SEED");
    let seed = seed.map_or(6, |seed| seed.parse().unwrap());
    let runtime = Runtime::new().unwrap();
    for remote in remotes() {
        eprintln!("on {} with TIDEGATE_ELECTION_SEED={seed}", remote.kind());
        runtime.block_on(contend(&*remote, seed));
    }
}

async fn contend(remote: &dyn Remote, seed: u64) {
    let run = Arc::new(Run {
        outcomes: Mutex::default(),
        over: AtomicBool::new(false),
    });
    let proxies = [
        Proxy::to(remote.port()).await,
        Proxy::to(remote.port()).await,
    ];
    let contenders = [0, 1].map(|index| {
        let election = remote.election_at(proxies[index].port);
        let random = StdRng::seed_from_u64(seed + 1 + index as u64);
        tokio::spawn(contender(
            index.to_string(),
            election,
            random,
            Arc::clone(&run),
        ))
    });
    disturb(remote, &proxies, StdRng::seed_from_u64(seed)).await;
    // First nothing is broken, then all heals: somebody gets to write.
    let before = run.outcomes.lock().unwrap().done.len();
    let healed = async {
        while run.outcomes.lock().unwrap().done.len() < before + 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        run.over.store(true, Ordering::Relaxed);
    };
    tokio::time::timeout(HEALING_MAX, healed)
        .await
        .expect("it heals");
    for contender in contenders {
        // The one that waits for the lead gets it when the other has given it back.
        tokio::time::timeout(HEALING_MAX, contender)
            .await
            .expect("it ends")
            .unwrap();
    }
    let last = remote.election();
    let last = last.campaign(&Candidate::new("last")).await.unwrap();
    let (history, _) = history(&*last.records()).await.unwrap();
    check(&history, &run.outcomes.lock().unwrap());
}

/// Leads again and again, and writes while it does.
async fn contender(
    name: String,
    election: Arc<dyn LeaderElection>,
    mut random: StdRng,
    run: Arc<Run>,
) {
    let candidate = Candidate::new(&name);
    while !run.over.load(Ordering::Relaxed) {
        let leadership = election.campaign(&candidate).await.unwrap();
        let twin = run
            .outcomes
            .lock()
            .unwrap()
            .leaders
            .insert(leadership.epoch(), name.clone());
        assert_eq!(twin, None, "two leaders in `{}`", leadership.epoch());
        lead(&leadership, &mut random, &run).await;
        // Sometimes it just goes away.
        if random.random_bool(0.7) {
            let _ = leadership.release().await;
        }
    }
}

async fn lead(leadership: &Leadership, random: &mut StdRng, run: &Run) {
    let records = leadership.records();
    let writes = random.random_range(1..60);
    for index in 0..writes {
        // It notices its loss in half of the cases only: the records must not depend on that.
        if leadership.loss().cause().is_some() && random.random_bool(0.5) {
            return;
        }
        if run.over.load(Ordering::Relaxed) {
            return;
        }
        let Ok((history, expected)) = history(&*records).await else {
            return;
        };
        let entry = format!("{}.{index}", leadership.epoch().0);
        let longer = [&history[..], std::slice::from_ref(&entry)]
            .concat()
            .join(" ");
        let written = records.write("history", longer.into(), expected).await;
        let mut outcomes = run.outcomes.lock().unwrap();
        let noted = match written {
            Written::Done => outcomes.done.insert(entry),
            Written::NotDone(_) => outcomes.not_done.insert(entry),
            Written::Unknown(_) => outcomes.unknown.insert(entry),
        };
        assert!(noted, "every entry is written once");
    }
}

type History = (Vec<String>, Expected);

async fn history(records: &dyn RecordStore) -> Result<History, tidegate_storage::StorageError> {
    Ok(match records.read("history").await? {
        None => (Vec::new(), Expected::Absent),
        Some(found) => {
            let text = std::str::from_utf8(&found.bytes).unwrap();
            let entries = text.split(' ').map(str::to_owned).collect();
            (entries, Expected::Version(found.version))
        }
    })
}

/// Makes the networks fail, one after the other and both at once, and leaves them whole.
async fn disturb(remote: &dyn Remote, proxies: &[Proxy; 2], mut random: StdRng) {
    let is_write = remote.is_write();
    let turmoil = async {
        loop {
            let proxy = &proxies[random.random_range(0..2)];
            match random.random_range(0..9) {
                0 => proxy.cut(),
                1 | 2 => proxy.hold(),
                3 => proxy.slow(Duration::from_millis(random.random_range(1..50))),
                4 => proxy.lose(Lose::Request, is_write),
                5 => proxy.lose(Lose::Answer, is_write),
                6 => remote.lose_leader().await,
                _ => proxy.open(),
            }
            // Most faults are shorter than a lease, some are longer.
            let longest = if random.random_bool(0.2) {
                LEASE * 3
            } else {
                LEASE / 2
            };
            tokio::time::sleep(longest.mul_f64(random.random_range(0.0..1.0))).await;
        }
    };
    let _ = tokio::time::timeout(TURMOIL, turmoil).await;
    for proxy in proxies {
        proxy.open();
    }
}

fn check(history: &[String], outcomes: &Outcomes) {
    let entries: BTreeSet<String> = history.iter().cloned().collect();
    assert_eq!(entries.len(), history.len(), "an entry is there twice");
    let lost: Vec<_> = outcomes.done.difference(&entries).collect();
    assert!(lost.is_empty(), "done and not there: {lost:?}");
    let undead: Vec<_> = outcomes.not_done.intersection(&entries).collect();
    assert!(undead.is_empty(), "not done and there: {undead:?}");
    let epochs: Vec<u64> = history
        .iter()
        .map(|entry| entry.split_once('.').unwrap().0.parse().unwrap())
        .collect();
    assert!(epochs.is_sorted(), "an old leader has written: {history:?}");
    eprintln!(
        "{} leaders, {} done, {} not done, {} unknown of which {} happened",
        outcomes.leaders.len(),
        outcomes.done.len(),
        outcomes.not_done.len(),
        outcomes.unknown.len(),
        outcomes.unknown.intersection(&entries).count(),
    );
}
