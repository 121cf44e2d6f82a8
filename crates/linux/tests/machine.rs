//! Loading of the machine model: valid caches, caches that must not be trusted, helpers that fail.
//!
//! The helper is a shell script here; the real one is tested on real machines next to its own code.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use trimtab_core::topology::{Machine, parse_synthetic};
use trimtab_linux::machine::{
    CacheFault, DecodeError, Key, MAX_BYTES, MachineLoadError, MachineOptions, ModelOrigin, encode,
    from_synthetic, from_xml, load, user_cache_file,
};

const ON_DISK: &str = "pack:1 core:3";
const FROM_HELPER: &str = "pack:2 numa:2 core:4 pu:2";

/// A scratch directory with a helper and a cache.
struct Fixture {
    folder: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let place = Self { folder: TempDir::new().unwrap() };
        fs::write(place.path("model"), model(FROM_HELPER)).unwrap();
        place.helper("echo \"$@\" >> $here/starts; cat $here/model");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes this script the helper. Another process writes the file: if this one did, a test that
    /// forks meanwhile would hold it open for writing, and starting it would fail with "text file
    /// busy".
    fn helper(&self, script: &str) {
        let file = self.path("trimtab-discover");
        let mut shell = Command::new("sh")
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(&file)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let script = format!("#!/bin/sh\nhere={}\n{script}\n", self.folder.path().display());
        shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
    }

    fn starts(&self) -> usize {
        fs::read_to_string(self.path("starts")).unwrap_or_default().lines().count()
    }

    fn options(&self) -> MachineOptions {
        MachineOptions {
            helper: Some(self.path("trimtab-discover")),
            system_cache: Some(self.path("system")),
            user_cache: Some(self.path("user/trimtab")),
            ..MachineOptions::default()
        }
    }

    fn cache_file(&self) -> PathBuf {
        user_cache_file(&self.path("user/trimtab"), &Key::live().unwrap(), false)
    }

    /// Puts a valid model into the user cache.
    fn fill(&self) {
        fs::create_dir_all(self.path("user/trimtab")).unwrap();
        fs::write(self.cache_file(), model(ON_DISK)).unwrap();
        set_mode(&self.cache_file(), 0o600);
    }

    /// Asserts that the helper runs once, and that the cache is valid afterwards.
    fn expect_helper(&self, why: &str) {
        let before = self.starts();
        let loaded = load(&self.options()).unwrap();
        assert!(matches!(loaded.origin, ModelOrigin::Helper(_)), "{why}: {:?}", loaded.origin);
        assert_eq!(loaded.machine, machine(FROM_HELPER), "{why}");
        assert!(loaded.warning.is_none(), "{why}: {:?}", loaded.warning);
        let again = load(&self.options()).unwrap();
        assert_eq!(again.origin, ModelOrigin::Cache(self.cache_file()), "{why}");
        assert_eq!(self.starts(), before + 1, "{why}");
    }
}

/// Reports a skip past the test harness, which captures the output of passing tests.
fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

fn model(text: &str) -> Vec<u8> {
    encode(&Key::live().unwrap(), machine(text).parts()).unwrap()
}

fn machine(text: &str) -> Machine {
    parse_synthetic(text).unwrap()
}

fn set_mode(file: &Path, mode: u32) {
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_first_start_asks_the_helper_and_the_next_ones_do_not() {
    let place = Fixture::new();
    place.expect_helper("nothing cached");
    assert_eq!(fs::read_to_string(place.path("starts")).unwrap(), "live --no-devices\n");
    assert_eq!(fs::read(place.cache_file()).unwrap(), model(FROM_HELPER));
    assert_eq!(fs::metadata(place.cache_file()).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(place.path("user/trimtab")).unwrap().mode() & 0o777, 0o700);
    let files = fs::read_dir(place.path("user/trimtab")).unwrap().count();
    assert_eq!(files, 1, "no draft is left behind");
}

#[test]
fn a_refresh_passes_the_caches_by_and_renews_ours() {
    let place = Fixture::new();
    place.fill();
    assert_eq!(load(&place.options()).unwrap().machine, machine(ON_DISK));
    let loaded = load(&MachineOptions { refresh: true, ..place.options() }).unwrap();
    assert_eq!(loaded.machine, machine(FROM_HELPER));
    assert_eq!(load(&place.options()).unwrap().machine, machine(FROM_HELPER));
}

#[test]
fn a_model_with_devices_is_another_one_unless_root_made_it() {
    let place = Fixture::new();
    place.fill();
    let with_devices = MachineOptions { devices: true, ..place.options() };
    assert_eq!(load(&with_devices).unwrap().machine, machine(FROM_HELPER));
    assert_eq!(fs::read_to_string(place.path("starts")).unwrap(), "live\n");
    let kept = user_cache_file(&place.path("user/trimtab"), &Key::live().unwrap(), true);
    assert_eq!(load(&with_devices).unwrap().origin, ModelOrigin::Cache(kept));
    assert_eq!(load(&place.options()).unwrap().machine, machine(ON_DISK));
    fs::remove_dir_all(place.path("user")).unwrap();
    fs::write(place.path("system"), model("core:7")).unwrap();
    set_mode(&place.path("system"), 0o644);
    for options in [&with_devices, &place.options()] {
        assert_eq!(load(options).unwrap().machine, machine("core:7"));
    }
    // A model without devices is none for a request of devices, wherever it is.
    let without = encode(&Key::live().unwrap().without_devices(), machine("core:5").parts()).unwrap();
    fs::write(place.path("system"), without).unwrap();
    assert_eq!(load(&place.options()).unwrap().machine, machine("core:5"));
    assert_eq!(load(&with_devices).unwrap().machine, machine(FROM_HELPER));
    // A start uses the model with devices if there is no other.
    fs::remove_file(place.path("system")).unwrap();
    assert_eq!(load(&place.options()).unwrap().machine, machine(FROM_HELPER));
    assert_eq!(place.starts(), 2);
}

#[test]
fn a_helper_that_does_not_know_the_option_is_asked_without() {
    let place = Fixture::new();
    place.helper(
        "case $* in live) cat $here/model;; *) echo \"trimtab-discover: expected \\`live\\`\" >&2; exit 2;; esac",
    );
    let bytes = model(FROM_HELPER);
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let at = bytes.windows(version.len()).position(|bytes| bytes == version).unwrap();
    let mut older = bytes.clone();
    older[at] = b'9';
    fs::write(place.path("model"), older).unwrap();
    let said = load(&place.options()).unwrap_err().to_string();
    assert!(said.contains("another trimtab version"), "{said}");
    fs::write(place.path("model"), bytes).unwrap();
    assert_eq!(load(&place.options()).unwrap().machine, machine(FROM_HELPER));
}

#[test]
fn the_system_cache_serves_without_a_model_of_ones_own_and_is_never_written() {
    let place = Fixture::new();
    place.fill();
    fs::write(place.path("system"), model("core:7")).unwrap();
    set_mode(&place.path("system"), 0o644);
    assert_eq!(load(&place.options()).unwrap().machine, machine(ON_DISK));
    for own in [Some("of another version"), None] {
        fs::remove_file(place.cache_file()).unwrap();
        if let Some(text) = own {
            fs::write(place.cache_file(), text).unwrap();
        }
        let loaded = load(&place.options()).unwrap();
        let origin = ModelOrigin::Cache(place.path("system"));
        assert_eq!((loaded.machine, loaded.origin), (machine("core:7"), origin), "{own:?}");
    }
    fs::write(place.path("system"), b"of another version").unwrap();
    place.expect_helper("only a bad system cache");
    assert_eq!(fs::read(place.path("system")).unwrap(), b"of another version");
}

#[test]
fn a_damaged_or_stale_cache_is_replaced() {
    let place = Fixture::new();
    let good = model(ON_DISK);
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let stale = encode(&Key::file(), machine(ON_DISK).parts()).unwrap();
    for (why, bytes) in [
        ("empty", Vec::new()),
        ("cut", good[..good.len() / 2].to_vec()),
        ("flipped", flipped),
        ("stale", stale),
        ("huge", vec![0; MAX_BYTES + 1]),
    ] {
        place.fill();
        fs::write(place.cache_file(), bytes).unwrap();
        place.expect_helper(why);
    }
}

#[test]
fn a_cache_that_others_could_have_written_is_not_used() {
    let place = Fixture::new();
    for mode in [0o620, 0o602, 0o666] {
        place.fill();
        set_mode(&place.cache_file(), mode);
        place.expect_helper(&format!("mode {mode:o}"));
    }

    place.fill();
    fs::rename(place.cache_file(), place.path("elsewhere")).unwrap();
    symlink(place.path("elsewhere"), place.cache_file()).unwrap();
    place.expect_helper("symbolic link");
    assert_eq!(fs::read(place.path("elsewhere")).unwrap(), model(ON_DISK), "the link's target is left alone");

    fs::remove_file(place.cache_file()).unwrap();
    let made = Command::new("mkfifo").arg(place.cache_file()).status().unwrap();
    assert!(made.success());
    place.expect_helper("FIFO");
}

#[test]
fn a_cache_that_cannot_be_written_is_a_warning() {
    let place = Fixture::new();
    fs::write(place.path("file"), "in the way").unwrap();
    let options = MachineOptions { user_cache: Some(place.path("file/trimtab")), ..place.options() };
    let loaded = load(&options).unwrap();
    assert_eq!(loaded.machine, machine(FROM_HELPER));
    let warning = loaded.warning.unwrap();
    assert!(matches!(warning, CacheFault::Write { .. }));
    assert!(warning.to_string().starts_with(&place.path("file").display().to_string()), "{warning}");

    // A directory at the file's path.
    fs::create_dir_all(place.cache_file().join("x")).unwrap();
    let loaded = load(&place.options()).unwrap();
    assert!(matches!(loaded.warning, Some(CacheFault::Write { .. })));
    assert_eq!(fs::read_dir(place.path("user/trimtab")).unwrap().count(), 1, "no draft is left behind");

    let nowhere = MachineOptions { user_cache: None, system_cache: None, ..place.options() };
    assert!(load(&nowhere).unwrap().warning.is_none(), "no cache wanted, none missed");
}

#[test]
fn files_of_other_users_are_neither_used_nor_made() {
    let place = Fixture::new();
    place.fill();
    if chown(place.cache_file(), Some(1), None).is_err() {
        skip("only root can give files away");
        return;
    }
    place.expect_helper("somebody else's file");

    // Under sudo with the user's home: no file of root is left there.
    fs::create_dir(place.path("home")).unwrap();
    chown(place.path("home"), Some(1), None).unwrap();
    let theirs = MachineOptions { user_cache: Some(place.path("home/.cache/trimtab")), ..place.options() };
    let loaded = load(&theirs).unwrap();
    assert_eq!(loaded.machine, machine(FROM_HELPER));
    assert!(
        matches!(loaded.warning, Some(CacheFault::ForeignFolder { owner: 1, .. })),
        "{:?}",
        loaded.warning
    );
    assert_eq!(fs::read_dir(place.path("home")).unwrap().count(), 0);
}

#[test]
fn many_starts_at_once_leave_one_whole_file() {
    let place = Fixture::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let renewed = load(&MachineOptions { refresh: true, ..place.options() }).unwrap();
                    assert_eq!(renewed.machine, machine(FROM_HELPER));
                    assert!(renewed.warning.is_none(), "{:?}", renewed.warning);
                    // A whole model is in place at every moment.
                    assert_eq!(
                        load(&place.options()).unwrap().origin,
                        ModelOrigin::Cache(place.cache_file())
                    );
                }
            });
        }
    });
    assert_eq!(fs::read(place.cache_file()).unwrap(), model(FROM_HELPER));
    assert_eq!(fs::read_dir(place.path("user/trimtab")).unwrap().count(), 1, "no draft is left behind");
}

#[test]
fn a_missing_helper_is_named_with_a_remedy() {
    let place = Fixture::new();
    let missing = MachineOptions { helper: Some(place.path("nowhere")), ..place.options() };
    let error = load(&missing).unwrap_err();
    assert!(matches!(&error, MachineLoadError::NoHelper { looked } if looked == &[place.path("nowhere")]));
    assert!(error.to_string().contains("reinstall"), "{error}");
    // There is none next to this test program either.
    let error = load(&MachineOptions::default()).unwrap_err().to_string();
    assert!(error.contains("libexec/trimtab/trimtab-discover"), "{error}");
    // A valid cache needs no helper.
    place.fill();
    assert_eq!(load(&missing).unwrap().machine, machine(ON_DISK));
}

#[test]
fn a_failing_helper_is_a_separate_error() {
    let place = Fixture::new();
    let verdict = |script: &str| {
        place.helper(script);
        let error = load(&place.options()).unwrap_err();
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        (error, text)
    };
    let (error, text) = verdict("echo noise >&2; echo 'trimtab-discover: no machine (do this)' >&2; exit 2");
    assert!(matches!(error, MachineLoadError::Refused { .. }));
    assert_eq!(text, "no machine (do this)");

    let linker = "libhwloc.so.15: cannot open shared object file: No such file or directory";
    let (error, text) =
        verdict(&format!("echo 'x: error while loading shared libraries: {linker}' >&2; exit 127"));
    assert!(matches!(error, MachineLoadError::NoHwloc { .. }));
    assert!(text.contains("libhwloc15") && text.contains(linker), "{text}");

    let (error, text) = verdict("echo 'topology.c:1: assertion' >&2; kill -ABRT $$");
    assert!(matches!(error, MachineLoadError::Failed { .. }));
    assert!(text.contains("killed by signal 6") && text.contains("assertion"), "{text}");

    let (error, text) = verdict("exit 3");
    assert!(matches!(error, MachineLoadError::Failed { .. }));
    assert!(text.contains("status 3"), "{text}");

    let (error, text) = verdict("exit 2");
    assert!(matches!(error, MachineLoadError::Failed { .. }), "exit 2 without a line is no refusal: {text}");

    let (error, text) = verdict("echo hello; echo 'a word' >&2");
    assert!(matches!(error, MachineLoadError::Garbage { source: DecodeError::Magic, .. }));
    assert!(text.contains("no usable model") && text.contains("a word"), "{text}");

    let (error, _) = verdict("true");
    assert!(matches!(error, MachineLoadError::Garbage { source: DecodeError::Empty, .. }));

    let (error, _) = verdict("head -c 100 $here/model");
    assert!(matches!(error, MachineLoadError::Garbage { source: DecodeError::Length { .. }, .. }));

    // Endless output on either pipe.
    let (error, _) = verdict("exec yes");
    assert!(matches!(
        error,
        MachineLoadError::Garbage { source: DecodeError::TooLong | DecodeError::Magic, .. }
    ));
    let (error, _) = verdict("exec yes >&2");
    assert!(matches!(error, MachineLoadError::Failed { .. }));
    assert!(!place.path("user").exists(), "nothing of it is kept");

    set_mode(&place.path("trimtab-discover"), 0o644);
    let error = load(&place.options()).unwrap_err();
    assert!(matches!(error, MachineLoadError::Start { .. }), "{error}");
}

#[test]
fn a_machine_from_a_file_is_asked_for_and_not_kept() {
    let place = Fixture::new();
    fs::write(place.path("model"), encode(&Key::file(), machine(ON_DISK).parts()).unwrap()).unwrap();
    let helper = place.path("trimtab-discover");
    let found = from_xml(Path::new("/some where/m.xml"), Some(&helper)).unwrap();
    assert_eq!(found, machine(ON_DISK));
    assert_eq!(fs::read_to_string(place.path("starts")).unwrap(), "xml /some where/m.xml\n");
    assert!(!place.path("user").exists());
    // The model of the running machine is not that of a file.
    fs::write(place.path("model"), model(ON_DISK)).unwrap();
    let error = from_xml(Path::new("m.xml"), Some(&helper)).unwrap_err();
    assert!(matches!(error, MachineLoadError::Garbage { source: DecodeError::Stale { .. }, .. }));
}

#[test]
fn a_synthetic_machine_needs_no_helper() {
    assert_eq!(from_synthetic("core:4 pu:2").unwrap().pu_count(), 8);
    assert!(matches!(from_synthetic("core:x"), Err(MachineLoadError::Synthetic(_))));
}
