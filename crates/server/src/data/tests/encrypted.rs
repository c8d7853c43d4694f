//! Encrypted data connections: what goes through them, and who is turned away.

use std::net::Shutdown;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

use super::*;
use crate::tls::testing::{Ca, expired};
use crate::tls::{Purpose, Tls};

impl Cluster {
    fn encrypted(&self, process: u32, tls: Option<&Tls>) -> ConnectOptions {
        ConnectOptions {
            tls: tls.cloned(),
            ..self.options(process)
        }
    }

    /// The two ends of a connection of two processes.
    fn pair(&mut self, tls: &Tls) -> [Connection; 2] {
        let started = [0, 1].map(|own| self.start_with(self.encrypted(own, Some(tls))));
        let [mut zero, mut one] = started.map(|started| self.outcome(started).unwrap());
        [zero[1].take().unwrap(), one[0].take().unwrap()]
    }
}

#[test]
fn everyone_is_connected_with_everyone() {
    let tls = Ca::new().tls();
    let mut cluster = Cluster::new(4);
    let began = Instant::now();
    let started = [3, 2, 1, 0].map(|own| cluster.start_with(cluster.encrypted(own, Some(&tls))));
    for (own, started) in [3, 2, 1, 0].into_iter().zip(started) {
        let others: Vec<u32> = (0..4).filter(|other| *other != own).collect();
        assert_eq!(peers(cluster.outcome(started)), others);
    }
    eprintln!("4 processes: {:?}", began.elapsed());
}

/// Writes numbers that follow from `seed`, in pieces of any size.
fn write_all(connection: &Connection, seed: u64, bytes: usize) {
    let (mut numbers, mut sizes) = (StdRng::seed_from_u64(seed), StdRng::seed_from_u64(!seed));
    let mut left = bytes;
    while left > 0 {
        let size = sizes.random_range(1..200_000).min(left);
        // Filled to a multiple of 8, so that the other side need not know about pieces.
        let mut piece = vec![0; size.next_multiple_of(8).min(left)];
        numbers.fill_bytes(&mut piece);
        (&mut &*connection).write_all(&piece).unwrap();
        left -= piece.len();
    }
}

/// Reads those numbers.
fn read_all(connection: &Connection, seed: u64, bytes: usize) {
    let (mut numbers, mut sizes) = (StdRng::seed_from_u64(seed), StdRng::seed_from_u64(seed + 1));
    let mut left = bytes;
    while left > 0 {
        let size = sizes
            .random_range(1..300_000usize)
            .next_multiple_of(8)
            .min(left);
        let (mut piece, mut expected) = (vec![0; size], vec![0; size]);
        (&mut &*connection).read_exact(&mut piece).unwrap();
        numbers.fill_bytes(&mut expected);
        assert!(piece == expected, "what arrives is what was sent");
        left -= size;
    }
}

/// Both sides write and read at once, much more than sockets hold.
fn transfer_both_ways([zero, one]: &[Connection; 2], bytes: usize) {
    std::thread::scope(|scope| {
        scope.spawn(|| write_all(zero, 1, bytes));
        scope.spawn(|| write_all(one, 2, bytes));
        scope.spawn(|| read_all(zero, 2, bytes));
        scope.spawn(|| read_all(one, 1, bytes));
    });
}

#[test]
fn both_directions_are_full_at_once_and_nobody_waits_for_ever() {
    let tls = Ca::new().tls();
    let ends = Cluster::new(2).pair(&tls);
    transfer_both_ways(&ends, 48 << 20);
}

// A reader waits all the time; its connection's writer is not held up by that.
#[test]
fn one_that_waits_to_read_does_not_keep_another_from_writing() {
    let tls = Ca::new().tls();
    let [zero, one] = Cluster::new(2).pair(&tls);
    let (zero, one) = (Arc::new(zero), Arc::new(one));
    let waiting = |end: &Arc<Connection>| {
        let end = Arc::clone(end);
        std::thread::spawn(move || {
            let mut byte = [0];
            (&mut &*end).read_exact(&mut byte).unwrap();
            byte[0]
        })
    };
    let (at_zero, at_one) = (waiting(&zero), waiting(&one));
    // Until both wait in the kernel, or nearly: then a lock that is held would be seen.
    std::thread::sleep(Duration::from_millis(20));
    (&mut &*zero).write_all(&[7]).unwrap();
    assert_eq!(at_one.join().unwrap(), 7);
    (&mut &*one).write_all(&[8]).unwrap();
    assert_eq!(at_zero.join().unwrap(), 8);
}

/// Two ends of a connection, with something done to the state of TLS before.
fn pair_with(adapt: impl Fn(&mut rustls::Connection)) -> [Connection; 2] {
    let tls = Ca::new().tls();
    let runtime = runtime();
    let ends = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accept = async {
            let (stream, _) = listener.accept().await.unwrap();
            tls.accept(stream, Purpose::Data).await.unwrap().unwrap()
        };
        let dial = async {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            tls.dial(stream, Purpose::Data).await.unwrap()
        };
        let (accepted, dialled) = tokio::join!(accept, dial);
        let ((a, of_a), (b, of_b)) = (accepted.into_inner(), dialled.into_inner());
        [(a, of_a.into()), (b, of_b.into())]
    });
    ends.map(|(stream, mut session)| {
        adapt(&mut session);
        let stream = stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        Connection::encrypted(stream, session).unwrap()
    })
}

// What TLS answers to a reader is sent by the next writer.
#[test]
fn keys_are_replaced_while_both_directions_are_full() {
    let ends = pair_with(|session| session.refresh_traffic_keys().unwrap());
    transfer_both_ways(&ends, 8 << 20);
    transfer_both_ways(&ends, 8 << 20);
}

#[test]
fn an_end_is_told_from_a_connection_that_breaks() {
    let [zero, one] = pair_with(|_| {});
    (&mut &zero).write_all(b"all").unwrap();
    zero.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    (&mut &one).read_to_string(&mut text).unwrap();
    assert_eq!(text, "all");
    // The other direction goes on.
    (&mut &one).write_all(b"more").unwrap();
    let mut more = [0; 4];
    (&mut &zero).read_exact(&mut more).unwrap();
    assert_eq!(&more, b"more");

    let [zero, one] = pair_with(|_| {});
    (&mut &zero).write_all(b"some").unwrap();
    zero.close();
    let mut rest = Vec::new();
    let broken = (&mut &one).read_to_end(&mut rest).unwrap_err();
    assert_eq!(rest, b"some");
    assert_eq!(
        broken.to_string(),
        "the other side has closed it in the middle"
    );
}

// Somebody in between changes a byte.
#[test]
fn what_was_changed_on_the_way_is_noticed() {
    let tls = Ca::new().tls();
    let runtime = runtime();
    let (mut raw, connection) = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accept = async {
            let (stream, _) = listener.accept().await.unwrap();
            tls.accept(stream, Purpose::Data).await.unwrap().unwrap()
        };
        let dial = async {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            tls.dial(stream, Purpose::Data).await.unwrap()
        };
        let (accepted, dialled) = tokio::join!(accept, dial);
        let (stream, session) = dialled.into_inner();
        let stream = stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        let raw = accepted.into_inner().0.into_std().unwrap();
        raw.set_nonblocking(false).unwrap();
        (raw, Connection::encrypted(stream, session.into()).unwrap())
    });
    // A record that claims to be one, and isn't.
    raw.write_all(&[0x17, 3, 3, 0, 32]).unwrap();
    raw.write_all(&[0; 32]).unwrap();
    let refused = (&mut &connection).read(&mut [0; 10]).unwrap_err();
    assert!(refused.to_string().contains("decrypt"), "{refused}");
}

fn refused_dialler(cluster: &Cluster, tls: Option<&Tls>) -> String {
    let dialler = connect(
        TcpListener::bind("127.0.0.1:0").unwrap(),
        cluster.encrypted(1, tls),
    );
    complaint(cluster.runtime.block_on(dialler))
}

/// Lets process 1 dial with wrong certificates, or none; then with right ones.
fn assert_turned_away(listens: Option<&Tls>, dials: Option<&Tls>, says: &str) {
    let mut cluster = Cluster::new(2);
    let zero = cluster.start_with(cluster.encrypted(0, listens));
    let complaint = refused_dialler(&cluster, dials);
    assert!(
        complaint.contains("process `0` at `127.0.0.1:"),
        "{complaint}"
    );
    assert!(complaint.contains(says), "{complaint}\n{says}");
    // The right one comes all the same.
    let one = cluster.start_with(cluster.encrypted(1, listens));
    assert_eq!(peers(cluster.outcome(one)), [0]);
    assert_eq!(peers(cluster.outcome(zero)), [1]);
}

#[test]
fn whoever_does_not_encrypt_as_the_others_do_is_turned_away_and_told_why() {
    let (ca, foreign) = (Ca::new(), Ca::new());
    let tls = ca.tls();
    let files = "give all processes `--tls-cert`, `--tls-key` and `--tls-ca`";
    assert_turned_away(Some(&tls), None, files);
    assert_turned_away(None, Some(&tls), files);
    // It would not take the other one's, either, and says so first.
    let theirs = foreign.tls();
    let unknown = "its certificate is not signed by the CA of `--tls-ca`";
    assert_turned_away(Some(&tls), Some(&theirs), unknown);
    // It takes the other one's, and is refused by it.
    let trusting = foreign.tls_that_trusts(&ca);
    let refused = "it refuses this process's certificate, which is not signed by its CA";
    assert_turned_away(Some(&tls), Some(&trusting), refused);
}

// A certificate that was good when the process was started.
#[test]
fn a_certificate_that_has_expired_since_is_refused() {
    let ca = Ca::new();
    let tls = ca.tls();
    let stale = Tls::unchecked(&ca.issue("stale", expired));
    let refused = "it refuses this process's certificate, which has expired";
    assert_turned_away(Some(&tls), Some(&stale), refused);
    let mut cluster = Cluster::new(2);
    let zero = cluster.start_with(cluster.encrypted(0, Some(&stale)));
    let complaint = refused_dialler(&cluster, Some(&tls));
    assert!(
        complaint.contains("its certificate has expired; replace it"),
        "{complaint}"
    );
    zero.abort();
}

#[test]
fn who_was_turned_away_is_remembered_with_the_reason() {
    let (ca, foreign) = (Ca::new(), Ca::new());
    let mut cluster = Cluster::new(2);
    let tls = ca.tls();
    let patient = ConnectOptions {
        timeout: SHORT * 3,
        ..cluster.encrypted(0, Some(&tls))
    };
    let zero = cluster.start_with(patient);
    refused_dialler(&cluster, Some(&foreign.tls_that_trusts(&ca)));
    refused_dialler(&cluster, None);
    let complaint = complaint(cluster.outcome(zero));
    let unknown = "its certificate is not signed by the CA of `--tls-ca`";
    assert!(complaint.contains(unknown), "{complaint}");
    assert!(complaint.contains("it does not encrypt"), "{complaint}");
}

// Encryption doesn't replace what is asked inside.
#[test]
fn a_certificate_is_not_enough() {
    let tls = Ca::new().tls();
    let mut cluster = Cluster::new(2);
    let zero = cluster.start_with(cluster.encrypted(0, Some(&tls)));
    let others = [
        ConnectOptions {
            secret: Secret::new(*b"open"),
            ..cluster.encrypted(1, Some(&tls))
        },
        ConnectOptions {
            membership: Membership {
                attempt: AttemptNumber(6),
                ..membership()
            },
            ..cluster.encrypted(1, Some(&tls))
        },
    ];
    for (options, says) in others.into_iter().zip(["secret", "left over"]) {
        let stranger = connect(TcpListener::bind("127.0.0.1:0").unwrap(), options);
        let complaint = complaint(cluster.runtime.block_on(stranger));
        assert!(complaint.contains(says), "{complaint}");
    }
    // Nor is one for another kind of connection.
    let control = cluster.runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(cluster.address(0)).await;
        tls.dial(stream.unwrap(), Purpose::Control).await
    });
    let crate::tls::Failure::Final(why) = control.unwrap_err() else {
        panic!("it may not be tried again");
    };
    assert!(why.contains("connections of this kind"), "{why}");
    let one = cluster.start_with(cluster.encrypted(1, Some(&tls)));
    assert_eq!(peers(cluster.outcome(one)), [0]);
    assert_eq!(peers(cluster.outcome(zero)), [1]);
}
