//! A cluster that encrypts: it works as any other, and nobody is in it without a certificate.

use crate::by_hand::{free_address, jobmanager, taskmanager};
use crate::certificates::{Ca, Issued, expired};
use crate::members::{Kind, of_kind, signal};
use crate::support::{Place, example, wait_until};
use crate::{assert_exact, start, wait_for_tasks, write_input};

fn flags(issued: &Issued) -> [&str; 6] {
    let [cert, key, ca] = [&issued.cert, &issued.key, &issued.ca].map(|p| p.to_str().unwrap());
    ["--tls-cert", cert, "--tls-key", key, "--tls-ca", ca]
}

#[test]
fn an_encrypted_cluster_is_exact_whoever_is_killed() {
    let place = Place::new();
    let expected = write_input(&place, 300, 10);
    let ca = Ca::new();
    let issued = ca.issue_for("node", |_| {});
    let mut arguments = flags(&issued).to_vec();
    arguments.extend(["--checkpoint-interval", "30ms", "--repeat", "10"]);
    arguments.extend(["--rate", "5000", "--restart", "fixed-delay:1000,1ms"]);
    let mut cluster = start(&place, &arguments);
    for kind in [Kind::Task, Kind::TaskManager, Kind::JobManager, Kind::Task] {
        wait_for_tasks(&mut cluster);
        let before = place.completed();
        wait_until("a checkpoint has completed", || {
            place.completed() != before || !cluster.is_running()
        });
        signal(of_kind(cluster.id(), kind)[0], "KILL");
    }
    let ended = cluster.wait().success();
    assert!(
        ended.stderr.contains("going on from chk-"),
        "{}",
        ended.stderr
    );
    assert_exact(&place, &expected);
    place.assert_clean();
}

#[test]
fn with_certificates_addresses_of_other_machines_need_no_consent() {
    let place = Place::new();
    let expected = write_input(&place, 50, 1);
    let ca = Ca::new();
    let issued = ca.issue_for("node", |_| {});
    let port = free_address().rsplit_once(':').unwrap().1.to_owned();
    let everywhere = format!("0.0.0.0:{port}");
    let jobmanager = jobmanager(&place, &everywhere, "s", &flags(&issued));
    let here = format!("127.0.0.1:{port}");
    let taskmanager = taskmanager(&example("wordcount"), &here, "s", &flags(&issued));
    jobmanager.wait().success();
    taskmanager.wait().success();
    assert_exact(&place, &expected);
}

#[test]
fn whoever_has_no_certificate_or_a_wrong_one_is_refused_and_told_why() {
    let place = Place::new();
    write_input(&place, 10, 1);
    let (ca, foreign) = (Ca::new(), Ca::new());
    let right = ca.issue_for("node", |_| {});
    let address = free_address();
    let mut waiting = jobmanager(&place, &address, "s", &flags(&right));
    wait_until("the JobManager listens", || {
        std::net::TcpStream::connect(&address).is_ok()
    });
    let refused = |arguments: &[&str], says: &[&str]| {
        let refused = taskmanager(&example("wordcount"), &address, "s", arguments).wait();
        refused.failure(says);
    };
    let refuses = "refuses this TaskManager";
    refused(&[], &[refuses, "it encrypts", "`--tls-cert`"]);
    let theirs = foreign.issue_for("node", |_| {});
    let unknown = "its certificate is not signed by the CA of `--tls-ca`";
    refused(&flags(&theirs), &[refuses, unknown]);
    let trusting = Issued {
        ca: foreign.with(&ca),
        ..theirs
    };
    let not_theirs = "it refuses this process's certificate, which is not signed by its CA";
    refused(&flags(&trusting), &[refuses, not_theirs]);
    // What can't work isn't even tried.
    let old = ca.issue_for("old", expired);
    refused(&flags(&old), &["old.pem", "it has expired"]);
    refused(
        &flags(&right)[..2],
        &["`--tls-cert` is given without `--tls-key`"],
    );
    refused(&["--tls-name", "x"], &["`--tls-name` is given without"]);

    assert!(waiting.is_running(), "{}", waiting.stderr());
    let told = waiting.stderr();
    assert!(told.contains("it does not encrypt"), "{told}");
    let right = taskmanager(&example("wordcount"), &address, "s", &flags(&right));
    waiting.wait().success();
    right.wait().success();
}

#[test]
fn a_cluster_that_does_not_encrypt_is_told_from_one_that_does() {
    let place = Place::new();
    write_input(&place, 10, 1);
    let ca = Ca::new();
    let issued = ca.issue_for("node", |_| {});
    let address = free_address();
    let waiting = jobmanager(&place, &address, "s", &[]);
    wait_until("the JobManager listens", || {
        std::net::TcpStream::connect(&address).is_ok()
    });
    let refused = taskmanager(&example("wordcount"), &address, "s", &flags(&issued)).wait();
    refused.failure(&["refuses this TaskManager", "it does not encrypt"]);
    let plain = taskmanager(&example("wordcount"), &address, "s", &[]);
    waiting.wait().success();
    plain.wait().success();
}
