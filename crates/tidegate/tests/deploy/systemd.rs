//! The units for systemd, and the settings that they are started with.

use std::collections::BTreeMap;
use std::process::Command;

#[cfg(feature = "tls")]
use crate::cluster::{Cluster, Member};
use crate::known::known;
use crate::text;

const ROLES: [&str; 2] = ["jobmanager", "taskmanager"];

fn unit(role: &str) -> String {
    text(&format!("deploy/systemd/tidegate-{role}@.service"))
}

/// The values of a key, in their order.
fn values(unit: &str, key: &str) -> Vec<String> {
    let values = unit
        .lines()
        .filter_map(|line| line.strip_prefix(&format!("{key}=")));
    values.map(str::to_owned).collect()
}

/// What systemd makes of the environment file.
fn variables() -> BTreeMap<String, String> {
    let file = text("deploy/systemd/wordcount.env");
    let lines = file
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pair = |line: &str| {
        let (name, value) = line.split_once('=').expect("a name and a value");
        (name.to_owned(), value.to_owned())
    };
    lines.map(pair).collect()
}

/// What systemd starts of a unit: the arguments, without the binary.
fn arguments(role: &str) -> Vec<String> {
    let command = values(&unit(role), "ExecStart").remove(0);
    let command = command.replace("$JOB_ARGUMENTS", &variables()["JOB_ARGUMENTS"]);
    command
        .split_whitespace()
        .skip(1)
        .map(str::to_owned)
        .collect()
}

#[test]
fn systemd_understands_the_units() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("not tried: there is no systemd-analyze");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for role in ROLES {
        // It looks whether the program is there.
        let unit = unit(role).replace("/opt/tidegate/%i", "/bin/sh");
        let path = folder.path().join(format!("tidegate-{role}@.service"));
        std::fs::write(&path, unit).unwrap();
        let verified = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&path)
            .output();
        let verified = verified.unwrap();
        // Of a key that it doesn't know it tells, and succeeds.
        let told = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(verified.status.success() && told.is_empty(), "{told}");
    }
}

#[test]
fn whoever_has_lost_the_lead_is_started_again_and_a_finished_job_is_not() {
    let jobmanager = unit("jobmanager");
    assert_eq!(values(&jobmanager, "RestartForceExitStatus"), ["75"]);
    for role in ROLES {
        assert_eq!(values(&unit(role), "Restart"), ["on-failure"]);
        assert_eq!(values(&unit(role), "RestartPreventExitStatus"), ["2"]);
    }
    // What the program ends with if its arguments are wrong.
    let wrong = Command::new(crate::support::example("wordcount"))
        .args(["jobmanager", "--nonsense"])
        .output();
    assert_eq!(wrong.unwrap().status.code(), Some(2));
}

#[test]
fn variables_are_known_to_one_of_the_roles() {
    let both: Vec<_> = ROLES.into_iter().map(known).collect();
    for name in variables()
        .into_keys()
        .filter(|name| name != "JOB_ARGUMENTS")
    {
        assert!(both.iter().any(|known| known.contains(&name)), "{name}");
    }
}

#[test]
fn both_roles_encrypt() {
    let variables = variables();
    for part in ["CERT", "KEY", "CA"] {
        assert!(
            variables.contains_key(&format!("TIDEGATE_TLS_{part}")),
            "{part}"
        );
    }
    assert!(!variables.contains_key("TIDEGATE_INSECURE"));
}

#[cfg(feature = "tls")]
#[test]
fn a_cluster_of_these_units_counts_exactly() {
    let member = |role: &str, number: u32| {
        let mut variables = variables();
        variables.remove("JOB_ARGUMENTS");
        variables.insert("TIDEGATE_NAME".to_owned(), format!("{role}-{number}"));
        Member {
            arguments: arguments(role),
            variables,
        }
    };
    let parallelism: u32 = variables()["TIDEGATE_PARALLELISM"].parse().unwrap();
    let slots: u32 = variables()["TIDEGATE_SLOTS"].parse().unwrap();
    let machines = 1..=parallelism.div_ceil(slots);
    let jobmanagers = (1..=2).map(|number| member("jobmanager", number)).collect();
    let taskmanagers = machines
        .map(|number| member("taskmanager", number))
        .collect();
    let mut cluster = Cluster::start(jobmanagers, taskmanagers);
    cluster.wait_for_checkpoint();
    cluster.assert_strangers_are_refused();
    cluster.kill_leader();
    cluster.finish();
}
