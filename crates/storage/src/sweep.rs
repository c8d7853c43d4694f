//! Mark and sweep: finds and deletes whatever no live checkpoint refers to.
//!
//! Crashes, late acknowledgements and aborted checkpoints leave files behind; bookkeeping that
//! relied on every message arriving would leak. The sweep needs no history: live is what the
//! pointers lead to, everything else in a checkpoint's folder is an orphan. Outside of the
//! namespace it looks only where the records say that a savepoint was being made or a claimed
//! snapshot deleted (see [`elsewhere`]); in it, it spares a snapshot that the job was begun from.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use tidegate_types::{CheckpointId, CompletedCheckpoint, RestoreMode, SnapshotLocation};

use crate::checkpoint_storage::METADATA;
use crate::elsewhere;
use crate::error::StorageError;
use crate::folder::Entry;
use crate::job_store::JobStore;
use crate::load;
use crate::location::split_url;
use crate::names::{self, COMPLETED, ELSEWHERE};
use crate::objects::{Objects, blocking};
use crate::places::Place;

/// A file that nothing refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Its name, relative to the namespace, or its whole URL.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

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
    /// Finds the files that [`sweep_orphans`](Self::sweep_orphans) would delete, by name. Beside an
    /// attempt, its new files are among them: nothing refers to those yet.
    ///
    /// # Errors
    /// As that, apart from the leadership: finding needs none.
    pub async fn find_orphans(
        &self,
        live: &[CompletedCheckpoint],
    ) -> Result<Vec<Orphan>, StorageError> {
        let orphans = self.find(live).await?.files;
        let orphan = |found: Found| Orphan {
            name: found.name,
            bytes: found.entry.bytes,
        };
        let mut found: Vec<Orphan> = orphans.into_iter().map(orphan).collect();
        for leftover in elsewhere::leftovers(&self.inner.records, live).await? {
            let files = leftover.files?.into_iter();
            let entries = files.flat_map(|(_, entries)| entries);
            found.extend(entries.map(|entry| Orphan {
                name: leftover.location.child(&entry.name).to_string(),
                bytes: entry.bytes,
            }));
        }
        Ok(found)
    }

    /// Deletes every file in a checkpoint's folder that no checkpoint in `live` refers to, folders
    /// left empty, unfinished writes of dead processes, and what those left of savepoints that they
    /// were making or claimed snapshots that they were deleting. Must not run beside an attempt,
    /// whose new files nothing refers to yet.
    ///
    /// # Errors
    /// [`StorageError::StillReferenced`], and nothing is deleted, if there is a pointer to a
    /// checkpoint that isn't in `live`; [`StorageError::Fenced`] if another leader has taken over;
    /// or if the namespace can't be listed.
    pub async fn sweep_orphans(
        &self,
        live: &[CompletedCheckpoint],
    ) -> Result<SweepReport, StorageError> {
        let records = &self.inner.records;
        let orphans = self.find(live).await?;
        let leftovers = elsewhere::leftovers(records, live).await?;
        // Ordering: after the search. What it found was there, and without a pointer, while this
        // store led: a later leader refers to none of it, even if the deletions below are late.
        records.store().confirm().await?;
        let objects = &self.inner.storage.objects;
        let mut report = SweepReport::default();
        for found in orphans.files {
            match objects.delete_entry(&found.name, found.entry.path).await {
                Ok(()) => {
                    report.files += 1;
                    report.bytes += found.entry.bytes;
                }
                Err(error) => report.failures.push(error),
            }
        }
        for folder in orphans.folders {
            match objects.remove_if_empty(&folder).await {
                Ok(removed) => report.folders += u64::from(removed),
                Err(error) => report.failures.push(error),
            }
        }
        for leftover in leftovers {
            let (checkpoint, in_use) = (leftover.checkpoint, leftover.in_use);
            match leftover.delete(&mut report).await {
                Ok(()) if in_use => {}
                Ok(()) => elsewhere::settled(records, checkpoint).await,
                // It stays recorded for a later sweep.
                Err(error) => report.failures.push(error),
            }
        }
        Ok(report)
    }

    async fn find(&self, live: &[CompletedCheckpoint]) -> Result<Orphans, StorageError> {
        let records = &self.inner.records;
        let ids: HashSet<CheckpointId> = live.iter().map(|checkpoint| checkpoint.id).collect();
        for pointer in records.completed_ids().await? {
            if !ids.contains(&pointer) {
                return Err(StorageError::StillReferenced {
                    checkpoint: pointer,
                    pointer: records.store().describe(&names::pointer_name(pointer)),
                });
            }
        }
        let mut keep = Keep::new(self.folder());
        live.iter().for_each(|checkpoint| keep.add(checkpoint));
        // One that was claimed is among those that are live, as long as it is.
        if let Some(origin) = records.origin().await?
            && origin.mode == RestoreMode::NoClaim
            && keep.is_inside(&origin.location)
        {
            match load::read_at(&origin.location, origin.taken_by, origin.checkpoint).await {
                Ok(origin) => keep.add(&origin),
                // Its user has deleted it; whoever needs it finds that out.
                Err(StorageError::Missing { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        let names = blocking(move || Ok(keep.into_names())).await?;
        find_in(&self.inner.storage.objects, &names).await
    }
}

/// A file to delete.
struct Found {
    name: String,
    entry: Entry,
}

/// Files to delete, and the folders they may leave empty, those inside others first.
#[derive(Default)]
struct Orphans {
    files: Vec<Found>,
    folders: Vec<String>,
}

async fn find_in(objects: &Objects, keep: &HashSet<String>) -> Result<Orphans, StorageError> {
    let mut orphans = Orphans::default();
    let mut inside = Vec::new();
    for entry in objects.entries("").await? {
        if entry.is_folder && names::parse_checkpoint_folder(&entry.name).is_some() {
            inside.push(entry.name);
        } else if !entry.is_folder && names::is_staging(&entry.name) {
            let name = entry.name.clone();
            orphans.files.push(Found { name, entry });
        }
    }
    for folder in [COMPLETED, ELSEWHERE] {
        for entry in objects.entries(folder).await? {
            if !entry.is_folder && names::is_staging(&entry.name) {
                let name = format!("{folder}/{}", entry.name);
                orphans.files.push(Found { name, entry });
            }
        }
    }
    while let Some(folder) = inside.pop() {
        for entry in objects.entries(&folder).await? {
            let name = format!("{folder}/{}", entry.name);
            if entry.is_folder {
                inside.push(name);
            } else if !keep.contains(&name) {
                orphans.files.push(Found { name, entry });
            }
        }
        orphans.folders.push(folder);
    }
    orphans.folders.reverse();
    orphans.files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(orphans)
}

/// The names of files that must stay.
struct Keep {
    root: PathBuf,
    names: HashSet<String>,
    /// Files named by their URLs: those of them that lie in the namespace stay, too.
    elsewhere: HashSet<(SnapshotLocation, String)>,
}

impl Keep {
    fn new(root: &Path) -> Keep {
        Keep {
            root: root.to_owned(),
            names: HashSet::new(),
            elsewhere: HashSet::new(),
        }
    }

    fn add(&mut self, checkpoint: &CompletedCheckpoint) {
        match &checkpoint.location {
            None => drop(self.names.insert(names::metadata_name(checkpoint.id))),
            Some(location) => {
                let metadata = (location.clone(), METADATA.to_owned());
                self.elsewhere.insert(metadata);
            }
        }
        for file in checkpoint.files() {
            match split_url(&file.name) {
                Some((folder, name)) => drop(self.elsewhere.insert((folder, name.to_owned()))),
                None => drop(self.names.insert(file.name.clone())),
            }
        }
    }

    fn is_inside(&self, location: &SnapshotLocation) -> bool {
        relative_to(&self.root, location).is_some()
    }

    /// All of them that lie in the namespace, relative to it. Blocks.
    fn into_names(self) -> HashSet<String> {
        let mut names = self.names;
        for (folder, name) in self.elsewhere {
            if let Some(folder) = relative_to(&self.root, &folder) {
                names.insert(format!("{folder}/{name}"));
            }
        }
        names
    }
}

/// The path of `location` within `root`, whatever links lead there.
fn relative_to(root: &Path, location: &SnapshotLocation) -> Option<String> {
    let folder = match Place::of(location).ok()? {
        Place::Folder(folder) => folder.canonicalize().ok()?,
        #[cfg(feature = "s3")]
        Place::Bucket(location) => {
            let inside = location.to_string();
            let inside = inside.strip_prefix(root.to_str()?)?.strip_prefix('/')?;
            return Some(inside.to_owned());
        }
    };
    let inside = folder.strip_prefix(root.canonicalize().ok()?).ok()?;
    inside.to_str().map(str::to_owned)
}
