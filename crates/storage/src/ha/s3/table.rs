//! All records of a job as one object, with the epoch that may replace it.
//!
//! ```text
//! tidegate-records 1
//! epoch 7
//! sequence 42
//! record completed/00000000000000000042 41 tidegate-pointer 2%0Ajob 0011…
//! crc32c 1a2b3c4d
//! ```
//!
//! Invariant: the sequence grows with each content, so no two contents, and no two entity tags, are
//! the same; a delayed write that asks for an old one can't succeed.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_types::LeaderEpoch;

use crate::error::StorageError;
use crate::ha::{Expected, RecordVersion, Versioned};
use crate::record;

const FIRST_LINE: &str = "tidegate-records 1";

/// The records, as one leader has written them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) epoch: LeaderEpoch,
    /// Counts all contents that this object ever had.
    sequence: u64,
    /// By name: the sequence that a record was written with, and what it holds.
    entries: BTreeMap<String, (u64, Bytes)>,
}

/// What a change would do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It leads to this.
    To(Table),
    /// It is so already.
    Nothing,
    /// What is there isn't as expected.
    Conflict,
}

impl Table {
    /// No records, of the first leader.
    pub(super) fn empty(epoch: LeaderEpoch) -> Table {
        Table {
            epoch,
            sequence: 1,
            entries: BTreeMap::new(),
        }
    }

    /// The same records, for the leader of a later epoch alone.
    pub(super) fn sealed(&self, epoch: LeaderEpoch) -> Table {
        assert!(epoch > self.epoch, "{epoch} after {}", self.epoch);
        let mut sealed = self.next();
        sealed.epoch = epoch;
        sealed
    }

    fn next(&self) -> Table {
        let mut next = self.clone();
        next.sequence += 1;
        next
    }

    pub(super) fn write(&self, name: &str, bytes: &Bytes, expected: &Expected) -> Change {
        let found = self.entries.get(name);
        let as_expected = match expected {
            Expected::Absent if found.is_some_and(|(_, found)| found == bytes) => {
                return Change::Nothing;
            }
            Expected::Absent => found.is_none(),
            Expected::Version(version) => found.is_some_and(|(at, _)| version_of(*at) == *version),
        };
        if !as_expected {
            return Change::Conflict;
        }
        let mut next = self.next();
        let entry = (next.sequence, bytes.clone());
        next.entries.insert(name.to_owned(), entry);
        Change::To(next)
    }

    pub(super) fn remove(&self, name: &str) -> Change {
        let mut next = self.next();
        match next.entries.remove(name) {
            Some(_) => Change::To(next),
            None => Change::Nothing,
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<Versioned> {
        self.entries.get(name).map(|(at, bytes)| Versioned {
            bytes: bytes.clone(),
            version: version_of(*at),
        })
    }

    /// The names, without the folder, of the records in `folder`.
    pub(super) fn list(&self, folder: &str) -> Vec<String> {
        let names = self.entries.keys();
        names
            .filter_map(|name| name.strip_prefix(folder)?.strip_prefix('/'))
            .map(str::to_owned)
            .collect()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let (epoch, sequence) = (self.epoch.0, self.sequence);
        let mut text = format!("{FIRST_LINE}\nepoch {epoch}\nsequence {sequence}\n");
        for (name, (at, bytes)) in &self.entries {
            text.push_str(&format!("record {name} {at} {}\n", record::escape(bytes)));
        }
        record::with_checksum(text)
    }

    /// Decodes what `file` holds.
    pub(super) fn decode(file: &str, bytes: &[u8]) -> Result<Table, StorageError> {
        let malformed = |reason: &str| StorageError::Malformed {
            file: file.to_owned(),
            reason: reason.to_owned(),
        };
        let text = std::str::from_utf8(bytes).map_err(|_| malformed("it isn't a text"))?;
        let mut lines = record::checked_body(file, text)?.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(malformed(&format!("it doesn't begin with `{FIRST_LINE}`")));
        }
        let mut number = |name: &str| {
            let line = lines.next().unwrap_or_default();
            let value = line
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(' '));
            record::parse_number(file, value.unwrap_or_default())
        };
        let (epoch, sequence) = (LeaderEpoch(number("epoch")?), number("sequence")?);
        let mut table = Table {
            epoch,
            sequence,
            entries: BTreeMap::new(),
        };
        for line in lines {
            let entry = line.strip_prefix("record ").and_then(|entry| {
                let mut parts = entry.splitn(3, ' ');
                let (name, at) = (parts.next()?, parts.next()?);
                Some((name, at, record::unescape_bytes(parts.next()?)?))
            });
            let (name, at, bytes) = entry.ok_or_else(|| malformed("a line is no record"))?;
            let at = record::parse_number(file, at)?;
            table.entries.insert(name.to_owned(), (at, bytes.into()));
        }
        if table.encode() == bytes {
            return Ok(table);
        }
        Err(malformed("it isn't in the canonical form"))
    }
}

fn version_of(sequence: u64) -> RecordVersion {
    RecordVersion(sequence.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(change: Change) -> Table {
        match change {
            Change::To(table) => table,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_content_is_another_one() {
        let mut table = Table::empty(LeaderEpoch(1));
        let mut contents = vec![table.encode()];
        let (value, other) = (Bytes::from("%\n\u{e4}"), Bytes::from_static(&[0, 255]));
        for _ in 0..2 {
            table = to(table.write("a", &value, &Expected::Absent));
            contents.push(table.encode());
            assert_eq!(table.write("a", &value, &Expected::Absent), Change::Nothing);
            assert_eq!(
                table.write("a", &other, &Expected::Absent),
                Change::Conflict
            );
            let version = table.get("a").unwrap().version;
            table = to(table.write("a", &other, &Expected::Version(version.clone())));
            contents.push(table.encode());
            let stale = table.write("a", &value, &Expected::Version(version));
            assert_eq!(stale, Change::Conflict);
            assert_eq!(table.get("a").unwrap().bytes, other);
            table = to(table.remove("a"));
            contents.push(table.encode());
            assert_eq!(table.remove("a"), Change::Nothing);
        }
        table = table.sealed(LeaderEpoch(2));
        contents.push(table.encode());
        contents.sort();
        contents.dedup();
        assert_eq!(contents.len(), 8);
    }

    #[test]
    fn a_table_is_read_as_it_was_written_and_damage_is_noticed() {
        let table = Table::empty(LeaderEpoch(3));
        let table = to(table.write("job", &Bytes::from("a b\n"), &Expected::Absent));
        let table = to(table.write("completed/1", &Bytes::new(), &Expected::Absent));
        let bytes = table.encode();
        let golden = include_str!("../../../tests/golden/records-v1.txt");
        assert_eq!(std::str::from_utf8(&bytes).unwrap(), golden);
        assert_eq!(Table::decode("f", &bytes).unwrap(), table);
        assert_eq!(table.list("completed"), ["1"]);
        for end in 0..bytes.len() {
            assert!(Table::decode("f", &bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(Table::decode("f", &flipped).is_err(), "byte {at}");
        }
    }
}
