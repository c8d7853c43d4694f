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
/// Folder of the records of folders elsewhere that aren't settled.
pub(crate) const ELSEWHERE: &str = "elsewhere";
/// Who the namespace belongs to.
pub(crate) const IDENTITY: &str = "job";
/// The epoch of the latest leader.
pub(crate) const LEADER: &str = "leader";
/// The snapshot that the namespace was begun from.
pub(crate) const ORIGIN: &str = "origin";
/// Locked by the process that owns the namespace.
pub(crate) const LOCK: &str = "lock";
/// The last reserved attempt number.
pub(crate) const ATTEMPTS: &str = "attempts";
/// The last reserved checkpoint id.
pub(crate) const CHECKPOINT_IDS: &str = "checkpoint-ids";
/// The parallelism that somebody asked for, if any.
pub(crate) const PARALLELISM: &str = "parallelism";
/// How somebody has ended a run of the job, if anybody has.
pub(crate) const ENDED: &str = "ended";
/// Exists once the job has finished.
pub(crate) const FINISHED: &str = "finished";
/// The checkpoint up to which nothing is restored any more.
pub(crate) const DISCARDED: &str = "discarded";

/// Parses what a user gives as checkpoint directory: a path (made absolute), a `file://` URL
/// or, with feature `s3`, `s3://bucket/prefix`.
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
        #[cfg(feature = "s3")]
        if url.scheme() == "s3" {
            crate::ha::S3Location::parse(text)?;
            return Ok(url);
        }
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
/// Different texts give different segments, of at most 120 bytes.
pub fn path_safe(text: &str) -> String {
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

/// `elsewhere/00000000000000000042`.
pub(crate) fn elsewhere_name(checkpoint: CheckpointId) -> String {
    format!("{ELSEWHERE}/{:020}", checkpoint.0)
}

/// The checkpoint that a pointer, or another record per checkpoint, with this file name is about.
pub(crate) fn parse_pointer_file_name(name: &str) -> Option<CheckpointId> {
    let id = CheckpointId(name.parse().ok()?);
    (format!("{:020}", id.0) == name).then_some(id)
}

/// `chk-42/a3-count.1-<uuid>.state` for subtask `count[1]` in attempt 3. Unique for ever.
pub(crate) fn state_file_name(
    attempt: AttemptNumber,
    checkpoint: CheckpointId,
    subtask_name: &str,
) -> String {
    let file = plain_state_file_name(attempt, subtask_name);
    format!("{}/{file}", checkpoint_folder(checkpoint))
}

/// `a3-count.1-<uuid>.state`, as it lies in a folder of its snapshot.
pub(crate) fn plain_state_file_name(attempt: AttemptNumber, subtask_name: &str) -> String {
    let (uid, index) = match subtask_name
        .strip_suffix(']')
        .and_then(|name| name.rsplit_once('['))
        .filter(|(_, index)| !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit()))
    {
        Some((uid, index)) => (uid, format!(".{index}")),
        None => (subtask_name, String::new()),
    };
    format!(
        "a{}-{}{index}-{}.state",
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
    is_plain_state_file(file)
}

/// Whether `file` may be the name of a state file in the folder of its snapshot.
pub(crate) fn is_plain_state_file(file: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    // BC-50
    #[test]
    fn odd_names_become_distinct_plain_segments() {
        let long = "🦀".repeat(200);
        let longer = "🦀".repeat(201);
        let odd = [
            "",
            ".",
            "..",
            "...",
            "/",
            "a/b",
            "a=2Fb",
            "a\\b",
            "a\0b",
            "=",
            "==",
            "a b",
            "a#1",
            "a%2Fb",
            "ä",
            "🦀",
            "שלום",
            ".hidden",
            "x.",
            "word count",
            &long,
            &longer,
        ];
        let encoded: HashSet<String> = odd.iter().map(|name| path_safe(name)).collect();
        assert_eq!(encoded.len(), odd.len());
        for segment in encoded {
            assert!(
                (1..=ENCODED_BYTES_MAX).contains(&segment.len()),
                "{segment}"
            );
            assert!(
                !segment.starts_with('.') && !segment.ends_with('.'),
                "{segment}"
            );
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"._=-".contains(&b);
            assert!(segment.bytes().all(plain), "{segment}");
        }
        assert_eq!(path_safe("word_count-2.0"), "word_count-2.0");
    }

    #[test]
    fn state_files_are_named_by_attempt_and_subtask() {
        let name = state_file_name(AttemptNumber(3), CheckpointId(42), "count/it[1]");
        assert!(name.starts_with("chk-42/a3-count=2Fit.1-"), "{name}");
        assert!(is_state_file_name(&name));
        let again = state_file_name(AttemptNumber(3), CheckpointId(42), "count/it[1]");
        assert_ne!(name, again);
        let other = state_file_name(AttemptNumber(3), CheckpointId(42), "a[b]");
        assert!(other.starts_with("chk-42/a3-a=5Bb=5D-"), "{other}");
    }

    #[test]
    fn names_that_leave_a_checkpoint_folder_are_no_state_files() {
        for name in [
            "job",
            "chk-1/_metadata",
            "chk-1/../job.state",
            "../chk-1/a.state",
            "chk-1/.state",
            "chk-1/a/b.state",
            "/chk-1/a.state",
            "chk-01/a.state",
            "chk-1/a#1.state",
            "",
        ] {
            assert!(!is_state_file_name(name), "{name}");
        }
    }

    #[test]
    fn pointers_and_folders_have_one_name_each() {
        let id = CheckpointId(42);
        assert_eq!(pointer_name(id), "completed/00000000000000000042");
        assert_eq!(parse_pointer_file_name("00000000000000000042"), Some(id));
        assert_eq!(parse_pointer_file_name("42"), None);
        assert_eq!(parse_pointer_file_name("+0000000000000000042"), None);
        assert_eq!(parse_checkpoint_folder("chk-42"), Some(id));
        assert_eq!(parse_checkpoint_folder("chk-042"), None);
    }

    #[test]
    fn other_schemes_are_refused_by_name() {
        let schemes = [("s3://b/x", "s3"), ("hdfs://h/x", "hdfs"), ("gs://b", "gs")];
        for (text, scheme) in &schemes[usize::from(cfg!(feature = "s3"))..] {
            let error = parse_checkpoint_dir(text).unwrap_err().to_string();
            assert!(error.contains(&format!("`{scheme}`")), "{error}");
            let has_s3 = cfg!(feature = "s3");
            assert_eq!(error.contains("and `s3`"), has_s3, "{error}");
            let is_missing = *scheme == "s3";
            assert_eq!(error.contains("feature `s3`"), is_missing, "{error}");
        }
        for text in ["", "://x", "file://host/x", "file:///a?b", "file:///a#b"] {
            let error = parse_checkpoint_dir(text).unwrap_err();
            assert!(
                matches!(error, StorageError::InvalidLocation { .. }),
                "{error}"
            );
        }
    }

    #[test]
    fn paths_become_urls_and_back() {
        for text in ["/data/a b/ü#1?", "/x:y", "relative/dir"] {
            let url = parse_checkpoint_dir(text).unwrap();
            let absolute = std::path::absolute(text).unwrap();
            assert_eq!(directory_of(&url).unwrap(), absolute);
        }
        let url = parse_checkpoint_dir("file:///data/x").unwrap();
        assert_eq!(directory_of(&url).unwrap(), Path::new("/data/x"));
    }

    proptest! {
        #[test]
        fn short_names_never_collide(a in "\\PC{0,20}", b in "\\PC{0,20}") {
            prop_assert_eq!(path_safe(&a) == path_safe(&b), a == b);
        }
    }
}
