//! Release archives (`scripts/dist`), packed from small files: what is in them, and equal bytes.
//! `.ci/run` packs and runs what it has built.

use crate::util::{Sandbox, chmod, lab, need, text, trimtab};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A time of files, in seconds since 1970.
const EPOCH: &str = "1700000000";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns `()` where the script's tools are installed.
fn tools() -> Option<()> {
    let there =
        |tool: &&str| Command::new(tool).arg("--version").output().is_ok_and(|it| it.status.success());
    let gnu = Command::new("tar").arg("--version").output().ok()?;
    let all = ["python3", "gzip", "strip", "readelf", "objdump", "sha256sum"].iter().all(there);
    (all && String::from_utf8_lossy(&gnu.stdout).contains("GNU tar")).then_some(())
}

/// Makes stand-ins for what a build leaves. The laboratory writes the manuals, so it is the real
/// one.
fn built(sandbox: &Sandbox) -> PathBuf {
    sandbox.script("built/trimtab", format!("#!/bin/sh\nexec '{}' \"$@\"\n", trimtab().display()));
    sandbox.script("built/trimtab-lab", format!("#!/bin/sh\nexec '{}' \"$@\"\n", lab().display()));
    sandbox.script("built/trimtab-discover", "#!/bin/sh\n");
    let libraries = [
        "libtrimtab_shim.so",
        "libtrimtab_shim_blas.so",
        "libtrimtab_team_c.so",
        "libtrimtab_team_c.a",
        "libtrimtab_hold_c.so",
    ];
    for library in libraries {
        fs::write(sandbox.path("built").join(library), library).unwrap();
    }
    sandbox.path("built")
}

fn dist(words: &[&OsStr], epoch: &str) -> Output {
    let mut command = Command::new(root().join("scripts/dist"));
    command.args(words).env("SOURCE_DATE_EPOCH", epoch).output().unwrap()
}

/// Packs into this folder, and returns the archive.
fn pack(sandbox: &Sandbox, to: &str, mask: &str, zone: &str) -> PathBuf {
    let to = sandbox.path(to);
    let done = Command::new("sh")
        .args(["-c", &format!("umask {mask}; exec \"$0\" \"$@\"")])
        .arg(root().join("scripts/dist"))
        .args(["--no-build", "--built"])
        .arg(sandbox.path("built"))
        .arg("--to")
        .arg(&to)
        .envs([("SOURCE_DATE_EPOCH", EPOCH), ("TZ", zone)])
        .current_dir(sandbox.path(""))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let name = format!("trimtab-{}-{}-linux.tar.gz", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    assert!(said.contains(&name), "{said}");
    to.join(name)
}

fn run(program: &str, words: &[&OsStr], folder: &Path) -> String {
    let done = Command::new(program).args(words).current_dir(folder).env("TZ", "UTC").output().unwrap();
    assert!(done.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn an_archive_has_the_same_bytes_wherever_and_whenever_it_is_packed() {
    need!(tools(), "scripts/dist needs Python 3, GNU tar, gzip, binutils and coreutils");
    let sandbox = Sandbox::new();
    built(&sandbox);
    let one = pack(&sandbox, "one", "022", "UTC");
    // Files of another day, another mask, another time zone, a folder with a space.
    for file in fs::read_dir(sandbox.path("built")).unwrap() {
        let file = fs::File::options().append(true).open(file.unwrap().path()).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    }
    let two = pack(&sandbox, "the other", "077", "Asia/Tokyo");
    assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap(), "two archives of the same files differ");
    let list = |archive: &Path| archive.with_file_name(text_name(archive).replace(".tar.gz", ".cdx.json"));
    assert_eq!(text(&list(&one)), text(&list(&two)));
    run(
        "sha256sum",
        &["--check".as_ref(), format!("{}.sha256", text_name(&two)).as_ref()],
        two.parent().unwrap(),
    );

    let listed = run(
        "tar",
        &["--list", "--verbose", "--numeric-owner", "--full-time", "--gzip", "--file"]
            .map(OsStr::new)
            .iter()
            .copied()
            .chain([one.as_os_str()])
            .collect::<Vec<_>>(),
        &sandbox.path(""),
    );
    let top = text_name(&one).replace(".tar.gz", "/");
    let mut names = Vec::new();
    for line in listed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((words[1], words[3], words[4]), ("0/0", "2023-11-14", "22:13:20"), "{line}");
        let mode = &words[0][1..];
        assert!(["rwxr-xr-x", "rw-r--r--", "rwxrwxrwx"].contains(&mode), "{line}");
        names.push(words[5].strip_prefix(&top).unwrap_or_else(|| panic!("{line}")).to_owned());
    }
    for name in [
        "bin/trimtab",
        "bin/trimtab-lab",
        "libexec/trimtab/trimtab-discover",
        "lib/trimtab/libtrimtab_shim.so",
        "lib/trimtab/libtrimtab_shim_blas.so",
        "lib/libtrimtab_team.so",
        "include/trimtab/team.h",
        "share/man/man1/trimtab-run.1",
        "share/bash-completion/completions/trimtab",
        "share/doc/trimtab/docs/installing.md",
        "share/doc/trimtab/LICENSE-MIT",
        "share/doc/trimtab/third-party-licences.txt",
        "share/doc/trimtab/sbom.cdx.json",
    ] {
        assert!(names.iter().any(|known| known == name), "{name} is not in the archive: {names:?}");
    }
    // It would name the folder for which the files were installed.
    assert!(!names.iter().any(|name| name.ends_with("manifest")), "{names:?}");
}

fn text_name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn an_unpacked_archive_works_and_names_no_other_place() {
    need!(tools(), "scripts/dist needs Python 3, GNU tar, gzip, binutils and coreutils");
    let sandbox = Sandbox::new();
    built(&sandbox);
    let archive = pack(&sandbox, "to", "022", "UTC");
    fs::create_dir(sandbox.path("a place")).unwrap();
    run("tar", &["-xzf".as_ref(), archive.as_os_str()], &sandbox.path("a place"));
    let top = sandbox.path("a place").join(text_name(&archive).replace(".tar.gz", ""));
    let version = Command::new(top.join("bin/trimtab")).arg("--version").output().unwrap();
    assert!(String::from_utf8_lossy(&version.stdout).contains(env!("CARGO_PKG_VERSION")));
    let about = text(&top.join("lib/pkgconfig/trimtab-team.pc"));
    assert!(about.starts_with("prefix=${pcfiledir}/../..\n"), "{about}");
    if Command::new("pkg-config").arg("--version").output().is_ok() {
        let flags = Command::new("pkg-config")
            .args(["--variable=prefix", "trimtab-team"])
            .env("PKG_CONFIG_PATH", top.join("lib/pkgconfig"))
            .output()
            .unwrap();
        let prefix = String::from_utf8(flags.stdout).unwrap().trim().replace('\\', "");
        assert_eq!(fs::canonicalize(prefix).unwrap(), fs::canonicalize(&top).unwrap());
    }
    // The unit's place is that of a system's archive.
    assert!(text(&top.join("lib/systemd/system/trimtab.service")).contains("\"/usr/local/bin/trimtab\""));
}

/// Returns names, versions and checksums of Cargo.lock.
fn locked() -> BTreeSet<(String, String, Option<String>)> {
    let lock = text(&root().join("Cargo.lock"));
    let field = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
        line.map(|value| value.trim_end_matches('"').to_owned())
    };
    let blocks = lock.split("[[package]]").skip(1);
    blocks
        .map(|block| {
            (field(block, "name").unwrap(), field(block, "version").unwrap(), field(block, "checksum"))
        })
        .collect()
}

#[test]
fn the_list_of_components_has_what_is_linked_with_its_checksums() {
    need!(tools(), "scripts/dist needs Python 3, GNU tar, gzip, binutils and coreutils");
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("linked"), "hwloc|2.9.0|BSD-3-Clause|\n").unwrap();
    let done = Command::new(root().join("scripts/sbom"))
        .args(["--target", &format!("{}-unknown-linux-gnu", std::env::consts::ARCH), "--linked"])
        .arg(sandbox.path("linked"))
        .env("SOURCE_DATE_EPOCH", EPOCH)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let list: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&list["bomFormat"], &list["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(list["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    let locked = locked();
    let mut scopes = std::collections::BTreeMap::new();
    for component in list["components"].as_array().unwrap() {
        let word = |name: &str| component[name].as_str().unwrap().to_owned();
        assert!(
            component["licenses"][0]["expression"].as_str().is_some_and(|it| !it.is_empty()),
            "{component}"
        );
        let checksum = component["hashes"][0]["content"].as_str().map(str::to_owned);
        let key = (word("name"), word("version"), checksum);
        assert!(key.0 == "hwloc" || locked.contains(&key), "{key:?} is not what Cargo.lock has");
        scopes.insert(key.0, word("scope"));
    }
    for (name, scope) in
        [("trimtab-core", "required"), ("hwlocality", "required"), ("hwloc", "required"), ("syn", "excluded")]
    {
        assert_eq!(scopes.get(name).map(String::as_str), Some(scope), "{name}");
    }
    for name in ["proptest", "criterion", "insta", "tempfile"] {
        assert!(!scopes.contains_key(name), "{name} is for tests");
    }
}

#[test]
fn what_cannot_be_packed_is_said_with_its_remedy() {
    need!(tools(), "scripts/dist needs Python 3, GNU tar, gzip, binutils and coreutils");
    let sandbox = Sandbox::new();
    let folder = built(&sandbox);
    let fails = |words: &[&OsStr], epoch: &str, expected: &str| {
        let done = dist(words, epoch);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.code() == Some(1) && said.contains(expected), "{words:?}: {said}");
    };
    let (no, named, to) = (OsStr::new("--no-build"), OsStr::new("--built"), OsStr::new("--to"));
    fails(&[OsStr::new("--fast")], EPOCH, "unknown option --fast (scripts/dist --help)");
    fails(&[named], EPOCH, "--built needs a folder");
    fails(&[named, folder.as_os_str()], EPOCH, "give --no-build too");
    fails(&[no, named, folder.as_os_str()], "yesterday", "SOURCE_DATE_EPOCH is not a number of seconds");
    fs::remove_file(folder.join("libtrimtab_shim.so")).unwrap();
    let target = sandbox.path("to");
    let missing = [no, named, folder.as_os_str(), to, target.as_os_str()];
    fails(&missing, EPOCH, "libtrimtab_shim.so is not in");
    assert!(!target.exists(), "nothing is left behind");
    let help = dist(&[OsStr::new("--help")], EPOCH);
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("--check-reproducible"));
}

#[test]
fn a_smoke_test_finds_an_archive_that_does_not_work() {
    need!(tools(), "scripts/dist needs Python 3, GNU tar, gzip, binutils and coreutils");
    let sandbox = Sandbox::new();
    let folder = built(&sandbox);
    fs::write(folder.join("trimtab"), "#!/bin/sh\nexit 3\n").unwrap();
    chmod(&folder.join("trimtab"), 0o755);
    let archive = pack(&sandbox, "to", "022", "UTC");
    let done = Command::new(root().join("scripts/dist-smoke")).arg("--here").arg(&archive).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.code() == Some(1) && said.contains("ok: the checksum"), "{said}");
    assert!(said.contains("FAILED: this machine") && said.contains("status 3 of: "), "{said}");
    let none = Command::new(root().join("scripts/dist-smoke")).arg("no-archive").output().unwrap();
    assert!(none.status.code() == Some(2) && String::from_utf8_lossy(&none.stderr).contains("make dist"));
}
