//! What two processes say to each other before any data, byte by byte.
//!
//! Integers are little endian. The process that dials sends a *hello*:
//!
//! | Offset | Bytes | |
//! |---|---|---|
//! | 0 | 8 | `tidedata` |
//! | 8 | 2 | version of the protocol, 1; what follows depends on it |
//! | 10 | 2 | which of the pair's connections this is: 0 |
//! | 12 | 4 | index of the process that dials |
//! | 16 | 4 | index of the process that it means to reach |
//! | 20 | 8 | leader epoch |
//! | 28 | 8 | number of the attempt |
//! | 36 | 16 | id of the job |
//! | 52 | 32 | fingerprint of the build |
//! | 84 | 32 | a random number |
//!
//! The other side answers with byte 1, a random number of its own (32 bytes) and its *proof*; the
//! first proves itself in turn (32 bytes), and is let in by a byte 2. Instead of a 1 or a 2 there
//! may come a 0 and the code of a [`Refusal`](super::Refusal). After a byte 2 both directions are
//! the runtime's.
//!
//! A proof is HMAC-SHA-256, keyed with the secret, of who proves it (`accepts` or `dials`), the
//! whole hello, and the other side's random number. So it is worth nothing to anybody else, in any
//! other conversation, or in the other direction.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use tidegate_types::{AttemptNumber, JobId, LeaderEpoch};

use super::Refusal;
use crate::hex;

/// The first bytes of a connection.
pub(super) const MAGIC: [u8; 8] = *b"tidedata";

/// This version of the protocol.
pub(super) const VERSION: u16 = 1;

/// Length of magic and version, by which everything else goes.
pub(super) const PREFIX_BYTES: usize = 10;

/// Length of a whole hello.
pub(super) const HELLO_BYTES: usize = 116;

/// Length of random numbers and of proofs.
pub(super) const NONCE_BYTES: usize = 32;

/// The other side may go on, or is in.
pub(super) const REFUSED: u8 = 0;
pub(super) const CHALLENGE: u8 = 1;
pub(super) const ACCEPTED: u8 = 2;

/// What tells one build of one job from others: made of whatever has to be the same in all
/// processes of an attempt, such as the job graph and its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BuildFingerprint(pub [u8; 32]);

impl BuildFingerprint {
    /// The SHA-256 of a description.
    pub fn of(description: &[u8]) -> Self {
        BuildFingerprint(Sha256::digest(description).into())
    }
}

impl fmt::Display for BuildFingerprint {
    /// The first 8 bytes, in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::text(&self.0[..8]))
    }
}

/// What all processes of one attempt have in common, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The job.
    pub job: JobId,
    /// The leadership that started the attempt.
    pub epoch: LeaderEpoch,
    /// The attempt.
    pub attempt: AttemptNumber,
    /// The job's code and graph.
    pub build: BuildFingerprint,
}

/// What the processes of a cluster know and nobody else. Never sent, and never shown.
#[derive(Clone, Default)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// A secret of these bytes: the more random, the better. 32 are plenty.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Secret(bytes.into())
    }

    /// Whether there is none: everybody knows it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Something that only whoever knows the secret can make, and that doesn't give it away: 64
    /// hexadecimal digits.
    pub(crate) fn token(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(b"tidegate control messages");
        hash.update(&self.0);
        let digest: [u8; 32] = hash.finalize().into();
        hex::text(&digest)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() {
            "Secret(none)"
        } else {
            "Secret(…)"
        })
    }
}

/// The first message, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) membership: Membership,
    pub(super) nonce: [u8; NONCE_BYTES],
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; HELLO_BYTES] {
        let Membership {
            job,
            epoch,
            attempt,
            build,
        } = &self.membership;
        let mut bytes = Vec::with_capacity(HELLO_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(LANE.to_le_bytes());
        bytes.extend(self.from.to_le_bytes());
        bytes.extend(self.to.to_le_bytes());
        bytes.extend(epoch.0.to_le_bytes());
        bytes.extend(attempt.0.to_le_bytes());
        bytes.extend(job.0.to_le_bytes());
        bytes.extend(build.0);
        bytes.extend(self.nonce);
        bytes.try_into().expect("the fields have this length")
    }

    /// `None` if it is for a connection of a kind that this version doesn't have. Magic and version
    /// are the caller's to check, before it reads so much.
    pub(super) fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Hello> {
        let mut rest = &bytes[PREFIX_BYTES..];
        let lane = u16::from_le_bytes(take(&mut rest));
        let hello = Hello {
            from: u32::from_le_bytes(take(&mut rest)),
            to: u32::from_le_bytes(take(&mut rest)),
            membership: Membership {
                epoch: LeaderEpoch(u64::from_le_bytes(take(&mut rest))),
                attempt: AttemptNumber(u64::from_le_bytes(take(&mut rest))),
                job: JobId(u128::from_le_bytes(take(&mut rest))),
                build: BuildFingerprint(take(&mut rest)),
            },
            nonce: take(&mut rest),
        };
        (lane == LANE).then_some(hello)
    }
}

/// The only connection of a pair.
const LANE: u16 = 0;

fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (first, rest) = bytes.split_first_chunk().expect("a hello has this field");
    *bytes = rest;
    *first
}

impl Membership {
    /// Why a process of `other` isn't one of these.
    pub(super) fn refusal(&self, other: &Membership) -> Option<Refusal> {
        if self.job != other.job {
            Some(Refusal::Job)
        } else if self.epoch != other.epoch {
            Some(Refusal::Epoch)
        } else if self.attempt != other.attempt {
            Some(Refusal::Attempt)
        } else if self.build != other.build {
            Some(Refusal::Build)
        } else {
            None
        }
    }
}

/// Which side proves that it knows the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Accepts,
    Dials,
}

fn mac(
    secret: &Secret,
    side: Side,
    hello: &[u8; HELLO_BYTES],
    nonce: &[u8; NONCE_BYTES],
) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes keys of any length");
    mac.update(match side {
        Side::Accepts => b"accepts",
        Side::Dials => b"dials  ",
    });
    mac.update(hello);
    mac.update(nonce);
    mac
}

/// Shows to whoever chose `nonce` that this side knows the secret.
pub(super) fn prove(
    secret: &Secret,
    side: Side,
    hello: &[u8; HELLO_BYTES],
    nonce: &[u8; NONCE_BYTES],
) -> [u8; NONCE_BYTES] {
    mac(secret, side, hello, nonce)
        .finalize()
        .into_bytes()
        .into()
}

/// Whether the other side has proved it, in a time that tells nothing.
pub(super) fn has_proved(
    secret: &Secret,
    side: Side,
    hello: &[u8; HELLO_BYTES],
    nonce: &[u8; NONCE_BYTES],
    proof: &[u8; NONCE_BYTES],
) -> bool {
    mac(secret, side, hello, nonce).verify_slice(proof).is_ok()
}
