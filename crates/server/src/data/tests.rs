//! Real sockets on loopback: who is connected, and who is turned away.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tidegate_types::{AttemptNumber, ErrorChain, JobId, LeaderEpoch};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

#[cfg(feature = "tls")]
mod encrypted;

use super::hello::{HELLO_BYTES, Hello, Side, prove};
use super::*;

type Outcome = Result<Vec<Option<Connection>>, ConnectError>;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);
/// For what is to be missed.
const SHORT: Duration = Duration::from_millis(300);

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn membership() -> Membership {
    Membership {
        job: JobId(0xabcd),
        epoch: LeaderEpoch(3),
        attempt: AttemptNumber(7),
        build: BuildFingerprint::of(b"this build"),
    }
}

/// A cluster to be: everyone's listener, and what everyone knows.
struct Cluster {
    runtime: Runtime,
    listeners: Vec<Option<TcpListener>>,
    addresses: Vec<String>,
}

impl Cluster {
    fn new(processes: u32) -> Cluster {
        let bind = |_| Some(TcpListener::bind("127.0.0.1:0").unwrap());
        let listeners: Vec<_> = (0..processes).map(bind).collect();
        let address = |listener: &Option<TcpListener>| {
            let address = listener.as_ref().unwrap().local_addr();
            address.unwrap().to_string()
        };
        Cluster {
            runtime: runtime(),
            addresses: listeners.iter().map(address).collect(),
            listeners,
        }
    }

    fn options(&self, process: u32) -> ConnectOptions {
        ConnectOptions {
            membership: membership(),
            secret: Secret::new(*b"sesame"),
            tls: None,
            process,
            addresses: self.addresses.clone(),
            timeout: LONG,
            silence: LONG,
        }
    }

    fn start_with(&mut self, options: ConnectOptions) -> JoinHandle<Outcome> {
        let listener = self.listeners[options.process as usize].take();
        self.runtime.spawn(connect(listener.unwrap(), options))
    }

    fn start(&mut self, process: u32) -> JoinHandle<Outcome> {
        self.start_with(self.options(process))
    }

    fn outcome(&self, started: JoinHandle<Outcome>) -> Outcome {
        self.runtime.block_on(started).unwrap()
    }

    fn address(&self, process: u32) -> SocketAddr {
        self.addresses[process as usize].parse().unwrap()
    }

    fn dial(&self, process: u32) -> TcpStream {
        let stream = TcpStream::connect(self.address(process)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }
}

fn peers(outcome: Outcome) -> Vec<u32> {
    let connections = outcome.unwrap_or_else(|error| panic!("{}", ErrorChain(&error)));
    let some = (0..).zip(connections).filter(|(_, c)| c.is_some());
    some.map(|(peer, _)| peer).collect()
}

fn complaint(outcome: Outcome) -> String {
    ErrorChain(&outcome.unwrap_err()).to_string()
}

/// Goes on until both have proved who they are, as process `from`, in a membership and with a
/// secret of its own; returns what came in the end: 2, or 0 and a code.
fn handshake(cluster: &Cluster, hello: &Hello, secret: &Secret) -> Vec<u8> {
    let mut stream = cluster.dial(hello.to);
    let bytes = hello.encode();
    stream.write_all(&bytes).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    let mut rest = Vec::new();
    if answer == [1] {
        let (mut theirs, mut proof) = ([0; 32], [0; 32]);
        stream.read_exact(&mut theirs).unwrap();
        stream.read_exact(&mut proof).unwrap();
        let own = prove(secret, Side::Dials, &bytes, &theirs);
        stream.write_all(&own).unwrap();
        stream.read_exact(&mut answer).unwrap();
    }
    if answer == [0] {
        stream.read_to_end(&mut rest).unwrap();
    }
    [answer.to_vec(), rest].concat()
}

fn hello(from: u32, to: u32) -> Hello {
    Hello {
        from,
        to,
        membership: membership(),
        nonce: [9; 32],
    }
}

#[test]
fn everyone_is_connected_with_everyone_in_any_order() {
    for processes in 1..=8 {
        let mut cluster = Cluster::new(processes);
        let began = Instant::now();
        // From the last to the first: whoever dials comes before whoever accepts.
        let started: Vec<_> = (0..processes)
            .rev()
            .map(|own| (own, cluster.start(own)))
            .collect();
        for (own, started) in started {
            let others: Vec<u32> = (0..processes).filter(|other| *other != own).collect();
            assert_eq!(peers(cluster.outcome(started)), others);
        }
        eprintln!("{processes} processes: {:?}", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(2));
    }
}

#[test]
fn connections_lead_to_whom_they_should() {
    let mut cluster = Cluster::new(3);
    let started: Vec<_> = (0..3).map(|process| cluster.start(process)).collect();
    let outcomes: Vec<_> = started
        .into_iter()
        .map(|s| cluster.outcome(s).unwrap())
        .collect();
    for (own, connections) in (0u8..).zip(&outcomes) {
        for (other, connection) in (0u8..).zip(connections) {
            if let Some(connection) = connection {
                (&mut &*connection).write_all(&[own, other]).unwrap();
            }
        }
    }
    for (own, connections) in (0u8..).zip(&outcomes) {
        for (other, connection) in (0u8..).zip(connections) {
            if let Some(connection) = connection {
                let mut bytes = [0; 2];
                (&mut &*connection).read_exact(&mut bytes).unwrap();
                assert_eq!(bytes, [other, own]);
            }
        }
    }
}

#[test]
fn a_process_that_comes_later_is_waited_for() {
    // Its port isn't even bound yet.
    let mut cluster = Cluster::new(2);
    let late = cluster.listeners[0].take().unwrap();
    let address = late.local_addr().unwrap();
    drop(late);
    let early = cluster.start(1);
    // Refused connections are under way by now, or will be: either is what is to be survived.
    std::thread::sleep(Duration::from_millis(30));
    cluster.listeners[0] = Some(TcpListener::bind(address).unwrap());
    let late = cluster.start(0);
    assert_eq!(peers(cluster.outcome(early)), [0]);
    assert_eq!(peers(cluster.outcome(late)), [1]);
}

#[test]
fn a_process_that_never_comes_is_named() {
    let mut cluster = Cluster::new(3);
    let (zero, two) = (cluster.address(0), cluster.address(2));
    let options = ConnectOptions {
        timeout: SHORT,
        ..cluster.options(1)
    };
    // One never answers, the other never dials.
    let began = Instant::now();
    let started = cluster.start_with(options);
    let complaint = complaint(cluster.outcome(started));
    assert!(began.elapsed() >= SHORT && began.elapsed() < LONG);
    assert_eq!(
        complaint,
        format!(
            "after 300ms there is no connection with process `0` at `{zero}` (it has not answered: \
             it is starting, or hangs), process `2` at `{two}` (it has not connected to this \
             process); see whether they run, and whether a firewall lets these ports through"
        )
    );
}

// A stale child of a former attempt, other leaders, jobs and builds.
#[test]
fn those_of_other_attempts_are_turned_away_and_told_why() {
    let m = membership();
    let others = [
        (Refusal::Job, Membership { job: JobId(1), ..m }),
        (
            Refusal::Epoch,
            Membership {
                epoch: LeaderEpoch(2),
                ..m
            },
        ),
        (
            Refusal::Attempt,
            Membership {
                attempt: AttemptNumber(6),
                ..m
            },
        ),
        (
            Refusal::Build,
            Membership {
                build: BuildFingerprint::of(b"another"),
                ..m
            },
        ),
    ];
    for (refusal, membership) in others {
        let mut cluster = Cluster::new(2);
        let zero = cluster.start(0);
        let stale = connect(
            TcpListener::bind("127.0.0.1:0").unwrap(),
            ConnectOptions {
                membership,
                ..cluster.options(1)
            },
        );
        let stale = cluster.runtime.block_on(stale);
        let expected = format!(
            "process `0` at `{}` turned this one away: {refusal}",
            cluster.address(0)
        );
        assert_eq!(complaint(stale), expected);
        // The right one comes all the same.
        let one = cluster.start(1);
        assert_eq!(peers(cluster.outcome(one)), [0]);
        assert_eq!(peers(cluster.outcome(zero)), [1]);
    }
}

#[test]
fn a_wrong_secret_is_noticed_on_both_sides() {
    let mut cluster = Cluster::new(2);
    let zero = cluster.start(0);
    let wrong = Secret::new(*b"open");
    // Whoever dials notices first, and proves nothing to somebody who may be anybody.
    let stranger = connect(
        TcpListener::bind("127.0.0.1:0").unwrap(),
        ConnectOptions {
            secret: wrong.clone(),
            ..cluster.options(1)
        },
    );
    let stranger = cluster.runtime.block_on(stranger);
    assert!(matches!(
        stranger,
        Err(ConnectError::Secret { process: 0, .. })
    ));
    // One that doesn't care is turned away, with no secret, too.
    let refused = [0, Refusal::Secret.code()];
    assert_eq!(handshake(&cluster, &hello(1, 0), &wrong), refused);
    assert_eq!(
        handshake(&cluster, &hello(1, 0), &Secret::default()),
        refused
    );

    let one = cluster.start(1);
    assert_eq!(peers(cluster.outcome(one)), [0]);
    assert_eq!(peers(cluster.outcome(zero)), [1]);
}

// Somebody listens in and says the same again.
#[test]
fn a_proof_can_not_be_used_again() {
    let secret = Secret::new(*b"sesame");
    let bytes = hello(1, 0).encode();
    let proof = prove(&secret, Side::Dials, &bytes, &[1; 32]);
    let other_hello = hello(2, 0).encode();
    for (side, hello, nonce) in [
        (Side::Dials, &bytes, [2; 32]),
        (Side::Dials, &other_hello, [1; 32]),
        (Side::Accepts, &bytes, [1; 32]),
    ] {
        assert!(!super::hello::has_proved(
            &secret, side, hello, &nonce, &proof
        ));
    }
    assert!(super::hello::has_proved(
        &secret,
        Side::Dials,
        &bytes,
        &[1; 32],
        &proof
    ));
    assert_eq!(format!("{secret:?}"), "Secret(…)");
}

#[test]
fn indexes_that_do_not_fit_are_turned_away() {
    let mut cluster = Cluster::new(3);
    let secret = Secret::new(*b"sesame");
    let one = cluster.start(1);
    // Those below are dialled, and there are no others.
    for from in [0, 1, 3] {
        assert_eq!(
            handshake(&cluster, &hello(from, 1), &secret),
            [0, Refusal::Index.code()]
        );
    }
    let mut lost = hello(2, 1);
    lost.to = 0;
    let mut stream = cluster.dial(1);
    stream.write_all(&lost.encode()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [0, Refusal::Addressee.code()]);

    assert_eq!(handshake(&cluster, &hello(2, 1), &secret), [2]);
    assert_eq!(
        handshake(&cluster, &hello(2, 1), &secret),
        [0, Refusal::Duplicate.code()]
    );
    let zero = cluster.start(0);
    assert_eq!(peers(cluster.outcome(one)), [0, 2]);
    zero.abort();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let outside = connect(listener, cluster.options(3));
    let complaint = complaint(cluster.runtime.block_on(outside));
    assert_eq!(complaint, "process `3` has no place among `3`");
}

#[test]
fn strangers_neither_get_in_nor_hold_anybody_up() {
    let mut cluster = Cluster::new(2);
    let zero = cluster.start(0);
    // Silent ones, slow ones, and a port scan.
    let silent: Vec<TcpStream> = (0..50).map(|_| cluster.dial(0)).collect();
    let mut slow = cluster.dial(0);
    slow.write_all(&hello(1, 0).encode()[..HELLO_BYTES - 1])
        .unwrap();
    let mut scan = cluster.dial(0);
    scan.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // Closed without a word; what it has sent may make that a reset.
    let _ = scan.read_to_end(&mut answer);
    assert!(answer.is_empty());
    let mut other_version = hello(1, 0).encode();
    other_version[8] = 2;
    let mut stream = cluster.dial(0);
    stream.write_all(&other_version).unwrap();
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0, Refusal::Version.code()]);

    let began = Instant::now();
    let one = cluster.start(1);
    assert_eq!(peers(cluster.outcome(one)), [0]);
    assert_eq!(peers(cluster.outcome(zero)), [1]);
    assert!(
        began.elapsed() < HANDSHAKE_PATIENCE,
        "{:?}",
        began.elapsed()
    );
    drop(silent);
}

// Another service has the port of process 0.
#[test]
fn something_else_at_the_address_is_told() {
    let mut cluster = Cluster::new(2);
    let listener = cluster.listeners[0].take().unwrap();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example.org\r\n").unwrap();
        let _ = stream.read(&mut [0; 1]);
        stream
    });
    let one = cluster.start(1);
    let complaint = complaint(cluster.outcome(one));
    let expected = format!(
        "what listens at `{}` is not process `0`: its answer is no part of the protocol; check \
         the addresses",
        cluster.address(0)
    );
    assert_eq!(complaint, expected);
    drop(other.join());
}

#[test]
fn who_was_turned_away_is_remembered() {
    let mut cluster = Cluster::new(2);
    let options = ConnectOptions {
        timeout: SHORT,
        ..cluster.options(0)
    };
    let zero = cluster.start_with(options);
    let mut stale = hello(1, 0);
    stale.membership.attempt = AttemptNumber(6);
    let told = handshake(&cluster, &stale, &Secret::default());
    assert_eq!(told, [0, Refusal::Attempt.code()]);
    let complaint = complaint(cluster.outcome(zero));
    assert!(
        complaint.contains("; turned away were `127.0.0.1:")
            && complaint.contains("it works on another attempt, so one of them is left over"),
        "{complaint}"
    );
}

#[test]
fn a_hello_has_its_documented_bytes() {
    let bytes = hello(1, 0).encode();
    assert_eq!(&bytes[..12], b"tidedata\x01\x00\x00\x00");
    assert_eq!(bytes[12..20], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        bytes[20..36],
        [3, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(bytes[36..38], [0xcd, 0xab]);
    assert_eq!(bytes[52..84], membership().build.0);
    assert_eq!(bytes[84..], [9; 32]);
    assert_eq!(Hello::decode(&bytes), Some(hello(1, 0)));
    let mut second_connection = bytes;
    second_connection[10] = 1;
    assert_eq!(Hello::decode(&second_connection), None);
    for code in 0..=20 {
        let refusal = Refusal::from_code(code);
        assert_eq!(refusal.map(Refusal::code), refusal.map(|_| code));
    }
}
