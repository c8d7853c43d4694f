//! Two minutes of `examples/chaos`: machines with a network of their own if this process may make
//! one, ZooKeeper, and everything that can happen to them.

use std::process::Command;

use crate::support::example;

#[test]
fn two_minutes_of_chaos_lose_and_double_nothing() {
    // Patient enough for a machine that is busy with other tests.
    let arguments = [
        ["--minutes", "1.6"],
        ["--seed", "6"],
        ["--keys", "20000"],
        ["--rate", "15000"],
        ["--heartbeat-timeout", "1s"],
        ["--ha-lease", "1s"],
    ];
    let chaos = Command::new(example("chaos"))
        .args(arguments.as_flattened())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&chaos.stdout);
    let complained = String::from_utf8_lossy(&chaos.stderr);
    println!("{printed}{complained}");
    assert!(chaos.status.success(), "{}", chaos.status);
    assert!(printed.contains("all output is exact"), "{printed}");
}
