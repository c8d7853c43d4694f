//! What survives a process: state files, metadata, pointers, counters, the mark of the end, and the
//! savepoints and namespaces that lie elsewhere.
//!
//! The store itself is simple and never lies; whether a call reaches it, and whether the caller
//! learns that, is drawn by whoever calls (see [`crate::process`]).

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{
    AskedParallelism, AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, JobId,
    KeyedPiece, KeyedStateHandle, Owner, SnapshotLocation,
};

/// Per key how many records there were, and the sum of their shares.
pub(crate) type Counts = BTreeMap<u32, (u64, u64)>;

/// Length of one key of [`Counts`] where they are written down.
const COUNT_BYTES: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct StateFile {
    /// Whether it has been closed and synced.
    pub(crate) complete: bool,
    pub(crate) counts: Counts,
}

/// Something that can be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Pointer(CheckpointId),
    Metadata(CheckpointId, Option<SnapshotLocation>),
    File(String),
    /// If nothing is left in it.
    Folder(SnapshotLocation),
}

/// One entry of the completed-checkpoint store.
#[derive(Clone, Debug)]
pub(crate) struct Pointer {
    /// `None` is the job's own namespace.
    pub(crate) location: Option<SnapshotLocation>,
    pub(crate) owner: Owner,
}

/// The namespace of the job that runs now, with names relative to it, and by URL whatever lies
/// elsewhere: savepoints, and the namespaces of earlier jobs.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) namespace: u32,
    pub(crate) files: BTreeMap<String, StateFile>,
    /// Folders of savepoints.
    pub(crate) folders: BTreeSet<SnapshotLocation>,
    pub(crate) metadata: BTreeMap<CheckpointId, CompletedCheckpoint>,
    pub(crate) elsewhere: BTreeMap<SnapshotLocation, CompletedCheckpoint>,
    /// Pointers up to this one don't count, whenever they were written.
    pub(crate) discarded: Option<CheckpointId>,
    pub(crate) pointers: BTreeMap<CheckpointId, Pointer>,
    /// Where savepoints were begun, and where claimed snapshots are being deleted.
    recorded: BTreeSet<SnapshotLocation>,
    claimed: BTreeSet<SnapshotLocation>,
    /// What the namespace was restored from without claiming it.
    pub(crate) origin: Option<CompletedCheckpoint>,
    pub(crate) ids_reserved: u64,
    pub(crate) attempts_reserved: u64,
    /// The parallelism that somebody asked for, and how often that was written.
    pub(crate) asked: (Option<AskedParallelism>, u64),
    /// Whether somebody has ended a run of the job, and nobody has gone on since.
    pub(crate) ended: bool,
    pub(crate) finished: Option<CheckpointId>,
    serial: u64,
}

impl Store {
    /// Begins a file under a name that no other file ever has. `None` if its folder isn't there.
    pub(crate) fn create(
        &mut self,
        checkpoint: CheckpointId,
        attempt: AttemptNumber,
        location: Option<&SnapshotLocation>,
    ) -> Option<String> {
        self.serial += 1;
        let serial = self.serial;
        let name = match location {
            None => format!("{checkpoint}/{attempt}-{serial}"),
            Some(folder) if self.folders.contains(folder) => {
                format!("{folder}/{attempt}-{serial}")
            }
            Some(_) => return None,
        };
        self.files.insert(name.clone(), StateFile::default());
        Some(name)
    }

    /// Completes a file.
    pub(crate) fn finish(&mut self, name: &str, counts: Counts) -> Option<FileHandle> {
        let file = self.files.get_mut(name)?;
        let handle = FileHandle {
            name: name.to_owned(),
            bytes: bytes(&counts),
            crc32c: sum(&counts),
        };
        *file = StateFile {
            complete: true,
            counts,
        };
        Some(handle)
    }

    /// The content of a file, if it is there, complete and unaltered.
    pub(crate) fn open(&self, handle: &FileHandle) -> Option<&Counts> {
        let file = self.files.get(&handle.name)?;
        let counts = &file.counts;
        let intact = bytes(counts) == handle.bytes && sum(counts) == handle.crc32c;
        (file.complete && intact).then_some(counts)
    }

    /// All pieces of a handle, the newer over the older, if they are as they were written.
    pub(crate) fn read_state(&self, handle: &KeyedStateHandle) -> Option<Counts> {
        let mut all = Counts::new();
        for piece in &handle.pieces {
            match piece {
                KeyedPiece::File(file) => all.extend(self.open(file)?),
                KeyedPiece::Inline(bytes) => all.extend(decode_counts(bytes)?),
            }
        }
        Some(all)
    }

    /// The job that runs now. Savepoints are named by the first digits.
    pub(crate) fn job(&self) -> JobId {
        job_of(self.namespace)
    }

    /// The one that would go on from it in a new namespace.
    pub(crate) fn next_job(&self) -> JobId {
        job_of(self.namespace + 1)
    }

    /// The metadata of a snapshot.
    pub(crate) fn find(
        &self,
        id: CheckpointId,
        location: Option<&SnapshotLocation>,
    ) -> Option<&CompletedCheckpoint> {
        match location {
            None => self.metadata.get(&id),
            Some(folder) => self.elsewhere.get(folder),
        }
    }

    /// What a pointer leads to.
    pub(crate) fn completed(&self, id: CheckpointId) -> Option<&CompletedCheckpoint> {
        let pointer = self.pointers.get(&id)?;
        self.find(id, pointer.location.as_ref())
    }

    /// The newest of all that pointers lead to, or what the namespace started from.
    pub(crate) fn latest(&self) -> Option<&CompletedCheckpoint> {
        match self.pointers.last_key_value() {
            Some((id, _)) => self.completed(*id),
            None => self.origin.as_ref(),
        }
    }

    /// One entry as the job gets it.
    ///
    /// # Errors
    /// If it leads nowhere.
    pub(crate) fn read(
        &self,
        id: CheckpointId,
        pointer: &Pointer,
    ) -> Result<CompletedCheckpoint, String> {
        let found = self.find(id, pointer.location.as_ref());
        let mut completed = found
            .ok_or_else(|| format!("`{id}` has no metadata"))?
            .clone();
        completed.owner = pointer.owner;
        Ok(completed)
    }

    /// What the pointers lead to, ascending by id.
    ///
    /// # Errors
    /// Names a pointer that leads nowhere.
    pub(crate) fn recover(&self) -> Result<Vec<CompletedCheckpoint>, String> {
        let read = |(id, pointer): (&CheckpointId, &Pointer)| self.read(*id, pointer);
        self.pointers.iter().map(read).collect()
    }

    /// The newest id that may have been used: reserved, or found in whatever form.
    pub(crate) fn ids_used(&self) -> CheckpointId {
        let folders = self.files.keys().filter_map(|name| {
            let (folder, _) = name.split_once('/')?;
            folder.strip_prefix("chk-")?.parse().ok().map(CheckpointId)
        });
        let metadata = self.metadata.keys().copied();
        let found = folders.chain(metadata).chain(self.pointers.keys().copied());
        let origin = self.origin.iter().map(|origin| origin.id);
        let found = found.chain(origin);
        found.fold(CheckpointId(self.ids_reserved), CheckpointId::max)
    }

    /// The files that pointers lead to.
    pub(crate) fn live_files(&self) -> BTreeSet<&str> {
        let live = self.pointers.keys().filter_map(|id| self.completed(*id));
        live.flat_map(CompletedCheckpoint::files)
            .map(|file| file.name.as_str())
            .collect()
    }

    /// Makes the folder of a savepoint, and notes that in the namespace.
    pub(crate) fn make_folder(&mut self, folder: &SnapshotLocation) {
        self.folders.insert(folder.clone());
        self.recorded.insert(folder.clone());
    }

    /// Forgets where a claimed snapshot lies: only with a bug put in.
    pub(crate) fn forget_claimed(&mut self) {
        self.recorded.clear();
        self.claimed.clear();
    }

    /// What no pointer leads to, in the namespace and in the folders that it has noted: what is
    /// left of savepoints that came to nothing, and of claimed snapshots that were dropped.
    pub(crate) fn orphans(&self) -> Vec<Target> {
        let kept = self.live_files();
        let metadata = self
            .metadata
            .keys()
            .filter(|id| !self.pointers.contains_key(id));
        let files = self
            .files
            .keys()
            .filter(|name| !name.contains("://") && !kept.contains(name.as_str()));
        let metadata = metadata.map(|id| Target::Metadata(*id, None));
        let own = metadata.chain(files.cloned().map(Target::File));
        let kept: BTreeSet<_> = self
            .pointers
            .values()
            .map(|to| to.location.as_ref())
            .collect();
        let left = self.recorded.iter().filter(|folder| {
            let complete = self.elsewhere.contains_key(*folder) && !self.claimed.contains(*folder);
            !complete && !kept.contains(&Some(*folder))
        });
        own.chain(left.flat_map(|folder| self.left_in(folder)))
            .collect()
    }

    fn left_in(&self, folder: &SnapshotLocation) -> Vec<Target> {
        let inside = format!("{folder}/");
        let metadata = self.elsewhere.get(folder);
        let metadata = metadata.map(|found| Target::Metadata(found.id, Some(folder.clone())));
        let files = self.files.range(inside.clone()..).map(|(name, _)| name);
        let files = files.take_while(|name| name.starts_with(&inside)).cloned();
        let targets = metadata.into_iter().chain(files.map(Target::File));
        let itself = self.folders.get(folder).cloned().map(Target::Folder);
        targets.chain(itself).collect()
    }

    /// Leaves the namespace and makes a new one, to go on from what the old one has last. Returns
    /// where that lies.
    pub(crate) fn move_on(&mut self, claim: bool) -> Option<SnapshotLocation> {
        let id = *self.pointers.last_key_value()?.0;
        let latest = self.completed(id)?.location.clone();
        let old = SnapshotLocation::new(&format!("mem://job-{}", self.namespace));
        self.carry_out(&old);
        let location = latest.unwrap_or_else(|| old.child(&id.to_string()));
        let mut from = self.elsewhere.get(&location)?.clone();
        (self.pointers, self.origin) = (BTreeMap::new(), None);
        self.discarded = None;
        if claim {
            let pointer = Pointer {
                location: Some(location.clone()),
                owner: Owner::Job,
            };
            self.pointers.insert(id, pointer);
        } else {
            from.owner = Owner::User;
            self.origin = Some(from);
        }
        self.recorded = claim.then(|| location.clone()).into_iter().collect();
        self.claimed = self.recorded.clone();
        self.namespace += 1;
        (self.ids_reserved, self.attempts_reserved) = (0, 0);
        self.asked = (None, 0);
        Some(location)
    }

    /// From now on everything in the namespace goes by its URL.
    fn carry_out(&mut self, namespace: &SnapshotLocation) {
        let files = std::mem::take(&mut self.files);
        let url = |name: String| match name.contains("://") {
            true => name,
            false => namespace.child(&name).as_str().to_owned(),
        };
        self.files = files
            .into_iter()
            .map(|(name, file)| (url(name), file))
            .collect();
        for (id, mut checkpoint) in std::mem::take(&mut self.metadata) {
            let location = namespace.child(&id.to_string());
            checkpoint.location = Some(location.clone());
            let subtasks = checkpoint
                .operators
                .iter_mut()
                .flat_map(|op| &mut op.subtasks);
            for keyed in subtasks.filter_map(|subtask| subtask.keyed.as_mut()) {
                for file in keyed.files_mut() {
                    file.name = url(std::mem::take(&mut file.name));
                }
            }
            self.elsewhere.insert(location, checkpoint);
        }
    }

    /// Whether a folder holds metadata or files.
    fn is_empty(&self, folder: &SnapshotLocation) -> bool {
        let inside = format!("{folder}/");
        let mut files = self.files.range(inside.clone()..);
        let first = files.next();
        !self.elsewhere.contains_key(folder)
            && first.is_none_or(|(name, _)| !name.starts_with(&inside))
    }

    /// Deletes; what isn't there is fine.
    pub(crate) fn delete(&mut self, target: &Target) {
        match target {
            Target::Pointer(id) => {
                self.pointers.remove(id);
            }
            Target::Metadata(id, None) => {
                self.metadata.remove(id);
            }
            Target::Metadata(_, Some(folder)) => {
                self.elsewhere.remove(folder);
            }
            Target::Folder(folder) => {
                if self.is_empty(folder) {
                    self.folders.remove(folder);
                }
            }
            Target::File(name) => {
                self.files.remove(name);
            }
        }
    }
}

fn job_of(namespace: u32) -> JobId {
    JobId(u128::from(namespace + 1) << 96)
}

/// Files of the first of these that later ones refer to, too.
pub(crate) fn shared_with_later(completed: &[CompletedCheckpoint]) -> Vec<FileHandle> {
    let later = completed.iter().skip(1);
    later
        .flat_map(CompletedCheckpoint::files)
        .cloned()
        .collect()
}

/// The keyed state of a checkpoint.
pub(crate) fn keyed(checkpoint: &CompletedCheckpoint) -> impl Iterator<Item = &KeyedStateHandle> {
    let subtasks = checkpoint
        .operators
        .iter()
        .flat_map(|operator| &operator.subtasks);
    subtasks.filter_map(|subtask| subtask.keyed.as_ref())
}

fn bytes(counts: &Counts) -> u64 {
    COUNT_BYTES as u64 * counts.len() as u64
}

/// As they stand in an acknowledgement.
pub(crate) fn encode_counts(counts: &Counts) -> Vec<u8> {
    let encode = |(key, (count, share)): (&u32, &(u64, u64))| {
        let mut entry = key.to_le_bytes().to_vec();
        entry.extend_from_slice(&count.to_le_bytes());
        entry.extend_from_slice(&share.to_le_bytes());
        entry
    };
    counts.iter().flat_map(encode).collect()
}

/// `None` if these are no counts.
fn decode_counts(bytes: &[u8]) -> Option<Counts> {
    let entries = bytes.chunks(COUNT_BYTES).map(|entry| {
        let (key, rest) = entry.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let share = rest.try_into().ok()?;
        let (count, share) = (u64::from_le_bytes(*count), u64::from_le_bytes(share));
        Some((u32::from_le_bytes(*key), (count, share)))
    });
    entries.collect()
}

fn sum(counts: &Counts) -> u32 {
    let mix = |sum: u32, (key, (count, share)): (&u32, &(u64, u64))| {
        sum.rotate_left(5)
            .wrapping_add(*key)
            .wrapping_mul(31)
            .wrapping_add(*count as u32)
            .wrapping_mul(31)
            .wrapping_add(*share as u32)
    };
    counts.iter().fold(1, mix)
}
