//! The file of a field measurement.

use super::facts::FieldMachine;
use anyhow::{Context, Result, bail};
use flate2::{Compression, GzBuilder};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, Write};
use std::path::Path;
use trimtab_agent::output;
use trimtab_linux::text;

/// Schema of the file.
pub(crate) const SCHEMA: &str = "trimtab.field/1";

/// A measurement of a machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct FieldRecord {
    pub(crate) schema: String,
    /// Version of trimtab.
    pub(crate) trimtab: String,
    /// Day of the measurement, `YYYY-MM-DD`.
    pub(crate) day: String,
    /// Seconds that were allowed, and that it took.
    pub(crate) seconds_max: f64,
    pub(crate) seconds: f64,
    pub(crate) quick: bool,
    /// Whether it was not stopped by a signal.
    pub(crate) complete: bool,
    pub(crate) machine: FieldMachine,
    pub(crate) parts: Vec<FieldPartRecord>,
}

/// Results of one part.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct FieldPartRecord {
    /// Name of the part, as `--only` takes it.
    pub(crate) part: String,
    pub(crate) end: PartEnd,
    /// What could not be measured, and why.
    pub(crate) why: Vec<String>,
    pub(crate) seconds: f64,
    /// Lines of the benchmark's record, with the kept fields.
    pub(crate) lines: Vec<Value>,
}

/// How a part ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PartEnd {
    /// All rounds were run.
    Done,
    /// Its time was over before all rounds were run; the rounds so far are there.
    TimeOver,
    /// A signal stopped it.
    Stopped,
    /// It failed, wholly or in part.
    Failed,
}

impl PartEnd {
    /// Returns the words for it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::TimeOver => "as many rounds as its time allowed",
            Self::Stopped => "stopped early",
            Self::Failed => "failed",
        }
    }
}

/// Returns a value with all its texts made printable, also the names of fields.
fn harmless(value: Value) -> Value {
    let printable = |text: &str| text::printable(text.as_bytes());
    match value {
        Value::String(text) => Value::String(printable(&text)),
        Value::Array(all) => all.into_iter().map(harmless).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (printable(&name), harmless(value))).collect()
        }
        other => other,
    }
}

impl FieldPartRecord {
    /// Returns the lines of a kind.
    pub(crate) fn of_kind<'a>(&'a self, record: &'a str) -> impl Iterator<Item = &'a Value> {
        self.lines.iter().filter(move |line| line["record"] == record)
    }
}

impl FieldRecord {
    /// Reads a file's text. A stranger may have written it: no text of it then controls a terminal.
    ///
    /// # Errors
    /// It is not such a file.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let whole: Value = serde_json::from_str(text).context("it is no whole record of trimtab field")?;
        let record: Self =
            serde_json::from_value(harmless(whole)).context("it is no whole record of trimtab field")?;
        if record.schema != SCHEMA {
            bail!("its schema is {}; this version of trimtab reads {SCHEMA}", record.schema);
        }
        Ok(record)
    }

    /// Writes the file in place of an earlier one; compressed if its name ends in `.gz`.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self, file: &Path) -> Result<()> {
        let fill = |out: &mut dyn Write| -> io::Result<()> {
            if file.extension().is_some_and(|ending| ending == "gz") {
                let mut packed = GzBuilder::new().comment(output::FIELD_MARK).write(out, Compression::best());
                serde_json::to_writer(&mut packed, self)?;
                packed.finish()?;
                return Ok(());
            }
            serde_json::to_writer(&mut *out, self)?;
            out.write_all(b"\n")
        };
        output::replace(file, fill).with_context(|| format!("cannot write {}", file.display()))
    }
}
