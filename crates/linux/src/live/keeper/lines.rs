//! What a keeper record says, as text: a line a thread, the latest counts.
//!
//! ```text
//! trimtab-balance 1 GENERATION BALANCER START NAMESPACE ROOT SUM
//! GENERATION TID START HOME HELD SUM
//! ```
//!
//! Anybody may have written the file, and a killed balancer may have cut it anywhere: a line counts only when its checksum
//! holds and its generation is the header's. A thread whose held mask is its home has nothing to be given back: that is how a
//! line before it is taken back.

use crate::ledger::layout::checksum;
use crate::process::{Pid, StartTime, Tid};
use std::collections::BTreeMap;
use std::fmt::Write;
use trimtab_core::set::CpuSet;

/// How a record begins.
const MAGIC: &str = "trimtab-balance";
/// The version that is written and read.
const VERSION: u32 = 1;

/// Who balances.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Counts how often the record was written anew.
    pub generation: u64,
    /// The process that balances.
    pub balancer: Pid,
    /// When it started.
    pub start: StartTime,
    /// Its process-id namespace, by inode; 0 when that could not be read.
    pub namespace: u64,
    /// The first process of the tree that it balances.
    pub root: Pid,
}

/// What was done to a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// When the thread started.
    pub start: StartTime,
    /// Its own mask.
    pub home: CpuSet,
    /// The mask that it was given.
    pub held: CpuSet,
}

/// A whole record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lines {
    /// Who.
    pub header: Header,
    /// To whom.
    pub threads: BTreeMap<Tid, Entry>,
}

impl Header {
    /// As a line with its end.
    pub fn encode(&self) -> String {
        let Self { generation, balancer, start, namespace, root } = self;
        seal(format!("{MAGIC} {VERSION} {generation} {balancer} {} {namespace} {root}", start.0))
    }

    fn decode(line: &str) -> Option<Self> {
        let mut words = open(line)?;
        if words.next()? != MAGIC || words.next()?.parse::<u32>().ok()? != VERSION {
            return None;
        }
        let mut next = || words.next().and_then(|word| word.parse::<u64>().ok());
        Some(Self {
            generation: next()?,
            balancer: Pid(u32::try_from(next()?).ok()?),
            start: StartTime(next()?),
            namespace: next()?,
            root: Pid(u32::try_from(next()?).ok()?),
        })
    }
}

impl Entry {
    /// As a line with its end.
    pub fn encode(&self, generation: u64, tid: Tid) -> String {
        let Self { start, home, held } = self;
        seal(format!("{generation} {tid} {} {home} {held}", start.0))
    }

    fn decode(line: &str, generation: u64) -> Option<(Tid, Self)> {
        let mut words = open(line)?;
        if words.next()?.parse::<u64>().ok()? != generation {
            return None;
        }
        let tid = Tid(words.next()?.parse().ok()?);
        let start = StartTime(words.next()?.parse().ok()?);
        let (home, held): (CpuSet, CpuSet) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        (!home.is_empty() && !held.is_empty()).then_some((tid, Self { start, home, held }))
    }
}

impl Lines {
    /// Reads a record; none without a whole header. Lines that are not whole are passed over.
    pub fn decode(text: &[u8]) -> Option<Self> {
        let mut lines = text.split(|&byte| byte == b'\n').map(|line| std::str::from_utf8(line).unwrap_or(""));
        let header = Header::decode(lines.next()?)?;
        let mut threads: BTreeMap<Tid, Entry> =
            lines.filter_map(|line| Entry::decode(line, header.generation)).collect();
        threads.retain(|_, entry| entry.held != entry.home);
        Some(Self { header, threads })
    }

    /// As text.
    pub fn encode(&self) -> String {
        let mut text = self.header.encode();
        for (tid, entry) in &self.threads {
            text.push_str(&entry.encode(self.header.generation, *tid));
        }
        text
    }
}

fn seal(mut line: String) -> String {
    let sum = checksum(line.bytes());
    // Writing to a string cannot fail.
    let _ = writeln!(line, " {sum:016x}");
    line
}

/// The words of a line whose checksum holds.
fn open(line: &str) -> Option<impl Iterator<Item = &str>> {
    let (text, sum) = line.rsplit_once(' ')?;
    (sum.len() == 16 && u64::from_str_radix(sum, 16).ok()? == checksum(text.bytes())).then(|| text.split(' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(generation: u64) -> Header {
        Header { generation, balancer: Pid(10), start: StartTime(20), namespace: 30, root: Pid(40) }
    }

    fn entry(home: &str, held: &str) -> Entry {
        Entry { start: StartTime(7), home: home.parse().unwrap(), held: held.parse().unwrap() }
    }

    #[test]
    fn the_latest_line_of_a_thread_and_of_the_generation_counts() {
        let mut text = header(2).encode();
        text += &entry("0-3", "1").encode(2, Tid(5));
        text += &entry("0-3", "2").encode(2, Tid(5));
        text += &entry("0-3", "3").encode(1, Tid(5));
        text += &entry("0-3", "3").encode(1, Tid(6));
        let read = Lines::decode(text.as_bytes()).unwrap();
        assert_eq!(read.threads, BTreeMap::from([(Tid(5), entry("0-3", "2"))]));
        assert_eq!(read.header, header(2));
        text += &entry("0-3", "0-3").encode(2, Tid(5));
        assert_eq!(
            Lines::decode(text.as_bytes()).unwrap().threads,
            BTreeMap::new(),
            "it has its own mask back"
        );
    }

    #[test]
    fn a_record_that_was_cut_anywhere_says_only_what_is_whole() {
        let mut whole = Lines { header: header(0), threads: BTreeMap::new() };
        for tid in 1..5 {
            whole.threads.insert(Tid(tid), entry("0-7", &tid.to_string()));
        }
        let text = whole.encode();
        assert_eq!(Lines::decode(text.as_bytes()), Some(whole.clone()));
        for end in 0..text.len() {
            if let Some(read) = Lines::decode(&text.as_bytes()[..end]) {
                assert!(read.threads.iter().all(|(tid, entry)| whole.threads[tid] == *entry), "{end}");
            }
        }
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            if let Some(read) = Lines::decode(&bytes) {
                assert!(
                    read.threads.iter().all(|(tid, entry)| whole.threads.get(tid) == Some(entry)),
                    "{at}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(Lines::decode(&bytes), None);
            let mut text = header(1).encode().into_bytes();
            text.extend(&bytes);
            prop_assert!(Lines::decode(&text).is_some_and(|read| read.threads.is_empty()));
        }

        #[test]
        fn well_sealed_garbage_is_read_or_refused_without_harm(lines in prop::collection::vec("[ 0-9,-]{0,40}", 0..6)) {
            let mut text = header(1).encode();
            for line in lines {
                text += &seal(format!("1 {line}"));
            }
            if let Some(read) = Lines::decode(text.as_bytes()) {
                prop_assert_eq!(Lines::decode(read.encode().as_bytes()), Some(read));
            }
        }
    }
}
