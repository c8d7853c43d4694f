//! Where a job's records and the election of its leader are: one URL, three kinds of store.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::election::LeaderElection;
use super::folder_election::FolderElection;
#[cfg(feature = "s3")]
use super::s3::{S3Election, S3Location};
#[cfg(feature = "zookeeper")]
use super::zookeeper::{ZooKeeperElection, ZooKeeperLocation};
use crate::error::StorageError;
use crate::names;

/// A store for leadership and records, as a user names it. Displays as its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HaLocation {
    /// `dir:///path`: a local folder, whose lock is the leadership. For processes of one machine.
    Folder(PathBuf),
    /// `zk://host:port,host:port/path`: ZooKeeper.
    #[cfg(feature = "zookeeper")]
    ZooKeeper(ZooKeeperLocation),
    /// `s3://bucket/prefix`: a bucket with conditional writes.
    #[cfg(feature = "s3")]
    S3(S3Location),
}

impl HaLocation {
    /// Parses a URL: `dir:///path`, `zk://host:port,host:port/path` or `s3://bucket/prefix`.
    ///
    /// # Errors
    /// [`StorageError::UnsupportedHa`] for other schemes, [`StorageError::InvalidLocation`] for
    /// what is none of these.
    pub fn parse(text: &str) -> Result<HaLocation, StorageError> {
        // Several servers with ports are no host of a URL.
        #[cfg(feature = "zookeeper")]
        if text.starts_with("zk:") {
            return ZooKeeperLocation::parse(text).map(HaLocation::ZooKeeper);
        }
        let url = Url::parse(text).map_err(|e| StorageError::InvalidLocation {
            location: text.to_owned(),
            reason: format!("is not a URL: {e}"),
        })?;
        match url.scheme() {
            #[cfg(feature = "s3")]
            "s3" => S3Location::parse(text).map(HaLocation::S3),
            "dir" => folder(text).map(HaLocation::Folder),
            scheme => Err(StorageError::UnsupportedHa {
                scheme: scheme.to_owned(),
                location: text.to_owned(),
            }),
        }
    }

    /// The election of the leader of the job called `job_name` here, with the default
    /// [lease](Self::LEASE). Nothing is touched yet.
    ///
    /// # Errors
    /// If the configuration of the store is wrong.
    pub fn election(&self, job_name: &str) -> Result<Arc<dyn LeaderElection>, StorageError> {
        self.election_with(job_name, HaLocation::LEASE)
    }

    /// How long a leader that isn't heard of any more is waited for, by default: 6 s.
    pub const LEASE: Duration = Duration::from_secs(6);

    /// As [`election`](Self::election). A leader that isn't heard of for `lease` has lost the lead:
    /// in ZooKeeper this is the session timeout, within the limits of its servers; in a bucket at
    /// least 300 ms. A folder needs no lease, since a lock ends with its process.
    ///
    /// # Errors
    /// As [`election`](Self::election).
    pub fn election_with(
        &self,
        job_name: &str,
        lease: Duration,
    ) -> Result<Arc<dyn LeaderElection>, StorageError> {
        let job = names::path_safe(job_name);
        Ok(match self {
            HaLocation::Folder(folder) => {
                let _ = lease;
                Arc::new(FolderElection::in_folder(&folder.join(job)))
            }
            #[cfg(feature = "zookeeper")]
            HaLocation::ZooKeeper(location) => {
                Arc::new(ZooKeeperElection::of(location, &job, lease))
            }
            #[cfg(feature = "s3")]
            HaLocation::S3(location) => Arc::new(S3Election::of(location, &job, lease)?),
        })
    }
}

/// The path of a `dir://` URL, which follows the rules of `file://`.
fn folder(text: &str) -> Result<PathBuf, StorageError> {
    let invalid = || StorageError::InvalidLocation {
        location: text.to_owned(),
        reason: "is no folder; give an absolute path with three slashes, `dir:///path`".to_owned(),
    };
    let path = text.strip_prefix("dir://").ok_or_else(invalid)?;
    let url = Url::parse(&format!("file://{path}")).map_err(|_| invalid())?;
    names::directory_of(&url).map_err(|_| invalid())
}

impl fmt::Display for HaLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HaLocation::Folder(path) => match Url::from_file_path(path) {
                Ok(url) => write!(f, "dir://{}", url.path()),
                Err(()) => write!(f, "dir://{}", path.display()),
            },
            #[cfg(feature = "zookeeper")]
            HaLocation::ZooKeeper(location) => location.fmt(f),
            #[cfg(feature = "s3")]
            HaLocation::S3(location) => location.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_urls_and_display_as_they_were_given() {
        for text in ["dir:///data/ha", "dir:///a%20b/c"] {
            let location = HaLocation::parse(text).unwrap();
            assert_eq!(location.to_string(), text);
        }
        for (text, expected) in [
            ("", "is not a URL"),
            ("/data/ha", "is not a URL"),
            ("dir://host/x", "with three slashes"),
            ("dir:/x", "with three slashes"),
            ("dir:///x?y", "with three slashes"),
            ("etcd://host/x", "`etcd`"),
        ] {
            let error = HaLocation::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
    #[cfg(feature = "s3")]
    #[test]
    fn a_bucket_needs_a_prefix_and_wrong_settings_are_named() {
        for text in ["s3://bucket/tidegate", "s3://my.bucket/a/b=c"] {
            let location = HaLocation::parse(text).unwrap();
            assert!(matches!(location, HaLocation::S3(_)));
            assert_eq!(location.to_string(), text);
        }
        let parts = "needs a bucket and a prefix";
        for (text, expected) in [
            ("s3://bucket", "is not of the form"),
            ("s3://bucket/", parts),
            ("s3:///prefix", parts),
            ("s3://bucket//a", parts),
            ("s3://bucket/../a", parts),
            ("s3://bucket/a b", parts),
            ("s3://bucket/a?b", parts),
        ] {
            let error = HaLocation::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let Ok(HaLocation::S3(location)) = HaLocation::parse("s3://bucket/a") else {
            panic!("it is a bucket");
        };
        let wrong = HaLocation::S3(location.with_option("aws_no_such_thing", "1"));
        let error = wrong.election("job").unwrap_err().to_string();
        assert!(error.contains("aws_no_such_thing"), "{error}");
    }

    #[cfg(feature = "zookeeper")]
    #[test]
    fn zookeeper_takes_several_servers_and_a_path() {
        for text in [
            "zk://a:2181/tidegate",
            "zk://10.0.0.1:1,b:2,[::1]:3/a/b-c_d.e",
        ] {
            let location = HaLocation::parse(text).unwrap();
            assert!(matches!(location, HaLocation::ZooKeeper(_)));
            assert_eq!(location.to_string(), text);
        }
        let form = "is not of the form";
        for (text, expected) in [
            ("zk:/a", form),
            ("zk://a:1", form),
            ("zk://a/x", form),
            ("zk://a:1,/x", form),
            ("zk://:1/x", form),
            ("zk://a:65536/x", form),
            ("zk://a:1/", "needs a path"),
            ("zk://a:1//x", "needs a path"),
            ("zk://a:1/x/", "needs a path"),
            ("zk://a:1/../x", "needs a path"),
            ("zk://a:1/x?y", "needs a path"),
        ] {
            let error = HaLocation::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
