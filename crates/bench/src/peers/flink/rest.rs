//! Asks the JobManager over its REST interface.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::error::FlinkError;

/// Nothing that is asked here takes longer, even on a machine that is busy with a job.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The REST interface of one cluster.
pub(super) struct Rest {
    agent: ureq::Agent,
    port: u16,
}

impl Rest {
    /// The one on this port of loopback.
    pub(super) fn new(port: u16) -> Self {
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .build()
            .new_agent();
        Rest { agent, port }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/v1{path}", self.port)
    }

    /// Reads `path`.
    ///
    /// # Errors
    /// If there is no answer, another than 200, or one of another form.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, FlinkError> {
        let answer = self.agent.get(self.url(path)).call();
        understand(path, answer)
    }

    /// Sends `body`, as JSON, to `path`.
    ///
    /// # Errors
    /// As [`Rest::get`].
    pub(super) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<T, FlinkError> {
        let answer = self
            .agent
            .post(self.url(path))
            .content_type("application/json")
            .send(body.to_string());
        understand(path, answer)
    }
}

fn understand<T: DeserializeOwned>(
    path: &str,
    answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<T, FlinkError> {
    let failed = |cause| FlinkError::Http {
        path: path.to_owned(),
        cause: Box::new(cause),
    };
    let mut answer = answer.map_err(failed)?;
    let status = answer.status();
    let body = answer.body_mut().read_to_string().map_err(failed)?;
    if !status.is_success() {
        return Err(FlinkError::Refused {
            path: path.to_owned(),
            status: status.as_u16(),
            body,
        });
    }
    serde_json::from_str(&body).map_err(|cause| FlinkError::Answer {
        path: path.to_owned(),
        cause,
    })
}
