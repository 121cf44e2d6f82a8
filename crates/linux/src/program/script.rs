//! Scripts: the line `#!interpreter argument` at their head, and the text of a shell's.

use super::{Family, FileKind, Program, resolve};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of a shell's script that are read. Longer scripts are read up to there.
const SCRIPT_BYTES_MAX: u64 = 64 << 10;

impl Program {
    /// Returns the text of a shell's script: the program itself, or the file `named` that the shell
    /// is to read. `None` for other programs, and for files that cannot be read twice, as pipes.
    pub fn shell_text(&self, named: Option<&Path>) -> Option<String> {
        let is_script = self.kind == FileKind::Script;
        let path = if is_script { Some(self.path.as_path()) } else { named };
        path.filter(|_| self.family == Some(Family::Shell)).and_then(text)
    }
}

/// Returns the text of a regular file, as far as it is read.
fn text(path: &Path) -> Option<String> {
    // Without waiting for the writer of a pipe.
    let file = open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()?;
    if FileType::from_raw_mode(fstat(&file).ok()?.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut bytes = Vec::new();
    File::from(file).take(SCRIPT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Interpreter of a script, as its first line names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Command<'a> {
    /// By its path.
    File(&'a OsStr),
    /// By a name that `env` looks for.
    Word(&'a OsStr),
}

impl Command<'_> {
    /// Returns the interpreter, if it exists and can be executed.
    pub(super) fn find(&self, search_path: Option<&OsStr>) -> Option<PathBuf> {
        match self {
            Self::File(path) => resolve(path, None).ok(),
            Self::Word(word) => resolve(word, search_path).ok(),
        }
    }
}

/// Returns the interpreter of a script, from the beginning of the file. The kernel takes everything
/// behind the interpreter as *one* argument; `env` searches for that whole argument unless `-S`
/// makes it split the argument.
pub(super) fn interpreter(head: &[u8]) -> Option<Command<'_>> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (file, argument) = (OsStr::from_bytes(&line[..end]), line[end..].trim_ascii());
    if file.is_empty() || file.as_bytes().contains(&0) {
        return None;
    }
    if Path::new(file).file_name() != Some(OsStr::new("env")) || argument.is_empty() {
        return Some(Command::File(file));
    }
    let word = match split_string(argument) {
        Some(words) => command_of(words)?,
        None => argument,
    };
    (!word.contains(&0)).then(|| Command::Word(OsStr::from_bytes(word)))
}

/// Returns the words that follow `-S` or `--split-string=`, possibly with other one-letter flags
/// before the S.
fn split_string(argument: &[u8]) -> Option<&[u8]> {
    if let Some(words) = argument.strip_prefix(b"--split-string=") {
        return Some(words);
    }
    let flags = argument.strip_prefix(b"-")?;
    let at = flags.iter().position(|&flag| flag == b'S')?;
    flags[..at].iter().all(|flag| b"iv0".contains(flag)).then(|| &flags[at + 1..])
}

/// Returns the command among the words given to `env`, behind its options and variables.
fn command_of(words: &[u8]) -> Option<&[u8]> {
    let mut words = crate::text::words(words);
    loop {
        match words.next()? {
            b"--" => return words.next(),
            b"-u" | b"--unset" | b"-C" | b"--chdir" => drop(words.next()),
            word if word.starts_with(b"-") || word.contains(&b'=') => {}
            word => return Some(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn interpreters_are_found_as_the_kernel_and_env_find_them() {
        let file = |name| Some(Command::File(OsStr::new(name)));
        let word = |name| Some(Command::Word(OsStr::new(name)));
        for (head, expected) in [
            ("#!/bin/sh\necho", file("/bin/sh")),
            ("#! \t/bin/sh -e\n", file("/bin/sh")),
            ("#!/bin/sh", file("/bin/sh")),
            ("#!sh\r\n", file("sh")),
            ("#!\n/bin/sh", None),
            ("#!", None),
            ("/bin/sh", None),
            ("#!/bin/s\0h\n", None),
            ("#!/usr/bin/env\n", file("/usr/bin/env")),
            ("#!/usr/bin/env python3\n", word("python3")),
            ("#!/usr/bin/env python3 -u\n", word("python3 -u")),
            ("#!/usr/bin/env -S python3 -u\n", word("python3")),
            ("#!/usr/bin/env -iS A=b -u C -- julia -t 4\n", word("julia")),
            ("#!/usr/bin/env --split-string=-i node --x\n", word("node")),
            ("#!/usr/bin/env -S A=b\n", None),
        ] {
            assert_eq!(interpreter(head.as_bytes()), expected, "{head:?}");
        }
    }

    #[test]
    fn the_text_of_a_shells_script_is_read_once_more_only_if_that_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/sh\nxz -T 2 a\n").unwrap();
        let shell = Program::look(Path::new("/bin/sh"), None).unwrap();
        assert_eq!(shell.shell_text(Some(&script)).as_deref(), Some("#!/bin/sh\nxz -T 2 a\n"));
        assert_eq!(shell.shell_text(None), None);
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for other in [pipe.as_path(), folder.path(), Path::new("/dev/null"), Path::new("/none")] {
            assert_eq!(shell.shell_text(Some(other)), None, "{}", other.display());
        }
        std::fs::write(&script, vec![b'x'; SCRIPT_BYTES_MAX as usize + 1]).unwrap();
        assert_eq!(shell.shell_text(Some(&script)).map(|text| text.len() as u64), Some(SCRIPT_BYTES_MAX));
        let other = Program::look(Path::new("/bin/true"), None).unwrap();
        assert_eq!(other.shell_text(Some(&script)), None);
    }

    proptest! {
        #[test]
        fn any_head_is_read_without_harm(mut head in prop::collection::vec(any::<u8>(), 0..64), env in any::<bool>()) {
            let start: &[u8] = if env { b"#!/usr/bin/env -S" } else { b"#!" };
            head.splice(0..0, start.iter().copied());
            let _ = interpreter(&head).and_then(|command| command.find(Some(OsStr::new("/none"))));
        }
    }
}
