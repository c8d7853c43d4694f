//! Mark and sweep: deletes whatever no live checkpoint refers to.
//!
//! Crashes, late acknowledgements and aborted checkpoints leave files behind; bookkeeping that
//! relied on every message arriving would leak. The sweep needs no history: live is what the
//! pointers lead to, everything else in a checkpoint's folder is an orphan.

use std::collections::HashSet;
use std::path::Path;

use tidegate_types::{CheckpointId, CompletedCheckpoint};

use crate::error::StorageError;
use crate::folder::{self, Entry};
use crate::job_store::JobStore;
use crate::names::{self, COMPLETED};
use crate::objects::blocking;

/// What a sweep did.
#[derive(Debug, Default)]
pub struct SweepReport {
    /// Files deleted.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Folders deleted.
    pub folders: u64,
    /// Files and folders that couldn't be deleted. A later sweep tries them again.
    pub failures: Vec<StorageError>,
}

impl JobStore {
    /// Deletes every file in a checkpoint's folder that no checkpoint in `live` refers to, folders
    /// left empty, and unfinished writes of dead processes. Must not run beside an attempt, whose
    /// new files nothing refers to yet.
    ///
    /// # Errors
    /// [`StorageError::StillReferenced`], and nothing is deleted, if there is a pointer to a
    /// checkpoint that isn't in `live`; or if the namespace can't be listed.
    pub async fn sweep_orphans(
        &self,
        live: &[CompletedCheckpoint],
    ) -> Result<SweepReport, StorageError> {
        let ids: HashSet<CheckpointId> = live.iter().map(|checkpoint| checkpoint.id).collect();
        for pointer in self.pointers().await? {
            if !ids.contains(&pointer) {
                return Err(StorageError::StillReferenced {
                    checkpoint: pointer,
                    pointer: self.inner.objects.file(&names::pointer_name(pointer)),
                });
            }
        }
        let files = live.iter().flat_map(CompletedCheckpoint::files);
        let mut keep: HashSet<String> = files.map(|file| file.name.clone()).collect();
        keep.extend(ids.into_iter().map(names::metadata_name));
        let root = self.folder().to_owned();
        blocking(move || sweep(&root, &keep)).await
    }
}

fn sweep(root: &Path, keep: &HashSet<String>) -> Result<SweepReport, StorageError> {
    let mut report = SweepReport::default();
    for entry in folder::entries(root)? {
        if entry.is_folder && names::parse_checkpoint_folder(&entry.name).is_some() {
            let prefix = format!("{}/", entry.name);
            report.sweep_folder(&entry.path, &prefix, keep)?;
        } else if !entry.is_folder && names::is_staging(&entry.name) {
            report.delete(&entry);
        }
    }
    for entry in folder::entries(&root.join(COMPLETED))? {
        if !entry.is_folder && names::is_staging(&entry.name) {
            report.delete(&entry);
        }
    }
    Ok(report)
}

impl SweepReport {
    fn sweep_folder(
        &mut self,
        folder: &Path,
        prefix: &str,
        keep: &HashSet<String>,
    ) -> Result<(), StorageError> {
        for entry in folder::entries(folder)? {
            let name = format!("{prefix}{}", entry.name);
            if entry.is_folder {
                self.sweep_folder(&entry.path, &format!("{name}/"), keep)?;
            } else if !keep.contains(&name) {
                self.delete(&entry);
            }
        }
        match folder::remove_if_empty(folder) {
            Ok(removed) => self.folders += u64::from(removed),
            Err(error) => self.failures.push(error),
        }
        Ok(())
    }

    fn delete(&mut self, entry: &Entry) {
        let deleted = match tidegate_fault::fail("delete:write") {
            Some(error) => Err(error),
            None => std::fs::remove_file(&entry.path),
        };
        match deleted {
            Ok(()) => {
                self.files += 1;
                self.bytes += entry.bytes;
            }
            Err(source) => self.failures.push(StorageError::Io {
                action: "delete",
                file: entry.path.display().to_string(),
                source,
            }),
        }
    }
}
