//! Events by name, as users and the kernel write them.
//!
//! Four forms are understood, as by `perf`: `r0964` (hexadecimal, as the processor numbers it),
//! `cpu/event=0x64,umask=0x09/` (parts whose positions are in the kernel's files),
//! `cpu/cache-misses/` (a name from the kernel's files) and a few names that the kernel itself
//! defines: `cycles`, `instructions`, `task-clock`, ...
//!
//! Properties: an event is resolved once, before anything is counted; a part that does not fit its
//! position is refused, not cut.

use crate::sys::perf::Attr;
use crate::text;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use thiserror::Error;

/// `PERF_TYPE_HARDWARE`, `PERF_TYPE_SOFTWARE` and `PERF_TYPE_RAW`.
const TYPE_HARDWARE: u32 = 0;
const TYPE_SOFTWARE: u32 = 1;
const TYPE_RAW: u32 = 4;
/// Longest text of an event, in bytes. Chosen: names in the kernel's files are shorter.
const TEXT_MAX: usize = 200;

/// Meaning of a counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// Cycles with at least one critical request outstanding.
    Busy,
    /// Critical requests that left the private caches.
    Requests,
    /// Cycles.
    Cycles,
    /// Instructions.
    Instructions,
    /// Cache lines from other nodes.
    Far,
    /// Cache lines from the own node.
    Near,
    /// Requests that missed the LLC.
    LlcMisses,
    /// Requests to the LLC.
    LlcLookups,
}

impl Role {
    /// All roles, the most needed first: the first ones are counted if there are too few counters.
    pub const ALL: [Self; 8] = [
        Self::Busy,
        Self::Requests,
        Self::Cycles,
        Self::Instructions,
        Self::Far,
        Self::Near,
        Self::LlcMisses,
        Self::LlcLookups,
    ];

    /// Returns the word for it in options and output.
    pub fn word(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Requests => "requests",
            Self::Cycles => "cycles",
            Self::Instructions => "instructions",
            Self::Far => "far",
            Self::Near => "near",
            Self::LlcMisses => "llc-misses",
            Self::LlcLookups => "llc-lookups",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Reason why a text is not an event.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum EventError {
    /// It is in none of the forms.
    #[error("'{0}' is not an event: write r0964, cpu/event=0x64,umask=0x09/, cpu/NAME/ or cycles")]
    Form(String),
    /// A number in it is malformed.
    #[error("'{part}' of event '{event}' is not a number below 2^64: write 0x64 or 100")]
    Number {
        /// The event.
        event: String,
        /// The part.
        part: String,
    },
    /// The source of events does not exist.
    #[error("event '{event}': no '{source_name}' among /sys/bus/event_source/devices")]
    NoSource {
        /// The event.
        event: String,
        /// The source that was named.
        source_name: String,
    },
    /// The source has neither such a part nor such an event.
    #[error(
        "event '{event}': {source_name} has no '{part}' (see /sys/bus/event_source/devices/{source_name}/format and events)"
    )]
    NoPart {
        /// The event.
        event: String,
        /// Its source.
        source_name: String,
        /// The part that was named.
        part: String,
    },
    /// A number is too large for its position.
    #[error("event '{event}': {part} has no room for that number")]
    TooLarge {
        /// The event.
        event: String,
        /// The part.
        part: String,
    },
}

/// One event, ready to be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The event as it was written.
    pub name: String,
    /// The kind of counter, as the kernel numbers it.
    pub kind: u32,
    /// The event of that kind, in three words.
    pub config: [u64; 3],
}

impl Event {
    /// Returns an event that the kernel translates for each processor.
    pub(super) fn generic(name: &'static str) -> Option<Self> {
        NAMES.iter().find(|(known, ..)| *known == name).map(|(name, kind, config)| Self {
            name: (*name).to_owned(),
            kind: *kind,
            config: [*config, 0, 0],
        })
    }

    /// Returns whether the kernel itself counts it, without hardware.
    pub fn is_software(&self) -> bool {
        self.kind == TYPE_SOFTWARE
    }

    /// Returns the attributes for the kernel.
    pub(super) fn attr(&self) -> Attr {
        Attr { kind: self.kind, config: self.config, ..Attr::default() }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// Names defined by the kernel (`PERF_COUNT_HW_*` and `PERF_COUNT_SW_*`).
const NAMES: [(&str, u32, u64); 9] = [
    ("cycles", TYPE_HARDWARE, 0),
    ("instructions", TYPE_HARDWARE, 1),
    ("cache-references", TYPE_HARDWARE, 2),
    ("cache-misses", TYPE_HARDWARE, 3),
    ("cpu-clock", TYPE_SOFTWARE, 0),
    ("task-clock", TYPE_SOFTWARE, 1),
    ("page-faults", TYPE_SOFTWARE, 2),
    ("context-switches", TYPE_SOFTWARE, 3),
    ("cpu-migrations", TYPE_SOFTWARE, 4),
];

/// An event as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    text: String,
    form: Form,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Form {
    Raw(u64),
    Named(u32, u64),
    Parts { source: String, parts: Vec<EventPart> },
}

/// A part such as `umask=0x09`, or `cache-misses` alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct EventPart {
    pub(super) name: String,
    pub(super) value: Option<u64>,
}

/// Parses a number in decimal or with 0x.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // A sign is not a digit.
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

/// Parses `event=0x64,umask=0x09`; `whole` is the event around it, for errors.
pub(super) fn parts(text: &str, whole: &str) -> Result<Vec<EventPart>, EventError> {
    let form = || EventError::Form(whole.to_owned());
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    };
    text.split(',')
        .map(|part| {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => {
                    let read = number(value.trim());
                    let unread =
                        || EventError::Number { event: whole.to_owned(), part: value.trim().to_owned() };
                    (name.trim(), Some(read.ok_or_else(unread)?))
                }
                None => (part.trim(), None),
            };
            is_name(name).then(|| EventPart { name: name.to_owned(), value }).ok_or_else(form)
        })
        .collect()
}

impl FromStr for Spec {
    type Err = EventError;

    fn from_str(text: &str) -> Result<Self, EventError> {
        let text = text.trim();
        let shown: String = text::printable(text.as_bytes()).chars().take(TEXT_MAX).collect();
        let bad = || EventError::Form(shown.clone());
        if text.len() > TEXT_MAX {
            return Err(bad());
        }
        let form = if let Some((_, kind, config)) = NAMES.iter().find(|(name, ..)| *name == text) {
            Form::Named(*kind, *config)
        } else if let Some((source, rest)) = text.split_once('/') {
            let inner = rest.strip_suffix('/').ok_or_else(bad)?;
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            // The source becomes a name in a folder.
            if source.is_empty() || source.starts_with('.') || !source.bytes().all(plain) {
                return Err(bad());
            }
            Form::Parts { source: source.to_owned(), parts: parts(inner, &shown)? }
        } else if let Some(digits) = text.strip_prefix('r').filter(|digits| !digits.is_empty()) {
            let hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            Form::Raw(hexadecimal.then(|| u64::from_str_radix(digits, 16).ok()).flatten().ok_or_else(bad)?)
        } else {
            return Err(bad());
        };
        Ok(Self { text: text.to_owned(), form })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Spec {
    /// Resolves the event with the kernel's files; `sys` is the mount point of sysfs.
    ///
    /// # Errors
    /// [`EventError`].
    pub fn resolve(&self, sys: &Path) -> Result<Event, EventError> {
        let name = self.text.clone();
        let (source, parts) = match &self.form {
            Form::Raw(config) => return Ok(Event { name, kind: TYPE_RAW, config: [*config, 0, 0] }),
            Form::Named(kind, config) => return Ok(Event { name, kind: *kind, config: [*config, 0, 0] }),
            Form::Parts { source, parts } => (source, parts),
        };
        let folder = sys.join("bus/event_source/devices").join(source);
        let kind = text::read(&folder.join("type")).ok().and_then(|text| text::number(&text));
        let kind =
            kind.ok_or_else(|| EventError::NoSource { event: name.clone(), source_name: source.clone() })?;
        let place = |part: &str| match part {
            "config" => Some(BitField { word: 0, bits: vec![(0, 63)] }),
            "config1" => Some(BitField { word: 1, bits: vec![(0, 63)] }),
            "config2" => Some(BitField { word: 2, bits: vec![(0, 63)] }),
            _ => BitField::parse(&text::read(&folder.join("format").join(part)).ok()?),
        };
        let mut config = [0; 3];
        for part in parts {
            // A name in the kernel's files is replaced by its parts.
            let alias = || {
                let text = text::read(&folder.join("events").join(&part.name)).ok()?;
                String::from_utf8(text).ok()
            };
            let meant = match (part.value, alias()) {
                (None, Some(text)) => self::parts(text.trim(), &name)?,
                _ => vec![part.clone()],
            };
            for part in meant {
                let place = place(&part.name).ok_or_else(|| EventError::NoPart {
                    event: name.clone(),
                    source_name: source.clone(),
                    part: part.name.clone(),
                })?;
                // As with `perf`: a part without a value is set to 1.
                place
                    .put(&mut config, part.value.unwrap_or(1))
                    .ok_or_else(|| EventError::TooLarge { event: name.clone(), part: part.name.clone() })?;
            }
        }
        Ok(Event { name, kind, config })
    }
}

/// Position of a part of an event: some bits of one of three words, lowest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BitField {
    word: usize,
    bits: Vec<(u32, u32)>,
}

impl BitField {
    /// Returns a position in the first word.
    pub(super) fn bits(bits: &[(u32, u32)]) -> Self {
        Self { word: 0, bits: bits.to_vec() }
    }

    /// Parses a file of the kernel: `config:0-7,32-35`.
    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim();
        let (word, ranges) = text.split_once(':')?;
        let word = match word {
            "config" => 0,
            "config1" => 1,
            "config2" => 2,
            _ => return None,
        };
        let range = |range: &str| {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
            (low <= high && high < 64).then_some((low, high))
        };
        Some(Self { word, bits: ranges.split(',').map(range).collect::<Option<_>>()? })
    }

    /// Writes a number to this position; `None` if it does not fit.
    pub(super) fn put(&self, config: &mut [u64; 3], mut value: u64) -> Option<()> {
        for (low, high) in &self.bits {
            let width = high - low + 1;
            let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
            config[self.word] = (config[self.word] & !(mask << low)) | ((value & mask) << low);
            value = if width >= 64 { 0 } else { value >> width };
        }
        (value == 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sysfs() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let cpu = folder.path().join("bus/event_source/devices/cpu");
        for (name, text) in [
            ("type", "4\n"),
            ("format/event", "config:0-7,32-35\n"),
            ("format/umask", "config:8-15\n"),
            ("format/inv", "config:23\n"),
            ("format/cmask", "config:24-31\n"),
            ("format/ldlat", "config1:0-15\n"),
            ("format/odd", "nonsense"),
            ("events/cache-misses", "event=0x64,umask=0x09\n"),
        ] {
            let path = cpu.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    fn config(text: &str) -> Result<[u64; 3], EventError> {
        let spec: Spec = text.parse()?;
        spec.resolve(sysfs().path()).map(|event| event.config)
    }

    #[test]
    fn events_are_read_in_each_of_their_forms() {
        assert_eq!(config("r0964"), Ok([0x964, 0, 0]));
        assert_eq!(config(" cpu/event=0x64,umask=0x09/ "), Ok([0x964, 0, 0]));
        assert_eq!(config("cpu/cache-misses/"), Ok([0x964, 0, 0]));
        assert_eq!(config("cpu/cache-misses,cmask=1,inv/"), Ok([0x964 | 1 << 24 | 1 << 23, 0, 0]));
        assert_eq!(config("cpu/event=0x1a0,ldlat=3/"), Ok([1 << 32 | 0xa0, 3, 0]));
        assert_eq!(config("cpu/config=0x10000964,config2=7/"), Ok([0x1000_0964, 0, 7]));
        let kind = |text: &str| text.parse::<Spec>().unwrap().resolve(sysfs().path()).unwrap().kind;
        assert_eq!((kind("cycles"), kind("task-clock"), kind("r1"), kind("cpu/inv/")), (0, 1, 4, 4));
    }

    #[test]
    fn an_invalid_event_is_refused_with_its_fault() {
        let said = |text: &str| config(text).unwrap_err().to_string();
        for none in [
            "",
            "r",
            "rxyz",
            "cycle",
            "cpu/",
            "/event=1/",
            "../event=1/",
            "cpu//",
            "cpu/a b/",
            "r1ffffffffffffffff",
        ] {
            assert!(said(none).contains("is not an event"), "{none}: {}", said(none));
        }
        assert!(said("cpu/event=-1/").contains("'-1' of event"));
        assert!(said("cpu/event=0x+1/").contains("is not a number"));
        assert!(said("gpu/event=1/").contains("no 'gpu' among"));
        assert!(said("cpu/nothing/").contains("has no 'nothing'"));
        assert!(said("cpu/odd=1/").contains("has no 'odd'"));
        assert!(said("cpu/umask=0x100/").contains("no room"));
        assert!(said(&"x".repeat(5_000)).len() < 400);
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_read_without_harm(text in "\\PC{0,40}", likely in "(cpu/|r|)[a-z0-9=,x./-]{0,24}/?", place in "config[12]?:[0-9,-]{0,12}") {
            for text in [text, likely] {
                if let Ok(spec) = text.parse::<Spec>() {
                    let _ = spec.resolve(Path::new("/nowhere"));
                }
            }
            if let Some(place) = BitField::parse(place.as_bytes()) {
                let _ = place.put(&mut [0; 3], u64::MAX);
            }
        }

        #[test]
        fn a_stored_bit_field_is_found_again(value in 0u64..1 << 12) {
            let mut config = [0; 3];
            BitField::bits(&[(0, 7), (32, 35)]).put(&mut config, value).unwrap();
            prop_assert_eq!((config[0] & 0xff) | (config[0] >> 32) << 8, value);
        }
    }
}
