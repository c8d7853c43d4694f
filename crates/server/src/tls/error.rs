//! Why a process can't encrypt as it is told to.

use std::io;
use std::path::PathBuf;

/// Settings of encryption, or the files that they name, are of no use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// One of them doesn't do without the others.
    #[error(
        "`{given}` is given without `{missing}`; to encrypt, give `--tls-cert`, `--tls-key` and \
         `--tls-ca`"
    )]
    Incomplete {
        /// A setting that is given.
        given: &'static str,
        /// One that is missing.
        missing: &'static str,
    },
    /// Encryption is a feature of the build.
    #[error(
        "`--tls-cert` is given, and this program is built without encryption; build it with the \
         feature `tls`"
    )]
    NotBuilt,
    /// The name can't be one.
    #[error("`--tls-name {0}` is no name that a certificate can bear; give one like `tidegate`")]
    Name(String),
    /// A file can't be read.
    #[error("read the file of `{flag}`, `{path}`")]
    Read {
        /// The setting.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        cause: io::Error,
    },
    /// A file holds something else.
    #[error("the file of `{flag}`, `{path}`, holds no {expected}")]
    Content {
        /// The setting.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What should be in it.
        expected: &'static str,
    },
    /// The key is another certificate's, or of no use.
    #[error("the private key `{key}` and the certificate `{cert}` can't be used together: {why}")]
    Key {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        cert: PathBuf,
        /// For people.
        why: String,
    },
    /// The other processes would refuse it.
    #[error("the certificate `{cert}` would be refused by other processes: {why}")]
    Unfit {
        /// The certificate's file.
        cert: PathBuf,
        /// For people, with what to do.
        why: String,
    },
}
