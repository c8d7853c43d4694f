//! Certificates for tests, made while they run.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};

use super::{Tls, TlsFiles};

/// A CA, and a folder for what it issues.
pub(crate) struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
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

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Issues a certificate, and says where it lies. `adapt` makes it other than it should be.
    pub(crate) fn issue(&self, file: &str, adapt: impl FnOnce(&mut CertificateParams)) -> TlsFiles {
        let mut params = CertificateParams::new([TlsFiles::NAME.to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        adapt(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        TlsFiles {
            cert: self.write(&format!("{file}.pem"), &certificate.pem()),
            key: self.write(&format!("{file}.key"), &key.serialize_pem()),
            ca: self.path("ca"),
            name: TlsFiles::NAME.to_owned(),
        }
    }

    /// One that is as it should be, loaded.
    pub(crate) fn tls(&self) -> Tls {
        Tls::load(&self.issue("node", |_| {})).unwrap()
    }

    /// One that is as it should be, and trusts another CA besides.
    pub(crate) fn tls_that_trusts(&self, other: &Ca) -> Tls {
        let both = [self.path("ca"), other.path("ca")].map(|path: PathBuf| read(&path));
        let files = TlsFiles {
            ca: self.write("both", &both.concat()),
            ..self.issue("trusting", |_| {})
        };
        Tls::load(&files).unwrap()
    }
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// Makes a certificate one that is valid in the past only.
pub(crate) fn expired(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
}
