//! Frames of ttrpc, and the messages around each call.
//!
//! A frame has a header of ten bytes: the length of its payload, the number of its stream (both
//! big-endian), its type and flags. A call is a request on a stream of its own, and a response on
//! the same stream. Only calls with one request and one response occur in NRI.

use prost::Message;
use thiserror::Error;

/// Longest payload of a frame, as in other implementations.
pub const MESSAGE_MAX: usize = 4 << 20;
const HEADER: usize = 10;
/// Type of a request.
pub const REQUEST: u8 = 1;
/// Type of a response.
pub const RESPONSE: u8 = 2;
/// Flag of a request after which its sender sends nothing more on the stream.
pub const REMOTE_CLOSED: u8 = 1;

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The stream: odd numbers, which the caller chooses.
    pub stream: u32,
    /// [`REQUEST`], [`RESPONSE`], or another type.
    pub kind: u8,
    /// Flags.
    pub flags: u8,
    /// An encoded [`CallRequest`] or [`Response`].
    pub payload: Vec<u8>,
}

impl Frame {
    /// Returns the bytes of the frame.
    ///
    /// # Errors
    /// The payload is too long.
    pub fn bytes(&self) -> Result<Vec<u8>, MessageTooLong> {
        let length = self.payload.len();
        if length > MESSAGE_MAX {
            return Err(MessageTooLong { stream: self.stream, length });
        }
        let mut bytes = Vec::with_capacity(HEADER + length);
        bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend([self.kind, self.flags]);
        bytes.extend(&self.payload);
        Ok(bytes)
    }
}

/// A message that cannot be accepted or sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a message of {length} bytes on stream {stream}: at most {MESSAGE_MAX} are possible")]
pub struct MessageTooLong {
    /// Its stream.
    pub stream: u32,
    /// Its length.
    pub length: usize,
}

/// Takes the bytes of a connection apart into frames.
#[derive(Debug, Default)]
pub struct Assembler {
    kept: Vec<u8>,
}

impl Assembler {
    /// Takes bytes, and returns the frames that are complete.
    ///
    /// # Errors
    /// A header announces too long a message. The connection cannot be used any more.
    ///
    /// # Examples
    /// ```
    /// use trimtab_nri::ttrpc::{Assembler, Frame, REQUEST};
    ///
    /// let frame = Frame { stream: 1, kind: REQUEST, flags: 0, payload: vec![7] };
    /// let mut assembler = Assembler::default();
    /// assert_eq!(assembler.take(&frame.bytes()?)?, [frame]);
    /// # Ok::<(), trimtab_nri::ttrpc::MessageTooLong>(())
    /// ```
    pub fn take(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, MessageTooLong> {
        self.kept.extend_from_slice(bytes);
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(head) = self.kept[at..].first_chunk::<HEADER>() {
            let [l0, l1, l2, l3, s0, s1, s2, s3, kind, flags] = *head;
            let length = usize::try_from(u32::from_be_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
            let stream = u32::from_be_bytes([s0, s1, s2, s3]);
            if length > MESSAGE_MAX {
                return Err(MessageTooLong { stream, length });
            }
            let Some(payload) = self.kept[at..].get(HEADER..HEADER + length) else { break };
            found.push(Frame { stream, kind, flags, payload: payload.to_vec() });
            at += HEADER + length;
        }
        self.kept.drain(..at);
        Ok(found)
    }
}

/// A call.
#[derive(Clone, PartialEq, Message)]
pub struct CallRequest {
    /// Name of the service, with its package.
    #[prost(string, tag = "1")]
    pub service: String,
    /// Name of the method.
    #[prost(string, tag = "2")]
    pub method: String,
    /// The encoded argument.
    #[prost(bytes = "vec", tag = "3")]
    pub payload: Vec<u8>,
    /// Time after which the caller gives up, in nanoseconds; 0: none.
    #[prost(int64, tag = "4")]
    pub timeout_nano: i64,
}

/// The answer to a call.
#[derive(Clone, PartialEq, Message)]
pub struct Response {
    /// Absent, or code 0, after success.
    #[prost(message, optional, tag = "1")]
    pub status: Option<CallStatus>,
    /// The encoded result.
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}

/// How a call ended.
#[derive(Clone, PartialEq, Message)]
pub struct CallStatus {
    /// Code of gRPC.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The reason, in words.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// Codes of gRPC that are used here.
pub mod code {
    /// The argument cannot be read.
    pub const INVALID_ARGUMENT: i32 = 3;
    /// No answer in time.
    pub const DEADLINE_EXCEEDED: i32 = 4;
    /// There are not enough cores now.
    pub const RESOURCE_EXHAUSTED: i32 = 8;
    /// The request can never be met.
    pub const FAILED_PRECONDITION: i32 = 9;
    /// There is no such method.
    pub const UNIMPLEMENTED: i32 = 12;
}

impl Response {
    /// Returns the result, or the reason of the failure.
    ///
    /// # Errors
    /// The call failed.
    pub fn result(self) -> Result<Vec<u8>, CallStatus> {
        match self.status {
            Some(status) if status.code != 0 => Err(status),
            _ => Ok(self.payload),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hostile_length_is_refused_before_its_payload_arrives() {
        let said = Assembler::default().take(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 3, 1, 0]);
        assert_eq!(said, Err(MessageTooLong { stream: 3, length: 0xffff_ffff }));
        let long = Frame { stream: 5, kind: REQUEST, flags: 0, payload: vec![0; MESSAGE_MAX + 1] };
        assert_eq!(long.bytes(), Err(MessageTooLong { stream: 5, length: MESSAGE_MAX + 1 }));
    }

    #[test]
    fn a_request_has_the_bytes_of_other_implementations() {
        let request =
            CallRequest { service: "s".into(), method: "M".into(), payload: vec![9], timeout_nano: 5 };
        let payload = request.encode_to_vec();
        assert_eq!(payload, [0x0a, 1, b's', 0x12, 1, b'M', 0x1a, 1, 9, 0x20, 5]);
        let bytes = Frame { stream: 1, kind: REQUEST, flags: REMOTE_CLOSED, payload }.bytes().unwrap();
        assert_eq!(bytes[..HEADER], [0, 0, 0, 11, 0, 0, 0, 1, 1, 1]);
    }

    fn frames() -> impl Strategy<Value = Vec<Frame>> {
        let frame = (any::<u32>(), any::<u8>(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..3_000))
            .prop_map(|(stream, kind, flags, payload)| Frame { stream, kind, flags, payload });
        prop::collection::vec(frame, 0..5)
    }

    proptest! {
        #[test]
        fn frames_arrive_in_any_pieces(frames in frames(), piece in 1usize..4_000) {
            let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.bytes().unwrap()).collect();
            let mut assembler = Assembler::default();
            let found: Vec<Frame> =
                bytes.chunks(piece).flat_map(|piece| assembler.take(piece).unwrap()).collect();
            prop_assert_eq!(found, frames);
        }

        #[test]
        fn any_bytes_give_frames_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            let mut assembler = Assembler::default();
            if let Ok(found) = assembler.take(&bytes) {
                let used: usize = found.iter().map(|frame| HEADER + frame.payload.len()).sum();
                prop_assert_eq!(used + assembler.kept.len(), bytes.len());
                for frame in found {
                    let _ = CallRequest::decode(&*frame.payload);
                    let _ = Response::decode(&*frame.payload);
                }
            }
        }
    }
}
