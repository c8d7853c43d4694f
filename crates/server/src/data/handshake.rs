//! The conversation at the beginning of a connection, from both sides.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::ConnectOptions;
use super::error::{ConnectError, Refusal};
use super::hello::{
    ACCEPTED, CHALLENGE, HELLO_BYTES, Hello, MAGIC, NONCE_BYTES, PREFIX_BYTES, REFUSED, Side,
    VERSION, has_proved, prove,
};
use crate::farewell::close_gently;
use crate::tls::FIRST_BYTE;

/// Why dialling didn't lead to a connection.
#[derive(Debug)]
pub(super) enum Failure {
    /// It may the next time.
    Passing(String),
    /// It never will.
    Final(Verdict),
}

/// What makes it useless to dial again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Refused(Refusal),
    /// No encrypted connection comes about, for this reason.
    #[cfg(feature = "tls")]
    Tls(String),
    WrongSecret,
    Stranger,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Passing(match error.kind() {
            io::ErrorKind::UnexpectedEof => "it has closed the connection".to_owned(),
            _ => error.to_string(),
        })
    }
}

impl Verdict {
    pub(super) fn into_error(self, process: u32, address: String) -> ConnectError {
        match self {
            Verdict::Refused(refusal) => ConnectError::Refused {
                process,
                address,
                refusal,
            },
            #[cfg(feature = "tls")]
            Verdict::Tls(why) => ConnectError::Tls {
                process,
                address,
                why,
            },
            Verdict::WrongSecret => ConnectError::Secret { process, address },
            Verdict::Stranger => ConnectError::Stranger { process, address },
        }
    }
}

/// Why somebody who has connected is turned away.
#[derive(Debug, thiserror::Error)]
pub(super) enum TurnedAway {
    #[error("{0}")]
    Refused(Refusal),
    #[error("what it said is no part of the protocol")]
    Garbage,
    #[error("no encrypted connection comes about: {0}")]
    #[cfg(feature = "tls")]
    Tls(String),
    #[error("it has gone: {0}")]
    Gone(#[from] io::Error),
}

fn nonce() -> io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    Ok(nonce)
}

/// Introduces this process to `peer`, and checks that it is `peer` who answers.
pub(super) async fn dial(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    options: &ConnectOptions,
    peer: u32,
) -> Result<(), Failure> {
    let hello = Hello {
        from: options.process,
        to: peer,
        membership: options.membership,
        nonce: nonce()?,
    };
    let bytes = hello.encode();
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    expect(stream, CHALLENGE).await?;
    let theirs: [u8; NONCE_BYTES] = read(stream).await?;
    let proof: [u8; NONCE_BYTES] = read(stream).await?;
    if !has_proved(&options.secret, Side::Accepts, &bytes, &hello.nonce, &proof) {
        return Err(Failure::Final(Verdict::WrongSecret));
    }
    let own = prove(&options.secret, Side::Dials, &bytes, &theirs);
    stream.write_all(&own).await?;
    stream.flush().await?;
    expect(stream, ACCEPTED).await
}

/// Reads an answer that should be this one.
async fn expect(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    wanted: u8,
) -> Result<(), Failure> {
    let [answer] = read(stream).await?;
    if answer == wanted {
        return Ok(());
    }
    let mut verdict = Verdict::Stranger;
    if answer == REFUSED {
        let [code] = read(stream).await?;
        verdict = Refusal::from_code(code).map_or(Verdict::Stranger, Verdict::Refused);
    }
    Err(Failure::Final(verdict))
}

/// Finds out who has connected, and returns its index once it has been let in. `claim` says
/// whether it is the first of that index.
pub(super) async fn accept(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    options: &ConnectOptions,
    claim: impl FnOnce(u32) -> bool,
) -> Result<u32, TurnedAway> {
    let outcome = question(stream, options, claim).await;
    if let Err(TurnedAway::Refused(refusal)) = &outcome {
        // It may have gone, and needn't know.
        let _ = stream.write_all(&[REFUSED, refusal.code()]).await;
        close_gently(stream).await;
    }
    outcome
}

async fn question(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    options: &ConnectOptions,
    claim: impl FnOnce(u32) -> bool,
) -> Result<u32, TurnedAway> {
    let prefix: [u8; PREFIX_BYTES] = read(stream).await?;
    let (magic, version) = prefix.split_at(MAGIC.len());
    if magic[0] == FIRST_BYTE {
        return Err(TurnedAway::Refused(Refusal::Encrypted));
    }
    if magic != MAGIC {
        return Err(TurnedAway::Garbage);
    }
    if version != VERSION.to_le_bytes() {
        return Err(TurnedAway::Refused(Refusal::Version));
    }
    let mut bytes = [0; HELLO_BYTES];
    bytes[..PREFIX_BYTES].copy_from_slice(&prefix);
    stream.read_exact(&mut bytes[PREFIX_BYTES..]).await?;
    let hello = Hello::decode(&bytes).ok_or(TurnedAway::Refused(Refusal::Version))?;
    if let Some(refusal) = refusal(options, &hello) {
        return Err(TurnedAway::Refused(refusal));
    }
    let own = nonce()?;
    let mut challenge = vec![CHALLENGE];
    challenge.extend(own);
    challenge.extend(prove(&options.secret, Side::Accepts, &bytes, &hello.nonce));
    stream.write_all(&challenge).await?;
    stream.flush().await?;
    let proof: [u8; NONCE_BYTES] = read(stream).await?;
    if !has_proved(&options.secret, Side::Dials, &bytes, &own, &proof) {
        return Err(TurnedAway::Refused(Refusal::Secret));
    }
    if !claim(hello.from) {
        return Err(TurnedAway::Refused(Refusal::Duplicate));
    }
    stream.write_all(&[ACCEPTED]).await?;
    stream.flush().await?;
    Ok(hello.from)
}

/// What can be seen without a proof.
fn refusal(options: &ConnectOptions, hello: &Hello) -> Option<Refusal> {
    if let Some(refusal) = options.membership.refusal(&hello.membership) {
        return Some(refusal);
    }
    if hello.to != options.process {
        return Some(Refusal::Addressee);
    }
    let dials = options.process + 1..options.addresses.len() as u32;
    (!dials.contains(&hello.from)).then_some(Refusal::Index)
}

async fn read<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}
