//! Table of events by processor: `events.toml`, parsed and checked.
//!
//! Properties: at most one entry matches a processor; every event of every entry can be encoded as
//! the kernel requires. A test checks both for the built-in table, so that a mistake in it is found
//! before a release.

use super::cpu::Cpu;
use super::event::{BitField, Event, Role, parts};
use serde::Deserialize;
use thiserror::Error;

/// Text of the built-in table.
const TABLE: &str = include_str!("events.toml");
/// `PERF_TYPE_RAW`: events as the processor numbers them.
const TYPE_RAW: u32 = 4;

/// Reason why a text is not a table.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TableError {
    /// It is not TOML, or not such a table.
    #[error("the table of events: {0}")]
    Form(String),
    /// An entry is wrong.
    #[error("the table of events, {name}: {problem}")]
    Entry {
        /// Its name.
        name: String,
        /// The fault.
        problem: String,
    },
}

/// Events that are counted together, each for a role.
pub type Events = Vec<(Role, Event)>;

/// Events of a processor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Processor {
    /// Its name.
    pub name: String,
    /// Source of the events.
    pub source: String,
    /// The processors that match.
    which: Which,
    /// Busy cycles and requests, in the order to be tried.
    pub exact: Vec<Events>,
    /// Stalls and requests, in the order to be tried.
    pub proxy: Vec<Events>,
    /// Events that can be counted besides.
    pub beside: Events,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Which {
    X86 { vendor: String, family: u32, models: Vec<(u32, u32)> },
    Arm { implementer: u32, parts: Vec<u32> },
}

impl Which {
    fn is(&self, cpu: &Cpu) -> bool {
        match (self, cpu) {
            (Self::X86 { vendor, family, models }, Cpu::X86 { vendor: v, family: f, model }) => {
                vendor == v && family == f && models.iter().any(|(low, high)| (low..=high).contains(&model))
            }
            (Self::Arm { implementer, parts }, Cpu::Arm { implementer: i, part }) => {
                implementer == i && parts.contains(part)
            }
            _ => false,
        }
    }
}

/// All processors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    processors: Vec<Processor>,
}

impl Table {
    /// Returns the built-in table.
    ///
    /// # Errors
    /// None that a test would not have found.
    pub fn built_in() -> Result<Self, TableError> {
        Self::parse(TABLE)
    }

    /// Parses a table.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let file: TableFile = toml::from_str(text).map_err(|error| TableError::Form(error.to_string()))?;
        let processors = file.processor.into_iter().map(Entry::checked).collect::<Result<_, _>>()?;
        Ok(Self { processors })
    }

    /// Returns the entry of a processor.
    pub fn of(&self, cpu: &Cpu) -> Option<&Processor> {
        self.processors.iter().find(|processor| processor.which.is(cpu))
    }
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFile {
    processor: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    name: String,
    source: String,
    vendor: Option<String>,
    family: Option<u32>,
    #[serde(default)]
    models: Vec<String>,
    implementer: Option<u32>,
    #[serde(default)]
    parts: Vec<u32>,
    #[serde(default)]
    near: Vec<String>,
    #[serde(default)]
    far: Vec<String>,
    #[serde(default)]
    llc_lookups: Vec<String>,
    #[serde(default)]
    llc_misses: Vec<String>,
    #[serde(default)]
    exact: Vec<EventPair>,
    #[serde(default)]
    proxy: Vec<EventPair>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventPair {
    busy: Vec<String>,
    requests: Vec<String>,
}

impl Entry {
    fn checked(self) -> Result<Processor, TableError> {
        let wrong = |problem: String| TableError::Entry { name: self.name.clone(), problem };
        let which = match (&self.vendor, self.family, self.implementer) {
            (Some(vendor), Some(family), None) => {
                let models = self.models.iter().map(|text| range(text)).collect::<Option<Vec<_>>>();
                let models = models.filter(|models| !models.is_empty());
                let bad = || wrong("models are numbers 0x2c or ranges 0x20-0x2f, at least one".to_owned());
                Which::X86 { vendor: vendor.clone(), family, models: models.ok_or_else(bad)? }
            }
            (None, None, Some(implementer)) if !self.parts.is_empty() => {
                Which::Arm { implementer, parts: self.parts.clone() }
            }
            _ => return Err(wrong("either vendor, family and models, or implementer and parts".to_owned())),
        };
        if self.source.trim().is_empty() || self.exact.is_empty() && self.proxy.is_empty() {
            return Err(wrong("a source, and exact or proxy events, must be given".to_owned()));
        }
        let wide = matches!(which, Which::Arm { .. });
        let events = |role: Role, texts: &[String]| -> Result<Events, TableError> {
            let event = |text: &String| encode(text, wide).map(|event| (role, event)).map_err(&wrong);
            texts.iter().map(event).collect()
        };
        let pairs = |pairs: &[EventPair]| -> Result<Vec<Events>, TableError> {
            let one = |pair: &EventPair| {
                if pair.busy.is_empty() || pair.requests.is_empty() {
                    return Err(wrong("busy and requests belong together".to_owned()));
                }
                Ok([events(Role::Busy, &pair.busy)?, events(Role::Requests, &pair.requests)?].concat())
            };
            pairs.iter().map(one).collect()
        };
        let beside = [
            events(Role::Far, &self.far)?,
            events(Role::Near, &self.near)?,
            events(Role::LlcMisses, &self.llc_misses)?,
            events(Role::LlcLookups, &self.llc_lookups)?,
        ];
        let (exact, proxy) = (pairs(&self.exact)?, pairs(&self.proxy)?);
        Ok(Processor { name: self.name, source: self.source, which, exact, proxy, beside: beside.concat() })
    }
}

/// Parses `0x2c` or `0x20-0x2f`.
fn range(text: &str) -> Option<(u32, u32)> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (number(low)?, number(high)?);
    (low <= high).then_some((low, high))
}

/// Encodes the parts of an event for these processors. `wide` is for Arm, where an event is one
/// number.
fn encode(text: &str, wide: bool) -> Result<Event, String> {
    let place = |name: &str| match name {
        "event" if wide => Some(BitField::bits(&[(0, 15)])),
        // Only AMD has the upper four bits.
        "event" => Some(BitField::bits(&[(0, 7), (32, 35)])),
        _ if wide => None,
        "umask" => Some(BitField::bits(&[(8, 15)])),
        "edge" => Some(BitField::bits(&[(18, 18)])),
        "inv" => Some(BitField::bits(&[(23, 23)])),
        "cmask" => Some(BitField::bits(&[(24, 31)])),
        _ => None,
    };
    let mut config = [0; 3];
    for part in parts(text, text).map_err(|error| error.to_string())? {
        let place = place(&part.name).ok_or_else(|| format!("'{text}': there is no {}", part.name))?;
        let put = place.put(&mut config, part.value.unwrap_or(1));
        put.ok_or_else(|| format!("'{text}': {} has no room for that number", part.name))?;
    }
    Ok(Event { name: format!("cpu/{text}/"), kind: TYPE_RAW, config })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn x86(vendor: &str, family: u32, model: u32) -> Cpu {
        Cpu::X86 { vendor: vendor.into(), family, model }
    }

    fn config(events: &Events, role: Role) -> Vec<u64> {
        events.iter().filter(|(of, _)| *of == role).map(|(_, event)| event.config[0]).collect()
    }

    #[test]
    fn every_entry_is_sound_and_no_processor_is_in_two() {
        let table = Table::built_in().unwrap();
        let names: BTreeSet<&str> = table.processors.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names.len(), table.processors.len());
        for entry in &table.processors {
            for events in entry.exact.iter().chain(&entry.proxy) {
                assert!(!config(events, Role::Busy).is_empty() && !config(events, Role::Requests).is_empty());
            }
            for (role, event) in entry.exact.iter().chain(&entry.proxy).chain([&entry.beside]).flatten() {
                assert_ne!(event.config[0], 0, "{}: {role}", entry.name);
                assert!(event.name.starts_with("cpu/event=0x"), "{}", event.name);
            }
            // No other entry may match the same processor.
            let cpus: Vec<Cpu> = match &entry.which {
                Which::X86 { vendor, family, models } => models
                    .iter()
                    .flat_map(|(low, high)| *low..=*high)
                    .map(|model| x86(vendor, *family, model))
                    .collect(),
                Which::Arm { implementer, parts } => {
                    parts.iter().map(|part| Cpu::Arm { implementer: *implementer, part: *part }).collect()
                }
            };
            for cpu in cpus {
                let about: Vec<&str> = table
                    .processors
                    .iter()
                    .filter(|other| other.which.is(&cpu))
                    .map(|other| other.name.as_str())
                    .collect();
                assert_eq!(about, [entry.name.as_str()], "{cpu}");
            }
        }
    }

    /// The makers' values, written down a second time in the encoding for the kernel.
    fn arm(part: u32) -> Cpu {
        Cpu::Arm { implementer: 0x41, part }
    }

    #[test]
    fn known_processors_use_the_events_of_their_vendors_lists() {
        let table = Table::built_in().unwrap();
        let exact = [
            (x86("GenuineIntel", 6, 0x2c), "Westmere", 0x0100_0760, 0x07b0),
            (x86("GenuineIntel", 6, 0x2d), "Sandy Bridge", 0x0100_0560, 0x05b0),
            (x86("GenuineIntel", 6, 0x3e), "Ivy Bridge", 0x0100_0760, 0x07b0),
            (x86("GenuineIntel", 6, 0x3f), "Haswell", 0x0100_0760, 0x07b0),
            (x86("GenuineIntel", 6, 0x4f), "Broadwell", 0x0100_0760, 0x07b0),
            (x86("GenuineIntel", 6, 0x55), "Cascade Lake", 0x0100_0760, 0x07b0),
            (x86("GenuineIntel", 6, 0x6a), "Ice Lake", 0x0100_0760, 0x07b0),
            (x86("GenuineIntel", 6, 0x8f), "Sapphire Rapids", 0x0100_0720, 0x0721),
            (x86("GenuineIntel", 6, 0xcf), "Emerald Rapids", 0x0100_0720, 0x0721),
            (x86("GenuineIntel", 6, 0xad), "Granite Rapids", 0x0100_0720, 0x0721),
            (x86("AuthenticAMD", 0x17, 0x01), "Zen", 0x016d, 0x0964),
            (x86("AuthenticAMD", 0x17, 0x31), "Zen 2", 0x016d, 0x0964),
            (x86("AuthenticAMD", 0x19, 0x01), "Zen 3", 0x016d, 0x0964),
            (x86("AuthenticAMD", 0x19, 0x11), "Zen 4", 0x016d, 0x0964),
            (x86("AuthenticAMD", 0x1a, 0x02), "Zen 5", 0x016d, 0x0964),
        ];
        for (cpu, name, busy, requests) in exact {
            let entry = table.of(&cpu).unwrap_or_else(|| panic!("{cpu}"));
            assert!(entry.name.contains(name), "{cpu}: {}", entry.name);
            assert_eq!(config(&entry.exact[0], Role::Busy), [busy], "{name}");
            assert_eq!(config(&entry.exact[0], Role::Requests), [requests], "{name}");
        }
    }

    #[test]
    fn processors_without_exact_events_are_asked_for_proxies() {
        let table = Table::built_in().unwrap();
        let proxy = [
            (x86("GenuineIntel", 6, 0xaf), 0x7e34, 0x4f2e),
            (x86("GenuineIntel", 6, 0x55), 0x0500_05a3, 0x01b0),
            (x86("GenuineIntel", 6, 0x8f), 0x0100_0820, 0x0821),
            (x86("AuthenticAMD", 0x19, 0x11), 0xa2d6, 0x0964),
            (arm(0xd0c), 0x24, 0x17),
            (arm(0xd40), 0x4005, 0x4009),
            (arm(0xd49), 0x4005, 0x4009),
            (arm(0xd4f), 0x4005, 0x4009),
        ];
        for (cpu, busy, requests) in proxy {
            let entry = table.of(&cpu).unwrap_or_else(|| panic!("{cpu}"));
            assert_eq!(config(&entry.proxy[0], Role::Busy), [busy], "{cpu}");
            assert_eq!(config(&entry.proxy[0], Role::Requests), [requests], "{cpu}");
        }
        // Events that count prefetches too are not exact: they come after all exact ones.
        let second = [(0x6a, 0x0100_0160, 0x01b0, 0x0100_0860), (0x8f, 0x0100_0120, 0x0121, 0x0100_0820)];
        for (model, busy, requests, with_prefetches) in second {
            let entry = table.of(&x86("GenuineIntel", 6, model)).unwrap();
            assert_eq!(config(&entry.exact[1], Role::Busy), [busy], "{model:#x}");
            assert_eq!(config(&entry.exact[1], Role::Requests), [requests], "{model:#x}");
            assert_eq!((entry.exact.len(), entry.proxy.len()), (2, 2), "{model:#x}");
            assert_eq!(config(&entry.proxy[0], Role::Busy), [with_prefetches], "{model:#x}");
            assert_eq!(config(&entry.proxy[1], Role::Requests), [requests], "{model:#x}");
        }
    }

    #[test]
    fn families_of_amd_are_distinguished_by_their_models() {
        let table = Table::built_in().unwrap();
        for (family, models, name) in [
            (0x17, &[0x01, 0x08, 0x31, 0x60, 0x71, 0x90, 0xa0][..], Some("AMD Zen, Zen 2")),
            (0x17, &[0x80, 0x92, 0xb0][..], None),
            (0x19, &[0x00, 0x01, 0x21, 0x30, 0x44, 0x50][..], Some("AMD Zen 3")),
            (0x19, &[0x11, 0x18, 0x61, 0x74, 0xa0][..], Some("AMD Zen 4")),
            (0x19, &[0xb0, 0xff][..], None),
            (0x1a, &[0x02, 0x11, 0x24, 0x44, 0x60, 0x70][..], Some("AMD Zen 5")),
            (0x1a, &[0x30, 0x50, 0x80, 0x90, 0xc0][..], None),
        ] {
            for model in models {
                let found = table.of(&x86("AuthenticAMD", family, *model));
                assert_eq!(found.map(|entry| entry.name.as_str()), name, "{family:#x} {model:#x}");
            }
        }
    }

    #[test]
    fn each_entry_names_its_source_and_its_events_of_far_memory() {
        let table = Table::built_in().unwrap();
        // Each entry names its origin, one of the sources at the head of the file.
        let sources = ["[perfmon]", "[linux]"];
        assert!(
            table.processors.iter().all(|entry| sources.iter().any(|source| entry.source.contains(source)))
        );
        let beside = [
            (x86("GenuineIntel", 6, 0x55), 0x0ed3, Some(0x01d3)),
            (x86("GenuineIntel", 6, 0x3e), 0x3cd3, Some(0x03d3)),
            (x86("GenuineIntel", 6, 0x3f), 0x34d3, Some(0x01d3)),
            (x86("AuthenticAMD", 0x19, 0x01), 0x5043, Some(0x0c43)),
            (x86("AuthenticAMD", 0x17, 0x31), 0x5043, Some(0x0843)),
            (arm(0xd0c), 0x31, None),
        ];
        for (cpu, far, near) in beside {
            let entry = table.of(&cpu).unwrap();
            assert_eq!(config(&entry.beside, Role::Far), [far], "{cpu}");
            assert_eq!(config(&entry.beside, Role::Near).first().copied(), near, "{cpu}");
        }
        for cpu in [
            x86("GenuineIntel", 6, 0x0f),
            x86("GenuineIntel", 15, 0x55),
            x86("HygonGenuine", 0x18, 1),
            arm(0xd03),
            // Neoverse E1, V3, N3: not described.
            arm(0xd4a),
            arm(0xd84),
            arm(0xd8e),
        ] {
            assert_eq!(table.of(&cpu), None, "{cpu}");
        }
    }

    #[test]
    fn a_table_that_is_wrong_is_refused_by_entry_and_reason() {
        let said = |text: &str| Table::parse(text).unwrap_err().to_string();
        let entry = |rest: &str| format!("[[processor]]\nname = 'x'\nsource = 's'\n{rest}");
        let pair = "[[processor.exact]]\nbusy = ['event=1']\nrequests = ['event=2']";
        let intel = "vendor = 'v'\nfamily = 6\nmodels = ['0x1']\n";
        assert!(Table::parse(&entry(&format!("{intel}{pair}"))).is_ok());
        assert!(said("processor = 3").contains("table of events"));
        assert!(said(&entry(&format!("colour = 1\n{intel}{pair}"))).contains("colour"));
        assert!(said(&entry(pair)).contains("either vendor"));
        assert!(
            said(&entry(&format!("vendor = 'v'\nfamily = 6\nmodels = ['9-1']\n{pair}")))
                .contains("models are")
        );
        assert!(said(&entry(intel)).contains("must be given"));
        assert!(
            said(&entry(&format!("{intel}{}", pair.replace("event=1", "event=0x1000")))).contains("no room")
        );
        assert!(
            said(&entry(&format!("{intel}{}", pair.replace("event=1", "colour=1"))))
                .contains("there is no colour")
        );
        assert!(
            said(&entry(&format!("{intel}{}", pair.replace("'event=1'", "")))).contains("belong together")
        );
        assert!(
            said(&entry(&format!("implementer = 1\nparts = [1]\n{}", pair.replace("=1'", "=1,umask=1'"))))
                .contains("no umask")
        );
    }
}
