//! Encryption between the processes of a cluster: TLS 1.3, with certificates on both sides.
//!
//! Every process of a cluster is given a certificate, its key, and the certificate of the CA that
//! has signed it; one certificate for all of them is enough. Both sides of each connection show
//! theirs, and accept whatever the CA has signed for clients and servers. Addresses change, so they
//! aren't looked at: a certificate has to bear one name, `tidegate` unless told otherwise.
//!
//! *Nothing by halves*: settings that are incomplete, or files that the other processes would
//! refuse (expired, say, or signed by somebody else), are refused by the process itself when it
//! starts. Files that are replaced later count for the next connection. If what has been put there
//! is of no use, the former ones go on being used, with a warning.
//!
//! *Whoever is refused learns why.* In TLS 1.3, the side that dials is through with its part before
//! the other has looked at its certificate. So it waits for a session ticket, which is sent to
//! nobody who is refused. Tickets aren't used for anything else; every connection is made by
//! certificates.
//!
//! Both sides agree by name on what a connection is for, so one for data can't be led to a
//! JobManager.
//!
//! Without the feature `tls`, the settings are known and refused, and [`Tls`] has no values.

mod error;
#[cfg(feature = "tls")]
mod explain;
mod files;
#[cfg(feature = "tls")]
mod handshake;
#[cfg(feature = "tls")]
mod identity;
#[cfg(all(test, feature = "tls"))]
pub(crate) mod testing;
#[cfg(all(test, feature = "tls"))]
mod tests;

pub use error::TlsError;
pub use files::TlsFiles;
#[cfg(feature = "tls")]
pub(crate) use handshake::{Failure, Stranger};
#[cfg(feature = "tls")]
pub(crate) use identity::Purpose;
#[cfg(feature = "tls")]
pub use identity::Tls;

/// The first byte of whatever opens an encrypted connection.
pub(crate) const FIRST_BYTE: u8 = 0x16;

/// What the processes of a cluster encrypt with: nothing, since this is built without the feature
/// `tls`.
#[cfg(not(feature = "tls"))]
#[derive(Clone, Debug)]
pub enum Tls {}

#[cfg(not(feature = "tls"))]
impl Tls {
    /// Says that it can't be done.
    ///
    /// # Errors
    /// Always.
    pub fn load(_files: &TlsFiles) -> Result<Tls, TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// Where it was loaded from.
    pub fn files(&self) -> &TlsFiles {
        match *self {}
    }
}
