//! Where snapshots outside of the namespace lie: in local folders, or in buckets.
//!
//! A bucket is reached by one client, however many files are asked for, so that connections are
//! used again; folders are looked at anew each time, since they come and go.

use std::io;
use std::path::PathBuf;

use tidegate_types::SnapshotLocation;
use url::Url;

use crate::checkpoint_storage::Located;
use crate::error::StorageError;
use crate::location::split_url;
use crate::names;
use crate::objects::Objects;

/// The place that a location names.
pub(crate) enum Place {
    /// A folder of this machine.
    Folder(PathBuf),
    /// A prefix in a bucket.
    #[cfg(feature = "s3")]
    Bucket(crate::ha::S3Location),
}

impl Place {
    /// # Errors
    /// [`StorageError::UnsupportedScheme`] if this program knows no such places.
    pub(crate) fn of(location: &SnapshotLocation) -> Result<Place, StorageError> {
        let url = Url::parse(location.as_str()).map_err(|e| StorageError::InvalidLocation {
            location: location.to_string(),
            reason: format!("is not a URL: {e}"),
        })?;
        #[cfg(feature = "s3")]
        if url.scheme() == "s3" {
            return crate::ha::S3Location::parse(location.as_str()).map(Place::Bucket);
        }
        names::directory_of(&url).map(Place::Folder)
    }
}

/// Opens places. Clones share their connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    #[cfg(feature = "s3")]
    clients: std::sync::Arc<std::sync::Mutex<Clients>>,
}

/// By bucket.
#[cfg(feature = "s3")]
type Clients = std::collections::BTreeMap<String, std::sync::Arc<dyn object_store::ObjectStore>>;

impl Places {
    /// A file in the folder of a snapshot.
    ///
    /// # Errors
    /// [`StorageError::Missing`] if it is a folder of this machine that doesn't exist. Whether the
    /// file does isn't looked at.
    pub(crate) fn at(
        &self,
        folder: &SnapshotLocation,
        file: &str,
    ) -> Result<Located, StorageError> {
        let objects = match Place::of(folder)? {
            Place::Folder(path) => match Objects::folder(&path) {
                Err(StorageError::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound =>
                {
                    let file = path.join(file).display().to_string();
                    return Err(StorageError::Missing { file });
                }
                other => other?,
            },
            #[cfg(feature = "s3")]
            Place::Bucket(location) => self.bucket(&location)?,
        };
        Ok(Located {
            objects,
            name: file.to_owned(),
        })
    }

    /// The file that a whole URL names.
    ///
    /// # Errors
    /// [`StorageError::Malformed`] if this is no name of a state file.
    pub(crate) fn locate(&self, name: &str) -> Result<Located, StorageError> {
        let (folder, file) = split_url(name).ok_or_else(|| StorageError::Malformed {
            file: name.to_owned(),
            reason: "this is no name of a state file".to_owned(),
        })?;
        self.at(&folder, file)
    }

    #[cfg(feature = "s3")]
    fn bucket(&self, location: &crate::ha::S3Location) -> Result<Objects, StorageError> {
        let mut clients = self
            .clients
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let client = match clients.get(location.bucket()) {
            Some(client) => std::sync::Arc::clone(client),
            None => {
                let client = location.client()?;
                clients.insert(location.bucket().to_owned(), client.clone());
                client
            }
        };
        Ok(Objects::in_bucket(client, location))
    }
}
