//! Record of a measurement: JSON lines, each written as soon as it is known, so that no sudden end
//! of the program loses one.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Schema version of each line.
pub(in crate::bench) const SCHEMA: &str = "trimtab.bench/1";

/// First fields of every record: benchmark, program and machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::bench) struct Head {
    pub(in crate::bench) bench: String,
    pub(in crate::bench) trimtab: String,
    pub(in crate::bench) machine: String,
    pub(in crate::bench) summary: String,
    pub(in crate::bench) kernel: String,
}

/// Writer of a record.
pub(in crate::bench) struct Recorder {
    to: Option<(PathBuf, Box<dyn Write>)>,
}

impl Recorder {
    /// Opens the file before the measurement, so that a path that cannot be written wastes no
    /// measuring time.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(in crate::bench) fn open(file: Option<&Path>) -> Result<Self> {
        let to = match file {
            None => None,
            Some(file) if file.as_os_str() == "-" => {
                Some((PathBuf::from("standard output"), Box::new(io::stdout()) as Box<dyn Write>))
            }
            Some(file) => {
                let opened =
                    File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
                Some((file.to_owned(), Box::new(opened) as Box<dyn Write>))
            }
        };
        Ok(Self { to })
    }

    /// Opens a record to continue. An incomplete last line, left by a sudden end, is cut off.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(in crate::bench) fn resume(file: &Path) -> Result<Self> {
        let cannot = || format!("cannot continue {}", file.display());
        let text = std::fs::read(file).with_context(cannot)?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let opened = File::options().append(true).open(file).with_context(cannot)?;
        opened.set_len(whole as u64).with_context(cannot)?;
        Ok(Self { to: Some((file.to_owned(), Box::new(opened))) })
    }

    /// Writes a line.
    ///
    /// # Errors
    /// The line cannot be written.
    pub(in crate::bench) fn write<R: Serialize>(&mut self, record: &R) -> Result<()> {
        #[derive(Serialize)]
        struct RecordLine<'a, R> {
            schema: &'static str,
            #[serde(flatten)]
            record: &'a R,
        }
        let Some((name, to)) = &mut self.to else { return Ok(()) };
        let mut line = serde_json::to_string(&RecordLine { schema: SCHEMA, record })?;
        line.push('\n');
        to.write_all(line.as_bytes())
            .and_then(|()| to.flush())
            .with_context(|| format!("cannot write {}", name.display()))
    }
}
