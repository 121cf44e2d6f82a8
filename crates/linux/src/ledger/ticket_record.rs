//! Records of waiting runs: one slot per ticket, in the file of the records.
//!
//! All users may write the file, so a record is a claim. It is parsed as hostile input, counts only
//! while its ticket is locked, and the order of tickets does not depend on it beyond the priority
//! that a site permits ([`trimtab_core::queue`]). Two tickets with the same slot, or two writers at
//! once, make a record that is missing: the ticket then counts without a name and without a number
//! of cores.
//!
//! Layout of a slot, little endian: magic 8, ticket 8, length of the body 8, checksum of ticket,
//! length and body 8, body.

use super::record::{Holder, printable};
use rustix::io::{pread, pwrite};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;
use trimtab_core::hash::fnv1a;
use trimtab_core::queue::Demand;
use trimtab_core::set::CpuSet;

/// Offset of the first slot: behind the records of the CPUs and the kept load samples.
const SLOTS_AT: u64 = 1 << 33;
/// Size of a slot.
const SLOT_BYTES: usize = 1024;
/// Number of slots. Chosen: far more than runs that wait at the same time.
const SLOTS: u64 = 1 << 12;
const MAGIC: [u8; 8] = *b"ttwait01";
const HEADER_BYTES: usize = 32;
/// Length of the longest command that is kept, in bytes.
const LABEL_BYTES_MAX: usize = 184;

/// Record that a waiting run writes about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TicketClaim {
    /// The process that waits; `since` is the time of its arrival.
    pub holder: Holder,
    /// Cores that it needs; `None` if they do not fit into the record.
    pub demand: Option<Demand>,
    /// Number of cores that it wants, for people; `None` if it is not a plain number.
    pub cores: Option<u32>,
    /// Requested priority.
    pub priority: i32,
}

/// The claim as it is written.
#[derive(Serialize, Deserialize)]
struct Body {
    pid: u32,
    start_ticks: u64,
    uid: u32,
    pid_namespace: u64,
    since_ns: u64,
    label: String,
    /// Words of the set of CPUs, and whether they are known.
    cpus: Option<Vec<u64>>,
    demand_cores: Option<u32>,
    cores: Option<u32>,
    priority: i32,
}

impl TicketClaim {
    /// Writes the claim into its ticket's slot. The ticket counts without it, so a failure only
    /// costs the name and backfill.
    pub(super) fn write(&self, file: &OwnedFd, ticket: u64) {
        let at = slot_at(ticket);
        let Some(bytes) = self.encode(ticket) else { return };
        // Beyond this limit the kernel does not only refuse: it kills this process (SIGXFSZ).
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < at + SLOT_BYTES as u64) {
            return;
        }
        let _ = pwrite(file, &bytes, at); // a short write leaves a slot that counts as empty
    }

    /// Reads the claim of a ticket; `None` unless its slot has a whole one.
    pub(super) fn read(file: &OwnedFd, ticket: u64) -> Option<Self> {
        let mut bytes = [0; SLOT_BYTES];
        let length = pread(file, &mut bytes, slot_at(ticket)).ok()?;
        Self::decode(&bytes[..length], ticket)
    }

    fn encode(&self, ticket: u64) -> Option<Vec<u8>> {
        let words = self.demand.as_ref().map(|demand| demand.cpus.words().to_vec());
        let body = |cpus: Option<Vec<u64>>| {
            let Holder { pid, start_ticks, uid, pid_namespace, since, label, .. } = &self.holder;
            let body = Body {
                pid: *pid,
                start_ticks: *start_ticks,
                uid: *uid,
                pid_namespace: *pid_namespace,
                since_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
                label: super::record::cut(label, LABEL_BYTES_MAX).to_owned(),
                cpus,
                demand_cores: self.demand.as_ref().and_then(|demand| demand.cores),
                cores: self.cores,
                priority: self.priority,
            };
            postcard::to_stdvec(&body).ok().filter(|body| body.len() <= SLOT_BYTES - HEADER_BYTES)
        };
        let body = body(words).or_else(|| body(None))?;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        bytes.extend(MAGIC);
        bytes.extend(ticket.to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(checksum(ticket, &body).to_le_bytes());
        bytes.extend(body);
        Some(bytes)
    }

    /// Reads a claim from bytes that any process may have written.
    pub(super) fn decode(bytes: &[u8], ticket: u64) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if bytes.get(..8)? != MAGIC || word(8)? != ticket {
            return None;
        }
        let length = usize::try_from(word(16)?).ok().filter(|length| *length <= SLOT_BYTES)?;
        let body = bytes.get(HEADER_BYTES..HEADER_BYTES + length)?;
        if checksum(ticket, body) != word(24)? {
            return None;
        }
        let body: Body = postcard::from_bytes(body).ok()?;
        let demand =
            body.cpus.map(|words| Demand { cpus: CpuSet::from_words(words), cores: body.demand_cores });
        let holder = Holder {
            pid: body.pid,
            start_ticks: body.start_ticks,
            uid: body.uid,
            pid_namespace: body.pid_namespace,
            job: 0,
            since: Duration::from_nanos(body.since_ns),
            label: printable(super::record::cut(&body.label, LABEL_BYTES_MAX)),
            delegated: false,
            memory: BTreeMap::new(),
        };
        Some(Self { holder, demand, cores: body.cores, priority: body.priority })
    }
}

/// Returns the slot of a ticket. Consecutive tickets of a queue have different slots.
fn slot_at(ticket: u64) -> u64 {
    let number = (ticket & u64::from(u32::MAX)).wrapping_add((ticket >> 32).wrapping_mul(257));
    SLOTS_AT + number % SLOTS * SLOT_BYTES as u64
}

fn checksum(ticket: u64, body: &[u8]) -> u64 {
    let length = (body.len() as u64).to_le_bytes();
    fnv1a(ticket.to_le_bytes().into_iter().chain(length).chain(body.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(label: &str, cpus: &str) -> TicketClaim {
        let holder = Holder { pid: 7, start_ticks: 8, uid: 9, label: label.to_owned(), ..Holder::default() };
        let demand = Some(Demand { cpus: cpus.parse().unwrap(), cores: Some(3) });
        TicketClaim { holder, demand, cores: Some(3), priority: -2 }
    }

    #[test]
    fn a_claim_is_read_by_its_own_ticket_only() {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let written = claim("make -j", "0-3,64");
        written.write(&file, 5);
        assert_eq!(TicketClaim::read(&file, 5), Some(written));
        assert_eq!(TicketClaim::read(&file, 5 + SLOTS), None);
        assert_eq!(TicketClaim::read(&file, 6), None);
    }

    #[test]
    fn a_set_of_cpus_without_room_is_unknown() {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        claim("wide", "0-8191").write(&file, 1);
        let read = TicketClaim::read(&file, 1).unwrap();
        assert_eq!((read.demand, read.cores), (None, Some(3)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_harm(
            body in prop::collection::vec(any::<u8>(), 0..200), sealed: bool,
            label in "\\PC{0,100}|[\\x00-\\x1f]{0,9}", flips in prop::collection::vec((0usize..300, any::<u8>()), 0..4),
        ) {
            let mut bytes = claim(&label, "0-9").encode(3).unwrap();
            if sealed {
                bytes.truncate(16);
                bytes.extend((body.len() as u64).to_le_bytes());
                bytes.extend(checksum(3, &body).to_le_bytes());
                bytes.extend(&body);
            } else {
                for (at, value) in flips {
                    let at = at % bytes.len();
                    bytes[at] = value;
                }
            }
            if let Some(read) = TicketClaim::decode(&bytes, 3) {
                prop_assert!(!read.holder.label.chars().any(char::is_control));
            }
        }
    }
}
