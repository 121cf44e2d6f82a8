//! Store of tunings: one file per tuning in the user's data folder, which `trimtab run` applies.
//!
//! Problem: a setting that is good for one program, work and machine may be bad for another. Idea:
//! a tuning names its conditions: the file of the program (path, size, modification time), its
//! arguments with every number replaced by `#`, the machine and its kernel, and the cores that were
//! requested and given. The file's name is derived from these, so that a run without a tuning costs
//! one lookup in a folder.
//!
//! Properties: a file is written whole under another name and then renamed, readable by its owner
//! alone. A file of another version, with a wrong checksum, of another owner, or with another name
//! inside is ignored, and the reason is printed in one line. Values are checked as a [`Setting`]'s,
//! so that a file contains only values that `run`'s own options can express.

use crate::args::PlaceArgs;
use crate::world::World;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use trimtab_core::hash::{fnv1a, fnv1a_hex};
use trimtab_core::setting::{Knob, Setting};
use trimtab_core::stats::Better;
use trimtab_linux::machine::fingerprint;

/// Schema of a file.
pub const SCHEMA: &str = "trimtab.kept/1";
/// Largest file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Conditions for which a tuning is valid.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Conditions {
    /// The program's file.
    pub program: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Its modification time in nanoseconds since 1970.
    pub changed: i64,
    /// Its arguments with `#` for every number.
    pub arguments: String,
    /// The machine and its kernel.
    pub machine: String,
    /// The options of `run` that were given.
    pub asked: String,
    /// Cores that the program got.
    pub cores: u32,
}

/// A stored tuning.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The better setting.
    pub setting: Setting,
    /// The setting it was compared with.
    pub from: Setting,
    /// The conditions for which it is valid.
    pub conditions: Conditions,
    /// The metric: `time`, or a regular expression.
    pub metric: String,
    /// Whether a higher value is better.
    pub higher: bool,
    /// Improvement as a factor.
    pub gain: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Results of runs in the start setting.
    pub before: Vec<f64>,
    /// Results of runs in the tuned setting, in turn with those.
    pub after: Vec<f64>,
    /// Factor that each knob adds to the others, if it was measured.
    pub adds: Vec<(Knob, f64)>,
    /// Time of the tuning in seconds since 1970.
    pub when: u64,
    /// Version of trimtab that found it.
    pub version: String,
}

#[derive(Serialize, Deserialize)]
struct TuningFile {
    schema: String,
    checksum: String,
    profile: serde_json::Value,
}

impl Conditions {
    /// Returns the conditions of a program to be started; `cores` is its number of cores, or 0
    /// while unknown.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(program: &Path, command: &[OsString], place: &PlaceArgs, cores: u32) -> Result<Self> {
        let program =
            std::fs::canonicalize(program).with_context(|| format!("cannot find {}", program.display()))?;
        let file =
            std::fs::metadata(&program).with_context(|| format!("cannot read {}", program.display()))?;
        Ok(Self {
            size: file.len(),
            changed: file.mtime().saturating_mul(1_000_000_000).saturating_add(file.mtime_nsec()),
            program,
            arguments: class(command),
            machine: fingerprint(),
            asked: asked(place),
            cores,
        })
    }

    /// Returns the name of the tuning for these conditions: eight digits for the program and its
    /// arguments, eight for the rest.
    pub fn name(&self) -> String {
        let program = [self.program.as_os_str().as_bytes(), b"\0", self.arguments.as_bytes()].concat();
        let rest = format!("{}\0{}", self.machine, self.asked);
        format!("{:08x}-{:08x}", short(&program), short(rest.as_bytes()))
    }

    /// Returns why a tuning with these conditions is not valid under `met`.
    pub fn differs(&self, met: &Self) -> Option<&'static str> {
        let same_file = (self.size, self.changed) == (met.size, met.changed);
        [
            (self.program != met.program, "it is for another program"),
            (!same_file, "the program has changed since"),
            (self.arguments != met.arguments, "it is for other arguments"),
            (self.machine != met.machine, "it is for another machine or kernel"),
            (self.asked != met.asked, "it is for other options of trimtab run"),
        ]
        .into_iter()
        .find_map(|(differs, why)| differs.then_some(why))
    }
}

impl Kept {
    /// Returns which direction is better.
    pub fn better(&self) -> Better {
        if self.higher { Better::More } else { Better::Less }
    }

    /// Formats the file.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn text(&self) -> Result<String> {
        let profile = serde_json::to_value(self)?;
        let file = TuningFile {
            schema: SCHEMA.to_owned(),
            checksum: fnv1a_hex(profile.to_string().as_bytes()),
            profile,
        };
        Ok(serde_json::to_string_pretty(&file)? + "\n")
    }

    /// Parses a file.
    ///
    /// # Errors
    /// The text is not a valid tuning; the message says why.
    pub fn parse(text: &str) -> Result<Self> {
        let Ok(file) = serde_json::from_str::<TuningFile>(text) else {
            bail!("it is not a tuning of trimtab tune")
        };
        if file.schema != SCHEMA {
            bail!(
                "its schema is {:?}, but this version reads {SCHEMA}",
                file.schema.chars().take(40).collect::<String>()
            );
        }
        if fnv1a_hex(file.profile.to_string().as_bytes()) != file.checksum {
            bail!("its checksum is wrong");
        }
        serde_json::from_value(file.profile).context("it is damaged")
    }
}

/// The user's tunings.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Opens the folder that the environment names; `None` if it names none.
    pub fn of(world: &World) -> Option<Self> {
        Some(Self { folder: world.data()?.join("profiles") })
    }

    /// Returns a tuning's file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    /// Returns whether the folder exists.
    pub fn any(&self) -> bool {
        self.folder.is_dir()
    }

    /// Returns all names, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let name =
            |entry: std::fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned());
        let mut names: Vec<String> = entries.filter_map(name).filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }

    /// Reads a tuning by its name; `None` if there is none.
    ///
    /// # Errors
    /// There is one that cannot be used; the message says why.
    pub fn read(&self, name: &str) -> Result<Option<Kept>> {
        let path = self.path(name);
        let file = match std::fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if !file.is_file() || file.len() > FILE_BYTES_MAX {
            bail!("it is not a file of trimtab tune");
        }
        if ![0, rustix::process::geteuid().as_raw()].contains(&file.uid()) {
            bail!("it belongs to another user");
        }
        let text = std::fs::read(&path)?;
        let Ok(text) = String::from_utf8(text) else { bail!("it is not a tuning of trimtab tune") };
        let kept = Kept::parse(&text)?;
        if kept.conditions.name() != name {
            bail!("it contains the tuning {}", kept.conditions.name());
        }
        Ok(Some(kept))
    }

    /// Stores a tuning, replacing one of the same name. Returns its name.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, kept: &Kept) -> Result<String> {
        let name = kept.conditions.name();
        write(&self.path(&name), kept.text()?.as_bytes())
            .with_context(|| format!("cannot store {}", self.path(&name).display()))?;
        Ok(name)
    }

    /// Removes a tuning.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }
}

/// Writes a file whole, or not at all.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = folder.join(format!(".{}.{name}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let written =
        options.write(true).create(true).truncate(true).mode(0o600).open(&draft).and_then(|mut out| {
            out.write_all(bytes)?;
            out.sync_all()
        });
    if let Err(error) = written.and_then(|()| std::fs::rename(&draft, path)) {
        let _ = std::fs::remove_file(&draft);
        return Err(error);
    }
    Ok(())
}

/// Returns the arguments of a command, with `#` for every number: `-n 100 in.dat` and
/// `-n 200 in.dat` are of one class.
pub fn class(command: &[OsString]) -> String {
    let words: Vec<String> = command.iter().skip(1).map(|word| numberless(&word.to_string_lossy())).collect();
    words.join(" ")
}

fn numberless(word: &str) -> String {
    let mut out = String::new();
    let mut letters = word.chars().peekable();
    while let Some(letter) = letters.next() {
        if !letter.is_ascii_digit() {
            out.push(letter);
            continue;
        }
        out.push('#');
        // Digits, and points between digits.
        while let Some(next) = letters.peek().copied() {
            let mut ahead = letters.clone();
            ahead.next();
            let inside = next == '.' && ahead.peek().is_some_and(char::is_ascii_digit);
            if !next.is_ascii_digit() && !inside {
                break;
            }
            letters.next();
        }
    }
    out
}

/// Returns the options that decide which cores a run gets, and how many.
fn asked(place: &PlaceArgs) -> String {
    let mut words = Vec::new();
    if let Some(cores) = place.cores {
        words.push(format!("--cores {cores}"));
    }
    if let Some(cpus) = &place.cpus {
        words.push(format!("--cpus {cpus}"));
    }
    if words.is_empty() { "auto".to_owned() } else { words.join(" ") }
}

fn short(bytes: &[u8]) -> u32 {
    let hash = fnv1a(bytes.iter().copied());
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        let conditions = Conditions {
            program: "/opt/app".into(),
            size: 7,
            changed: 8,
            arguments: "-n #".to_owned(),
            machine: "m".to_owned(),
            asked: "auto".to_owned(),
            cores: 2,
        };
        Kept {
            setting: "threads=2 wait=sleep".parse().unwrap(),
            from: Setting::new(),
            conditions,
            metric: "time".to_owned(),
            higher: false,
            gain: 2.0,
            low: 1.9,
            high: 2.1,
            before: vec![2.0; 5],
            after: vec![1.0; 5],
            adds: vec![(Knob::Wait, 1.5)],
            when: 1_700_000_000,
            version: "0.1.0".to_owned(),
        }
    }

    #[test]
    fn numbers_in_arguments_make_no_difference() {
        let class = |words: &[&str]| {
            let words: Vec<OsString> =
                std::iter::once("app").chain(words.iter().copied()).map(OsString::from).collect();
            class(&words)
        };
        assert_eq!(class(&["-n", "100", "x1.5e3", "in.dat"]), "-n # x#e# in.dat");
        assert_eq!(class(&["-n", "7"]), class(&["-n", "12345"]));
        assert_ne!(class(&["-n", "7"]), class(&["-m", "7"]));
        assert_eq!(class(&["1."]), "#.");
    }

    #[test]
    fn the_kept_file_is_read_back_and_any_other_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store { folder: folder.path().join("deep/profiles") };
        assert_eq!(store.read("x").unwrap(), None);
        assert!(store.names().is_empty());
        let name = store.write(&kept()).unwrap();
        assert_eq!((store.names(), store.read(&name).unwrap()), (vec![name.clone()], Some(kept())));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(store.path(&name)).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(store.path(&name)).unwrap();
        for (from, to) in [
            ("threads\": \"2", "threads\": \"3"),
            ("threads\": \"2", "threads\": \"many"),
            ("kept/1", "kept/9"),
            ("{", ""),
            ("\"gain\": 2.0", "\"gain\": null"),
            ("\"checksum\": \"", "\"checksum\": \"0"),
        ] {
            assert!(text.contains(from), "{from}");
            std::fs::write(store.path(&name), text.replacen(from, to, 1)).unwrap();
            assert!(store.read(&name).is_err(), "{from}");
        }
        for cut in 0..text.len() - 2 {
            assert!(Kept::parse(&text[..cut]).is_err(), "{cut}");
        }
        for bytes in [vec![], vec![0xff; 40], vec![b' '; FILE_BYTES_MAX as usize + 1]] {
            std::fs::write(store.path(&name), bytes).unwrap();
            assert!(store.read(&name).is_err());
        }
        std::fs::write(store.path("00000000-00000000"), &text).unwrap();
        assert!(store.read("00000000-00000000").unwrap_err().to_string().contains(&name));
        store.write(&kept()).unwrap();
        assert_eq!(store.read(&name).unwrap(), Some(kept()));
        store.remove(&name).unwrap();
        assert_eq!(store.read(&name).unwrap(), None);
    }

    #[test]
    fn differences_are_reported() {
        let one = kept().conditions;
        assert_eq!(one.differs(&one), None);
        let other = Conditions { changed: 9, ..one.clone() };
        assert!(one.differs(&other).unwrap().contains("changed"));
        assert_eq!(one.name(), other.name(), "so that it can be said");
        let other = Conditions { machine: "n".to_owned(), ..one.clone() };
        assert_ne!(one.name(), other.name());
    }
}
