//! The records of somebody else, to look at.

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use tidegate_types::LeaderEpoch;

use super::table::Table;
use super::{Objects, RECORDS, S3Location};
use crate::error::StorageError;
use crate::ha::{Expected, HaLocation, RecordStore, Versioned, Written};

/// Reads what is there at this moment. Whatever is written through it is rejected, since its epoch
/// is before the first.
#[derive(Debug)]
pub(crate) struct S3Inspection(Objects);

impl S3Inspection {
    /// Of the job whose folder is `job`.
    pub(crate) fn of(location: &S3Location, job: &str) -> Result<S3Inspection, StorageError> {
        Objects::of(location, job, HaLocation::LEASE / 3).map(S3Inspection)
    }

    /// `None` if there are no records at all.
    async fn table(&self) -> Result<Option<Table>, StorageError> {
        let Some(found) = self.0.get(RECORDS).await? else {
            return Ok(None);
        };
        Table::decode(&self.0.describe(RECORDS), &found.bytes).map(Some)
    }

    async fn refuse(&self) -> StorageError {
        match self.table().await {
            Err(error) => error,
            Ok(table) => StorageError::Fenced {
                record: self.0.describe(RECORDS),
                ours: self.epoch(),
                found: table.map_or(self.epoch(), |table| table.epoch),
            },
        }
    }
}

impl RecordStore for S3Inspection {
    fn epoch(&self) -> LeaderEpoch {
        LeaderEpoch(0)
    }

    fn describe(&self, name: &str) -> String {
        format!("{}#{name}", self.0.describe(RECORDS))
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Versioned>, StorageError>> {
        async move { Ok(self.table().await?.and_then(|table| table.get(name))) }.boxed()
    }

    fn list<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<String>, StorageError>> {
        async move {
            let table = self.table().await?;
            Ok(table.map_or_else(Vec::new, |table| table.list(folder)))
        }
        .boxed()
    }

    fn write<'a>(&'a self, _: &'a str, _: Bytes, _: Expected) -> BoxFuture<'a, Written> {
        async move { Written::NotDone(self.refuse().await) }.boxed()
    }

    fn remove<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Written> {
        async move { Written::NotDone(self.refuse().await) }.boxed()
    }

    fn confirm(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        async move { Err(self.refuse().await) }.boxed()
    }
}
