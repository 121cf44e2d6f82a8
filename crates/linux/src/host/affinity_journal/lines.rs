//! Text format of a record: a line per thread, the latest line counts.
//!
//! ```text
//! trimtab-balance 1 GENERATION BALANCER START NAMESPACE ROOT [SOCKET] SUM
//! GENERATION TID START HOME HELD [cpuset] SUM
//! ```
//!
//! SOCKET is the path at which a service listens, with spaces and non-ASCII bytes as `%XX`; the
//! record of a balancer that is not a service has no such word. The word `cpuset` means that only
//! its cpuset bound the thread. Versions without these words ignore them.
//!
//! Any process may have written the file, and a kill may have cut it anywhere: a line counts only
//! when its checksum is right and its generation is the header's. A thread with a held mask equal
//! to its home has nothing to be given back; such a line revokes an earlier one. A line is written
//! before the mask is set: a balancer that is killed in between leaves the thread with the mask of
//! the previous line, which is why that mask is recorded too.

use crate::host::constraints::is_cut;
use crate::host::home::Home;
use crate::process::{Pid, StartTime, Tid};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use trimtab_core::hash::fnv1a;
use trimtab_core::set::CpuSet;

/// Word of a line for a thread with an own mask that follows its cpuset.
const FOLLOWS: &str = "cpuset";
/// First word of a record.
const MAGIC: &str = "trimtab-balance";
/// Version of the format that is written and read.
const FORMAT_VERSION: u32 = 1;

/// First line of a record: the balancer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Number of times the record was rewritten.
    pub generation: u64,
    /// The process that balances.
    pub balancer: Pid,
    /// Start time of that process.
    pub start: StartTime,
    /// Its process-id namespace, by inode; 0 when that could not be read.
    pub namespace: u64,
    /// The first process of the tree that it balances.
    pub root: Pid,
    /// Path at which it listens, if it is a service.
    pub socket: Option<PathBuf>,
}

/// Entry of one thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Start time of the thread.
    pub start: StartTime,
    /// Its own mask.
    pub home: CpuSet,
    /// Whether nothing but its cpuset bound it: its own mask grows with the cpuset.
    pub follows: bool,
    /// The mask that it was given.
    pub held: CpuSet,
    /// The mask that it was given before that one, if any.
    pub before: Option<CpuSet>,
}

/// A whole record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lines {
    /// The balancer.
    pub header: Header,
    /// The threads that it moved.
    pub threads: BTreeMap<Tid, Entry>,
}

impl Header {
    /// Encodes the header as a line with its end.
    pub fn encode(&self) -> String {
        let Self { generation, balancer, start, namespace, root, socket } = self;
        let socket = socket.as_ref().map_or_else(String::new, |path| format!(" {}", escape(path)));
        seal(format!(
            "{MAGIC} {FORMAT_VERSION} {generation} {balancer} {} {namespace} {root}{socket}",
            start.0
        ))
    }

    fn decode(line: &str) -> Option<Self> {
        let mut words = open(line)?;
        if words.next()? != MAGIC || words.next()?.parse::<u32>().ok()? != FORMAT_VERSION {
            return None;
        }
        let mut next = || words.next().and_then(|word| word.parse::<u64>().ok());
        let (generation, balancer) = (next()?, Pid(u32::try_from(next()?).ok()?));
        let (start, namespace) = (StartTime(next()?), next()?);
        let root = Pid(u32::try_from(next()?).ok()?);
        let socket = words.next().and_then(unescape);
        Some(Self { generation, balancer, start, namespace, root, socket })
    }
}

impl Entry {
    /// Encodes the entry as a line with its end.
    pub fn encode(&self, generation: u64, tid: Tid) -> String {
        let Self { start, home, held, follows, before: _ } = self;
        let follows = if *follows { format!(" {FOLLOWS}") } else { String::new() };
        seal(format!("{generation} {tid} {} {home} {held}{follows}", start.0))
    }

    /// Returns this entry as the successor of `noted`, the previous entry of the thread.
    pub(super) fn after(mut self, noted: Option<&Self>) -> Self {
        let noted = noted.filter(|noted| noted.start == self.start && noted.held != noted.home);
        let before = noted.and_then(|noted| match &noted.held {
            held if *held == self.held => noted.before.clone(),
            held => Some(held.clone()),
        });
        self.before = before.filter(|before| *before != self.home);
        self
    }

    /// Returns whether a thread may have this mask from the balancer; `active` are the CPUs that
    /// the thread's cpuset grants.
    pub(in crate::host) fn gave(&self, now: &CpuSet, active: Option<&CpuSet>) -> bool {
        [Some(&self.held), self.before.as_ref()].into_iter().flatten().any(|held| is_cut(now, held, active))
    }

    /// Returns the thread's own mask.
    pub(in crate::host) fn own(&self) -> Home {
        Home { cpus: self.home.clone(), follows: self.follows }
    }

    fn decode(line: &str, generation: u64) -> Option<(Tid, Self)> {
        let mut words = open(line)?;
        if words.next()?.parse::<u64>().ok()? != generation {
            return None;
        }
        let tid = Tid(words.next()?.parse().ok()?);
        let start = StartTime(words.next()?.parse().ok()?);
        let (home, held): (CpuSet, CpuSet) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let follows = words.next() == Some(FOLLOWS);
        (!home.is_empty() && !held.is_empty())
            .then_some((tid, Self { start, home, follows, held, before: None }))
    }
}

impl Lines {
    /// Parses a record; `None` without a complete header. Incomplete lines are ignored.
    pub fn decode(text: &[u8]) -> Option<Self> {
        let mut lines = text.split(|&byte| byte == b'\n').map(|line| std::str::from_utf8(line).unwrap_or(""));
        let header = Header::decode(lines.next()?)?;
        let mut threads: BTreeMap<Tid, Entry> = BTreeMap::new();
        for (tid, entry) in lines.filter_map(|line| Entry::decode(line, header.generation)) {
            let entry = entry.after(threads.get(&tid));
            threads.insert(tid, entry);
        }
        threads.retain(|_, entry| entry.held != entry.home);
        Some(Self { header, threads })
    }

    /// Encodes the record.
    pub fn encode(&self) -> String {
        let mut text = self.header.encode();
        for (tid, entry) in &self.threads {
            if let Some(before) = &entry.before {
                let before = Entry { held: before.clone(), before: None, ..entry.clone() };
                text.push_str(&before.encode(self.header.generation, *tid));
            }
            text.push_str(&entry.encode(self.header.generation, *tid));
        }
        text
    }
}

/// Encodes a path as one word.
fn escape(path: &Path) -> String {
    let mut word = String::new();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            word.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(word, "%{byte:02X}");
        }
    }
    word
}

/// Decodes the path of such a word; `None` unless it is absolute.
fn unescape(word: &str) -> Option<PathBuf> {
    let mut bytes = Vec::new();
    let mut parts = word.split('%');
    bytes.extend(parts.next()?.bytes());
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend(part[2..].bytes());
    }
    let path = PathBuf::from(OsString::from_vec(bytes));
    (path.is_absolute() && !path.as_os_str().as_bytes().contains(&0)).then_some(path)
}

fn seal(mut line: String) -> String {
    let sum = fnv1a(line.bytes());
    // Writing to a string cannot fail.
    let _ = writeln!(line, " {sum:016x}");
    line
}

/// Returns the words of a line with a correct checksum.
fn open(line: &str) -> Option<impl Iterator<Item = &str>> {
    let (text, sum) = line.rsplit_once(' ')?;
    (sum.len() == 16 && u64::from_str_radix(sum, 16).ok()? == fnv1a(text.bytes())).then(|| text.split(' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(generation: u64) -> Header {
        let (balancer, root) = (Pid(10), Pid(40));
        Header { generation, balancer, start: StartTime(20), namespace: 30, root, socket: None }
    }

    fn entry(home: &str, held: &str) -> Entry {
        let (home, held) = (home.parse().unwrap(), held.parse().unwrap());
        Entry { start: StartTime(7), home, follows: false, held, before: None }
    }

    #[test]
    fn the_latest_line_of_a_thread_and_of_the_generation_counts() {
        let mut text = header(2).encode();
        text += &entry("0-3", "1").encode(2, Tid(5));
        text += &entry("0-3", "2").encode(2, Tid(5));
        text += &entry("0-3", "3").encode(1, Tid(5));
        text += &entry("0-3", "3").encode(1, Tid(6));
        let read = Lines::decode(text.as_bytes()).unwrap();
        let latest = Entry { before: Some("1".parse().unwrap()), ..entry("0-3", "2") };
        assert_eq!(read.threads, BTreeMap::from([(Tid(5), latest)]));
        assert_eq!(read.header, header(2));
        text += &entry("0-3", "0-3").encode(2, Tid(5));
        assert_eq!(
            Lines::decode(text.as_bytes()).unwrap().threads,
            BTreeMap::new(),
            "it has its own mask back"
        );
    }

    #[test]
    fn the_former_mask_is_stored_until_the_thread_has_its_own_back() {
        let mut text = header(2).encode();
        for held in ["1", "2", "2"] {
            text += &entry("0-3", held).encode(2, Tid(5));
        }
        let read = Lines::decode(text.as_bytes()).unwrap();
        let gave = |mask: &str| read.threads[&Tid(5)].gave(&mask.parse().unwrap(), None);
        assert_eq!(["0", "1", "2", "0-3"].map(gave), [false, true, true, false]);
        assert_eq!(Lines::decode(read.encode().as_bytes()), Some(read.clone()));
        // A mask given after that is given for the first time.
        for held in ["0-3", "3"] {
            text += &entry("0-3", held).encode(2, Tid(5));
        }
        let read = Lines::decode(text.as_bytes()).unwrap();
        assert_eq!(read.threads[&Tid(5)], entry("0-3", "3"));
    }

    #[test]
    fn a_mask_that_the_kernel_cut_is_still_the_balancers() {
        let entry = entry("0-3", "1,2");
        let gave =
            |mask: &str, active: &str| entry.gave(&mask.parse().unwrap(), Some(&active.parse().unwrap()));
        assert!(gave("1", "0-1") && gave("0", "0"), "cut, and nothing left of it");
        assert!(!gave("0", "0-1"));
    }

    #[test]
    fn the_socket_of_a_service_is_recorded_with_any_path_and_older_readers_skip_it() {
        for path in ["/run/trimtab-serve/socket", "/tmp/a b%\n\u{e9}/s"] {
            let header = Header { socket: Some(PathBuf::from(path)), ..header(1) };
            let text = Lines { header: header.clone(), threads: BTreeMap::new() }.encode();
            assert_eq!(text.lines().count(), 1);
            assert_eq!(Lines::decode(text.as_bytes()).unwrap().header, header);
        }
        for word in ["socket", "/a%0", "/a%00", "/a%zz"] {
            let line = header(1).encode();
            let line = line.trim_end().rsplit_once(' ').unwrap().0;
            let text = seal(format!("{line} {word}"));
            assert_eq!(Lines::decode(text.as_bytes()).unwrap().header, header(1), "{word}");
        }
    }

    #[test]
    fn that_a_thread_follows_its_cpuset_is_noted() {
        let entry = Entry { follows: true, ..entry("0-3", "2") };
        let text = header(2).encode() + &entry.encode(2, Tid(5));
        assert_eq!(Lines::decode(text.as_bytes()).unwrap().threads[&Tid(5)], entry);
    }

    #[test]
    fn of_a_record_cut_anywhere_only_whole_entries_are_read() {
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
