//! The certificates of this process, loaded and checked.

use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tidegate_types::ErrorChain;

use super::{TlsError, TlsFiles, explain};

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Messages between the JobManager and others: gRPC.
    Control,
    /// Records between the processes of an attempt.
    Data,
}

/// What the processes of a cluster encrypt with. Clones share what is loaded.
#[derive(Clone)]
pub struct Tls(Arc<Shared>);

struct Shared {
    files: TlsFiles,
    loaded: Mutex<Loaded>,
}

#[derive(Clone)]
struct Loaded {
    identity: Arc<Identity>,
    stamp: Stamp,
}

/// What shows that a file has been replaced.
type Stamp = [Option<(u64, u64, i64, i64)>; 3];

/// One set of certificates, as both sides of a connection need it.
pub(super) struct Identity {
    client: ClientConfig,
    server: ServerConfig,
    pub(super) name: ServerName<'static>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.0.files).finish()
    }
}

impl Tls {
    /// Loads the files, and checks that the other processes of the cluster will accept them.
    ///
    /// # Errors
    /// If they won't, with what to do about it.
    pub fn load(files: &TlsFiles) -> Result<Tls, TlsError> {
        // Ordering: before the files are read, so that one that is replaced meanwhile is seen.
        let stamp = stamp(files);
        let identity = Arc::new(Identity::load(files)?);
        Ok(Tls(Arc::new(Shared {
            files: files.clone(),
            loaded: Mutex::new(Loaded { identity, stamp }),
        })))
    }

    /// As if it had been loaded when the certificate was still good.
    #[cfg(test)]
    pub(crate) fn unchecked(files: &TlsFiles) -> Tls {
        let identity = Arc::new(Parts::read(files).unwrap().into_identity().unwrap());
        Tls(Arc::new(Shared {
            files: files.clone(),
            loaded: Mutex::new(Loaded {
                identity,
                stamp: stamp(files),
            }),
        }))
    }

    /// Where it was loaded from.
    pub fn files(&self) -> &TlsFiles {
        &self.0.files
    }

    /// The certificates as they are now. Those from before, if there is something wrong with them.
    pub(super) fn identity(&self) -> Arc<Identity> {
        let loaded = &self.0.loaded;
        let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = stamp(&self.0.files);
        if stamp != loaded.stamp {
            match Identity::load(&self.0.files) {
                Ok(identity) => {
                    tracing::info!("certificates have been replaced");
                    let identity = Arc::new(identity);
                    *loaded = Loaded { identity, stamp };
                }
                // Files are replaced one after the other, so this may pass.
                Err(error) => tracing::warn!(
                    error = %ErrorChain(&error),
                    "certificates have been replaced by unusable ones; the former are used"
                ),
            }
        }
        Arc::clone(&loaded.identity)
    }
}

fn stamp(files: &TlsFiles) -> Stamp {
    let of = |metadata: Metadata| {
        let (device, inode) = (metadata.dev(), metadata.ino());
        (
            device.rotate_left(32) ^ inode,
            metadata.len(),
            metadata.mtime(),
            metadata.mtime_nsec(),
        )
    };
    [&files.cert, &files.key, &files.ca].map(|path| fs::metadata(path).ok().map(of))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// What the files hold.
struct Parts {
    name: ServerName<'static>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    of_server: Arc<WebPkiServerVerifier>,
    of_client: Arc<dyn ClientCertVerifier>,
}

impl Parts {
    fn read(files: &TlsFiles) -> Result<Parts, TlsError> {
        let name = ServerName::try_from(files.name.clone());
        let name = name.map_err(|_| TlsError::Name(files.name.clone()))?;
        let chain = certificates("--tls-cert", &files.cert)?;
        let key = read("--tls-key", &files.key)?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| TlsError::Content {
            flag: "--tls-key",
            path: files.key.clone(),
            expected: "private key in PEM, without a passphrase",
        })?;
        let roots = Arc::new(roots(&files.ca)?);
        let unusable_ca = |_| no_certificates("--tls-ca", &files.ca);
        let of_server = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider());
        let of_client = WebPkiClientVerifier::builder_with_provider(roots, provider());
        Ok(Parts {
            name,
            chain,
            key,
            of_server: of_server.build().map_err(unusable_ca)?,
            of_client: of_client.build().map_err(unusable_ca)?,
        })
    }

    /// Looks at this process's certificate as the others will.
    fn check(&self) -> Result<(), rustls::Error> {
        let (own, rest) = self.chain.split_first().expect("there is at least one");
        let now = UnixTime::now();
        self.of_server
            .verify_server_cert(own, rest, &self.name, &[], now)?;
        self.of_client.verify_client_cert(own, rest, now)?;
        Ok(())
    }

    fn into_identity(self) -> Result<Identity, rustls::Error> {
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(self.of_client)
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_webpki_verifier(self.of_server)
            .with_client_auth_cert(self.chain, self.key)?;
        client.resumption = Resumption::disabled();
        Ok(Identity {
            client,
            server,
            name: self.name,
        })
    }
}

impl Identity {
    fn load(files: &TlsFiles) -> Result<Identity, TlsError> {
        let parts = Parts::read(files)?;
        parts.check().map_err(|error| TlsError::Unfit {
            cert: files.cert.clone(),
            why: explain::of_own(&error, &files.name),
        })?;
        parts.into_identity().map_err(|error| TlsError::Key {
            key: files.key.clone(),
            cert: files.cert.clone(),
            why: match error {
                rustls::Error::InconsistentKeys(_) => "they were not made together".to_owned(),
                other => other.to_string(),
            },
        })
    }

    pub(super) fn client(&self, purpose: Purpose) -> Arc<ClientConfig> {
        let mut config = self.client.clone();
        config.alpn_protocols = vec![purpose.protocol().to_vec()];
        Arc::new(config)
    }

    pub(super) fn server(&self, purpose: Purpose) -> Arc<ServerConfig> {
        let mut config = self.server.clone();
        config.alpn_protocols = vec![purpose.protocol().to_vec()];
        Arc::new(config)
    }
}

impl Purpose {
    /// What it is called in the handshake (ALPN).
    pub(super) fn protocol(self) -> &'static [u8] {
        match self {
            Purpose::Control => b"h2",
            Purpose::Data => b"tidegate-data",
        }
    }
}

fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|cause| TlsError::Read {
        flag,
        path: path.to_owned(),
        cause,
    })
}

fn no_certificates(flag: &'static str, path: &Path) -> TlsError {
    TlsError::Content {
        flag,
        path: path.to_owned(),
        expected: "certificate in PEM",
    }
}

/// At least one.
fn certificates(flag: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(flag, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(no_certificates(flag, path)),
    }
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("--tls-ca", path)? {
        let added = roots.add(certificate);
        added.map_err(|_| no_certificates("--tls-ca", path))?;
    }
    Ok(roots)
}
