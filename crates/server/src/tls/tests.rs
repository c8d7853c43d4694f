//! What is refused before anything is connected. Connections are in the tests of `data`.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::path::PathBuf;

use rcgen::{ExtendedKeyUsagePurpose, date_time_ymd};
use tidegate_types::ErrorChain;

use super::testing::{Ca, expired, read};
use super::{Tls, TlsFiles};

fn complaint(files: &TlsFiles) -> String {
    ErrorChain(&Tls::load(files).unwrap_err()).to_string()
}

fn assert_refused(files: &TlsFiles, says: &[&str]) {
    let complaint = complaint(files);
    for says in says {
        assert!(complaint.contains(says), "{complaint}");
    }
}

#[test]
fn certificates_that_others_would_refuse_are_refused_at_once() {
    let (ca, foreign) = (Ca::new(), Ca::new());
    Tls::load(&ca.issue("right", |_| {})).unwrap();
    let of_ours = TlsFiles {
        ca: ca.path("ca"),
        ..foreign.issue("node", |_| {})
    };
    assert_refused(
        &of_ours,
        &["node.pem", "not signed by the CA of `--tls-ca`"],
    );
    assert_refused(
        &ca.issue("old", expired),
        &["old.pem", "it has expired; replace it"],
    );
    let early = ca.issue("early", |params| {
        params.not_before = date_time_ymd(2999, 1, 1)
    });
    assert_refused(&early, &["it is not valid yet; check the clocks"]);
    let names = vec!["localhost".to_owned()];
    let named = ca.issue("named", |params| {
        params.subject_alt_names = rcgen::CertificateParams::new(names)
            .unwrap()
            .subject_alt_names;
    });
    assert_refused(&named, &["does not bear the name `tidegate`", "--tls-name"]);
    let renamed = TlsFiles {
        name: "localhost".to_owned(),
        ..named
    };
    Tls::load(&renamed).unwrap();
    for usage in [
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ] {
        let half = ca.issue("half", |params| params.extended_key_usages = vec![usage]);
        assert_refused(&half, &["`clientAuth` and `serverAuth`"]);
    }
    // Without any, it is for everything.
    Tls::load(&ca.issue("any", |params| params.extended_key_usages.clear())).unwrap();
}

#[test]
fn files_of_the_wrong_kind_are_named() {
    let ca = Ca::new();
    let right = ca.issue("node", |_| {});
    let missing = TlsFiles {
        key: ca.path("missing"),
        ..right.clone()
    };
    assert_refused(&missing, &["`--tls-key`", "missing", "No such file"]);
    let swapped = TlsFiles {
        cert: right.key.clone(),
        key: right.cert.clone(),
        ..right.clone()
    };
    assert_refused(&swapped, &["`--tls-cert`", "holds no certificate in PEM"]);
    let no_key = TlsFiles {
        key: right.cert.clone(),
        ..right.clone()
    };
    assert_refused(
        &no_key,
        &["`--tls-key`", "no private key in PEM, without a"],
    );
    let no_ca = TlsFiles {
        ca: right.key.clone(),
        ..right.clone()
    };
    assert_refused(&no_ca, &["`--tls-ca`", "holds no certificate in PEM"]);
    let other = ca.issue("other", |_| {});
    let mixed = TlsFiles {
        key: other.key,
        ..right.clone()
    };
    assert_refused(&mixed, &["other.key", "node.pem", "can't be used together"]);
    let unnamed = TlsFiles {
        name: "two words".to_owned(),
        ..right.clone()
    };
    assert_refused(&unnamed, &["`--tls-name two words` is no name"]);
    let mut damaged = read(&right.cert);
    damaged.replace_range(100..104, "AAAA");
    fs::write(&right.cert, damaged).unwrap();
    assert!(!complaint(&right).is_empty());
}

// Certificates are replaced while a cluster runs.
#[test]
fn replaced_files_count_once_they_are_usable() {
    let ca = Ca::new();
    let files = ca.issue("node", |_| {});
    let tls = Tls::load(&files).unwrap();
    let first = tls.identity();
    assert!(std::sync::Arc::ptr_eq(&first, &tls.identity()), "kept");
    // The certificate comes before its key does.
    let new = ca.issue("new", |_| {});
    let replace = |from: &PathBuf, to: &PathBuf| fs::rename(from, to).unwrap();
    replace(&new.cert, &files.cert);
    assert!(
        std::sync::Arc::ptr_eq(&first, &tls.identity()),
        "half of it"
    );
    replace(&new.key, &files.key);
    assert!(!std::sync::Arc::ptr_eq(&first, &tls.identity()));
    fs::remove_file(&files.ca).unwrap();
    let latest = tls.identity();
    assert!(std::sync::Arc::ptr_eq(&latest, &tls.identity()));
}
