//! Small self-checking texts: the identity, the counters, pointers, origin and finished marker.
//!
//! ```text
//! tidegate-pointer 1
//! job 00112233445566778899aabbccddeeff
//! checkpoint 42
//! crc32c 1a2b3c4d
//! ```
//!
//! First line: kind and format version. Then the kind's fields, each on a line, in fixed order.
//! Last line: CRC-32C of everything before it, in every version of every kind, so that a damaged
//! version number is told from a newer one. Values are printable ASCII; other bytes and `%` are
//! `%XX`. There is exactly one encoding of a record: whatever re-encodes differently is refused.

use std::fmt::Display;
use std::num::NonZeroU32;
use std::str::FromStr;

use tidegate_types::JobId;

use crate::error::StorageError;

/// A kind of record: its first word, its version and the names of its fields.
pub(crate) struct RecordKind {
    pub(crate) name: &'static str,
    pub(crate) version: u32,
    pub(crate) fields: &'static [&'static str],
}

pub(crate) const JOB: RecordKind = RecordKind {
    name: "tidegate-job",
    version: 1,
    fields: &["id", "name"],
};
pub(crate) const COUNTER: RecordKind = RecordKind {
    name: "tidegate-counter",
    version: 1,
    fields: &["job", "counts", "last"],
};
/// Written until checkpoints could lie elsewhere.
pub(crate) const POINTER_V1: RecordKind = RecordKind {
    name: "tidegate-pointer",
    version: 1,
    fields: &["job", "checkpoint"],
};
pub(crate) const POINTER: RecordKind = RecordKind {
    name: "tidegate-pointer",
    version: 2,
    fields: &["job", "checkpoint", "taken-by", "owner", "location"],
};
pub(crate) const ORIGIN: RecordKind = RecordKind {
    name: "tidegate-origin",
    version: 1,
    fields: &["job", "checkpoint", "taken-by", "mode", "location"],
};
pub(crate) const ELSEWHERE: RecordKind = RecordKind {
    name: "tidegate-elsewhere",
    version: 1,
    fields: &["job", "checkpoint", "taken-by", "work", "location"],
};
/// Written until leaders could be found by it.
pub(crate) const LEADER_V1: RecordKind = RecordKind {
    name: "tidegate-leader",
    version: 1,
    fields: &["epoch"],
};
pub(crate) const LEADER: RecordKind = RecordKind {
    name: "tidegate-leader",
    version: 2,
    fields: &["epoch", "instance", "address"],
};
/// In a bucket, in the place of [`LEADER`].
#[cfg(feature = "s3")]
pub(crate) const LEASE: RecordKind = RecordKind {
    name: "tidegate-lease",
    version: 1,
    fields: &["epoch", "instance", "address", "term-ms", "renewals"],
};
pub(crate) const PARALLELISM: RecordKind = RecordKind {
    name: "tidegate-parallelism",
    version: 1,
    fields: &["job", "declared", "asked"],
};
pub(crate) const ENDED: RecordKind = RecordKind {
    name: "tidegate-ended",
    version: 1,
    fields: &["job", "epoch", "how", "savepoint", "left"],
};
pub(crate) const FINISHED: RecordKind = RecordKind {
    name: "tidegate-finished",
    version: 1,
    fields: &["job", "checkpoint"],
};
pub(crate) const DISCARDED: RecordKind = RecordKind {
    name: "tidegate-discarded",
    version: 1,
    fields: &["job", "checkpoint"],
};

/// Largest record that is read; job names are the only part of any length.
pub(crate) const RECORD_BYTES_MAX: u64 = 1 << 20;

const CHECKSUM: &str = "crc32c ";

impl RecordKind {
    /// Encodes `values`, one per field.
    pub(crate) fn encode(&self, values: &[&str]) -> Vec<u8> {
        assert_eq!(values.len(), self.fields.len(), "fields of {}", self.name);
        let mut text = format!("{} {}\n", self.name, self.version);
        for (field, value) in self.fields.iter().zip(values) {
            text.push_str(&format!("{field} {}\n", escape(value.as_bytes())));
        }
        with_checksum(text)
    }

    /// Decodes the values of the fields; `file` names the bytes in errors.
    pub(crate) fn decode(&self, file: &str, bytes: &[u8]) -> Result<Vec<String>, StorageError> {
        let malformed = |reason: String| StorageError::Malformed {
            file: file.to_owned(),
            reason,
        };
        let text = std::str::from_utf8(bytes).map_err(|e| malformed(e.to_string()))?;
        let body = checked_body(file, text)?;
        let mut lines = body.lines();
        let (name, version) = lines
            .next()
            .and_then(|line| line.split_once(' '))
            .ok_or_else(|| malformed("it has no first line".to_owned()))?;
        if name != self.name {
            return Err(malformed(format!(
                "it is a `{name}`, not a `{}`",
                self.name
            )));
        }
        let found = version
            .parse()
            .map_err(|_| malformed(format!("`{version}` is not a version")))?;
        if found != self.version {
            return Err(StorageError::Version {
                file: file.to_owned(),
                found,
                supported: self.version,
            });
        }
        let values = self
            .fields
            .iter()
            .map(|field| {
                let line = lines.next().unwrap_or_default();
                line.strip_prefix(field)
                    .and_then(|rest| rest.strip_prefix(' '))
                    .and_then(unescape)
                    .ok_or_else(|| malformed(format!("`{line}` is not the field `{field}`")))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let borrowed: Vec<&str> = values.iter().map(String::as_str).collect();
        if self.encode(&borrowed) != bytes {
            return Err(malformed("it isn't in the canonical form".to_owned()));
        }
        Ok(values)
    }
}

/// The whole text, with the checksum as its last line.
pub(crate) fn with_checksum(mut text: String) -> Vec<u8> {
    let checksum = crc32c::crc32c(text.as_bytes());
    text.push_str(&format!("{CHECKSUM}{checksum:08x}\n"));
    text.into_bytes()
}

/// What the checksum in the last line covers, verified.
pub(crate) fn checked_body<'a>(file: &str, text: &'a str) -> Result<&'a str, StorageError> {
    let malformed = |reason: &str| StorageError::Malformed {
        file: file.to_owned(),
        reason: reason.to_owned(),
    };
    let start = text
        .rfind(CHECKSUM)
        .filter(|at| text[..*at].ends_with('\n'))
        .ok_or_else(|| malformed("it doesn't end with a checksum"))?;
    let (body, last) = text.split_at(start);
    let digits = last[CHECKSUM.len()..]
        .strip_suffix('\n')
        .filter(|digits| digits.len() == 8)
        .ok_or_else(|| malformed("it doesn't end with a checksum"))?;
    let expected =
        u32::from_str_radix(digits, 16).map_err(|_| malformed("its checksum isn't a number"))?;
    let actual = crc32c::crc32c(body.as_bytes());
    if expected != actual {
        return Err(StorageError::WrongChecksum {
            file: file.to_owned(),
            expected,
            actual,
        });
    }
    Ok(body)
}

/// Refuses a record of another job.
pub(crate) fn check_job(file: &str, expected: JobId, text: &str) -> Result<(), StorageError> {
    let found = parse_job(file, text)?;
    if found == expected {
        return Ok(());
    }
    Err(StorageError::OtherJob {
        file: file.to_owned(),
        expected,
        found,
    })
}

pub(crate) fn parse_job(file: &str, text: &str) -> Result<JobId, StorageError> {
    parse_canonical(file, text, "job id of 32 lower-case hexadecimal digits")
}

/// Parses a parallelism, which is at least 1.
pub(crate) fn parse_parallelism(file: &str, text: &str) -> Result<u32, StorageError> {
    let parallelism: NonZeroU32 = parse_canonical(file, text, "parallelism")?;
    Ok(parallelism.get())
}

pub(crate) fn parse_number(file: &str, text: &str) -> Result<u64, StorageError> {
    parse_canonical(file, text, "decimal number")
}

/// Parses `text` and refuses it if the value would be written in another way.
fn parse_canonical<T: FromStr + Display>(
    file: &str,
    text: &str,
    expected: &str,
) -> Result<T, StorageError> {
    text.parse()
        .ok()
        .filter(|value: &T| value.to_string() == text)
        .ok_or_else(|| StorageError::Malformed {
            file: file.to_owned(),
            reason: format!("`{text}` is no {expected}"),
        })
}

/// Makes a value printable; other bytes than printable ASCII, and `%`, become `%XX`.
pub(crate) fn escape(value: &[u8]) -> String {
    let mut escaped = String::with_capacity(value.len());
    for &byte in value {
        match byte {
            b' '..=b'~' if byte != b'%' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

fn unescape(text: &str) -> Option<String> {
    String::from_utf8(unescape_bytes(text)?).ok()
}

/// The opposite of [`escape`]; none if it doesn't come from there.
pub(crate) fn unescape_bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                (high * 16 + low) as u8
            }
            plain => plain,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flip_and_truncation_is_detected() {
        let bytes = JOB.encode(&["00ff", "naïve %\n job"]);
        assert_eq!(JOB.decode("f", &bytes).unwrap(), ["00ff", "naïve %\n job"]);
        for end in 0..bytes.len() {
            assert!(JOB.decode("f", &bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(JOB.decode("f", &flipped).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    const JOB_ID: &str = "00112233445566778899aabbccddeeff";
    const OTHER_ID: &str = "ffeeddccbbaa99887766554433221100";
    const PLACE: &str = "file:///data/savepoint-ffeeddcc-42";

    type Golden = (&'static RecordKind, &'static [&'static str], &'static str);

    const GOLDEN: [Golden; 12] = [
        (
            &JOB,
            &[JOB_ID, "wörd count 100%\n"],
            include_str!("../tests/golden/job-v1.txt"),
        ),
        (
            &COUNTER,
            &[JOB_ID, "attempts", "18446744073709551615"],
            include_str!("../tests/golden/counter-v1.txt"),
        ),
        (
            &POINTER_V1,
            &[JOB_ID, "42"],
            include_str!("../tests/golden/pointer-v1.txt"),
        ),
        (
            &POINTER,
            &[JOB_ID, "42", OTHER_ID, "user", PLACE],
            include_str!("../tests/golden/pointer-v2.txt"),
        ),
        (
            &ORIGIN,
            &[JOB_ID, "42", OTHER_ID, "no-claim", "file:///a%20b/chk-42"],
            include_str!("../tests/golden/origin-v1.txt"),
        ),
        (
            &ELSEWHERE,
            &[JOB_ID, "42", OTHER_ID, "deleting", PLACE],
            include_str!("../tests/golden/elsewhere-v1.txt"),
        ),
        (
            &LEADER_V1,
            &["7"],
            include_str!("../tests/golden/leader-v1.txt"),
        ),
        (
            &LEADER,
            &["8", OTHER_ID, "10.0.0.7:6123"],
            include_str!("../tests/golden/leader-v2.txt"),
        ),
        (
            &FINISHED,
            &[JOB_ID, "42"],
            include_str!("../tests/golden/finished-v1.txt"),
        ),
        (
            &PARALLELISM,
            &[JOB_ID, "3", "5"],
            include_str!("../tests/golden/parallelism-v1.txt"),
        ),
        (
            &ENDED,
            &[JOB_ID, "8", "stopped", PLACE, "no"],
            include_str!("../tests/golden/ended-v1.txt"),
        ),
        (
            &DISCARDED,
            &[JOB_ID, "42"],
            include_str!("../tests/golden/discarded-v1.txt"),
        ),
    ];

    /// If this fails, old namespaces can't be opened any more: write a new version instead.
    #[test]
    fn golden_files_decode_and_encode_identically() {
        for (kind, values, golden) in GOLDEN {
            assert_eq!(kind.decode("f", golden.as_bytes()).unwrap(), values);
            assert_eq!(kind.encode(values), golden.as_bytes());
        }
    }

    #[test]
    fn other_versions_kinds_and_trailing_bytes_are_refused() {
        let newer = RecordKind { version: 2, ..JOB };
        let error = JOB.decode("f", &newer.encode(&["1", "n"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`f` has format version 2; this build of Tidegate reads version 1"
        );
        let error = JOB
            .decode("f", &POINTER_V1.encode(&["1", "2"]))
            .unwrap_err();
        assert!(
            error.to_string().contains("is a `tidegate-pointer`"),
            "{error}"
        );
        let mut long = JOB.encode(&["1", "n"]);
        long.push(b'\n');
        assert!(JOB.decode("f", &long).is_err());
    }
}
