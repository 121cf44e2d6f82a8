//! Binary encoding of the model.
//!
//! Layout, little-endian: magic (8), format (4), length of the key (4), length of the payload (4),
//! checksum of both (8), then the key as text and the payload, `postcard` of [`Parts`]. Nothing
//! follows.
//!
//! Properties: every byte string decodes or is refused, without panic, in memory proportional to
//! its length (at most [`MAX_BYTES`]). The checksum detects accidental damage only;
//! [`Machine::build`] checks the contents that pass it.

use super::key::{Key, LINES};
use thiserror::Error;
use trimtab_core::hash::fnv1a_words;
use trimtab_core::topology::{Machine, MachineError, Parts};

/// Version of the layout, `Parts` included. To be increased when either changes; a test fails if it
/// was not.
pub const FORMAT_VERSION: u32 = 3;

/// Largest size of a model, in bytes: twice the need of the largest machine that Linux can run
/// (8,192 CPUs and 1,024 nodes, of which the distance table is 2 MiB).
pub const MAX_BYTES: usize = 4 << 20;

const MAGIC: [u8; 8] = *b"trimtabM";
const HEADER_BYTES: usize = 28;

/// Reason why bytes are not a model for this key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// There are no bytes.
    #[error("it is empty")]
    Empty,
    /// The first bytes are not those of a model.
    #[error("it does not start like a machine model")]
    Magic,
    /// Another layout.
    #[error(
        "it has format {found} where this program reads {FORMAT_VERSION}: trimtab and its helper are of different versions; reinstall both"
    )]
    Format {
        /// The format found.
        found: u32,
    },
    /// The lengths in the header do not add up to the length found.
    #[error("it is {found} bytes long where its header promises {promised}")]
    Length {
        /// Length found.
        found: usize,
        /// Length that the header promises.
        promised: u64,
    },
    /// More than [`MAX_BYTES`].
    #[error("it is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// Damaged.
    #[error("its checksum does not fit")]
    Checksum,
    /// A model of another machine or another state of it.
    #[error("it was made for another {what}")]
    Stale {
        /// The part of the key that differs.
        what: &'static str,
    },
    /// The payload is not `Parts`.
    #[error("its contents cannot be read: {0}")]
    Payload(String),
    /// The parts do not make a machine.
    #[error("its parts do not make a machine: {0}")]
    Machine(#[from] MachineError),
}

/// Encodes a model, as the helper prints it and the cache keeps it.
///
/// # Errors
/// [`DecodeError::TooLong`] for a machine beyond the largest that Linux runs,
/// [`DecodeError::Payload`] if a part has no encoding.
pub fn encode(key: &Key, parts: &Parts) -> Result<Vec<u8>, DecodeError> {
    let payload = postcard::to_stdvec(parts).map_err(|error| DecodeError::Payload(error.to_string()))?;
    let key = key.text().as_bytes();
    let (Ok(key_length), Ok(payload_length)) = (u32::try_from(key.len()), u32::try_from(payload.len()))
    else {
        return Err(DecodeError::TooLong);
    };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + key.len() + payload.len());
    bytes.extend(MAGIC);
    bytes.extend(FORMAT_VERSION.to_le_bytes());
    bytes.extend(key_length.to_le_bytes());
    bytes.extend(payload_length.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(key);
    bytes.extend(&payload);
    if bytes.len() > MAX_BYTES {
        return Err(DecodeError::TooLong);
    }
    let checksum = checksum(&bytes[HEADER_BYTES..]);
    bytes[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    Ok(bytes)
}

/// Decodes the machine in these bytes, if they hold one for this key.
///
/// # Errors
/// [`DecodeError`] names the fault.
pub fn decode(bytes: &[u8], key: &Key) -> Result<Machine, DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::Empty);
    }
    if bytes.len() > MAX_BYTES {
        return Err(DecodeError::TooLong);
    }
    let mut rest = bytes;
    if take(&mut rest) != Some(MAGIC) {
        return Err(DecodeError::Magic);
    }
    let short = DecodeError::Length { found: bytes.len(), promised: HEADER_BYTES as u64 };
    let mut number = || take(&mut rest).map(u32::from_le_bytes).ok_or_else(|| short.clone());
    let (format, key_length, payload_length) = (number()?, number()?, number()?);
    if format != FORMAT_VERSION {
        return Err(DecodeError::Format { found: format });
    }
    let promised_checksum = take(&mut rest).map(u64::from_le_bytes).ok_or(short)?;
    let promised = HEADER_BYTES as u64 + u64::from(key_length) + u64::from(payload_length);
    if promised != bytes.len() as u64 {
        return Err(DecodeError::Length { found: bytes.len(), promised });
    }
    let (found_key, payload) = rest.split_at(key_length as usize); // in range: the lengths add up
    if found_key != key.text().as_bytes() {
        return Err(DecodeError::Stale { what: difference(found_key, key) });
    }
    if checksum(rest) != promised_checksum {
        return Err(DecodeError::Checksum);
    }
    match postcard::take_from_bytes::<Parts>(payload) {
        Ok((parts, [])) => Ok(Machine::build(parts)?),
        Ok((_, rest)) => Err(DecodeError::Payload(format!("{} bytes too many", rest.len()))),
        Err(error) => Err(DecodeError::Payload(error.to_string())),
    }
}

/// Takes the next `N` bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

/// Returns the name of the first line that differs.
fn difference(found: &[u8], key: &Key) -> &'static str {
    let ours = key.text().as_bytes().split(|&byte| byte == b'\n');
    let theirs = found.split(|&byte| byte == b'\n');
    let line = ours.zip(theirs).position(|(a, b)| a != b);
    line.and_then(|line| LINES.get(line)).copied().unwrap_or("key")
}

/// Computes FNV-1a over words of eight bytes instead of single ones: an eighth of the steps. The
/// last word is filled with zeros; lengths are checked elsewhere.
fn checksum(bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    fnv1a_words(bytes.chunks(8).map(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trimtab_core::ids::{OsCpu, OsNode};
    use trimtab_core::topology::{
        CachePart, CpuModel, Device, DeviceKind, Domain, KindPart, Level, MemorySpeed, NodePart, Tier,
        parse_synthetic,
    };

    /// Parts with one of each kind.
    fn parts() -> Parts {
        let domain = |level, os, first, count| Domain { level, os, first, count };
        let cpus = |text: &str| text.parse().unwrap();
        Parts {
            name: "all".to_owned(),
            cpu: CpuModel {
                vendor: Some("GenuineIntel".to_owned()),
                family: Some(6),
                model: Some("X".to_owned()),
            },
            pus: [0, 4, 1, 5, 2, 3].map(OsCpu).to_vec(),
            domains: vec![
                domain(Level::Group, None, 0, 6),
                domain(Level::Package, Some(0), 0, 6),
                domain(Level::Die, Some(0), 0, 6),
                domain(Level::L3, Some(0), 0, 4),
                domain(Level::L2, None, 4, 2),
                domain(Level::Core, Some(0), 0, 2),
                domain(Level::Core, Some(1), 2, 2),
            ],
            nodes: [Tier::Dram, Tier::Hbm, Tier::Cxl, Tier::Nvm, Tier::Gpu, Tier::Other]
                .into_iter()
                .zip(0..)
                .map(|(tier, os)| NodePart {
                    os: OsNode(os),
                    first: 0,
                    count: 6,
                    bytes: Some(1 << 34),
                    tier,
                    has_cpus: os == 0,
                })
                .collect(),
            distances: (0..36).map(|at| if at % 7 == 0 { 10 } else { 20 }).collect(),
            kinds: vec![
                KindPart {
                    cpus: cpus("0-1,4-5"),
                    efficiency: Some(1),
                    mhz_max: Some(5000),
                    ..KindPart::default()
                },
                KindPart {
                    cpus: cpus("2-3"),
                    make: Some("IntelAtom".to_owned()),
                    capacity: Some(500),
                    ..KindPart::default()
                },
            ],
            devices: [DeviceKind::Gpu, DeviceKind::Nic, DeviceKind::Storage]
                .map(|kind| Device {
                    kind,
                    name: "eth0".to_owned(),
                    address: Some("0000:01:00.0".to_owned()),
                    vendor: Some(0x10de),
                    cpus: cpus("0-5"),
                })
                .to_vec(),
            offline: cpus("6-7"),
            allowed: Some(cpus("0-3")),
            caches: vec![CachePart { level: Level::L3, first: 0, count: 4, bytes: 96 << 20 }],
            memory_speeds: vec![MemorySpeed { node: OsNode(1), bandwidth: Some(400_000), latency: None }],
        }
    }

    #[test]
    fn a_model_is_decoded_as_it_was_encoded() {
        let key = Key::file();
        let bytes = encode(&key, &parts()).unwrap();
        assert_eq!(decode(&bytes, &key).unwrap(), Machine::build(parts()).unwrap());
    }

    /// If this fails, `Parts` or the layout has changed: increase [`FORMAT_VERSION`] and correct
    /// the sum. Otherwise caches written before the change are misread.
    #[test]
    fn the_layout_is_the_one_that_format_names() {
        let payload = postcard::to_stdvec(&parts()).unwrap();
        assert_eq!((FORMAT_VERSION, payload.len(), checksum(&payload)), (3, 293, 9_332_148_422_401_672_850));
    }

    #[test]
    fn every_fault_has_its_name() {
        let key = Key::file();
        let good = encode(&key, &parts()).unwrap();
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            decode(&bytes, &key).unwrap_err()
        };
        assert_eq!(decode(&[], &key), Err(DecodeError::Empty));
        assert_eq!(decode(b"{\"json\": true, \"and long enough\": 1}", &key), Err(DecodeError::Magic));
        assert_eq!(with(8, 99), DecodeError::Format { found: 99 });
        assert!(matches!(with(13, 1), DecodeError::Length { .. }));
        assert_eq!(with(HEADER_BYTES - 1, good[HEADER_BYTES - 1] ^ 1), DecodeError::Checksum);
        assert_eq!(with(good.len() - 1, good[good.len() - 1] ^ 1), DecodeError::Checksum);
        assert!(matches!(decode(&good[..good.len() - 1], &key), Err(DecodeError::Length { .. })));
        assert!(matches!(decode(&good[..20], &key), Err(DecodeError::Length { .. })));
        assert_eq!(decode(&vec![0; MAX_BYTES + 1], &key), Err(DecodeError::TooLong));
        let other = Key::live().unwrap();
        assert_eq!(decode(&good, &other), Err(DecodeError::Stale { what: "boot" }));
        let empty = encode(&key, &Parts::default()).unwrap();
        assert_eq!(decode(&empty, &key), Err(DecodeError::Machine(MachineError::Empty)));
    }

    /// Puts a payload behind a valid header, so that decoding gets as far as the payload.
    fn seal(payload: &[u8]) -> Vec<u8> {
        let mut bytes = encode(&Key::file(), &Parts::default()).unwrap();
        bytes.truncate(HEADER_BYTES + Key::file().text().len());
        bytes.extend(payload);
        bytes[16..20].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        let sum = checksum(&bytes[HEADER_BYTES..]);
        bytes[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn lengths_and_numbers_beyond_reason_are_refused() {
        // A list that promises 2^60 elements, and machines with sets or tables that would not fit
        // in memory.
        let mut endless = postcard::to_stdvec(&Parts::default()).unwrap();
        endless.splice(4..5, [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10]);
        assert!(matches!(decode(&seal(&endless), &Key::file()), Err(DecodeError::Payload(_))));
        let machine =
            |parts: Parts| decode(&seal(&postcard::to_stdvec(&parts).unwrap()), &Key::file()).unwrap_err();
        let far = Parts { pus: vec![OsCpu(u32::MAX)], ..Parts::default() };
        assert_eq!(machine(far), DecodeError::Machine(MachineError::CpuNumber(OsCpu(u32::MAX))));
        let node = |os| NodePart {
            os: OsNode(os),
            first: 0,
            count: 1,
            bytes: None,
            tier: Tier::Dram,
            has_cpus: true,
        };
        let far = Parts { pus: vec![OsCpu(0)], nodes: vec![node(u32::MAX)], ..Parts::default() };
        assert_eq!(machine(far), DecodeError::Machine(MachineError::NodeNumber(OsNode(u32::MAX))));
        let many = Parts { pus: vec![OsCpu(0)], nodes: (0..100_000).map(node).collect(), ..Parts::default() };
        assert!(matches!(machine(many), DecodeError::Machine(MachineError::TooMany { found: 100_000, .. })));
        let many = Parts { pus: (0..100_000).map(OsCpu).collect(), ..Parts::default() };
        assert!(matches!(machine(many), DecodeError::Machine(MachineError::TooMany { found: 100_000, .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(decode(&bytes, &Key::file()).is_err());
            let _ = decode(&seal(&bytes), &Key::file());
        }

        #[test]
        fn mutated_models_are_decoded_or_refused(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<prop::sample::Index>(),
            whole in any::<bool>(),
            sealed in any::<bool>(),
            large in any::<bool>(),
        ) {
            let key = Key::file();
            let parts = if large { parse_synthetic("pack:2 numa:2 l3:2 core:4 pu:2").unwrap().into() } else { parts() };
            let mut payload = postcard::to_stdvec(&parts).unwrap();
            if sealed {
                // Past the checksum, so that postcard and the model must cope.
                for (at, byte) in &changes { let at = at.index(payload.len()); payload[at] = *byte; }
                if !whole { payload.truncate(cut.index(payload.len())); }
                if let Ok(machine) = decode(&seal(&payload), &key) {
                    prop_assert_eq!(&Machine::build(machine.parts().clone()).unwrap(), &machine);
                }
            } else {
                let good = encode(&key, &parts).unwrap();
                let mut bytes = good.clone();
                for (at, byte) in &changes { let at = at.index(bytes.len()); bytes[at] = *byte; }
                if !whole { bytes.truncate(cut.index(bytes.len())); }
                prop_assert_eq!(decode(&bytes, &key).is_ok(), bytes == good);
            }
        }
    }
}
