//! Output of `--out`: for each figure a folder with table, JSON lines, chart and scenarios, and a
//! summary beside the folders.

use super::{FinishedFigure, chart, records, report};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use trimtab_sim::scenario::file::write;

/// Writes all files.
pub(super) fn keep(folder: &Path, done: &[FinishedFigure]) -> Result<()> {
    for one in done {
        let own = folder.join(one.figure.name);
        fs::create_dir_all(&own).with_context(|| format!("cannot create the folder {}", own.display()))?;
        file(&own, "table.txt", &report::figure(one))?;
        file(&own, "lines.jsonl", &records::figure(one)?)?;
        file(&own, "picture.svg", &chart::picture(&one.figure, &one.report))?;
        let mut scenarios = format!(
            "# The scenarios of the cells of `trimtab sim figures {0}`, one after the other. A single one:\n\
             # trimtab sim figures {0} --scenario CELL | trimtab sim -\n",
            one.figure.name
        );
        for cell in &one.figure.cells {
            scenarios.push_str(&format!("\n#### {}\n\n{}", cell.name, write(&cell.scenario)?));
        }
        file(&own, "scenarios.txt", &scenarios)?;
    }
    if done.len() > 1 {
        file(folder, "summary.txt", &report::summary(done))?;
    }
    Ok(())
}

fn file(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
