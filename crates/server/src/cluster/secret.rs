//! Who may talk to a JobManager: whoever knows the cluster's secret.
//!
//! What is sent is not the secret itself, which also protects data connections, but something made
//! of it. Without encryption, whoever can read along can use it, too; so addresses of other
//! machines need certificates, or `--insecure`.

use std::net::{SocketAddr, ToSocketAddrs};

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::data::Secret;

const HEADER: &str = "authorization";

/// Adds what a JobManager expects to requests.
#[derive(Clone)]
pub(super) struct Present(MetadataValue<Ascii>);

impl Present {
    pub(super) fn new(secret: &Secret) -> Self {
        Present(token(secret))
    }
}

impl Interceptor for Present {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(HEADER, self.0.clone());
        Ok(request)
    }
}

/// Turns away requests without it.
#[derive(Clone)]
pub(super) struct Expect(MetadataValue<Ascii>);

impl Expect {
    pub(super) fn new(secret: &Secret) -> Self {
        Expect(token(secret))
    }
}

impl Interceptor for Expect {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let given = request.metadata().get(HEADER);
        let same = |given: &MetadataValue<Ascii>| {
            let (given, expected) = (given.as_encoded_bytes(), self.0.as_encoded_bytes());
            // All bytes are looked at, so that time tells nothing about them.
            let pairs = given.iter().zip(expected);
            let differences = pairs.fold(0, |all, (a, b)| all | (a ^ b));
            given.len() == expected.len() && differences == 0
        };
        if given.is_some_and(same) {
            return Ok(request);
        }
        Err(Status::unauthenticated(
            "the cluster's secret is another one; give all processes of a cluster the same \
             TIDEGATE_CLUSTER_SECRET",
        ))
    }
}

fn token(secret: &Secret) -> MetadataValue<Ascii> {
    let token = format!("Bearer {}", secret.token());
    MetadataValue::try_from(token).expect("hexadecimal digits are allowed in a header")
}

/// Why an address can't be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AddressError {
    #[error("`{0}` is no address; give `host:port`")]
    Malformed(String),
    /// It may be known later.
    #[error("`{address}` is not known: {cause}")]
    Unknown { address: String, cause: String },
    #[error(
        "`{0}` is reached over a network, and nothing that is sent is encrypted; pass --tls-cert, \
         --tls-key and --tls-ca, or, if everything on that network may read it, --insecure"
    )]
    Foreign(String),
}

/// The addresses that a name stands for. Refuses those of other machines, unless they may be used.
pub(super) fn check_address(
    address: &str,
    other_machines: bool,
) -> Result<Vec<SocketAddr>, AddressError> {
    let port = address.rsplit_once(':').map(|(_, port)| port);
    if port.and_then(|port| port.parse::<u16>().ok()).is_none() {
        return Err(AddressError::Malformed(address.to_owned()));
    }
    let unknown = |cause: String| AddressError::Unknown {
        address: address.to_owned(),
        cause,
    };
    let resolved = address.to_socket_addrs();
    let found: Vec<SocketAddr> = resolved
        .map_err(|cause| unknown(cause.to_string()))?
        .collect();
    if found.is_empty() {
        return Err(unknown("it stands for nothing".to_owned()));
    }
    let foreign = found.iter().any(|found| !found.ip().is_loopback());
    if foreign && !other_machines {
        return Err(AddressError::Foreign(address.to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(given: Option<&Secret>) -> Result<Request<()>, Status> {
        let request = match given {
            Some(secret) => Present::new(secret).call(Request::new(())).unwrap(),
            None => Request::new(()),
        };
        Expect::new(&Secret::new("it")).call(request)
    }

    #[test]
    fn whoever_knows_the_secret_gets_in_and_nobody_else() {
        assert!(asked(Some(&Secret::new("it"))).is_ok());
        for wrong in ["", "i", "It", "it "] {
            let refused = asked(Some(&Secret::new(wrong))).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::Unauthenticated);
        }
        assert!(asked(None).is_err());
    }

    #[test]
    fn addresses_of_other_machines_need_consent() {
        assert!(check_address("127.0.0.1:1", false).is_ok());
        assert!(check_address("[::1]:1", false).is_ok());
        let refused = check_address("192.0.2.1:1", false).unwrap_err();
        assert!(refused.to_string().contains("--insecure"), "{refused}");
        assert!(check_address("0.0.0.0:0", false).is_err());
        assert!(check_address("192.0.2.1:1", true).is_ok());
        for malformed in ["nonsense", "host:", "host:70000"] {
            let error = check_address(malformed, true).unwrap_err();
            assert_eq!(error, AddressError::Malformed(malformed.to_owned()));
        }
        let unknown = check_address("no-such-host.invalid:1", true).unwrap_err();
        assert!(matches!(unknown, AddressError::Unknown { .. }), "{unknown}");
    }
}
