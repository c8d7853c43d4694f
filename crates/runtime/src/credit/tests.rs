//! Flow control by example; see [`simulation`](super::simulation) for its properties.

use std::time::Duration;

use super::simulation::Simulation;
use super::{CreditSettings, CreditSettingsError, Grant, ReceiveCredit, SendCredit};
use crate::alignment::ChannelIndex;

const CHANNEL: ChannelIndex = ChannelIndex(0);

fn grants(receiver: &mut ReceiveCredit) -> Vec<Grant> {
    let mut grants = Vec::new();
    receiver.take_grants(|_, grant| grants.push(grant));
    grants
}

/// The defaults, but for a first window of some size, so that there is something to look at.
fn started() -> CreditSettings {
    CreditSettings {
        window_initial: 8 << 10,
        ..CreditSettings::default()
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_sender_closes_when_it_has_overdrawn_and_opens_with_a_grant() {
    let mut sender = SendCredit::new(&started());
    assert_eq!(sender.batch_bytes(), 2048);
    sender.spend(8191);
    assert!(sender.is_open());
    sender.spend(1 << 20);
    assert!(!sender.is_open());
    assert_eq!(sender.available(), 1 - (1 << 20));
    let grant = |bytes| Grant {
        bytes,
        batch_bytes: 7,
    };
    sender.receive(grant((1 << 20) - 1));
    assert!(!sender.is_open(), "nothing left, but no overdraft either");
    sender.receive(grant(1));
    assert!(sender.is_open());
    assert_eq!(sender.batch_bytes(), 7);
}

#[test]
fn credit_is_returned_in_quarters_of_the_window() {
    let mut receiver = ReceiveCredit::new(started(), 2, Duration::ZERO);
    receiver.on_processed(CHANNEL, 2047);
    assert_eq!(grants(&mut receiver), []);
    receiver.on_processed(CHANNEL, 1);
    let expected = Grant {
        bytes: 2048,
        batch_bytes: 2048,
    };
    assert_eq!(grants(&mut receiver), [expected]);
    assert_eq!(grants(&mut receiver), []);
    assert_eq!(receiver.circulating(CHANNEL), 8192);
}

#[test]
fn a_shrunk_window_withholds_what_processing_frees() {
    let mut receiver = ReceiveCredit::new(started(), 1, Duration::ZERO);
    receiver.on_processed(CHANNEL, 200);
    receiver.adapt(millis(10), true); // 20 kB/s
    assert_eq!(receiver.window(CHANNEL), 2_000);
    // No credit, but the news that batches are to be smaller from now on.
    let news = Grant {
        bytes: 0,
        batch_bytes: 500,
    };
    assert_eq!(grants(&mut receiver), [news]);
    receiver.on_processed(CHANNEL, 8192 - 200 - 1_501);
    assert_eq!(
        grants(&mut receiver),
        [],
        "1501 of 2000 are with the sender"
    );
    receiver.on_processed(CHANNEL, 1);
    let expected = Grant {
        bytes: 500,
        batch_bytes: 500,
    };
    assert_eq!(grants(&mut receiver), [expected]);
}

#[test]
fn adapts_once_per_period() {
    let mut receiver = ReceiveCredit::new(started(), 1, Duration::ZERO);
    receiver.on_processed(CHANNEL, 200);
    receiver.adapt(Duration::from_micros(9_999), true);
    assert_eq!(receiver.window(CHANNEL), 8192);
    receiver.adapt(millis(10), true);
    assert_eq!(receiver.window(CHANNEL), 2_000);
}

#[test]
fn a_moment_without_input_means_it_was_not_the_bottleneck() {
    let mut receiver = ReceiveCredit::new(started(), 1, Duration::ZERO);
    receiver.on_processed(CHANNEL, 200);
    receiver.adapt(millis(5), false);
    receiver.adapt(millis(10), true);
    assert_eq!(receiver.window(CHANNEL), 8192);
}

#[test]
fn a_stuck_receiver_keeps_its_windows_until_it_moves() {
    let mut receiver = ReceiveCredit::new(started(), 1, Duration::ZERO);
    receiver.adapt(millis(500), true);
    assert_eq!(receiver.window(CHANNEL), 8192);
    receiver.on_processed(CHANNEL, 2_000);
    receiver.adapt(millis(1_000), true); // 2 kB/s over the whole second
    assert_eq!(receiver.window(CHANNEL), 200);
}

#[test]
fn a_tiny_window_grants_only_what_was_processed() {
    let settings = CreditSettings {
        window_initial: 3,
        ..CreditSettings::default()
    };
    let mut receiver = ReceiveCredit::new(settings, 1, Duration::ZERO);
    receiver.on_processed(CHANNEL, 0);
    assert_eq!(grants(&mut receiver), []);
    receiver.on_processed(CHANNEL, 1);
    let expected = Grant {
        bytes: 1,
        batch_bytes: 1,
    };
    assert_eq!(grants(&mut receiver), [expected]);
}

#[test]
fn a_window_at_most_doubles_per_period() {
    let mut receiver = ReceiveCredit::new(started(), 1, Duration::ZERO);
    for (period, expected) in [(1, 16 << 10), (2, 32 << 10), (3, 64 << 10)] {
        receiver.on_processed(CHANNEL, 1_000_000);
        receiver.adapt(millis(10 * period), true);
        assert_eq!(receiver.window(CHANNEL), expected);
    }
}

#[test]
fn capacity_is_measured_afresh_after_a_lull() {
    let mut receiver = ReceiveCredit::new(started(), 1, Duration::ZERO);
    receiver.on_processed(CHANNEL, 200);
    receiver.adapt(millis(10), true); // 20 kB/s
    assert_eq!(receiver.window(CHANNEL), 2_000);
    receiver.adapt(millis(20), false);
    receiver.on_processed(CHANNEL, 300);
    receiver.adapt(millis(30), true); // 30 kB/s, whatever it was before
    assert_eq!(receiver.window(CHANNEL), 3_000);
}

#[test]
fn a_slow_sink_soon_has_little_in_flight() {
    // 1000 records/s of 20 bytes.
    let mut simulation = Simulation::endless(&started(), 2, 20);
    simulation.run_at(20_000, millis(50));
    assert!(simulation.windows() <= 2_500, "{}", simulation.windows());
    simulation.run_at(20_000, millis(1_450));
    assert!(
        simulation.in_flight() <= 2_500,
        "{}",
        simulation.in_flight()
    );
    assert!(simulation.batch_bytes() <= 300);
    assert!(simulation.processed() >= 29_000, "and it is kept busy");
}

#[test]
fn a_very_slow_sink_holds_about_a_record_per_channel() {
    // 2 records/s of 1 kB: the target is less than one record.
    let mut simulation = Simulation::endless(&started(), 1, 1_000);
    simulation.run_at(2_000, Duration::from_secs(10));
    assert!(
        simulation.in_flight() <= 2_000,
        "{}",
        simulation.in_flight()
    );
    assert!(simulation.processed() >= 19_000);
}

#[test]
fn a_fast_receiver_soon_has_the_largest_window() {
    let settings = started();
    // Faster than the windows allow at first; then the receiver itself is the limit.
    for bytes_per_second in [1_000_000_000_000, 100_000_000] {
        let mut simulation = Simulation::endless(&settings, 2, 100);
        simulation.run_at(bytes_per_second, millis(80));
        assert_eq!(simulation.windows(), 2 * u64::from(settings.window_max));
        assert_eq!(simulation.batch_bytes(), 65_536);
    }
}

#[test]
fn windows_follow_a_receiver_whose_speed_changes() {
    let settings = started();
    let mut simulation = Simulation::endless(&settings, 1, 100);
    simulation.run_at(50_000_000, millis(200));
    assert_eq!(simulation.windows(), u64::from(settings.window_max));
    simulation.run_at(500_000, Duration::from_secs(2));
    assert!((40_000..=60_000).contains(&simulation.windows()));
    simulation.run_at(50_000_000, millis(200));
    assert_eq!(simulation.windows(), u64::from(settings.window_max));
}

#[test]
fn a_long_round_trip_gets_a_large_window() {
    let mut simulation = Simulation::endless(&started(), 1, 100);
    simulation.delay = millis(50);
    simulation.run_at(1_000_000_000, Duration::from_secs(3));
    assert_eq!(simulation.windows(), 512 << 10);
}

#[test]
fn a_trickle_does_not_grow_its_window() {
    let mut receiver = ReceiveCredit::new(started(), 2, Duration::ZERO);
    for step in 1..1_000 {
        receiver.on_processed(CHANNEL, 100);
        receiver.adapt(millis(10 * step), false);
    }
    assert_eq!(receiver.window(CHANNEL), 8192);
    assert_eq!(receiver.window(ChannelIndex(1)), 8192);
}

#[test]
fn grants_are_few() {
    let mut simulation = Simulation::endless(&started(), 1, 100);
    simulation.run_at(100_000_000, Duration::from_secs(1));
    let per_grant = simulation.processed() / simulation.grant_count as u64;
    assert!(per_grant >= 9_000, "{per_grant} bytes");
}

#[test]
fn impossible_settings_are_refused() {
    let default = CreditSettings::default();
    assert_eq!(default.validate(), Ok(()));
    let refused = |settings: CreditSettings| settings.validate().unwrap_err().to_string();
    let zero = CreditSettings {
        window_min: 0,
        ..default.clone()
    };
    assert_eq!(
        refused(zero),
        "the smallest credit window must be at least `1` byte, not `0`"
    );
    let initial = CreditSettings {
        window_initial: 1 << 20,
        ..default.clone()
    };
    assert_eq!(
        refused(initial),
        "the initial credit window `1048576` is not between `1` and `524288` bytes"
    );
    let batch = CreditSettings {
        batch_max: 0,
        ..default.clone()
    };
    assert!(refused(batch).contains("largest batch"));
    let target = CreditSettings {
        drain_target: Duration::ZERO,
        ..default
    };
    assert!(matches!(
        target.validate(),
        Err(CreditSettingsError::DrainTarget { .. })
    ));
    assert!(refused(target).contains("`0ns` is not between `1ms` and `60s`"));
}
