//! The control plane of small clusters, with all its invariants asserted on the way.

use super::*;

fn small(seed: u64) -> Scale {
    Scale {
        taskmanagers: 12,
        standbys: 1,
        slots: 2,
        interval: Duration::from_secs(1),
        lasts: Duration::from_secs(60),
        faults_every: None,
        seed,
    }
}

#[test]
fn undisturbed_every_interval_has_its_checkpoint() {
    let figures = simulate(&small(1));
    assert_eq!(figures.subtasks, 4 * 24 + 1);
    // All machines are there after two seconds.
    assert!((55..=60).contains(&figures.completed), "{figures:?}");
    assert_eq!(figures.aborted, 0);
    assert!(figures.recoveries.is_empty());
    let (meter, time) = &figures.running;
    assert!(*time > Duration::from_secs(50), "{time:?}");
    // An acknowledgement of each subtask a second, a commit of each sink, and five times progress.
    let least = (97 + 24 + 5 * 12) * 50;
    assert!(meter.heard.messages > least, "{meter:?}");
    assert!(meter.spent() > Duration::ZERO);
}

#[test]
fn whatever_is_lost_the_job_goes_on_and_no_invariant_breaks() {
    let mut recoveries = 0;
    for seed in 0..4 {
        let scale = Scale {
            faults_every: Some(Duration::from_secs(6)),
            ..small(seed)
        };
        let figures = simulate(&scale);
        assert!(figures.completed > 10, "seed {seed}: {figures:?}");
        assert!(figures.aborted > 0, "seed {seed}");
        for recovery in &figures.recoveries {
            assert!(recovery.launched <= recovery.deployed);
            assert!(recovery.deployed <= recovery.running);
        }
        recoveries += figures.recoveries.len();
    }
    assert!(recoveries > 20, "{recoveries}");
}

#[test]
fn equal_seeds_come_to_the_same() {
    let scale = Scale {
        faults_every: Some(Duration::from_secs(6)),
        ..small(7)
    };
    let drawn = |figures: Figures| {
        let times = figures
            .recoveries
            .iter()
            .map(|r| (r.launched, r.deployed, r.running));
        let times: Vec<_> = times.collect();
        (
            figures.completed,
            figures.aborted,
            figures.meter.heard,
            figures.meter.said,
            times,
        )
    };
    assert_eq!(drawn(simulate(&scale)), drawn(simulate(&scale)));
}
