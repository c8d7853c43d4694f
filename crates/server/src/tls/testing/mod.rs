//! Certificates for tests.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod ca;

use std::fs;
use std::path::Path;

pub(crate) use ca::{Ca, expired};
use rcgen::CertificateParams;

use super::{Tls, TlsFiles};

impl Ca {
    pub(crate) fn issue(&self, file: &str, adapt: impl FnOnce(&mut CertificateParams)) -> TlsFiles {
        let issued = self.issue_for(file, adapt);
        TlsFiles {
            cert: issued.cert,
            key: issued.key,
            ca: issued.ca,
            name: TlsFiles::NAME.to_owned(),
        }
    }

    /// One that is as it should be, loaded.
    pub(crate) fn tls(&self) -> Tls {
        Tls::load(&self.issue("node", |_| {})).unwrap()
    }

    /// One that is as it should be, and trusts another CA besides.
    pub(crate) fn tls_that_trusts(&self, other: &Ca) -> Tls {
        let files = TlsFiles {
            ca: self.with(other),
            ..self.issue("trusting", |_| {})
        };
        Tls::load(&files).unwrap()
    }
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}
