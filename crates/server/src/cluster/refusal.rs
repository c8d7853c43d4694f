//! Why a JobManager turns somebody away, and what that means to whoever is.

use tonic::{Code, Status};

/// What to make of the end of a stream, or of a call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    /// It won't go better next time.
    Refused(String),
    /// The JobManager is gone, or doesn't lead.
    Gone(String),
}

/// Not the same binary, or not the same job: a restart would only end here again.
pub(super) fn misfit(why: String) -> Status {
    Status::failed_precondition(why)
}

impl From<Status> for Farewell {
    fn from(status: Status) -> Self {
        let text = match status.message() {
            "" => status.code().to_string(),
            message => message.to_owned(),
        };
        match status.code() {
            // What `incoming.rs` of the JobManager answers to whoever doesn't encrypt.
            Code::PermissionDenied => Farewell::Refused(
                "it encrypts; give this process `--tls-cert`, `--tls-key` and `--tls-ca`, too"
                    .to_owned(),
            ),
            Code::FailedPrecondition
            | Code::Unauthenticated
            | Code::InvalidArgument
            | Code::Unimplemented => Farewell::Refused(text),
            _ => Farewell::Gone(text),
        }
    }
}
