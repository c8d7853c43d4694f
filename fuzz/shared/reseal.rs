//! Recomputes the checksums of damaged files, as a forger would: otherwise hardly any damage gets
//! further than the first checksum. What is too damaged for that is left as it is.

#![allow(dead_code)] // not everybody who includes this file uses all of it

/// A keyed state file.
pub(crate) fn keyed_file(file: &mut [u8]) {
    let Some(trailer) = file.len().checked_sub(24).filter(|at| *at >= 16) else {
        return;
    };
    put_crc(file, 0..12);
    let length = u64_at(file, trailer);
    let Some(footer) = usize::try_from(length)
        .ok()
        .and_then(|it| trailer.checked_sub(it))
    else {
        return;
    };
    let mut at = 16;
    while at + 24 <= footer {
        let payload = u64_at(file, at + 12);
        let end = usize::try_from(payload)
            .ok()
            .and_then(|it| it.checked_add(at + 24));
        let Some(end) = end.filter(|end| *end <= footer) else {
            break;
        };
        let header = crc32c::crc32c(&file[at..at + 20]);
        let crc = crc32c::crc32c_append(header, &file[at + 24..end]);
        file[at + 20..at + 24].copy_from_slice(&crc.to_le_bytes());
        at = end;
    }
    let crc = crc32c::crc32c(&file[footer..trailer]);
    file[trailer + 8..trailer + 12].copy_from_slice(&crc.to_le_bytes());
    put_crc(file, trailer..trailer + 12);
}

/// A checkpoint's `_metadata`.
pub(crate) fn metadata(file: &mut [u8]) {
    if file.len() >= 28 {
        let length = file.len() as u64 - 28;
        file[12..20].copy_from_slice(&length.to_le_bytes());
        let crc = crc32c::crc32c(&file[28..]);
        file[20..24].copy_from_slice(&crc.to_le_bytes());
        put_crc(file, 0..24);
    }
}

/// A record: its last line, with the checksum, is made anew.
pub(crate) fn record(file: &mut Vec<u8>) {
    let last = file.windows(7).rposition(|it| it == b"crc32c ");
    file.truncate(last.unwrap_or(file.len()));
    let crc = crc32c::crc32c(file);
    file.extend_from_slice(format!("crc32c {crc:08x}\n").as_bytes());
}

fn u64_at(file: &[u8], at: usize) -> u64 {
    let bytes = file[at..at + 8].try_into();
    u64::from_le_bytes(bytes.expect("8 bytes were taken"))
}

/// Writes the checksum of a range behind it.
fn put_crc(file: &mut [u8], of: std::ops::Range<usize>) {
    let crc = crc32c::crc32c(&file[of.clone()]);
    file[of.end..of.end + 4].copy_from_slice(&crc.to_le_bytes());
}
