//! Store of tunings: a file for each machine in the user's cache folder.
//!
//! **Properties.** A file is written whole under another name and then renamed, readable by its
//! owner alone. A file of another version, of another machine, or with a wrong checksum counts as
//! missing; its contents are bounded and checked when they are used. No problem with it is fatal:
//! without it the usual algorithms are used.

use super::Tuning;
use crate::algorithm_table::AlgorithmTable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use trimtab_core::fingerprint::hardware;
use trimtab_core::hash::fnv1a_hex;

/// Version of the file's format.
const FORMAT_VERSION: u32 = 2;
/// Most bytes of a file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// All tunings of a machine.
///
/// # Examples
/// ```
/// use trimtab_team::tune::store::{Store, key};
/// use trimtab_team::tune::Tuning;
///
/// let folder = tempfile::tempdir()?;
/// let (path, machine) = (folder.path().join("tunings"), "a machine's fingerprint");
/// let mut store = Store::new(machine);
/// assert!(store.is_empty());
///
/// let key = key(2, false, 32 << 10, "caches 1, nodes 1");
/// store.put(key.clone(), Tuning::new(2, false));
/// store.write(&path)?;
///
/// let (mut read, fault) = Store::read(&path, machine);
/// assert_eq!((&read, fault), (&store, None));
/// assert_eq!(read.keys().collect::<Vec<_>>(), [&key]);
/// assert_eq!(read.table(&key), read.get(&key).map(|tuning| &tuning.table));
/// assert!(read.remove(&key).is_some());
///
/// // A file of another machine counts as missing, and the reason is reported.
/// let (other, fault) = Store::read(&path, "another machine");
/// assert!(other.is_empty() && fault.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Store {
    version: u32,
    /// The machine, in the form of [`fingerprint`].
    machine: String,
    /// By [`key`].
    tunings: BTreeMap<String, Tuning>,
}

#[derive(Serialize, Deserialize)]
struct StoreFile {
    checksum: String,
    store: serde_json::Value,
}

/// Returns the key of a table: the number of ranks, whether they are more than CPUs, the bytes of
/// cells, and the ranks' place ([`place`]).
///
/// # Examples
/// ```
/// use trimtab_team::tune::store::{key, place};
///
/// let mask = [u64::MAX; 16];
/// println!("{}", key(4, false, 32 << 10, &place(&mask, 4)));
/// let key = key(4, true, 1024, "caches 1, nodes 1");
/// assert_eq!(key, "4 ranks, crowded, caches 1, nodes 1, cells of 1024 bytes");
/// ```
pub fn key(ranks: u32, crowded: bool, cell: usize, place: &str) -> String {
    format!("{ranks} ranks{}, {place}, cells of {cell} bytes", if crowded { ", crowded" } else { "" })
}

/// Returns the number of last-level caches and nodes over which `ranks` ranks with these CPUs can
/// be, and whether they share cores. More CPUs than that make no difference to them. [`key`] has an
/// example.
pub fn place(mask: &[u64; 16], ranks: u32) -> String {
    place_in(Path::new("/sys/devices/system"), mask, ranks)
}

fn place_in(system: &Path, mask: &[u64; 16], ranks: u32) -> String {
    let cpus: Vec<usize> = (0..1024).filter(|cpu| mask[cpu / 64] >> (cpu % 64) & 1 == 1).collect();
    let read = |path: PathBuf| std::fs::read_to_string(path).ok();
    // A set that contains none of the CPUs seen so far is a new one.
    let count = |list_of: &dyn Fn(usize) -> Option<String>| {
        let mut seen: std::collections::BTreeSet<usize> = std::collections::BTreeSet::new();
        let mut sets = 0;
        for cpu in &cpus {
            if !seen.contains(cpu) {
                sets += 1;
                seen.extend(list_of(*cpu).as_deref().map(numbers).unwrap_or_default());
            }
        }
        sets
    };
    let of = |cpu: usize, what: &str| system.join(format!("cpu/cpu{cpu}/{what}"));
    let caches = count(&|cpu| {
        (0..6).rev().find_map(|index| read(of(cpu, &format!("cache/index{index}/shared_cpu_list"))))
    });
    let cores = count(&|cpu| read(of(cpu, "topology/thread_siblings_list")));
    let nodes: Vec<Vec<usize>> = read(system.join("node/online"))
        .map(|online| numbers(&online))
        .unwrap_or_default()
        .into_iter()
        .filter_map(|node| read(system.join(format!("node/node{node}/cpulist"))).map(|list| numbers(&list)))
        .collect();
    let nodes = nodes.iter().filter(|node| node.iter().any(|cpu| cpus.binary_search(cpu).is_ok())).count();
    let most = |count: usize| count.clamp(1, ranks.max(1) as usize);
    // Ranks without a CPU of their own share cores anyway.
    let shared = cores < ranks as usize && cpus.len() >= ranks as usize;
    format!("caches {}, nodes {}{}", most(caches), most(nodes), if shared { ", sharing cores" } else { "" })
}

/// Parses a list such as `0-3,8`.
fn numbers(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse().ok()?..=to.parse::<usize>().ok()?.min(4095))
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// Returns the path of this machine's file, by the environment, and the machine's fingerprint.
/// `None` if the environment names neither a cache folder nor a home.
///
/// # Examples
/// ```
/// use trimtab_team::tune::store::{Store, here};
///
/// // What is kept on this machine.
/// if let Some((path, machine)) = here() {
///     for key in Store::read(&path, &machine).0.keys() {
///         println!("{key}");
///     }
/// }
/// ```
pub fn here() -> Option<(PathBuf, String)> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let machine = fingerprint();
    Some((path(variable("XDG_CACHE_HOME"), variable("HOME"), &machine)?, machine))
}

/// Returns the tuning kept on this machine for a key; `None` if there is any problem with the file.
///
/// # Examples
/// ```
/// use trimtab_team::tune::store::kept;
///
/// // No team has this key.
/// assert_eq!(kept(|| "no ranks".to_owned()), None);
/// ```
pub fn kept(key: impl FnOnce() -> String) -> Option<Tuning> {
    let (path, machine) = here()?;
    let mut store = Store::read(&path, &machine).0;
    // The key is only computed if something is kept.
    if store.is_empty() { None } else { store.tunings.remove(&key()) }
}

/// Keeps a tuning for a key on this machine, beside those kept there already. Returns the path.
/// [`Rank::keep`](crate::Rank::keep) has an example, and [`Store`] one of other paths.
///
/// # Errors
/// `Refused` if the environment names no folder, or the file cannot be written.
pub fn keep(key: &str, tuning: Tuning) -> crate::Result<PathBuf> {
    let refused = |why: String| crate::Error::Refused(format!("the tuning cannot be kept: {why}"));
    let (path, machine) =
        here().ok_or_else(|| refused("neither XDG_CACHE_HOME nor HOME is set".to_owned()))?;
    let mut store = Store::read(&path, &machine).0;
    match store.tunings.get_mut(key) {
        Some(kept) => kept.merge(tuning),
        None => store.put(key.to_owned(), tuning),
    }
    store.write(&path).map_err(|error| refused(format!("{}: {error}", path.display())))?;
    Ok(path)
}

impl Store {
    /// Makes an empty store. [`Store`] has an example.
    pub fn new(machine: &str) -> Self {
        Self { version: FORMAT_VERSION, machine: machine.to_owned(), tunings: BTreeMap::new() }
    }

    /// Reads a machine's file. Returns an empty store if the file is missing or invalid, and the
    /// reason if it is invalid. [`Store`] has an example.
    pub fn read(path: &Path, machine: &str) -> (Self, Option<String>) {
        let none = |why: Option<String>| (Self::new(machine), why);
        let text = match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return none(None),
            Ok(data) if data.len() > FILE_BYTES_MAX || !data.is_file() => {
                return none(Some("it is not a regular file of a permitted size".to_owned()));
            }
            _ => std::fs::read_to_string(path),
        };
        let parse = |text: String| -> std::result::Result<Self, String> {
            let file: StoreFile = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            if fnv1a_hex(file.store.to_string().as_bytes()) != file.checksum {
                return Err("its checksum is wrong".to_owned());
            }
            let store: Self = serde_json::from_value(file.store).map_err(|error| error.to_string())?;
            if store.version != FORMAT_VERSION {
                return Err(format!("it is of version {}", store.version));
            }
            if store.machine != machine {
                return Err("it is of another machine".to_owned());
            }
            Ok(store)
        };
        match text.map_err(|error| error.to_string()).and_then(parse) {
            Ok(store) => (store, None),
            Err(why) => none(Some(why)),
        }
    }

    /// Writes the machine's file. [`Store`] has an example.
    ///
    /// # Errors
    /// The folder cannot be made, or the file cannot be written.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let store = serde_json::to_value(self)?;
        let file = StoreFile { checksum: fnv1a_hex(store.to_string().as_bytes()), store };
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let draft = folder.join(format!(
            ".{}.{}",
            std::process::id(),
            path.file_name().unwrap_or_default().to_string_lossy()
        ));
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let written = options.open(&draft).and_then(|mut out| {
            out.write_all(&serde_json::to_vec(&file)?)?;
            out.sync_all()
        });
        if let Err(error) = written.and_then(|()| std::fs::rename(&draft, path)) {
            let _ = std::fs::remove_file(&draft);
            return Err(error);
        }
        Ok(())
    }

    /// Returns the tuning for a key. [`Store`] has an example.
    pub fn get(&self, key: &str) -> Option<&Tuning> {
        self.tunings.get(key)
    }

    /// Returns the table for a key. [`Store`] has an example.
    pub fn table(&self, key: &str) -> Option<&AlgorithmTable> {
        self.get(key).map(|tuning| &tuning.table)
    }

    /// Returns all keys. [`Store`] has an example.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.tunings.keys().map(String::as_str)
    }

    /// Returns whether nothing was tuned. [`Store`] has an example.
    pub fn is_empty(&self) -> bool {
        self.tunings.is_empty()
    }

    /// Removes the tuning for a key. [`Store`] has an example.
    pub fn remove(&mut self, key: &str) -> Option<Tuning> {
        self.tunings.remove(key)
    }

    /// Stores a tuning for a key, in place of an older one. [`Store`] has an example.
    pub fn put(&mut self, key: String, tuning: Tuning) {
        self.tunings.insert(key, tuning);
    }
}

/// Returns the path of a machine's file: in the cache folder that the environment names.
///
/// # Examples
/// ```
/// use trimtab_team::tune::store::path;
///
/// let found = path(None, Some("/home/ann".into()), "a machine's fingerprint").expect("a home");
/// assert!(found.starts_with("/home/ann/.cache/trimtab/teams"));
/// ```
pub fn path(cache: Option<PathBuf>, home: Option<PathBuf>, machine: &str) -> Option<PathBuf> {
    let cache = cache.filter(|path| path.is_absolute()).or_else(|| home.map(|home| home.join(".cache")))?;
    Some(cache.join("trimtab/teams").join(format!("{}.json", fnv1a_hex(machine.as_bytes()))))
}

/// Returns everything by which tables of two machines may differ: CPU, caches and the CPUs that
/// share them, nodes, kernel. [`here`] has an example.
pub fn fingerprint() -> String {
    hardware(&|path| std::fs::read_to_string(path).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning() -> Tuning {
        Tuning { left: 3, ..Tuning::new(2, false) }
    }

    #[test]
    fn the_kept_file_is_read_back_and_any_other_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/machine.json");
        assert_eq!(Store::read(&path, "m"), (Store::new("m"), None));
        let mut store = Store::new("m");
        store.put(key(2, false, 1024, "caches 1, nodes 1"), tuning());
        store.write(&path).unwrap();
        assert_eq!(Store::read(&path, "m"), (store.clone(), None));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);

        assert!(Store::read(&path, "other").1.unwrap().contains("another machine"));
        let text = std::fs::read_to_string(&path).unwrap();
        for (from, to) in [("\"left\":3", "\"left\":4"), ("{", ""), ("\"version\":2", "\"version\":1")] {
            assert!(text.contains(from));
            std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
            let (empty, why) = Store::read(&path, "m");
            assert_eq!(empty, Store::new("m"));
            assert!(why.is_some(), "{from}");
        }
        std::fs::write(&path, vec![b' '; FILE_BYTES_MAX as usize + 1]).unwrap();
        assert!(Store::read(&path, "m").1.is_some());
        store.write(&path).unwrap();
        assert_eq!(Store::read(&path, "m").0, store);
    }

    #[test]
    fn a_place_names_the_caches_that_ranks_share() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        // Two nodes of two caches of two cores of two threads each.
        for cpu in 0..16 {
            let list = |of: usize| format!("{}-{}\n", cpu / of * of, cpu / of * of + of - 1);
            write(format!("cpu/cpu{cpu}/cache/index3/shared_cpu_list"), &list(4));
            write(format!("cpu/cpu{cpu}/cache/index0/shared_cpu_list"), &list(2));
            write(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), &list(2));
        }
        write("node/online".to_owned(), "0-1\n");
        write("node/node0/cpulist".to_owned(), "0-7\n");
        write("node/node1/cpulist".to_owned(), "8-15\n");
        let place = |mask: u64, ranks| {
            let mut words = [0; 16];
            words[0] = mask;
            place_in(folder.path(), &words, ranks)
        };
        assert_eq!(place(0xffff, 2), "caches 2, nodes 2");
        assert_eq!(place(0xffff, 8), "caches 4, nodes 2");
        assert_eq!(place(0xffff, 9), "caches 4, nodes 2, sharing cores");
        assert_eq!(place(0x000f, 2), "caches 1, nodes 1");
        assert_eq!(place(0x0003, 2), "caches 1, nodes 1, sharing cores");
        assert_eq!(place(0x0ff0, 4), "caches 2, nodes 2");
        assert_eq!(place(0x0003, 4), "caches 1, nodes 1");
        // A machine without information has no more caches than ranks.
        assert_eq!(place_in(Path::new("/nonexistent"), &[u64::MAX; 16], 2), "caches 2, nodes 1");
        assert_eq!(numbers("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(numbers("x"), [0; 0]);
    }

    #[test]
    fn a_later_tuning_is_kept_beside_the_others() {
        use crate::tune::judge::Selection;
        use crate::tune::{Cell, Job, Measured, Origin, Tried};
        use crate::{Kind, algorithm_table::Algorithm, algorithm_table::CallClass, barrier::Barrier};
        let cell = |kind, bytes, tried: Vec<Tried>, winner, judged| Cell {
            job: Job { kind, bytes, manner: CallClass::Mine },
            candidates: tried
                .into_iter()
                .map(|tried| Measured { tried, best: Some(1.0), median: Some(2.0), batches: 24 })
                .collect(),
            verdict: Selection { winner, ratio: 0.5, why: "quicker by 50 %".to_owned() },
            judged,
            foreign: None,
            origin: Origin::Offline,
        };
        let ways = || vec![Tried::Algorithm(Algorithm::Whole), Tried::Algorithm(Algorithm::Pieces(13))];
        let mut kept = Tuning::new(2, false);
        kept.add(cell(Kind::Broadcast, 1 << 16, ways(), 1, true));
        kept.add(cell(Kind::Broadcast, 1 << 17, ways(), 1, true));
        let mut newer = Tuning::new(2, false);
        newer.add(cell(Kind::Barrier, 0, vec![Tried::Barrier(Barrier::Flat)], 0, true));
        newer.add(cell(Kind::Broadcast, 1 << 16, ways(), 0, true));
        newer.add(cell(Kind::Broadcast, 1 << 17, ways(), 0, false));
        kept.merge(newer);
        assert_eq!(kept.table.barrier, Barrier::Flat);
        let way = |bytes| kept.table.way(Kind::Broadcast, bytes, 32 << 10, false);
        // A disturbed measurement does not replace a kept choice.
        assert_eq!((way(1 << 16), way(1 << 17)), (Algorithm::Whole, Algorithm::Pieces(13)));
        assert_eq!(kept.cells.len(), 3);
        let job = Job { kind: Kind::Broadcast, bytes: 70_000, manner: CallClass::Mine };
        assert_eq!(kept.cell(job).unwrap().job.bytes, 1 << 16);
    }

    #[test]
    fn kept_tunings_keep_their_words() {
        use crate::algorithm_table::{Algorithm, CallClass};
        use crate::barrier::Barrier;
        use crate::tune::{Job, Tried};
        let text = r#"[{"way":{"pieces":13}},{"barrier":"flat"}]"#;
        let tried = vec![Tried::Algorithm(Algorithm::Pieces(13)), Tried::Barrier(Barrier::Flat)];
        assert_eq!(serde_json::to_string(&tried).unwrap(), text);
        assert_eq!(serde_json::from_str::<Vec<Tried>>(text).unwrap(), tried);
        let job = Job { kind: crate::Kind::Broadcast, bytes: 8, manner: CallClass::Mine };
        let text = r#"{"kind":"broadcast","bytes":8,"manner":"mine"}"#;
        assert_eq!(serde_json::to_string(&job).unwrap(), text);
    }

    #[test]
    fn files_are_where_the_environment_says() {
        let at = |cache: Option<&str>, home: Option<&str>| {
            path(cache.map(PathBuf::from), home.map(PathBuf::from), "m")
        };
        assert!(at(Some("/c"), Some("/h")).unwrap().starts_with("/c/trimtab/teams"));
        assert!(at(Some("relative"), Some("/h")).unwrap().starts_with("/h/.cache/trimtab/teams"));
        assert_eq!(at(None, None), None);
        assert!(!fingerprint().is_empty());
    }
}
