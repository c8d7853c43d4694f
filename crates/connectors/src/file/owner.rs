//! Who may write to an output folder.
//!
//! Two jobs that publish to one folder would take each other's leftovers for their own. So a
//! folder belongs to one sink of one job, for ever:
//!
//! ```text
//! tidegate-file-sink 1
//! job 0123456789abcdef0123456789abcdef
//! sink counts
//! ```
//!
//! The file is published like output: written under another name, then linked without replacing,
//! so that of two claims at the same time one wins, and the file is whole whenever it is there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tidegate_types::{JobId, OperatorUid};

use super::error::FileSinkError;
use super::layout::{Layout, sync_folder};

const FIRST_LINE: &str = "tidegate-file-sink 1";

/// A sink of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) job: JobId,
    pub(super) uid: OperatorUid,
}

impl Owner {
    fn encode(&self) -> String {
        format!("{FIRST_LINE}\njob {}\nsink {}\n", self.job, self.uid)
    }

    fn decode(text: &str) -> Option<Owner> {
        let rest = text.strip_prefix(FIRST_LINE)?.strip_prefix("\njob ")?;
        let (job, rest) = rest.split_once('\n')?;
        let uid = rest.strip_prefix("sink ")?.strip_suffix('\n')?;
        Some(Owner {
            job: job.parse().ok()?,
            uid: OperatorUid(uid.to_owned()),
        })
    }
}

/// Claims the output folder for `owner`. Durable when it returns.
///
/// # Errors
/// If it belongs to somebody else, or was never claimed but has files (unless `allow_existing`).
pub(super) fn claim(
    layout: &Layout,
    owner: &Owner,
    allow_existing: bool,
) -> Result<(), FileSinkError> {
    let prepare = |cause| FileSinkError::Prepare {
        path: layout.dir().to_owned(),
        cause,
    };
    if read(&layout.owner())?.is_none() {
        if layout.dir().exists() && !allow_existing {
            let mut visible = layout.visible().map_err(prepare)?.into_iter();
            if let Some(example) = visible.next() {
                return Err(FileSinkError::NotEmpty {
                    path: layout.dir().to_owned(),
                    example,
                });
            }
        }
        layout.create().map_err(prepare)?;
        publish(layout, owner)?;
    }
    // Read back also after publishing: somebody else may have been first.
    match read(&layout.owner())? {
        Some(found) => check(layout, &found, owner),
        None => Err(prepare(io::Error::from(io::ErrorKind::NotFound))),
    }
}

/// Whom the folder belongs to, if it says so; nobody if there is no such folder.
///
/// # Errors
/// If what it says can't be read.
pub(super) fn owner_of(layout: &Layout) -> Result<Option<Owner>, FileSinkError> {
    read(&layout.owner())
}

/// Whom the folder belongs to, as seen from a machine where the sink `uid` is about to write to it
/// or to publish in it.
///
/// # Errors
/// If nobody has claimed the folder that is seen from here, or another sink has.
pub(super) fn claimed_by(layout: &Layout, uid: &str) -> Result<Owner, FileSinkError> {
    let Some(found) = owner_of(layout)? else {
        return Err(FileSinkError::NotClaimed {
            path: layout.dir().to_owned(),
        });
    };
    check_sink(layout, &found, uid)?;
    Ok(found)
}

fn check_sink(layout: &Layout, found: &Owner, uid: &str) -> Result<(), FileSinkError> {
    if found.uid.0 != uid {
        return Err(FileSinkError::OtherSink {
            path: layout.dir().to_owned(),
            owner: found.uid.0.clone(),
            uid: uid.to_owned(),
        });
    }
    Ok(())
}

fn check(layout: &Layout, found: &Owner, owner: &Owner) -> Result<(), FileSinkError> {
    let path = layout.dir().to_owned();
    if found.job != owner.job {
        return Err(FileSinkError::OtherJob {
            path,
            owner: found.job,
            job: owner.job,
        });
    }
    check_sink(layout, found, &owner.uid.0)?;
    // What a claim leaves that was killed when it had made its link.
    let draft = draft(layout, owner);
    match fs::remove_file(&draft) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            return Err(FileSinkError::Prepare { path: draft, cause });
        }
        _ => {}
    }
    layout
        .create()
        .map_err(|cause| FileSinkError::Prepare { path, cause })
}

fn read(path: &Path) -> Result<Option<Owner>, FileSinkError> {
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => {
            return Err(FileSinkError::Prepare {
                path: path.to_owned(),
                cause,
            });
        }
    };
    match Owner::decode(&text) {
        Some(owner) => Ok(Some(owner)),
        None => Err(FileSinkError::OwnerFormat {
            path: path.to_owned(),
            first_line: text.lines().next().unwrap_or_default().to_owned(),
            expected: FIRST_LINE,
        }),
    }
}

/// What systems say when a file system has no hard links, in a folder where a file could be made.
fn is_without_links(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
    )
}

/// Where the owner file of one job is written before it gets its name.
fn draft(layout: &Layout, owner: &Owner) -> PathBuf {
    layout
        .owner()
        .with_file_name(format!("owner-{}", owner.job))
}

/// Writes the owner file unless there is one.
fn publish(layout: &Layout, owner: &Owner) -> Result<(), FileSinkError> {
    let target = layout.owner();
    let draft = draft(layout, owner);
    let written = File::create(&draft).and_then(|mut file| {
        file.write_all(owner.encode().as_bytes())?;
        file.sync_all()
    });
    written.map_err(|cause| FileSinkError::Prepare {
        path: draft.clone(),
        cause,
    })?;
    match fs::hard_link(&draft, &target) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(cause) if is_without_links(&cause) => {
            return Err(FileSinkError::NoHardLinks {
                path: target,
                cause,
            });
        }
        Err(cause) => {
            return Err(FileSinkError::Prepare {
                path: target,
                cause,
            });
        }
    }
    let folder = target
        .parent()
        .expect("the owner file is in the hidden folder");
    fs::remove_file(&draft)
        .and_then(|()| sync_folder(folder))
        .map_err(|cause| FileSinkError::Prepare { path: draft, cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(job: u128, uid: &str) -> Owner {
        Owner {
            job: JobId(job),
            uid: OperatorUid(uid.to_owned()),
        }
    }

    #[test]
    fn the_owner_file_reads_back() {
        let written = owner(0xabc, "counts of\nwords");
        assert_eq!(Owner::decode(&written.encode()), Some(written));
        let golden = "tidegate-file-sink 1\njob 00000000000000000000000000000abc\nsink counts\n";
        assert_eq!(owner(0xabc, "counts").encode(), golden);
        for damaged in ["", "tidegate-file-sink 1\n", &golden[..golden.len() - 1]] {
            assert_eq!(Owner::decode(damaged), None);
        }
    }

    #[test]
    fn a_folder_belongs_to_one_sink_of_one_job() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(&dir.path().join("out"));
        claim(&layout, &owner(1, "a"), false).unwrap();
        // A claim that was killed when it had made its link leaves its draft, once.
        fs::write(draft(&layout, &owner(1, "a")), "").unwrap();
        claim(&layout, &owner(1, "a"), false).unwrap();
        let error = claim(&layout, &owner(2, "a"), false)
            .unwrap_err()
            .to_string();
        assert!(error.contains(&JobId(1).to_string()), "{error}");
        assert!(error.contains(&JobId(2).to_string()), "{error}");
        let error = claim(&layout, &owner(1, "b"), false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("`a`") && error.contains("`b`"), "{error}");
        assert_eq!(
            super::super::layout::list(&dir.path().join("out/.tidegate")).unwrap(),
            ["owner", "staged"]
        );
    }

    #[test]
    fn another_version_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.create().unwrap();
        fs::write(layout.owner(), "tidegate-file-sink 2\n").unwrap();
        let error = claim(&layout, &owner(1, "a"), true).unwrap_err();
        assert!(matches!(error, FileSinkError::OwnerFormat { .. }));
        assert!(
            error.to_string().contains("tidegate-file-sink 2"),
            "{error}"
        );
    }

    #[test]
    fn foreign_files_are_left_alone_unless_allowed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes.txt"), "mine").unwrap();
        let layout = Layout::new(dir.path());
        let error = claim(&layout, &owner(1, "a"), false).unwrap_err();
        assert!(error.to_string().contains("notes.txt"), "{error}");
        assert!(
            !layout.staging().exists(),
            "a refused folder is not touched"
        );
        claim(&layout, &owner(1, "a"), true).unwrap();
    }
}
