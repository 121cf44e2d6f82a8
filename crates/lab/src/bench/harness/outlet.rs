//! Outlets of the results: the record, the chart, and standard output unless the record goes there.

use super::record::Recorder;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use trimtab_front::print;

/// The outlets, opened before the measurement, so that a path that cannot be written wastes no
/// measuring time.
pub(in crate::bench) struct Outlet {
    pub(super) recorder: Recorder,
    picture: Option<(PathBuf, File)>,
    to_stdout: bool,
}

impl Outlet {
    /// Opens the requested files. A record that is `resumed` is kept and continued.
    ///
    /// # Errors
    /// A file cannot be created, or the record cannot be read or written.
    pub(in crate::bench) fn open(json: Option<&Path>, svg: Option<&Path>, resumed: bool) -> Result<Self> {
        let recorder = match json {
            Some(file) if resumed => Recorder::resume(file)?,
            file => Recorder::open(file)?,
        };
        let create = |path: &Path| -> Result<(PathBuf, File)> {
            let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            Ok((path.to_owned(), file))
        };
        let to_stdout = json.is_some_and(|file| file.as_os_str() == "-");
        Ok(Self { recorder, picture: svg.map(create).transpose()?, to_stdout })
    }

    /// Prints the report and draws the chart.
    ///
    /// # Errors
    /// One of them cannot be written; the other one is still written.
    pub(in crate::bench) fn show(
        &mut self,
        report: impl FnOnce() -> String,
        chart: impl FnOnce() -> String,
    ) -> Result<()> {
        let printed = if self.to_stdout { Ok(()) } else { print(&report()) };
        let drawn = self.picture.as_mut().map_or(Ok(()), |(path, file)| {
            file.write_all(chart().as_bytes()).with_context(|| format!("cannot write {}", path.display()))
        });
        drawn.and(printed.map_err(Into::into))
    }
}
