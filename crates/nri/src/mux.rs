//! Multiplexer of NRI: several connections on one socket.
//!
//! Each frame has a header of eight bytes, the number of its connection and the length of its
//! payload (both big-endian), and the payload. Both sides of a socket are servers: the runtime
//! calls the plug-in on connection 1, the plug-in calls the runtime on connection 2.
//!
//! Properties: bytes may arrive in any pieces. A length above [`PAYLOAD_MAX`] is an error before
//! anything is kept for it. Payloads are at most `CHUNK` bytes when written, since the runtime
//! reads the head of a message into a buffer of that size and fails on a longer frame.

use thiserror::Error;

/// Connection on which the runtime calls the plug-in.
pub const PLUGIN: u32 = 1;
/// Connection on which the plug-in calls the runtime.
pub const RUNTIME: u32 = 2;
/// Longest payload that is accepted: the longest message, with room for its header.
pub const PAYLOAD_MAX: usize = 5 << 20;
/// Longest payload that is written.
const CHUNK: usize = 4_096;
const HEADER: usize = 8;

/// A frame that cannot be accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a frame of {length} bytes for connection {connection}: at most {PAYLOAD_MAX} are accepted")]
pub struct FrameTooLong {
    /// Its connection.
    pub connection: u32,
    /// Its length, as the header says.
    pub length: usize,
}

/// Takes the bytes of a socket apart into frames.
#[derive(Debug, Default)]
pub struct Splitter {
    kept: Vec<u8>,
}

impl Splitter {
    /// Takes bytes, and returns the frames that are complete: the connection and the payload.
    ///
    /// # Errors
    /// A header announces too long a payload. The stream cannot be used any more.
    ///
    /// # Examples
    /// ```
    /// use trimtab_nri::mux::{PLUGIN, Splitter, frames};
    ///
    /// let bytes = frames(PLUGIN, b"hello");
    /// let mut splitter = Splitter::default();
    /// assert!(splitter.take(&bytes[..9])?.is_empty());
    /// assert_eq!(splitter.take(&bytes[9..])?, [(PLUGIN, b"hello".to_vec())]);
    /// # Ok::<(), trimtab_nri::mux::FrameTooLong>(())
    /// ```
    pub fn take(&mut self, bytes: &[u8]) -> Result<Vec<(u32, Vec<u8>)>, FrameTooLong> {
        self.kept.extend_from_slice(bytes);
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some((connection, length)) = header(&self.kept[at..]) {
            if length > PAYLOAD_MAX {
                return Err(FrameTooLong { connection, length });
            }
            let Some(payload) = self.kept[at..].get(HEADER..HEADER + length) else { break };
            found.push((connection, payload.to_vec()));
            at += HEADER + length;
        }
        self.kept.drain(..at);
        Ok(found)
    }
}

fn header(bytes: &[u8]) -> Option<(u32, usize)> {
    let connection = u32::from_be_bytes(*bytes.first_chunk()?);
    let length = u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?);
    Some((connection, usize::try_from(length).unwrap_or(usize::MAX)))
}

/// Returns the frames of a message.
pub fn frames(connection: u32, message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(message.len() + HEADER * (message.len() / CHUNK + 1));
    for chunk in message.chunks(CHUNK) {
        bytes.extend(connection.to_be_bytes());
        bytes.extend(u32::try_from(chunk.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend(chunk);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hostile_length_is_refused_before_its_payload_arrives() {
        let mut splitter = Splitter::default();
        let said = splitter.take(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(said, Err(FrameTooLong { connection: 1, length: 0xffff_ffff }));
        let longest = u32::try_from(PAYLOAD_MAX).unwrap().to_be_bytes();
        let mut splitter = Splitter::default();
        assert_eq!(splitter.take(&[&[0, 0, 0, 2], &longest[..]].concat()), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn messages_arrive_in_any_pieces(
            messages in prop::collection::vec((0u32..4, prop::collection::vec(any::<u8>(), 1..9_000)), 0..5),
            cuts in prop::collection::vec(1usize..5_000, 1..40),
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(|(id, bytes)| frames(*id, bytes)).collect();
            let (mut splitter, mut rest, mut found) = (Splitter::default(), &bytes[..], Vec::new());
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let (now, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                found.extend(splitter.take(now).unwrap());
                rest = later;
            }
            for id in 0..4 {
                let sent: Vec<u8> =
                    messages.iter().filter(|(of, _)| *of == id).flat_map(|(_, bytes)| bytes.clone()).collect();
                let got: Vec<u8> =
                    found.iter().filter(|(of, _)| *of == id).flat_map(|(_, bytes)| bytes.clone()).collect();
                prop_assert_eq!(sent, got);
            }
            prop_assert!(found.iter().all(|(_, payload)| payload.len() <= CHUNK));
            prop_assert!(splitter.kept.is_empty());
        }

        #[test]
        fn any_bytes_give_frames_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            let mut splitter = Splitter::default();
            if let Ok(found) = splitter.take(&bytes) {
                let used: usize = found.iter().map(|(_, payload)| HEADER + payload.len()).sum();
                prop_assert_eq!(used + splitter.kept.len(), bytes.len());
            }
        }
    }
}
