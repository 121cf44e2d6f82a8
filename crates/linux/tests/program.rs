//! Properties of a command: generated executables of all kinds, damaged ones, scripts, and programs
//! of this machine.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stderr, reason = "what this machine cannot show is said aloud")]

use proptest::prelude::*;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use trimtab_core::place::runtimes::Runtime;
use trimtab_linux::program::{
    Binary, Family, FileKind, Linkage, Program, ResolveError, SecureExec, WordSize, resolve,
};

/// An executable with the parts that are read, and no code.
#[derive(Clone, Copy)]
struct Made<'a> {
    wide: bool,
    big_endian: bool,
    loader: Option<&'a str>,
    needed: &'a [&'a str],
    note: Option<&'a str>,
    section: Option<&'a str>,
}

const PLAIN: Made<'static> =
    Made { wide: true, big_endian: false, loader: None, needed: &[], note: None, section: None };
const LOADER: Option<&str> = Some("/lib64/ld-linux-x86-64.so.2");
/// Load address of the generated executables, so that addresses differ from offsets in the file.
const BASE: u64 = 0x40_0000;

/// Numbers of the width and byte order of an executable.
struct Bytes {
    wide: bool,
    big_endian: bool,
    bytes: Vec<u8>,
}

impl Bytes {
    fn part(&mut self, value: u64, width: usize) {
        let bytes = if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        self.bytes.extend(if self.big_endian { &bytes[8 - width..] } else { &bytes[..width] });
    }
    fn half(&mut self, value: u64) {
        self.part(value, 2);
    }
    fn word(&mut self, value: u64) {
        self.part(value, 4);
    }
    fn long(&mut self, value: u64) {
        self.part(value, if self.wide { 8 } else { 4 });
    }
    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }
}

/// The parts of an executable behind its headers, and the segments that hold them.
struct Parts {
    /// Size of the headers: the offset of the first part.
    start: usize,
    body: Bytes,
    /// Kind, offset and size of each segment.
    segments: Vec<(u64, usize, usize)>,
    /// Offset of the table of sections, or 0.
    sections_at: usize,
}

impl Parts {
    /// Returns the offset of the next bytes.
    fn next(&self) -> usize {
        self.start + self.body.bytes.len()
    }

    fn segment(&mut self, kind: u64, fill: impl Fn(&mut Bytes)) {
        self.body.align();
        let from = self.body.bytes.len();
        fill(&mut self.body);
        self.segments.push((kind, self.start + from, self.body.bytes.len() - from));
    }

    fn loader(&mut self, loader: &str) {
        self.segment(3, |body| body.bytes.extend([loader.as_bytes(), b"\0"].concat()));
    }

    fn dynamic(&mut self, needed: &[&str]) {
        let strings: Vec<u8> = [b"\0".to_vec(), needed.join("\0").into_bytes(), b"\0".to_vec()].concat();
        let at = self.next();
        self.body.bytes.extend(&strings);
        self.segment(2, |body| {
            let mut offset = 1;
            for name in needed {
                body.long(1);
                body.long(offset);
                offset += name.len() as u64 + 1;
            }
            for (tag, value) in [(5, BASE + at as u64), (10, strings.len() as u64), (0, 0), (1, 0xffff)] {
                body.long(tag);
                body.long(value);
            }
        });
    }

    fn note(&mut self, name: &str) {
        self.segment(4, |body| {
            for value in [name.len() as u64 + 1, 4, 4] {
                body.word(value);
            }
            body.bytes.extend([name.as_bytes(), b"\0"].concat());
            body.bytes.resize(body.bytes.len().next_multiple_of(4), 0);
            body.word(7);
        });
    }

    /// Adds the table of sections: the names, which are a section themselves.
    fn section(&mut self, name: &str) {
        let names = self.next();
        let body = &mut self.body;
        body.bytes.extend([b"\0", name.as_bytes(), b"\0"].concat());
        let length = name.len() as u64 + 2;
        body.align();
        self.sections_at = self.start + body.bytes.len();
        for (name, kind, at, size) in [(0, 0, 0, 0), (1, 3, names as u64, length)] {
            body.word(name);
            body.word(kind);
            for value in [0, 0, at, size] {
                body.long(value);
            }
            body.word(0);
            body.word(0);
            body.long(1);
            body.long(0);
        }
    }
}

impl Made<'_> {
    fn empty(&self) -> Bytes {
        Bytes { wide: self.wide, big_endian: self.big_endian, bytes: Vec::new() }
    }

    /// Returns the sizes of the header, of a segment's and of a section's entry.
    fn sizes(&self) -> (usize, usize, usize) {
        if self.wide { (64, 56, 64) } else { (52, 32, 40) }
    }

    /// Builds the parts behind the headers, of whose size they know their offsets.
    fn parts(&self) -> Parts {
        let (header, segment, _) = self.sizes();
        let dynamic = self.loader.is_some() || !self.needed.is_empty();
        let segments =
            1 + usize::from(self.loader.is_some()) + usize::from(dynamic) + usize::from(self.note.is_some());
        let start = (header + segments * segment).next_multiple_of(8);
        let mut parts = Parts { start, body: self.empty(), segments: Vec::new(), sections_at: 0 };
        if let Some(loader) = self.loader {
            parts.loader(loader);
        }
        if dynamic {
            parts.dynamic(self.needed);
        }
        if let Some(name) = self.note {
            parts.note(name);
        }
        if let Some(name) = self.section {
            parts.section(name);
        }
        parts.segments.insert(0, (1, 0, parts.next()));
        parts
    }

    /// Builds the headers, then the parts.
    fn build(&self) -> Vec<u8> {
        let Parts { start, body, segments, sections_at } = self.parts();
        let (header, segment, section) = self.sizes();
        let mut out = self.empty();
        let class = [if self.wide { 2 } else { 1 }, if self.big_endian { 2 } else { 1 }, 1];
        out.bytes.extend([&b"\x7fELF"[..], &class, &[0; 9]].concat());
        out.half(2);
        out.half(if self.wide { 62 } else { 3 });
        out.word(1);
        for value in [BASE, header as u64, sections_at as u64] {
            out.long(value);
        }
        out.word(0);
        let sections = if self.section.is_some() { 2 } else { 0 };
        for value in [header, segment, segments.len(), section, sections, usize::from(sections > 0)] {
            out.half(value as u64);
        }
        for (kind, at, size) in segments {
            let (address, at, size) = (BASE + at as u64, at as u64, size as u64);
            out.word(kind);
            if self.wide {
                out.word(5);
            }
            for value in [at, address, address, size, size] {
                out.long(value);
            }
            if !self.wide {
                out.word(5);
            }
            out.long(4);
        }
        out.bytes.resize(start, 0);
        [out.bytes, body.bytes].concat()
    }
}

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn put(&self, name: &str, bytes: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }
    fn dir(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

fn look(path: &Path) -> Program {
    Program::look(path, Some(OsStr::new("/usr/bin:/bin"))).unwrap()
}

fn binary(made: &Made<'_>) -> Option<Binary> {
    let files = Files::new();
    let program = look(&files.put("made", made.build(), 0o755));
    assert_eq!((program.kind, program.interpreter), (FileKind::Elf, None));
    program.binary
}

#[test]
fn executables_name_their_libraries() {
    for (wide, big_endian) in [(true, false), (true, true), (false, false), (false, true)] {
        let made = Made {
            wide,
            big_endian,
            loader: LOADER,
            needed: &["libm.so.6", "libgomp.so.1", "lib\x1bc.so.6"],
            ..PLAIN
        };
        let seen = binary(&made).unwrap();
        assert_eq!(seen.word_size, if wide { WordSize::Bits64 } else { WordSize::Bits32 });
        assert_eq!((seen.machine, seen.linkage()), (if wide { 62 } else { 3 }, Linkage::Dynamic));
        assert_eq!(seen.loader.as_deref(), LOADER);
        assert_eq!(seen.needed, ["libm.so.6", "libgomp.so.1", "lib\\x1bc.so.6"]);
        assert_eq!((seen.openmp, seen.go), (Some(Runtime::Libgomp), false));
    }
    let seen = binary(&PLAIN).unwrap();
    assert_eq!((seen.linkage(), seen.needed.len(), seen.openmp, seen.go), (Linkage::Static, 0, None, false));
    let seen = binary(&Made { loader: LOADER, ..PLAIN }).unwrap();
    assert_eq!((seen.linkage(), seen.needed.len()), (Linkage::Dynamic, 0));
}

#[test]
fn go_programs_are_known_by_their_note_or_their_section() {
    let go = |made| binary(&made).unwrap().go;
    assert!(go(Made { note: Some("Go"), ..PLAIN }));
    assert!(go(Made { note: Some("Go"), wide: false, big_endian: true, ..PLAIN }));
    assert!(go(Made { section: Some(".go.buildinfo"), ..PLAIN }));
    assert!(go(Made { section: Some(".go.buildinfo"), wide: false, loader: LOADER, ..PLAIN }));
    assert!(!go(Made { note: Some("GNU"), section: Some(".go.buildinfo2"), ..PLAIN }));
}

#[test]
fn privileged_files_are_recognised() {
    let files = Files::new();
    let elf = Made { loader: LOADER, ..PLAIN }.build();
    for (mode, secure) in [
        (0o755, None),
        (0o4755, Some(SecureExec::SetUid)),
        (0o2755, Some(SecureExec::SetGid)),
        (0o2745, None),
        (0o6755, Some(SecureExec::SetUid)),
    ] {
        let program = look(&files.put("made", &elf, mode));
        assert_eq!(program.secure_exec, secure, "{mode:o}");
        assert_eq!(program.takes_preload(), Some(secure.is_none()));
    }
    let script = look(&files.put("script", "#!/bin/sh\n", 0o4755));
    assert_eq!(script.secure_exec, None, "the kernel ignores the bits of a script");

    // Version 2, all effective, CAP_NET_RAW.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let path = files.put("made", &elf, 0o755);
    match rustix::fs::setxattr(&path, "security.capability", &capability, rustix::fs::XattrFlags::empty()) {
        Ok(()) => assert_eq!(look(&path).secure_exec, Some(SecureExec::Capabilities)),
        Err(errno) => eprintln!("SKIPPED: capabilities cannot be given to a file here: {errno}"),
    }
}

#[test]
fn scripts_have_the_kind_of_their_interpreter() {
    let files = Files::new();
    let elf = files.put("bin/python3.11", Made { loader: LOADER, ..PLAIN }.build(), 0o755);
    let search = files.dir("bin");
    let see =
        |text: &str| Program::look(&files.put("script", text, 0o755), Some(OsStr::new(&search))).unwrap();
    let direct = see(&format!("#!{}\nimport os\n", elf.display()));
    assert_eq!((direct.kind, direct.interpreter.as_ref()), (FileKind::Script, Some(&elf)));
    assert_eq!((direct.family, direct.takes_preload()), (Some(Family::Python), Some(true)));
    let by_env = see("#!/usr/bin/env python3.11\n");
    assert_eq!((by_env.interpreter.as_ref(), by_env.family), (Some(&elf), Some(Family::Python)));
    let split = see("#!/usr/bin/env -S python3.11 -u\n");
    assert_eq!(split.interpreter, Some(elf.clone()));
    for without in ["#!/usr/bin/env python3.11 -u\n", "#!/nowhere/sh\n", "#!\n", "#!/usr/bin/env python2\n"] {
        let program = see(without);
        assert_eq!(
            (program.kind, program.interpreter, program.binary),
            (FileKind::Script, None, None),
            "{without:?}"
        );
    }

    // One level only: a script's script is not followed, but its name still gives its kind.
    let shim = files.put("bin/node", "#!/usr/bin/env python3.11\n", 0o755);
    let two = see("#!/usr/bin/env node\n");
    assert_eq!((two.interpreter.as_ref(), two.family), (Some(&shim), Some(Family::Node)));
    assert_eq!((two.binary.as_ref(), two.takes_preload()), (None, None));
    let shim = look(&files.put("python3", "#!/bin/sh\n", 0o755));
    assert_eq!(shim.family, Some(Family::Python), "its own name counts before its interpreter's");
}

#[test]
fn a_familys_name_may_be_at_the_end_of_a_link() {
    let files = Files::new();
    let target = files.put("jdk/bin/java", PLAIN.build(), 0o755);
    let link = files.0.path().join("run-it");
    symlink(&target, &link).unwrap();
    assert_eq!(look(&link).family, Some(Family::Jvm));
    let own = files.0.path().join("python3");
    symlink(&target, &own).unwrap();
    assert_eq!(look(&own).family, Some(Family::Python), "the name it is called by counts first");
}

#[test]
fn a_file_that_is_no_executable_has_another_kind() {
    let files = Files::new();
    for text in ["", "#", "echo hello\n", "\x7fEL", "MZ"] {
        let program = look(&files.put("file", text, 0o755));
        assert_eq!(
            (program.kind, program.takes_preload(), program.binary),
            (FileKind::Other, None, None),
            "{text:?}"
        );
    }
    let error = Program::look(Path::new("/nowhere/at all"), None).unwrap_err().to_string();
    assert!(error.starts_with("cannot inspect /nowhere/at all: No such file"), "{error}");

    let pipe = files.0.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o755.into(), 0).unwrap();
    assert_eq!(look(&pipe).kind, FileKind::Other, "and looking does not wait for a writer");
    assert!(matches!(resolve(pipe.as_os_str(), None), Err(ResolveError::NotExecutable { .. })));
    assert!(matches!(Program::find(pipe.as_os_str(), None), Err(ResolveError::NotExecutable { .. })));
}

#[test]
fn a_file_that_may_only_be_executed_is_unreadable() {
    let files = Files::new();
    std::fs::set_permissions(files.0.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = files.put("java", Made { loader: LOADER, ..PLAIN }.build(), 0o4111);
    // Root may read everything, so this runs as user `nobody`.
    let program = std::thread::spawn(move || {
        if rustix::process::geteuid().is_root() {
            let nobody = rustix::process::Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        look(&path)
    })
    .join()
    .unwrap();
    assert_eq!(
        (program.kind, program.binary, program.family),
        (FileKind::Unreadable, None, Some(Family::Jvm))
    );
    assert_eq!(program.secure_exec, Some(SecureExec::SetUid));
}

#[test]
fn commands_are_resolved_as_exec_does() {
    let files = Files::new();
    let good = files.put("b/tool", "", 0o755);
    files.put("a/tool", "", 0o644);
    let only_plain = files.put("a/plain", "", 0o644);
    std::fs::create_dir(files.0.path().join("a/folder")).unwrap();
    std::fs::create_dir(files.0.path().join("a/closed")).unwrap();
    let of_mode = |name: &str, mode| {
        std::fs::set_permissions(files.0.path().join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    of_mode("a/closed", 0o644);
    let _socket = UnixListener::bind(files.0.path().join("a/socket")).unwrap();
    of_mode("a/socket", 0o755);
    let fifo = files.0.path().join("a/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o755.into(), 0).unwrap();
    files.put("b/loop", "", 0o755);
    symlink("loop", files.0.path().join("a/loop")).unwrap();
    // A folder that cannot be examined is passed over.
    symlink("gone", files.0.path().join("gone")).unwrap();
    let search: OsString =
        format!("/nowhere:{}:{}:{}", files.dir("gone"), files.dir("a"), files.dir("b")).into();
    let find = |command: &str| {
        let (command, search) = (OsStr::new(command), Some(&*search));
        let (resolved, found) = (resolve(command, search), Program::find(command, search));
        // The one that opens the file answers as the other.
        match (&resolved, found) {
            (Ok(path), Ok(found)) => assert_eq!(found, Program::look(path, search).unwrap()),
            (Err(error), Err(other)) => {
                assert_eq!((error.exit_status(), error.to_string()), (other.exit_status(), other.to_string()))
            }
            (_, found) => panic!("{command:?}: {resolved:?}, {found:?}"),
        }
        resolved
    };
    assert_eq!(find("tool").unwrap(), good, "what cannot be executed is passed over");
    let direct = good.to_str().unwrap();
    assert_eq!(find(direct).unwrap(), good);
    symlink(&good, files.0.path().join("a/link")).unwrap();
    assert_eq!(find("link").unwrap(), files.0.path().join("a/link"));
    files.put("a/script", format!("#!{direct} -x\n"), 0o755);
    assert_eq!(find("script").unwrap(), files.0.path().join("a/script"));

    for (command, status, words) in [
        ("missing".to_owned(), 127, "missing: not found in PATH".to_owned()),
        (String::new(), 127, ": not found in PATH".to_owned()),
        (format!("{direct}/x"), 127, format!("{direct}/x: no such file")),
        ("./missing".to_owned(), 127, "./missing: no such file".to_owned()),
        ("plain".to_owned(), 126, format!("{}: not executable", only_plain.display())),
        (files.dir("a/plain"), 126, format!("{}: not executable", only_plain.display())),
        ("folder".to_owned(), 126, format!("{}: is a directory", files.dir("a/folder"))),
        (files.dir("a"), 126, format!("{}: is a directory", files.dir("a"))),
        ("closed".to_owned(), 126, format!("{}: is a directory", files.dir("a/closed"))),
        ("socket".to_owned(), 126, format!("{}: not executable", files.dir("a/socket"))),
        ("fifo".to_owned(), 126, format!("{}: not executable", files.dir("a/fifo"))),
    ] {
        let error = find(&command).unwrap_err();
        assert_eq!((error.exit_status(), error.to_string()), (status, words), "{command:?}");
    }
    let error = find("loop").unwrap_err();
    assert!(matches!(error, ResolveError::Unknown { .. }), "no other program takes its place: {error}");
    let long = "x".repeat(300);
    assert_eq!(find(&long).unwrap_err().exit_status(), 126, "a name too long is not a missing file");
}

#[test]
fn an_empty_directory_in_the_path_is_the_current_one_and_no_path_is_the_usual_one() {
    // Tests run in the crate's directory, which has a manifest that is not executable.
    let error = resolve(OsStr::new("Cargo.toml"), Some(OsStr::new("/nowhere:"))).unwrap_err();
    assert_eq!(error.to_string(), "./Cargo.toml: not executable");
    assert_eq!(resolve(OsStr::new("sh"), None).unwrap(), Path::new("/bin/sh"));
}

#[test]
fn the_size_of_a_file_does_not_matter() {
    let files = Files::new();
    let path = files.put("large", Made { loader: LOADER, needed: &["libomp.so.5"], ..PLAIN }.build(), 0o755);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(64 << 30).unwrap();
    assert_eq!(look(&path).binary.unwrap().openmp, Some(Runtime::Libomp));
}

#[test]
fn this_machines_programs_are_read() {
    let own = look(&std::env::current_exe().unwrap());
    let binary = own.binary.unwrap();
    assert_eq!((own.kind, binary.go, binary.openmp), (FileKind::Elf, false, None));
    assert_eq!(binary.word_size, WordSize::Bits64);
    let shell = look(&resolve(OsStr::new("sh"), None).unwrap());
    assert_eq!((shell.kind, shell.family, shell.secure_exec), (FileKind::Elf, Some(Family::Shell), None));
    assert!(shell.binary.is_some());
}

/// Offsets in a file whose bytes are replaced.
fn damage(length: usize) -> impl Strategy<Value = Vec<(usize, u8)>> {
    let byte = prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(0x7f), Just(1)];
    prop::collection::vec((0..length, byte), 1..12)
}

/// Reads a damaged file; it costs little, whatever kind it is taken for.
fn look_at_damaged(mut bytes: Vec<u8>, damage: &[(usize, u8)], cut: usize) {
    for &(at, byte) in damage {
        let at = at % bytes.len();
        bytes[at] = byte;
    }
    bytes.truncate(cut.max(1));
    let files = Files::new();
    let program = look(&files.put("damaged", &bytes, 0o755));
    if let Some(binary) = program.binary {
        assert!(binary.needed.len() <= 1024 && binary.needed.iter().all(|name| name.len() <= 4 * 4096));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_executables_are_examined_without_harm(
        wide in any::<bool>(), big_endian in any::<bool>(), damage in damage(600), cut in 1usize..2000,
    ) {
        let made = Made {
            wide, big_endian, loader: LOADER, needed: &["libc.so.6", "libgomp.so.1"],
            note: Some("Go"), section: Some(".go.buildinfo"),
        };
        look_at_damaged(made.build(), &damage, cut);
    }

    #[test]
    fn arbitrary_bytes_are_examined_without_harm(
        mut bytes in prop::collection::vec(any::<u8>(), 1..400), class in 1u8..3, order in 1u8..3,
    ) {
        look_at_damaged(bytes.clone(), &[], usize::MAX);
        bytes.splice(0..0, [0x7f, b'E', b'L', b'F', class, order, 1]);
        look_at_damaged(bytes, &[], usize::MAX);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn damaged_headers_of_a_real_program_are_examined_without_harm(
        damage in damage(64 + 13 * 56), cut in prop_oneof![Just(usize::MAX), 1usize..200_000],
    ) {
        look_at_damaged(std::fs::read("/bin/sh").unwrap(), &damage, cut);
    }
}
