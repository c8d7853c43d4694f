//! Where things lie: the checkpoint directory, a job's folder in it, and the names of its files.
//!
//! Names come from users (job names, operator uids) and must neither escape the folder nor collide
//! nor upset a file system: [`path_safe`] maps any text to `[A-Za-z0-9._=-]`, one to one up to a
//! length, and to a prefix plus hash beyond it. Whoever needs certainty keeps the full name in the
//! file, as the identity file does.

use std::path::Path;

use tidegate_types::{AttemptNumber, CheckpointId, hash_bytes};
use url::Url;
use uuid::Uuid;

use crate::error::StorageError;

/// Longest encoded name, well below the 255 bytes that file systems allow for one segment.
const ENCODED_BYTES_MAX: usize = 120;

/// Folder of the pointers to completed checkpoints.
pub(crate) const COMPLETED: &str = "completed";
/// Who the namespace belongs to.
pub(crate) const IDENTITY: &str = "job";
/// Locked by the process that owns the namespace.
pub(crate) const LOCK: &str = "lock";
/// The last reserved attempt number.
pub(crate) const ATTEMPTS: &str = "attempts";
/// The last reserved checkpoint id.
pub(crate) const CHECKPOINT_IDS: &str = "checkpoint-ids";
/// Exists once the job has ended.
pub(crate) const FINISHED: &str = "finished";

/// Parses what a user gives as checkpoint directory: a path (made absolute) or a `file://` URL.
///
/// # Errors
/// [`StorageError::UnsupportedScheme`] for other schemes, [`StorageError::InvalidLocation`] for
/// what is neither.
pub fn parse_checkpoint_dir(text: &str) -> Result<Url, StorageError> {
    let invalid = |reason: &str| StorageError::InvalidLocation {
        location: text.to_owned(),
        reason: reason.to_owned(),
    };
    if text.is_empty() {
        return Err(invalid("is empty"));
    }
    if let Some((scheme, _)) = text.split_once("://") {
        if scheme.is_empty()
            || !scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'+')
        {
            return Err(invalid("has no valid scheme before `://`"));
        }
        let url = Url::parse(text).map_err(|e| invalid(&format!("is not a URL: {e}")))?;
        directory_of(&url)?;
        return Ok(url);
    }
    let absolute =
        std::path::absolute(Path::new(text)).map_err(|e| invalid(&format!("is no path: {e}")))?;
    Url::from_file_path(&absolute).map_err(|()| invalid("can't be expressed as a URL"))
}

/// The local folder behind a `file://` URL.
pub(crate) fn directory_of(url: &Url) -> Result<std::path::PathBuf, StorageError> {
    if url.scheme() != "file" {
        return Err(StorageError::UnsupportedScheme {
            scheme: url.scheme().to_owned(),
            location: url.to_string(),
        });
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(StorageError::InvalidLocation {
            location: url.to_string(),
            reason: "has a `?` or `#`; in a URL write them as `%3F` and `%23`".to_owned(),
        });
    }
    url.to_file_path()
        .map_err(|()| StorageError::InvalidLocation {
            location: url.to_string(),
            reason: "is not a local path; `file://` takes an absolute one with three slashes, \
                     `file:///path`"
                .to_owned(),
        })
}

/// Maps any text to one path segment of letters, digits and `. _ = -`.
///
/// Bytes outside of that, `=` itself and a dot at either end become `=XX`; the empty text is `=`.
pub(crate) fn path_safe(text: &str) -> String {
    if text.is_empty() {
        return "=".to_owned();
    }
    let last = text.len() - 1;
    let mut encoded = String::with_capacity(text.len());
    for (at, byte) in text.bytes().enumerate() {
        let plain = match byte {
            b'.' => at != 0 && at != last,
            _ => byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-',
        };
        if plain {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("={byte:02X}"));
        }
    }
    if encoded.len() <= ENCODED_BYTES_MAX {
        return encoded;
    }
    // `==` appears in no plain encoding, so shortened names can't collide with those.
    encoded.truncate(ENCODED_BYTES_MAX - 18);
    format!("{encoded}=={:016x}", hash_bytes(text.as_bytes()))
}

/// `chk-42`.
pub(crate) fn checkpoint_folder(checkpoint: CheckpointId) -> String {
    format!("chk-{}", checkpoint.0)
}

/// The checkpoint that a folder with this name belongs to.
pub(crate) fn parse_checkpoint_folder(name: &str) -> Option<CheckpointId> {
    let digits = name.strip_prefix("chk-")?;
    let id = CheckpointId(digits.parse().ok()?);
    (checkpoint_folder(id) == name).then_some(id)
}

/// `chk-42/_metadata`.
pub(crate) fn metadata_name(checkpoint: CheckpointId) -> String {
    format!("{}/_metadata", checkpoint_folder(checkpoint))
}

/// `completed/00000000000000000042`: padded, so that people see them in order; code sorts by
/// number.
pub(crate) fn pointer_name(checkpoint: CheckpointId) -> String {
    format!("{COMPLETED}/{:020}", checkpoint.0)
}

/// The checkpoint that a pointer with this file name refers to.
pub(crate) fn parse_pointer_file_name(name: &str) -> Option<CheckpointId> {
    let id = CheckpointId(name.parse().ok()?);
    (pointer_name(id)
        .strip_prefix(COMPLETED)?
        .strip_prefix('/')?
        == name)
        .then_some(id)
}

/// `chk-42/a3-count.1-<uuid>.state` for subtask `count[1]` in attempt 3. Unique for ever.
pub(crate) fn state_file_name(
    attempt: AttemptNumber,
    checkpoint: CheckpointId,
    subtask_name: &str,
) -> String {
    let (uid, index) = match subtask_name
        .strip_suffix(']')
        .and_then(|name| name.rsplit_once('['))
        .filter(|(_, index)| !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit()))
    {
        Some((uid, index)) => (uid, format!(".{index}")),
        None => (subtask_name, String::new()),
    };
    format!(
        "{}/a{}-{}{index}-{}.state",
        checkpoint_folder(checkpoint),
        attempt.0,
        path_safe(uid),
        Uuid::new_v4().simple(),
    )
}

/// Whether `name` may stand in metadata as the name of a state file: relative, within a
/// checkpoint's folder, of plain segments.
pub(crate) fn is_state_file_name(name: &str) -> bool {
    let mut segments = name.split('/');
    let folder = segments.next().and_then(parse_checkpoint_folder);
    let (Some(_), Some(file), None) = (folder, segments.next(), segments.next()) else {
        return false;
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._=-".contains(&b);
    file.ends_with(".state") && !file.starts_with('.') && file.bytes().all(plain)
}

/// Whether this is what `object_store` writes to before it gives a file its name: `name#1`. It
/// hides such files from listings, so a killed process would leave them for ever.
pub(crate) fn is_staging(file_name: &str) -> bool {
    file_name
        .rsplit_once('#')
        .is_some_and(|(_, suffix)| !suffix.is_empty() && suffix.bytes().all(|b| b.is_ascii_digit()))
}
