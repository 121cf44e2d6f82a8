//! Check of the installation: which parts of trimtab are installed, from where, and whether they
//! are of one release.

use super::CheckResult;
use std::io;
use std::path::{Path, PathBuf};
use trimtab_core::part::{self, Part};
use trimtab_front::sibling;
use trimtab_linux::launch::preload_library;
use trimtab_linux::machine::find_helper;

const SUBJECT: &str = "installation";

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
    let parts = [std::env::current_exe().ok(), find_helper().ok(), preload_library().ok(), lab];
    let (mut same, mut findings) = (Vec::new(), Vec::new());
    for path in parts.into_iter().flatten() {
        match judge(&path, own) {
            Ok(()) => same.push(path),
            Err(finding) => findings.push(finding),
        }
    }
    findings.insert(0, CheckResult::good(SUBJECT, format!("version {own}: {}", list(&same))));
    findings.extend(missing_lab);
    findings
}

fn part_mark() -> &'static str {
    std::hint::black_box(trimtab_core::part_mark!("trimtab"))
}

/// Returns the finding about a part that is not of version `own`.
fn judge(path: &Path, own: &str) -> Result<(), CheckResult> {
    let remedy = "install all parts of one release: make install, or one package";
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|error: io::Error| {
        CheckResult::fault(SUBJECT, format!("cannot read {shown}: {error}"), remedy)
    })?;
    match part::find(&bytes) {
        Some(Part { version, .. }) if version == own => Ok(()),
        Some(Part { name, version }) => {
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
