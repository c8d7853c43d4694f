//! Leadership and records in a bucket, by conditional writes alone: no other service is needed.
//!
//! ```text
//! <prefix>/<job name, path-safe>/
//!   lease     who leads; replaced by its holder again and again, as a sign of life
//!   records   all records of the job, and the epoch that may replace them
//! ```
//!
//! Every write asks for the entity tag that was read, or for absence; the store refuses it if
//! somebody was faster. Whoever sees the same lease for a whole term takes it (see [`lease`]), with
//! the next epoch. Before it leads, it *seals* the records: it replaces them by the same with its
//! epoch. From then on a write of its predecessor asks for a tag that is gone for good, whenever it
//! arrives (see [`table`]).
//!
//! A request without an answer may have had its effect, or may have it later. It is sent again,
//! word for word, until there is an answer: if the first one took effect, the second is refused,
//! and what is read then is what was sent. Requests are never repeated by the layers below, which
//! would take the refusal of a second try for that of the first.

mod election;
mod inspection;
mod lease;
mod records;
mod table;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    RetryConfig, UpdateVersion,
};

pub(crate) use election::S3Election;
pub(crate) use inspection::S3Inspection;

use super::HaLocation;
use crate::error::StorageError;

/// A bucket, and the prefix below which all jobs are. Displays as its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Location {
    bucket: String,
    prefix: String,
    options: Vec<(String, String)>,
}

impl S3Location {
    /// Parses `s3://bucket/prefix`.
    pub(crate) fn parse(text: &str) -> Result<S3Location, StorageError> {
        let invalid = |reason: &str| StorageError::InvalidLocation {
            location: text.to_owned(),
            reason: reason.to_owned(),
        };
        let form = "is not of the form `s3://bucket/prefix`";
        let rest = text.strip_prefix("s3://").ok_or_else(|| invalid(form))?;
        let (bucket, prefix) = rest.split_once('/').ok_or_else(|| invalid(form))?;
        let prefix = prefix.trim_end_matches('/');
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._=-".contains(&b);
        let is_segment =
            |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(plain);
        if !is_segment(bucket) || !prefix.split('/').all(is_segment) {
            return Err(invalid(
                "needs a bucket and a prefix of letters, digits, `.`, `_`, `=` and `-`",
            ));
        }
        Ok(S3Location {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            options: Vec::new(),
        })
    }

    /// Adds a setting, named as in the environment (`aws_endpoint`), which it goes before.
    #[must_use]
    pub fn with_option(mut self, name: &str, value: &str) -> S3Location {
        self.options.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The bucket's name.
    pub(crate) fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The location called `folder` below this one.
    #[must_use]
    pub(crate) fn child(&self, folder: &str) -> S3Location {
        S3Location {
            prefix: format!("{}/{folder}", self.prefix),
            ..self.clone()
        }
    }

    /// The whole bucket, for objects that nobody replaces: requests are repeated as needed.
    pub(crate) fn client(&self) -> Result<Arc<dyn ObjectStore>, StorageError> {
        let store = self.builder()?.build().map_err(|e| self.unusable(&e))?;
        Ok(Arc::new(store))
    }

    /// What of a bucket is below this location.
    pub(crate) fn within(&self, bucket: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        Arc::new(PrefixStore::new(bucket, self.prefix.as_str()))
    }

    /// The election of a job's leader in the job's own folder.
    pub(crate) fn election(&self, job: &str) -> Result<S3Election, StorageError> {
        S3Election::of(self, job, HaLocation::LEASE)
    }

    fn unusable(&self, error: &Error) -> StorageError {
        StorageError::InvalidLocation {
            location: self.to_string(),
            reason: format!("can't be used: {error}"),
        }
    }

    /// By the environment and the options.
    fn builder(&self) -> Result<AmazonS3Builder, StorageError> {
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(&self.bucket);
        for (name, value) in &self.options {
            let key: AmazonS3ConfigKey = name.parse().map_err(|e| self.unusable(&e))?;
            builder = builder.with_config(key, value);
        }
        Ok(builder)
    }

    /// A client that gives up a request after `timeout`, and sends each once.
    fn connect(&self, timeout: Duration) -> Result<Arc<dyn ObjectStore>, StorageError> {
        let once = RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        };
        let mut client = ClientOptions::new()
            .with_timeout(timeout)
            .with_connect_timeout(timeout);
        let allow = |(name, value): &(String, String)| name == "aws_allow_http" && value == "true";
        let environment = std::env::var("AWS_ALLOW_HTTP").is_ok_and(|value| value == "true");
        if environment || self.options.iter().any(allow) {
            client = client.with_allow_http(true);
        }
        let builder = self.builder()?.with_client_options(client).with_retry(once);
        Ok(Arc::new(builder.build().map_err(|e| self.unusable(&e))?))
    }
}

impl fmt::Display for S3Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.prefix)
    }
}

/// Name of the object with the lease.
const LEASE: &str = "lease";
/// Name of the object with the records.
const RECORDS: &str = "records";

/// An object as it was read or written.
#[derive(Clone, Debug)]
struct Object {
    bytes: Bytes,
    tag: String,
}

/// How a conditional write ended.
#[derive(Debug)]
enum Put {
    /// With this tag.
    Done(String),
    /// The object isn't as it was expected to be.
    Refused,
    /// It may have happened, or may yet.
    InDoubt(StorageError),
}

/// The two objects of one job.
#[derive(Clone, Debug)]
struct Objects {
    store: Arc<dyn ObjectStore>,
    location: String,
    prefix: String,
}

impl Objects {
    /// Those of the job whose folder is `job`. Requests are given up after `timeout`.
    fn of(location: &S3Location, job: &str, timeout: Duration) -> Result<Objects, StorageError> {
        let location_of_job = location.child(job);
        Ok(Objects {
            store: location.connect(timeout)?,
            location: location_of_job.to_string(),
            prefix: location_of_job.prefix,
        })
    }

    fn describe(&self, name: &str) -> String {
        format!("{}/{name}", self.location)
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.prefix))
    }

    async fn get(&self, name: &str) -> Result<Option<Object>, StorageError> {
        let error = |e| StorageError::from_object("read", self.describe(name), e);
        let found = match self.store.get(&self.path(name)).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(other) => return Err(error(other)),
        };
        let tag = self.tag(name, found.meta.e_tag.clone())?;
        let bytes = found.bytes().await.map_err(error)?;
        Ok(Some(Object { bytes, tag }))
    }

    /// Replaces the object with the tag `expected`; without one, there must be none.
    async fn put(&self, name: &str, bytes: Bytes, expected: Option<&str>) -> Put {
        let mode = match expected {
            None => PutMode::Create,
            Some(tag) => PutMode::Update(UpdateVersion {
                e_tag: Some(tag.to_owned()),
                version: None,
            }),
        };
        let payload = PutPayload::from_bytes(bytes);
        let options = PutOptions::from(mode);
        match self
            .store
            .put_opts(&self.path(name), payload, options)
            .await
        {
            Ok(put) => match self.tag(name, put.e_tag) {
                Ok(tag) => Put::Done(tag),
                Err(error) => Put::InDoubt(error),
            },
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Put::Refused,
            Err(other) => {
                let error = StorageError::from_object("write", self.describe(name), other);
                Put::InDoubt(error)
            }
        }
    }

    fn tag(&self, name: &str, tag: Option<String>) -> Result<String, StorageError> {
        tag.ok_or_else(|| StorageError::Malformed {
            file: self.describe(name),
            reason: "the store gives no entity tag".to_owned(),
        })
    }
}
