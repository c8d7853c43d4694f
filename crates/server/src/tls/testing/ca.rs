//! A CA, and the certificates that it issues, made while a test runs.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};

/// A CA, and a folder for what it issues.
pub(crate) struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

/// Where a certificate, its key, and that of its CA lie.
pub(crate) struct Issued {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) ca: PathBuf,
}

impl Ca {
    pub(crate) fn new() -> Ca {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = Ca {
            issuer: CertifiedIssuer::self_signed(params, key).unwrap(),
            folder: tempfile::tempdir().unwrap(),
        };
        ca.write("ca", &ca.issuer.pem());
        ca
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Issues a certificate for clients and servers called `tidegate`. `adapt` makes it other than
    /// it should be.
    pub(crate) fn issue_for(
        &self,
        file: &str,
        adapt: impl FnOnce(&mut CertificateParams),
    ) -> Issued {
        let mut params = CertificateParams::new(["tidegate".to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        adapt(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued {
            cert: self.write(&format!("{file}.pem"), &certificate.pem()),
            key: self.write(&format!("{file}.key"), &key.serialize_pem()),
            ca: self.path("ca"),
        }
    }

    /// The certificates of this CA and of another one, in one file.
    pub(crate) fn with(&self, other: &Ca) -> PathBuf {
        let both = [self, other].map(|ca| fs::read_to_string(ca.path("ca")).unwrap());
        self.write("both", &both.concat())
    }
}

/// Makes a certificate one that is valid in the past only.
pub(crate) fn expired(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
}
