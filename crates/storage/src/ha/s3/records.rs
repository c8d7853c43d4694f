//! The records of a leader: each change replaces the whole table, if nobody else has.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use tidegate_types::LeaderEpoch;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::election::Lease;
use super::lease::Holder;
use super::table::{Change, Table};
use super::{LEASE, Object, Objects, Put, RECORDS};
use crate::error::StorageError;
use crate::ha::election::{LeaderInfo, LossCause, LossReporter, Term};
use crate::ha::{Expected, RecordStore, Versioned, Written};
use crate::objects::{Faults, injected};

/// Pause before a request is sent again.
const PAUSE: Duration = Duration::from_millis(50);

/// The records of one leader, who renews its lease as long as this isn't dropped.
#[derive(Debug)]
pub(super) struct S3Records {
    leading: Arc<Leading>,
    renewing: JoinHandle<()>,
}

/// A leadership.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) objects: Objects,
    pub(super) info: LeaderInfo,
    pub(super) term: Duration,
    pub(super) loss: LossReporter,
    /// The table as it is, unless somebody else leads; none if that isn't known.
    pub(super) current: Mutex<Option<Current>>,
    /// The lease as this leader has written it.
    pub(super) lease: Mutex<(Lease, String)>,
}

/// A table, and the tag of the object that holds it.
#[derive(Clone, Debug)]
pub(super) struct Current {
    pub(super) table: Table,
    pub(super) tag: String,
}

impl S3Records {
    /// The claim of the lease was sent at `claimed`.
    pub(super) fn new(leading: Leading, claimed: Instant) -> S3Records {
        let leading = Arc::new(leading);
        let renewing = tokio::spawn(renew(Arc::clone(&leading), claimed));
        S3Records { leading, renewing }
    }
}

impl Drop for S3Records {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl Leading {
    fn refuse_released(&self) -> Result<(), StorageError> {
        match self.loss.loss().cause() {
            Some(LossCause::Released) => Err(StorageError::Released {
                ours: self.info.epoch,
            }),
            _ => Ok(()),
        }
    }

    /// When requests aren't sent again any more: by then another one may lead.
    fn deadline(&self) -> Instant {
        Instant::now() + self.term
    }

    /// Reads an object, again and again until there is an answer or it takes too long.
    async fn get(&self, name: &str) -> Result<Option<Object>, StorageError> {
        let deadline = self.deadline();
        loop {
            match self.objects.get(name).await {
                Err(_) if Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
                other => return other,
            }
        }
    }

    /// Reads the table, whoever has written it.
    async fn read(&self) -> Result<Current, StorageError> {
        let file = || self.objects.describe(RECORDS);
        let found = self.get(RECORDS).await?;
        let found = found.ok_or_else(|| StorageError::Missing { file: file() })?;
        Ok(Current {
            table: Table::decode(&file(), &found.bytes)?,
            tag: found.tag,
        })
    }

    fn check_epoch(&self, table: &Table) -> Result<(), StorageError> {
        if table.epoch == self.info.epoch {
            return Ok(());
        }
        self.loss.report(LossCause::Deposed { by: table.epoch });
        Err(StorageError::Fenced {
            record: self.objects.describe(RECORDS),
            ours: self.info.epoch,
            found: table.epoch,
        })
    }

    /// The table to change; one change at a time.
    async fn ours(&self, current: &mut Option<Current>) -> Result<Current, StorageError> {
        if let Some(known) = current {
            return Ok(known.clone());
        }
        let found = self.read().await?;
        self.check_epoch(&found.table)?;
        *current = Some(found.clone());
        Ok(found)
    }

    /// Makes a change and finds out whether it happened.
    async fn change(&self, name: &str, change: impl Fn(&Table) -> Change) -> Written {
        let mut current = self.current.lock().await;
        if let Err(error) = self.refuse_released() {
            return Written::NotDone(error);
        }
        let mut fresh = false;
        loop {
            let found = match self.ours(&mut current).await {
                Ok(found) => found,
                Err(error) => return Written::NotDone(error),
            };
            let next = match change(&found.table) {
                Change::To(next) => next,
                Change::Nothing if fresh => return Written::Done,
                Change::Conflict if fresh => {
                    let file = self.objects.describe(name);
                    return Written::NotDone(StorageError::Conflict { file });
                }
                Change::Nothing | Change::Conflict => {
                    // Whether that is so is known only by whoever still leads.
                    (*current, fresh) = (None, true);
                    continue;
                }
            };
            match self.replace(&found, next).await {
                Ok(replaced) => {
                    *current = Some(replaced);
                    return Written::Done;
                }
                Err(Failed::Refused) if !fresh => (*current, fresh) = (None, true),
                Err(Failed::Refused) => {
                    *current = None;
                    let file = self.objects.describe(RECORDS);
                    return Written::NotDone(StorageError::Conflict { file });
                }
                Err(Failed::InDoubt(error)) => {
                    *current = None;
                    return Written::Unknown(error);
                }
            }
        }
    }

    /// Replaces the table, and settles the outcome if it can.
    async fn replace(&self, found: &Current, next: Table) -> Result<Current, Failed> {
        let bytes = Bytes::from(next.encode());
        let deadline = self.deadline();
        let mut doubt = None;
        loop {
            let put = self.objects.put(RECORDS, bytes.clone(), Some(&found.tag));
            match (put.await, doubt.take()) {
                (Put::Done(tag), _) => return Ok(Current { table: next, tag }),
                (Put::Refused, None) => return Err(Failed::Refused),
                (Put::Refused, Some(error)) => {
                    // Either by an earlier try of the same, or by somebody else: if that was the
                    // next leader, it may have been on top of ours.
                    return match self.get(RECORDS).await {
                        Ok(Some(object)) if object.bytes == bytes => Ok(Current {
                            table: next,
                            tag: object.tag,
                        }),
                        _ => Err(Failed::InDoubt(error)),
                    };
                }
                (Put::InDoubt(error), _) if Instant::now() >= deadline => {
                    return Err(Failed::InDoubt(error));
                }
                (Put::InDoubt(error), _) => {
                    doubt = Some(error);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn confirm(&self) -> Result<(), StorageError> {
        self.refuse_released()?;
        self.check_epoch(&self.read().await?.table)
    }

    async fn release(&self) -> Result<(), StorageError> {
        self.confirm().await?;
        // Ordering: no renewal any more, and no write, before somebody else may lead.
        self.loss.report(LossCause::Released);
        let _current = self.current.lock().await;
        let (lease, tag) = &mut *self.lease.lock().await;
        let vacant = lease.given_back();
        let deadline = self.deadline();
        loop {
            let put = self.objects.put(LEASE, vacant.encode(), Some(tag.as_str()));
            match put.await {
                // An earlier try has done it, or it has been taken.
                Put::Done(_) | Put::Refused => return Ok(()),
                Put::InDoubt(error) if Instant::now() >= deadline => return Err(error),
                Put::InDoubt(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// Why a table wasn't replaced, as far as is known.
enum Failed {
    Refused,
    InDoubt(StorageError),
}

/// Renews the lease until it is lost or given back.
async fn renew(leading: Arc<Leading>, claimed: Instant) {
    let mut holder = Holder::new(leading.term, Duration::ZERO);
    loop {
        tokio::time::sleep(holder.until_renewal(claimed.elapsed())).await;
        let mut held = leading.lease.lock().await;
        if leading.loss.has_ended() {
            return;
        }
        let sent = claimed.elapsed();
        let (lease, tag) = &mut *held;
        let next = lease.renewed();
        let put = leading
            .objects
            .put(LEASE, next.encode(), Some(tag.as_str()));
        match put.await {
            Put::Done(new) => {
                (*lease, *tag) = (next, new);
                holder.on_renewed(sent);
            }
            Put::Refused => match leading.objects.get(LEASE).await {
                // By an earlier try without an answer.
                Ok(Some(object)) if object.bytes == next.encode() => {
                    (*lease, *tag) = (next, object.tag);
                }
                Ok(_) => {
                    leading.loss.report(LossCause::Deposed {
                        by: LeaderEpoch(leading.info.epoch.0 + 1),
                    });
                    return;
                }
                Err(_) => {}
            },
            Put::InDoubt(error) => {
                tracing::debug!(%error, "the lease couldn't be renewed");
            }
        }
        drop(held);
        if holder.has_run_out(claimed.elapsed()) {
            leading.loss.report(LossCause::Expired);
            return;
        }
        if holder.until_renewal(claimed.elapsed()).is_zero() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl S3Records {
    async fn write_now(&self, name: &str, bytes: Bytes, expected: Expected) -> Written {
        let leading = &self.leading;
        let (faults, file) = (Faults::of_record(name), || self.describe(name));
        if let Err(error) = injected(faults.write, file) {
            return Written::NotDone(error);
        }
        let write = |table: &Table| table.write(name, &bytes, &expected);
        match leading.change(name, write).await {
            Written::Done => {}
            other => return other,
        }
        // As if the answer had got lost; reading back finds what was written.
        let reported = injected(faults.reply, file);
        match injected(faults.read_back, file) {
            Err(unreadable) => Written::Unknown(reported.err().unwrap_or(unreadable)),
            Ok(()) => Written::Done,
        }
    }

    async fn remove_now(&self, name: &str) -> Written {
        if let Err(error) = injected("delete:write", || self.describe(name)) {
            return Written::NotDone(error);
        }
        self.leading.change(name, |table| table.remove(name)).await
    }

    async fn list_now(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        injected("record:list", || self.describe(folder))?;
        Ok(self.leading.read().await?.table.list(folder))
    }
}

impl RecordStore for S3Records {
    fn epoch(&self) -> LeaderEpoch {
        self.leading.info.epoch
    }

    fn describe(&self, name: &str) -> String {
        format!("{}#{name}", self.leading.objects.describe(RECORDS))
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Versioned>, StorageError>> {
        async move { Ok(self.leading.read().await?.table.get(name)) }.boxed()
    }

    fn list<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<String>, StorageError>> {
        self.list_now(folder).boxed()
    }

    fn write<'a>(
        &'a self,
        name: &'a str,
        bytes: Bytes,
        expected: Expected,
    ) -> BoxFuture<'a, Written> {
        self.write_now(name, bytes, expected).boxed()
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Written> {
        self.remove_now(name).boxed()
    }

    fn confirm(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        self.leading.confirm().boxed()
    }
}

impl Term for S3Records {
    fn release(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        self.leading.release().boxed()
    }
}
