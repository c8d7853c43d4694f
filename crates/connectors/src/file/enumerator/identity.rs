//! Whether two names, one that has gone and one that has come, are of one file.
//!
//! Where the system says which file it is, by a number that a rename keeps, and when it was made,
//! since numbers are used again, that decides. Otherwise only a file with as much in it is taken
//! for another one: a longer one that begins alike may as well be the next export with the same
//! header.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

/// Bytes from the start of a file that tell it from another one.
pub(super) const FINGERPRINT_BYTES: u64 = 1024;

/// Checksum of the first bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fingerprint {
    pub(super) bytes: u64,
    crc32c: u32,
}

impl Fingerprint {
    /// That of the first `bytes` bytes, or of all if there are fewer.
    pub(super) fn of(file: &mut File, bytes: u64) -> io::Result<Self> {
        let mut start = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.take(bytes).read_to_end(&mut start)?;
        Ok(Fingerprint {
            bytes: start.len() as u64,
            crc32c: crc32c::crc32c(&start),
        })
    }
}

/// What a system says of a file apart from its name and content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    inode: Option<u64>,
    /// Since 1970, in nanoseconds.
    created: Option<u128>,
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let created = metadata.created().ok();
        let since = created.and_then(|created| created.duration_since(UNIX_EPOCH).ok());
        Identity {
            inode: inode(metadata),
            created: since.map(|since| since.as_nanos()),
        }
    }

    /// Whether both are of one file, if that can be said.
    pub(super) fn is(&self, other: &Identity) -> Option<bool> {
        if self.inode? != other.inode? {
            return Some(false);
        }
        Some(self.created? == other.created?)
    }
}

#[cfg(unix)]
#[allow(clippy::unnecessary_wraps)] // Other systems have none.
fn inode(metadata: &Metadata) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    Some(metadata.ino())
}

#[cfg(not(unix))]
fn inode(_metadata: &Metadata) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(inode: Option<u64>, created: Option<u128>) -> Identity {
        Identity { inode, created }
    }

    #[test]
    fn numbers_that_differ_are_of_two_files_and_equal_ones_may_be_used_again() {
        let file = identity(Some(1), Some(10));
        assert_eq!(file.is(&file), Some(true));
        assert_eq!(file.is(&identity(Some(1), Some(11))), Some(false));
        assert_eq!(file.is(&identity(Some(2), Some(10))), Some(false));
        assert_eq!(file.is(&identity(Some(2), None)), Some(false));
        assert_eq!(file.is(&identity(Some(1), None)), None);
        assert_eq!(file.is(&identity(None, Some(10))), None);
        assert_eq!(Identity::default().is(&Identity::default()), None);
    }
}
