//! What was tuned, kept: a file for each machine in the user's cache folder.
//!
//! **Properties.** A file is written whole under another name and then takes its own, readable by its owner alone. One of another version, of
//! another machine, or whose checksum is wrong counts as none; what it holds is bounded and checked when it is used. Nothing of it
//! is fatal: without it ways are the usual ones.

use super::Tuning;
use crate::choice::Table;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Of the file's form.
const VERSION: u32 = 1;
/// No file is longer.
const LONGEST: u64 = 4 << 20;

/// All that was tuned on a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Store {
    version: u32,
    /// The machine, as [`fingerprint`] says it.
    machine: String,
    /// By [`key`].
    tunings: BTreeMap<String, Tuning>,
}

#[derive(Serialize, Deserialize)]
struct File {
    checksum: String,
    store: serde_json::Value,
}

/// What a table holds for.
pub fn key(ranks: u32, crowded: bool, cell: usize) -> String {
    format!("{ranks} ranks{}, cells of {cell} bytes", if crowded { ", crowded" } else { "" })
}

/// FNV-1a: against accidents, not against enemies, who could write the file anew anyway.
fn checksum(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

impl Store {
    /// An empty one.
    pub fn new(machine: &str) -> Self {
        Self { version: VERSION, machine: machine.to_owned(), tunings: BTreeMap::new() }
    }

    /// Reads a machine's file; empty where there is none that counts, with the reason if there is one.
    pub fn read(path: &Path, machine: &str) -> (Self, Option<String>) {
        let none = |why: Option<String>| (Self::new(machine), why);
        let text = match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return none(None),
            Ok(data) if data.len() > LONGEST || !data.is_file() => {
                return none(Some("it is no file of ours".to_owned()));
            }
            _ => std::fs::read_to_string(path),
        };
        let parse = |text: String| -> std::result::Result<Self, String> {
            let file: File = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            if checksum(&file.store.to_string()) != file.checksum {
                return Err("its checksum is wrong".to_owned());
            }
            let store: Self = serde_json::from_value(file.store).map_err(|error| error.to_string())?;
            if store.version != VERSION {
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

    /// Writes the machine's file.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let store = serde_json::to_value(self)?;
        let file = File { checksum: checksum(&store.to_string()), store };
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

    /// What was tuned for a key.
    pub fn get(&self, key: &str) -> Option<&Tuning> {
        self.tunings.get(key)
    }

    /// The table for a key.
    pub fn table(&self, key: &str) -> Option<&Table> {
        self.get(key).map(|tuning| &tuning.table)
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.tunings.keys().map(String::as_str)
    }

    /// Keeps what was tuned for a key instead of what was there.
    pub fn put(&mut self, key: String, tuning: Tuning) {
        self.tunings.insert(key, tuning);
    }
}

/// Where a machine's file is: in the cache folder that the environment names.
pub fn path(cache: Option<PathBuf>, home: Option<PathBuf>, machine: &str) -> Option<PathBuf> {
    let cache = cache.filter(|path| path.is_absolute()).or_else(|| home.map(|home| home.join(".cache")))?;
    Some(cache.join("trimtab/teams").join(format!("{}.json", checksum(machine))))
}

/// What makes tables of two machines differ: processor, caches and who shares them, nodes, kernel.
pub fn fingerprint() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or("")
        .trim_start_matches([' ', '\t', ':']);
    let mut text = format!(
        "{model}; online {}; nodes {}",
        read("/sys/devices/system/cpu/online"),
        read("/sys/devices/system/node/online")
    );
    for index in 0..5 {
        let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
        let size = read(&format!("{folder}/size"));
        if !size.is_empty() {
            let _ = write!(text, "; {size} of {}", read(&format!("{folder}/shared_cpu_list")));
        }
    }
    let _ = write!(text, "; Linux {}", read("/proc/sys/kernel/osrelease"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning() -> Tuning {
        Tuning { ranks: 2, crowded: false, table: Table::usual(false), cells: Vec::new(), left: 3 }
    }

    #[test]
    fn what_was_kept_is_read_and_nothing_else_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/machine.json");
        assert_eq!(Store::read(&path, "m"), (Store::new("m"), None));
        let mut store = Store::new("m");
        store.put(key(2, false, 1024), tuning());
        store.write(&path).unwrap();
        assert_eq!(Store::read(&path, "m"), (store.clone(), None));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);

        assert!(Store::read(&path, "other").1.unwrap().contains("another machine"));
        let text = std::fs::read_to_string(&path).unwrap();
        for (from, to) in [("\"left\":3", "\"left\":4"), ("{", ""), ("\"version\":1", "\"version\":2")] {
            assert!(text.contains(from));
            std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
            let (empty, why) = Store::read(&path, "m");
            assert_eq!(empty, Store::new("m"));
            assert!(why.is_some(), "{from}");
        }
        std::fs::write(&path, vec![b' '; LONGEST as usize + 1]).unwrap();
        assert!(Store::read(&path, "m").1.is_some());
        store.write(&path).unwrap();
        assert_eq!(Store::read(&path, "m").0, store);
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
