//! What TLS complains about, as people can do something about it.

use rustls::{AlertDescription, CertificateError, Error};

/// What is wrong with a certificate, as it is seen from where it is checked. `whose` is the subject
/// of the sentence.
fn about_certificate(whose: &str, error: &CertificateError, name: &str) -> String {
    use CertificateError as E;
    match error {
        E::UnknownIssuer | E::BadSignature => format!(
            "{whose} is not signed by the CA of `--tls-ca`; give all processes certificates of \
             one CA"
        ),
        E::Expired | E::ExpiredContext { .. } => {
            format!("{whose} has expired; replace it by a new one")
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            format!("{whose} is not valid yet; check the clocks")
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => format!(
            "{whose} does not bear the name `{name}`; add it as a subject alternative name, or \
             give `--tls-name` another one"
        ),
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => format!(
            "{whose} is not for both clients and servers; have it issued with the extended key \
             usages `clientAuth` and `serverAuth`"
        ),
        other => format!("{whose} is not acceptable: {other}"),
    }
}

/// Why this process's own certificate is of no use.
pub(super) fn of_own(error: &Error, name: &str) -> String {
    match error {
        Error::InvalidCertificate(error) => about_certificate("it", error, name),
        other => other.to_string(),
    }
}

/// Why a connection with another process doesn't come about. The subject is that process.
pub(super) fn of_peer(error: &Error, name: &str) -> String {
    match error {
        Error::InvalidCertificate(error) => about_certificate("its certificate", error, name),
        Error::NoCertificatesPresented => {
            "it shows no certificate; give it `--tls-cert`, `--tls-key` and `--tls-ca`".to_owned()
        }
        Error::InvalidMessage(_) => "it does not encrypt, or is something else altogether; give \
                                     all processes `--tls-cert`, `--tls-key` and `--tls-ca`"
            .to_owned(),
        Error::AlertReceived(alert) => of_alert(*alert),
        other => format!("TLS does not come about: {other}"),
    }
}

fn of_alert(alert: AlertDescription) -> String {
    use AlertDescription as A;
    match alert {
        A::UnknownCA | A::DecryptError => "it refuses this process's certificate, which is not \
                                           signed by its CA; give all processes the same \
                                           `--tls-ca`, and certificates that are signed by it"
            .to_owned(),
        A::CertificateExpired => "it refuses this process's certificate, which has expired, or \
                                  is not valid yet by its clock"
            .to_owned(),
        A::BadCertificate
        | A::UnsupportedCertificate
        | A::CertificateUnknown
        | A::CertificateRevoked => {
            format!("it refuses this process's certificate ({alert:?}); its log says more")
        }
        A::CertificateRequired => "it wants a certificate of this process".to_owned(),
        A::NoApplicationProtocol => {
            "it is something else, which does not take connections of this kind; check the address"
                .to_owned()
        }
        other => format!("it refuses this process ({other:?}); its log says more"),
    }
}
