//! Where one message ends and the next begins in what timely writes to a connection.
//!
//! Each message is a header of six numbers, eight bytes each and the largest first (`MessageHeader`
//! of `timely_communication`), and as many bytes as its fifth number says. Its first is the
//! channel. Writes begin and end anywhere.

const NUMBER: usize = 8;
const HEADER: usize = 6 * NUMBER;
const CHANNEL: usize = 0;
const LENGTH: usize = 4 * NUMBER;

/// A place in a stream of messages.
#[derive(Debug)]
pub(super) struct Frames {
    header: [u8; HEADER],
    /// How much of the header is there.
    known: usize,
    /// How much of the message's body is to come.
    body: u64,
}

impl Default for Frames {
    fn default() -> Self {
        Frames {
            header: [0; HEADER],
            known: 0,
            body: 0,
        }
    }
}

impl Frames {
    /// Goes on by some bytes, and tells of each message whose header ends in them: its channel, and
    /// its size with the header. The empty message by which a side says goodbye is none.
    pub(super) fn pass(&mut self, mut bytes: &[u8], mut each: impl FnMut(usize, u64)) {
        loop {
            let skipped = self.body.min(bytes.len() as u64);
            self.body -= skipped;
            bytes = &bytes[skipped as usize..];
            if bytes.is_empty() {
                return;
            }
            let more = bytes.len().min(HEADER - self.known);
            self.header[self.known..self.known + more].copy_from_slice(&bytes[..more]);
            self.known += more;
            bytes = &bytes[more..];
            if self.known == HEADER {
                self.known = 0;
                self.body = self.number(LENGTH);
                if self.body > 0 {
                    each(self.number(CHANNEL) as usize, self.body + HEADER as u64);
                }
            }
        }
    }

    fn number(&self, at: usize) -> u64 {
        let mut number = [0; NUMBER];
        number.copy_from_slice(&self.header[at..at + NUMBER]);
        u64::from_be_bytes(number)
    }
}

#[cfg(test)]
mod tests {
    use timely::communication::networking::MessageHeader;

    use super::*;

    /// As timely writes them.
    fn written(messages: &[(usize, usize)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (seqno, &(channel, length)) in messages.iter().enumerate() {
            let header = MessageHeader {
                channel,
                source: 11,
                target_lower: 12,
                target_upper: 13,
                length,
                seqno,
            };
            header.write_to(&mut bytes).unwrap();
            bytes.extend(std::iter::repeat_n(0xff, length));
        }
        bytes
    }

    fn told(writes: &[&[u8]]) -> Vec<(usize, u64)> {
        let (mut frames, mut told) = (Frames::default(), Vec::new());
        for write in writes {
            frames.pass(write, |channel, bytes| told.push((channel, bytes)));
        }
        told
    }

    #[test]
    fn messages_are_found_wherever_writes_end() {
        let bytes = written(&[(7, 1), (300, 70_000), (8, 100), (7, 48)]);
        let messages = [(7, 49), (300, 70_048), (8, 148), (7, 96)];
        assert_eq!(told(&[&bytes]), messages);
        for end in (0..=200).chain(70_000..=bytes.len()) {
            let (before, after) = bytes.split_at(end);
            assert_eq!(told(&[before, after]), messages, "{end}");
        }
        let each: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(told(&each), messages);
    }

    #[test]
    fn a_goodbye_is_no_message() {
        assert_eq!(told(&[&written(&[(5, 3), (0, 0)])]), [(5, 51)]);
    }
}
