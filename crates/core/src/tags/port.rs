//! Guest port: the protocol by which a guest tags its CPUs, one line per change.
//!
//! ```text
//! tag vcpu 3      the task that now runs there is bound
//! clear vcpu 3    the task that now runs there is not bound
//! ```
//!
//! Problem: the system behind the port is not trusted; it may send anything, at any speed, without
//! end. Idea: lines are short and of two kinds. The rate of lines is bounded, and after too many
//! the port is not read for a while. A malformed line is counted; a line without an end counts once
//! for each maximum length. It closes nothing, but after too many of them the port is ignored. A
//! line can name nothing except a CPU of that very machine.

use super::bucket::Bucket;
use crate::time::{Moment, Span};
use serde::{Deserialize, Serialize};

/// Longest line, in bytes. Chosen: twice the longest valid line.
const LINE_MAX: usize = 64;
/// Lines accepted at once, and then per second. Chosen: every CPU of a large guest, ten times a
/// second.
const LINES_BURST: u32 = 1_024;
const LINES_PER_SECOND: u32 = 2_048;
/// Number of malformed lines after which a port is ignored. Chosen.
pub const GARBAGE_MAX: u64 = 1_000;
/// Upper bound on the CPUs of a guest. Chosen: twice the limit of KVM.
const VCPUS_MAX: u32 = 8_192;

/// A valid line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortLine {
    /// This CPU is tagged.
    Tag(u32),
    /// This CPU is not tagged.
    Clear(u32),
}

/// State of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortState {
    /// The port is read.
    #[default]
    Open,
    /// The port has no peer now.
    Closed,
    /// The port is ignored: too many lines were malformed.
    Ignored,
}

/// A port with the state of its parser.
#[derive(Clone, Debug)]
pub struct Port {
    line: Vec<u8>,
    /// Bytes skipped since the last count while the rest of an over-long line is dropped; `None`
    /// otherwise.
    skipping: Option<usize>,
    bucket: Bucket,
    /// State of the port.
    pub state: PortState,
    /// Number of valid lines.
    pub lines: u64,
    /// Number of malformed lines, and parts of lines without an end.
    pub garbage: u64,
    /// Number of lines beyond the rate limit.
    pub dropped: u64,
}

impl Default for Port {
    fn default() -> Self {
        Self {
            line: Vec::new(),
            skipping: None,
            bucket: Bucket::new(LINES_BURST, LINES_PER_SECOND),
            state: PortState::Open,
            lines: 0,
            garbage: 0,
            dropped: 0,
        }
    }
}

impl PortLine {
    /// Parses a line, without its line feed; `None` if it is malformed.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let text = text.strip_suffix('\r').unwrap_or(text);
        let (word, rest) = text.split_once(' ')?;
        let number = rest.strip_prefix("vcpu ")?;
        // `parse` would accept a sign.
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let index = number.parse().ok().filter(|index| *index < VCPUS_MAX)?;
        match word {
            "tag" => Some(Self::Tag(index)),
            "clear" => Some(Self::Clear(index)),
            _ => None,
        }
    }
}

impl Port {
    /// Creates a port without a peer.
    pub fn closed() -> Self {
        Self { state: PortState::Closed, ..Self::default() }
    }

    /// Takes the bytes that were read. Returns the valid lines, and for how long nothing should be
    /// read if there were too many.
    pub fn take(&mut self, bytes: &[u8], now: Moment) -> (Vec<PortLine>, Option<Span>) {
        let (mut heard, mut rest) = (Vec::new(), None);
        for &byte in bytes {
            if self.state == PortState::Ignored {
                break;
            }
            // A complete line, or as many bytes of an endless one as count as one.
            let said = match (&mut self.skipping, byte) {
                (Some(_), b'\n') => {
                    self.skipping = None;
                    continue;
                }
                (Some(skipped), _) => {
                    *skipped += 1;
                    if *skipped < LINE_MAX {
                        continue;
                    }
                    *skipped = 0;
                    None
                }
                (None, b'\n') => Some(std::mem::take(&mut self.line)),
                (None, _) if self.line.len() < LINE_MAX => {
                    self.line.push(byte);
                    continue;
                }
                (None, _) => {
                    self.line.clear();
                    self.skipping = Some(1);
                    None
                }
            };
            if let Err(wait) = self.bucket.take(now) {
                self.dropped += 1;
                rest = Some(wait);
                continue;
            }
            match said.and_then(|line| PortLine::parse(&line)) {
                Some(line) => {
                    self.lines += 1;
                    heard.push(line);
                }
                None => {
                    self.garbage += 1;
                    if self.garbage >= GARBAGE_MAX {
                        self.state = PortState::Ignored;
                    }
                }
            }
        }
        (heard, rest)
    }

    /// Starts a new connection: an incomplete line is dropped, and the counts stay.
    pub fn anew(&mut self) {
        self.line.clear();
        self.skipping = None;
        if self.state != PortState::Ignored {
            self.state = PortState::Open;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_kinds_of_lines_mean_something() {
        assert_eq!(PortLine::parse(b"tag vcpu 3"), Some(PortLine::Tag(3)));
        assert_eq!(PortLine::parse(b"clear vcpu 0\r"), Some(PortLine::Clear(0)));
        let nothing: [&[u8]; 12] = [
            b"",
            b"tag",
            b"tag vcpu",
            b"tag vcpu ",
            b"tag vcpu -1",
            b"tag vcpu +1",
            b"tag vcpu 8192",
            b"tag vcpu 99999999999999999999",
            b"tag  vcpu 1",
            b"Tag vcpu 1",
            b"tag vcpu 1 ",
            b"\xff\xfe",
        ];
        for line in nothing {
            assert_eq!(PortLine::parse(line), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn lines_come_in_any_pieces() {
        let text = b"tag vcpu 1\nclear vcpu 2\nnonsense\ntag vcpu 3";
        for size in 1..text.len() {
            let mut port = Port::default();
            let heard: Vec<PortLine> =
                text.chunks(size).flat_map(|part| port.take(part, Moment(1)).0).collect();
            assert_eq!(heard, [PortLine::Tag(1), PortLine::Clear(2)]);
            assert_eq!((port.lines, port.garbage), (2, 1));
            // An incomplete line before the disconnect is dropped.
            port.anew();
            assert_eq!(port.take(b"tag vcpu 4\n", Moment(2)).0, [PortLine::Tag(4)]);
        }
    }

    #[test]
    fn an_endless_line_is_garbage_as_often_as_it_is_long_and_takes_no_memory() {
        let mut port = Port::default();
        assert_eq!(port.take(&[b'x'; LINE_MAX], Moment(1)), (vec![], None));
        assert_eq!(port.garbage, 0, "it may end yet");
        assert_eq!(port.take(b"x\ntag vcpu 1\n", Moment(1)).0, [PortLine::Tag(1)]);
        assert_eq!(port.garbage, 1);
        for round in 1..=5 {
            assert_eq!(port.take(&[b'x'; 1_024], Moment(1)).0, []);
            assert_eq!(port.garbage, 1 + round * 16);
            assert!(port.line.capacity() <= 4 * LINE_MAX);
        }
        let mut port = Port::default();
        for second in 0..u64::MAX {
            if port.state == PortState::Ignored {
                break;
            }
            assert!(second < 1_000, "it is listened to for ever");
            port.take(&[b'x'; 4_096], Moment(second * 1_000_000_000));
        }
        assert_eq!(port.garbage, GARBAGE_MAX);
        // At full speed, the rate limit acts first.
        let mut port = Port::default();
        let (_, rest) = port.take(&[b'x'; 1 << 20], Moment(1));
        assert!(port.state == PortState::Ignored || rest.is_some());
    }

    #[test]
    fn a_flood_is_thinned_and_garbage_ends_the_listening() {
        let mut port = Port::default();
        let flood = b"tag vcpu 1\n".repeat(10_000);
        let (heard, rest) = port.take(&flood, Moment(1));
        assert_eq!(heard.len(), LINES_BURST as usize);
        assert!(rest.is_some() && port.dropped == 10_000 - u64::from(LINES_BURST));
        let (heard, _) = port.take(b"tag vcpu 2\n", Moment(1_000_000_000));
        assert_eq!(heard, [PortLine::Tag(2)]);
        let mut port = Port::default();
        for second in 0..3 {
            port.take(&b"\n".repeat(900), Moment(second * 1_000_000_000));
        }
        assert_eq!((port.state, port.garbage), (PortState::Ignored, GARBAGE_MAX));
        assert_eq!(port.take(b"tag vcpu 1\n", Moment(u64::MAX)).0, []);
        port.anew();
        assert_eq!(port.state, PortState::Ignored);
    }

    proptest! {
        #[test]
        fn any_bytes_are_counted_once(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20)) {
            let mut port = Port::default();
            let mut heard = 0;
            for (at, part) in parts.iter().enumerate() {
                heard += port.take(part, Moment(at as u64)).0.len() as u64;
            }
            prop_assert_eq!(heard, port.lines);
            // Each line counts once; an over-long line counts once more for each maximum length.
            let all: Vec<u8> = parts.into_iter().flatten().collect();
            let mut lines: Vec<&[u8]> = all.split(|byte| *byte == b'\n').collect();
            let unfinished = lines.pop().unwrap_or_default();
            let whole: usize = lines.iter().map(|line| (line.len() / LINE_MAX).max(1)).sum();
            let times = whole + if unfinished.len() > LINE_MAX { unfinished.len() / LINE_MAX } else { 0 };
            prop_assert_eq!(port.lines + port.garbage + port.dropped, times as u64);
        }
    }
}
