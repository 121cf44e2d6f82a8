//! Scenarios of cells: a single one on standard output, in the format that `trimtab sim -` reads,
//! or several as files.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use trimtab_core::words::plural;
use trimtab_front::print;
use trimtab_sim::figures::{Figure, FigureCell};
use trimtab_sim::scenario::file::write;

/// Names listed at most if a part of a name is ambiguous.
const NAMES_MAX: usize = 12;

/// A figure and one of its cells.
type Of<'f> = (&'f Figure, &'f FigureCell);

/// Prints the scenario of the cell of this name, or of the only cell whose name contains it. With a
/// folder, writes the scenarios of all such cells.
///
/// # Errors
/// No cell matches; without a folder, more than one matches; or a file cannot be written.
pub(super) fn show(figures: &[Figure], wanted: &str, out: Option<&Path>) -> Result<()> {
    let all = || figures.iter().flat_map(|figure| figure.cells.iter().map(move |cell| (figure, cell)));
    let mut found: Vec<Of<'_>> = all().filter(|(_, cell)| cell.name == wanted).collect();
    if found.is_empty() {
        found = all().filter(|(_, cell)| cell.name.contains(wanted)).collect();
    }
    match (&found[..], out) {
        ([], _) => bail!("no cell's name contains \"{wanted}\": --json lists all cells"),
        (_, Some(folder)) => keep(&found, folder),
        ([(_, cell)], None) => Ok(print(&write(&cell.scenario)?)?),
        _ => {
            let names: Vec<String> =
                found.iter().take(NAMES_MAX).map(|(figure, cell)| name(figure, cell)).collect();
            let more = match found.len().saturating_sub(NAMES_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            bail!(
                "\"{wanted}\" is in the names of {}: name one of {}{more}, or use --out DIR to write one file for each",
                plural(found.len(), "cell"),
                names.join(", ")
            );
        }
    }
}

fn name(figure: &Figure, cell: &FigureCell) -> String {
    format!("\"{}\" ({})", cell.name, figure.name)
}

/// Writes one file for each scenario, named after figure and cell. Existing files with other
/// contents are not overwritten.
fn keep(found: &[Of<'_>], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let mut known = BTreeSet::new();
    let mut files = Vec::new();
    for (figure, cell) in found {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let stem: String = format!("{}-{}", figure.name, cell.name).chars().map(plain).collect();
        let free =
            (1_usize..).map(|n| if n == 1 { format!("{stem}.toml") } else { format!("{stem}-{n}.toml") });
        let Some(name) = free.into_iter().find(|name| !known.contains(name)) else { continue };
        let (path, text) = (folder.join(&name), write(&cell.scenario)?);
        if fs::read(&path).is_ok_and(|there| there != text.as_bytes()) {
            bail!(
                "{} exists with other contents: name another folder, or remove the file first",
                path.display()
            );
        }
        known.insert(name);
        files.push((path, text));
    }
    for (path, text) in &files {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(&files.iter().map(|(path, _)| format!("{}\n", path.display())).collect::<String>())?;
    Ok(())
}
