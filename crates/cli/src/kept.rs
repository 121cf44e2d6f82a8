//! What `trimtab tune` found, kept: a file a profile in the user's data folder, which `trimtab run` applies.
//!
//! Problem: a setting that is good for one program, work and machine may be bad for another. Idea: a profile says for what it holds: the very file of the
//! program (path, size, time of change), its arguments with every number replaced by `#`, the machine and its kernel, and the cores that were asked for and given. The file's
//! name is made of these, so that a run without a profile pays for one look into a folder.
//!
//! Properties: a file is written whole under another name and then takes its own, readable by its owner alone; one of another version, with a wrong
//! checksum, of another owner, or that says another name than it has counts as none, and why is one line. Values were checked as a [`Setting`]'s, so that
//! nothing but what `run`'s own options can say comes from a file.

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

/// The form of a file.
pub const SCHEMA: &str = "trimtab.kept/1";
/// No file is longer.
const LONGEST: u64 = 1 << 20;

/// For what a profile holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Conditions {
    /// The program's file.
    pub program: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// When it was changed last, in nanoseconds since 1970.
    pub changed: i64,
    /// Its arguments with `#` for every number.
    pub arguments: String,
    /// The machine and its kernel.
    pub machine: String,
    /// What was asked for, as options of `run`.
    pub asked: String,
    /// Cores that were given.
    pub cores: u32,
}

/// A profile.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The setting that is better.
    pub setting: Setting,
    /// The setting it was compared with.
    pub from: Setting,
    /// For what it holds.
    pub conditions: Conditions,
    /// What was measured: `time`, or a regular expression.
    pub metric: String,
    /// Whether more of it is better.
    pub higher: bool,
    /// How many times as good it is.
    pub gain: f64,
    /// At least, with 95 % confidence.
    pub low: f64,
    /// At most.
    pub high: f64,
    /// Runs as it was.
    pub before: Vec<f64>,
    /// Runs in the setting, in turn with those.
    pub after: Vec<f64>,
    /// What each knob adds to the others, where that was asked.
    pub adds: Vec<(Knob, f64)>,
    /// When it was found, in seconds since 1970.
    pub when: u64,
    /// By which version.
    pub version: String,
}

#[derive(Serialize, Deserialize)]
struct File {
    schema: String,
    checksum: String,
    profile: serde_json::Value,
}

impl Conditions {
    /// Those of a program that is to be started; `cores` is what it gets, or 0 as long as nobody knows.
    ///
    /// # Errors
    /// The file cannot be looked at.
    pub fn of(program: &Path, command: &[OsString], place: &PlaceArgs, cores: u32) -> Result<Self> {
        let program =
            std::fs::canonicalize(program).with_context(|| format!("cannot find {}", program.display()))?;
        let file =
            std::fs::metadata(&program).with_context(|| format!("cannot look at {}", program.display()))?;
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

    /// The name of the profile that would hold here: eight digits for the program and its arguments, eight for the rest.
    pub fn name(&self) -> String {
        let program = [self.program.as_os_str().as_bytes(), b"\0", self.arguments.as_bytes()].concat();
        let rest = format!("{}\0{}", self.machine, self.asked);
        format!("{:08x}-{:08x}", short(&program), short(rest.as_bytes()))
    }

    /// Why a profile with these conditions does not hold where those are met.
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
    /// Which way is better.
    pub fn better(&self) -> Better {
        if self.higher { Better::More } else { Better::Less }
    }

    /// As a file has it.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn text(&self) -> Result<String> {
        let profile = serde_json::to_value(self)?;
        let file =
            File { schema: SCHEMA.to_owned(), checksum: fnv1a_hex(profile.to_string().as_bytes()), profile };
        Ok(serde_json::to_string_pretty(&file)? + "\n")
    }

    /// From a file's text.
    ///
    /// # Errors
    /// It is none of ours, in words.
    pub fn parse(text: &str) -> Result<Self> {
        let Ok(file) = serde_json::from_str::<File>(text) else { bail!("it is no profile of trimtab tune") };
        if file.schema != SCHEMA {
            bail!(
                "it is of the form {:?}, and {SCHEMA} is known here",
                file.schema.chars().take(40).collect::<String>()
            );
        }
        if fnv1a_hex(file.profile.to_string().as_bytes()) != file.checksum {
            bail!("its checksum is wrong");
        }
        serde_json::from_value(file.profile).context("it is damaged")
    }
}

/// The user's profiles.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Where the environment says; `None` where it does not.
    pub fn of(world: &World) -> Option<Self> {
        Some(Self { folder: world.data()?.join("profiles") })
    }

    /// A profile's file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    /// Whether there is a folder of them at all.
    pub fn any(&self) -> bool {
        self.folder.is_dir()
    }

    /// All names, in order.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let name =
            |entry: std::fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned());
        let mut names: Vec<String> = entries.filter_map(name).filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }

    /// A profile by its name; `None` where there is none.
    ///
    /// # Errors
    /// There is one that does not count, and why.
    pub fn read(&self, name: &str) -> Result<Option<Kept>> {
        let path = self.path(name);
        let file = match std::fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if !file.is_file() || file.len() > LONGEST {
            bail!("it is no file of ours");
        }
        if ![0, rustix::process::geteuid().as_raw()].contains(&file.uid()) {
            bail!("it is another user's");
        }
        let text = std::fs::read(&path)?;
        let Ok(text) = String::from_utf8(text) else { bail!("it is no profile of trimtab tune") };
        let kept = Kept::parse(&text)?;
        if kept.conditions.name() != name {
            bail!("it holds the profile {}", kept.conditions.name());
        }
        Ok(Some(kept))
    }

    /// Keeps a profile, in the place of what had its name. Answers its name.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, kept: &Kept) -> Result<String> {
        let name = kept.conditions.name();
        write(&self.path(&name), kept.text()?.as_bytes())
            .with_context(|| format!("cannot keep {}", self.path(&name).display()))?;
        Ok(name)
    }

    /// Removes a profile.
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

/// The arguments of a command, with `#` for every number: `-n 100 in.dat` and `-n 200 in.dat` are of one class.
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

/// What decides how many cores a run gets, and which.
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
    fn what_was_kept_is_read_and_nothing_else_counts() {
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
        for bytes in [vec![], vec![0xff; 40], vec![b' '; LONGEST as usize + 1]] {
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
    fn what_differs_is_said() {
        let one = kept().conditions;
        assert_eq!(one.differs(&one), None);
        let other = Conditions { changed: 9, ..one.clone() };
        assert!(one.differs(&other).unwrap().contains("changed"));
        assert_eq!(one.name(), other.name(), "so that it can be said");
        let other = Conditions { machine: "n".to_owned(), ..one.clone() };
        assert_ne!(one.name(), other.name());
    }
}
