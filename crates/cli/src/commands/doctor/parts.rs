//! Check of the installation: which parts of trimtab are installed, from where, and whether they
//! are of one release.

use super::CheckResult;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use trimtab_core::part::{self, MARK_MAX, Part};
use trimtab_front::sibling;
use trimtab_linux::launch::{preload_library, preload_library_with_blas};
use trimtab_linux::machine::find_helper;

const SUBJECT: &str = "installation";

/// Bytes of a file that are read at once.
const PIECE: usize = 1 << 18;

/// Checks all parts that this program would use. A missing helper or preload library is the subject
/// of other checks.
pub(super) fn check() -> Vec<CheckResult> {
    // Says the version of this program, and is the mark by which others recognise it.
    let own = part::find(part_mark().as_bytes()).map_or(env!("CARGO_PKG_VERSION"), |part| part.version);
    let lab = sibling::find(sibling::LAB).ok();
    let missing_lab = lab.is_none().then(|| {
        let text = format!("{} is not installed: bench, sim, report, replay and tune need it", sibling::LAB);
        CheckResult::note(SUBJECT, text)
    });
    let library = preload_library().ok();
    let with_blas = library.as_deref().map(preload_library_with_blas);
    let missing_blas = with_blas.as_ref().and_then(|found| found.as_ref().err()).map(|why| {
        CheckResult::note(
            SUBJECT,
            format!("{why}: --fit budget needs it to bound calls of OpenBLAS, MKL and BLIS"),
        )
    });
    let with_blas = with_blas.and_then(Result::ok);
    let parts = [std::env::current_exe().ok(), find_helper().ok(), library, with_blas, lab];
    let (mut same, mut findings) = (Vec::new(), Vec::new());
    for path in parts.into_iter().flatten() {
        match judge(&path, own) {
            Ok(()) => same.push(path),
            Err(finding) => findings.push(finding),
        }
    }
    findings.insert(0, CheckResult::good(SUBJECT, format!("version {own}: {}", list(&same))));
    findings.extend(missing_lab.into_iter().chain(missing_blas));
    findings
}

fn part_mark() -> &'static str {
    std::hint::black_box(trimtab_core::part_mark!("trimtab"))
}

/// Returns the finding about a part that is not of version `own`.
fn judge(path: &Path, own: &str) -> Result<(), CheckResult> {
    let remedy = "install all parts of one release: make install, or one package";
    let shown = path.display();
    let found = std::fs::File::open(path).and_then(name_and_version);
    let found = found
        .map_err(|error| CheckResult::fault(SUBJECT, format!("cannot read {shown}: {error}"), remedy))?;
    match found {
        Some((_, version)) if version == own => Ok(()),
        Some((name, version)) => {
            let text = format!("{name} is of version {version}, and this program of {own} ({shown})");
            Err(CheckResult::fault(SUBJECT, text, remedy))
        }
        None => Err(CheckResult::fault(
            SUBJECT,
            format!("{shown} does not say its version: it is no part of trimtab, or of an older release"),
            remedy,
        )),
    }
}

/// Returns the name and the version of the first mark in a file. The file is read in pieces, and
/// not beyond the mark: a program with debug information has a hundred megabytes, which would
/// otherwise be in this process's memory and in the kernel's cache of files.
fn name_and_version(mut file: impl Read) -> io::Result<Option<(String, String)>> {
    let mut bytes = Vec::with_capacity(PIECE + MARK_MAX);
    loop {
        bytes.drain(..bytes.len().saturating_sub(MARK_MAX));
        let count = file.by_ref().take(PIECE as u64).read_to_end(&mut bytes)?;
        if let Some(Part { name, version }) = part::find(&bytes) {
            return Ok(Some((name.to_owned(), version.to_owned())));
        }
        if count == 0 {
            return Ok(None);
        }
    }
}

/// Lists paths, those of one folder together.
fn list(paths: &[PathBuf]) -> String {
    let mut groups: Vec<(&Path, Vec<String>)> = Vec::new();
    for path in paths {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match groups.iter_mut().find(|(other, _)| *other == folder) {
            Some((_, names)) => names.push(name),
            None => groups.push((folder, vec![name])),
        }
    }
    let texts = groups.iter().map(|(folder, names)| format!("{} in {}", names.join(", "), folder.display()));
    texts.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_wherever_the_pieces_end() {
        let mark = b"trimtab-part:shim=1.2.3;";
        for before in (PIECE - mark.len() - 1..=PIECE + 1).chain([0, 3 * PIECE - 5]) {
            let file = [vec![b't'; before], mark.to_vec(), vec![0; 10]].concat();
            let found = name_and_version(file.as_slice()).unwrap();
            assert_eq!(found, Some(("shim".to_owned(), "1.2.3".to_owned())), "{before} bytes before it");
        }
        assert_eq!(name_and_version(vec![b't'; 3 * PIECE].as_slice()).unwrap(), None);
        assert_eq!(name_and_version(b"".as_slice()).unwrap(), None);
    }

    #[test]
    fn a_file_is_not_read_far_beyond_its_mark() {
        struct Endless(u64);
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                buffer.fill(0);
                if self.0 == 0 {
                    buffer[..20].copy_from_slice(b"trimtab-part:a=0.1.0");
                    buffer[20] = b';';
                }
                self.0 += buffer.len() as u64;
                Ok(buffer.len())
            }
        }
        let mut file = Endless(0);
        assert!(name_and_version(&mut file).unwrap().is_some());
        assert!(file.0 <= 2 * PIECE as u64, "{} bytes were read", file.0);
    }
}
