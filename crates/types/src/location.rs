//! Where snapshots lie that are not in the job's own namespace.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// URL of a folder, without a slash at its end: of one snapshot, or of the folder in which
/// savepoints are made. Only that of the root, `file:///`, ends with one. Cheap to clone. Displays
/// as the URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotLocation(Arc<str>);

impl SnapshotLocation {
    /// Takes the URL as it is, apart from slashes at its end.
    pub fn new(url: &str) -> Self {
        let trimmed = url.trim_end_matches('/');
        match trimmed.strip_suffix(':') {
            Some(scheme) => SnapshotLocation(format!("{scheme}:///").into()),
            None => SnapshotLocation(trimmed.into()),
        }
    }

    /// The URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The location called `name` below this one. `name` is a plain path segment.
    pub fn child(&self, name: &str) -> Self {
        let folder = self.0.trim_end_matches('/');
        match folder.strip_suffix(':') {
            Some(scheme) => SnapshotLocation(format!("{scheme}:///{name}").into()),
            None => SnapshotLocation(format!("{folder}/{name}").into()),
        }
    }
}

impl fmt::Display for SnapshotLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for SnapshotLocation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SnapshotLocation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|url| SnapshotLocation(url.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_joined_by_one_slash() {
        let savepoints = SnapshotLocation::new("file:///data/savepoints/");
        let savepoint = savepoints.child("savepoint-1a2b3c4d-7");
        assert_eq!(
            savepoint.as_str(),
            "file:///data/savepoints/savepoint-1a2b3c4d-7"
        );
    }

    #[test]
    fn the_root_is_a_folder_like_others() {
        for url in ["file:///", "file://"] {
            let root = SnapshotLocation::new(url);
            assert_eq!(root.as_str(), "file:///");
            let savepoint = root.child("savepoint-1a2b3c4d-7");
            assert_eq!(savepoint.as_str(), "file:///savepoint-1a2b3c4d-7");
        }
    }
}
