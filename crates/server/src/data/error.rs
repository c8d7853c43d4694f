//! Why a process isn't connected with the others.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Why a process was turned away by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It speaks another version of the protocol.
    Version,
    /// It is of another job.
    Job,
    /// It was started under another leadership.
    Epoch,
    /// It is of another attempt: one of them is left over.
    Attempt,
    /// It was built from other code, or with other settings.
    Build,
    /// It means to reach another process.
    Addressee,
    /// There is no process of its index, or it should be dialled and not dial.
    Index,
    /// A process of its index is connected already.
    Duplicate,
    /// It doesn't know the secret.
    Secret,
    /// It doesn't encrypt.
    Plain,
    /// It encrypts.
    Encrypted,
}

const CODES: [(Refusal, u8); 11] = [
    (Refusal::Version, 1),
    (Refusal::Job, 2),
    (Refusal::Epoch, 3),
    (Refusal::Attempt, 4),
    (Refusal::Build, 5),
    (Refusal::Addressee, 6),
    (Refusal::Index, 7),
    (Refusal::Duplicate, 8),
    (Refusal::Secret, 9),
    (Refusal::Plain, 10),
    (Refusal::Encrypted, 11),
];

impl Refusal {
    pub(super) fn code(self) -> u8 {
        let mut codes = CODES.iter();
        let found = codes.find(|(refusal, _)| *refusal == self);
        found.expect("every refusal has a code").1
    }

    pub(super) fn from_code(code: u8) -> Option<Refusal> {
        let mut codes = CODES.iter();
        codes
            .find(|(_, of)| *of == code)
            .map(|(refusal, _)| *refusal)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Version => {
                "their versions of Tidegate can't talk to each other: run one binary everywhere"
            }
            Refusal::Job => "it works on another job: check the addresses",
            Refusal::Epoch => "it was started by another leader, so one of them is left over",
            Refusal::Attempt => "it works on another attempt, so one of them is left over",
            Refusal::Build => {
                "it runs another build of the job, or other settings: run one binary everywhere, \
                 with the same arguments"
            }
            Refusal::Addressee => "it has another index: check the addresses",
            Refusal::Index => "it has no place for this index: check the number of processes",
            Refusal::Duplicate => "a process of the same index is connected already",
            Refusal::Plain => {
                "connections are encrypted, and this one isn't: give all processes `--tls-cert`, \
                 `--tls-key` and `--tls-ca`"
            }
            Refusal::Encrypted => {
                "connections aren't encrypted, and this one is: give all processes `--tls-cert`, \
                 `--tls-key` and `--tls-ca`"
            }
            Refusal::Secret => "the secrets differ: give all processes the same",
        })
    }
}

/// A process that has not been connected in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPeer {
    /// Its index.
    pub process: u32,
    /// Where it should be.
    pub address: String,
    /// What has stood in the way, as far as is known.
    pub obstacle: String,
}

impl fmt::Display for MissingPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MissingPeer {
            process,
            address,
            obstacle,
        } = self;
        write!(f, "process `{process}` at `{address}` ({obstacle})")
    }
}

/// Somebody who connected and was turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedStranger {
    /// Where it came from.
    pub from: SocketAddr,
    /// Why it was.
    pub cause: String,
}

/// A process isn't connected with all others of its attempt.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There aren't so many.
    #[error("process `{process}` has no place among `{processes}`")]
    Index {
        /// This process.
        process: u32,
        /// How many there are.
        processes: usize,
    },
    /// The listener is of no use.
    #[error("listen for data connections")]
    Listen(#[source] io::Error),
    /// An established connection is of no use.
    #[error("set up a data connection")]
    Socket(#[source] io::Error),
    /// Another process turned this one away, for good.
    #[error("process `{process}` at `{address}` turned this one away: {refusal}")]
    Refused {
        /// That process.
        process: u32,
        /// Where it is.
        address: String,
        /// Why it did.
        refusal: Refusal,
    },
    /// It could not show that it knows the secret.
    #[error(
        "process `{process}` at `{address}` doesn't know this cluster's secret: give all \
         processes the same"
    )]
    Secret {
        /// That process.
        process: u32,
        /// Where it is.
        address: String,
    },
    /// No encrypted connection comes about.
    #[error("process `{process}` at `{address}` can't be connected with: {why}")]
    Tls {
        /// That process.
        process: u32,
        /// Where it is.
        address: String,
        /// For people: what is wrong, and what to do.
        why: String,
    },
    /// Something else listens there.
    #[error(
        "what listens at `{address}` is not process `{process}`: its answer is no part of the \
         protocol; check the addresses"
    )]
    Stranger {
        /// The process that should be there.
        process: u32,
        /// Where.
        address: String,
    },
    /// Not everybody was there in time.
    #[error(
        "after {waited:?} there is no connection with {}{}; see whether they run, and whether a \
         firewall lets these ports through",
        list(peers),
        also(refused)
    )]
    Missing {
        /// How long was waited.
        waited: Duration,
        /// Who is missing.
        peers: Vec<MissingPeer>,
        /// Who connected and was turned away, the latest last.
        refused: Vec<RefusedStranger>,
    },
}

fn list(peers: &[MissingPeer]) -> String {
    let peers: Vec<String> = peers.iter().map(ToString::to_string).collect();
    peers.join(", ")
}

fn also(refused: &[RefusedStranger]) -> String {
    let one = |stranger: &RefusedStranger| format!("`{}` ({})", stranger.from, stranger.cause);
    let all: Vec<String> = refused.iter().map(one).collect();
    match all.as_slice() {
        [] => String::new(),
        some => format!("; turned away were {}", some.join(", ")),
    }
}
