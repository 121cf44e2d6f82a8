//! Lines of a record of `bench uncore`, written and read back.

use super::super::harness::{Head, SCHEMA};
use super::matrix::{Setup, UncoreCase, word};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use trimtab_core::counts::Rung;
use trimtab_core::index_validation::{Change, Contrast, IndexQuality, Reading};
use trimtab_core::penalty::Index;

/// A line of the record.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum UncoreLine<'a> {
    Start(&'a UncoreStart),
    Run(Box<UncoreRunLine<'a>>),
    Result(UncoreResultLine<'a>),
    Worth(IndexQualityLine<'a>),
    End(UncoreEnd),
}

/// First line of a record: machine, events and cases.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct UncoreStart {
    #[serde(flatten)]
    pub(super) head: Head,
    pub(super) repeats: u32,
    pub(super) quick: bool,
    pub(super) seed: u64,
    pub(super) programs: String,
    /// Best kind of counters on this machine.
    pub(super) rung: Rung,
    /// Counted events, group by group.
    pub(super) events: Vec<Vec<String>>,
    /// Experiments that this machine does not support.
    pub(super) left_out: Vec<String>,
    pub(super) cases: Vec<CaseNames>,
}

/// Names of a case.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct CaseNames {
    /// `EXPERIMENT/POINT`.
    pub(super) case: String,
    pub(super) experiment: String,
    pub(super) ways: [String; 2],
}

impl CaseNames {
    pub(super) fn of(case: &UncoreCase) -> Self {
        let ways = [0, 1].map(|at| case.ways[at].way.to_owned());
        Self { case: case.to_string(), experiment: word(case.experiment).to_owned(), ways }
    }
}

/// One run of a variant of a case.
#[derive(Debug, Serialize)]
pub(super) struct UncoreRunLine<'a> {
    pub(super) case: &'a str,
    pub(super) way: &'a str,
    pub(super) round: u32,
    pub(super) setup: &'a Setup,
    /// Null for a failed run.
    pub(super) reading: Option<&'a Reading>,
    pub(super) reports: &'a [Value],
    pub(super) error: Option<&'a str>,
    pub(super) stderr: &'a str,
}

/// Evaluation of all runs of a case.
#[derive(Debug, Serialize)]
pub(super) struct UncoreResultLine<'a> {
    pub(super) case: &'a str,
    pub(super) ways: &'a [String; 2],
    pub(super) time: Option<Change>,
    pub(super) indices: BTreeMap<&'static str, Option<Change>>,
}

/// Validation of an index over all cases, or over those of an experiment.
#[derive(Debug, Serialize)]
pub(super) struct IndexQualityLine<'a> {
    pub(super) experiment: Option<&'a str>,
    pub(super) index: Index,
    #[serde(flatten)]
    pub(super) worth: IndexQuality,
}

/// Last line of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct UncoreEnd {
    /// Whether all rounds were run.
    pub(super) complete: bool,
    pub(super) runs: usize,
    pub(super) failed: usize,
    /// Runs in which some event could not be counted.
    pub(super) uncounted: usize,
}

/// Contents of a stored record.
#[derive(Debug)]
pub(super) struct UncoreRecord {
    pub(super) start: UncoreStart,
    /// In the order of the cases in `start`.
    pub(super) contrasts: Vec<Contrast>,
    pub(super) end: UncoreEnd,
}

impl UncoreRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// The file cannot be read, or is not a record of this benchmark.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let cannot = || format!("cannot show {}", file.display());
        let text = crate::bench::harness::read_text(file).with_context(cannot)?;
        Self::parse(&text).with_context(cannot)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut before: Option<Self> = None;
        // A last line without an end was cut off when the program was killed.
        for (at, line) in text.split_inclusive('\n').filter(|line| line.ends_with('\n')).enumerate() {
            let number = at + 1;
            let line: Value =
                serde_json::from_str(line).with_context(|| format!("line {number} is not JSON"))?;
            if line["schema"] != SCHEMA {
                bail!("line {number} is not of schema {SCHEMA}");
            }
            let record = line["record"].as_str().unwrap_or_default().to_owned();
            match (record.as_str(), &mut before) {
                ("start", None) => {
                    let start: UncoreStart = serde_json::from_value(line)
                        .with_context(|| format!("line {number} is not a start of bench uncore"))?;
                    if start.head.bench != "uncore" {
                        bail!("it is a record of bench {}", start.head.bench);
                    }
                    let contrasts = vec![Contrast::default(); start.cases.len()];
                    before = Some(Self { start, contrasts, end: UncoreEnd::default() });
                }
                ("run", Some(before)) => {
                    before
                        .run(&line)
                        .with_context(|| format!("line {number} is not a run of bench uncore"))?;
                }
                ("end", Some(before)) => {
                    before.end = serde_json::from_value(line)
                        .with_context(|| format!("line {number} is not an end of bench uncore"))?;
                }
                (_, None) => bail!("it does not begin as a record of bench uncore"),
                _ => {}
            }
        }
        before.context("it does not begin as a record of bench uncore")
    }

    /// Adds one run.
    fn run(&mut self, line: &Value) -> Result<()> {
        let at = self.start.cases.iter().position(|named| line["case"] == named.case.as_str());
        let at = at.context("its case is not in the start line")?;
        let named = &self.start.cases[at];
        let way = named.ways.iter().position(|way| line["way"] == way.as_str());
        let reading: Option<Reading> = serde_json::from_value(line["reading"].clone())?;
        let contrast = &mut self.contrasts[at];
        match way.context("its variant is not one of its case")? {
            0 => contrast.first.extend(reading),
            _ => contrast.second.extend(reading),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn start() -> Value {
        json!({"schema": SCHEMA, "record": "start", "bench": "uncore", "trimtab": "1", "machine": "m", "summary": "s",
            "kernel": "6", "repeats": 1, "quick": false, "seed": 1, "programs": "p", "rung": "exact", "events": [],
            "left_out": [], "cases": [{"case": "all/1M", "experiment": "all", "ways": ["close", "apart"]}]})
    }

    fn run(way: &str, time: f64) -> Value {
        json!({"schema": SCHEMA, "record": "run", "case": "all/1M", "way": way, "round": 1,
            "reading": {"time": time, "counts": [{"enabled": 1, "running": 1, "busy": 6, "requests": 2}]}})
    }

    fn text(lines: &[Value]) -> String {
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn written_data_is_read_back() {
        let failed =
            json!({"schema": SCHEMA, "record": "run", "case": "all/1M", "way": "apart", "reading": null});
        let end = json!({"schema": SCHEMA, "record": "end", "complete": true, "runs": 3, "failed": 1, "uncounted": 0});
        let mut all = text(&[start(), run("close", 1.0), run("apart", 2.0), failed, end]);
        all.push_str("{\"schema\":\"trimtab.be");
        let before = UncoreRecord::parse(&all).unwrap();
        let [contrast] = before.contrasts.as_slice() else { panic!("one case") };
        assert_eq!((contrast.first.len(), contrast.second.len()), (1, 1));
        assert_eq!(contrast.time().and_then(|time| time.relative), Some(1.0));
        assert_eq!(contrast.index(Index::Penalty).map(|index| index.first), Some(3.0));
        assert_eq!((before.end.runs, before.end.complete), (3, true));
        assert!(!UncoreRecord::parse(&text(&[start()])).unwrap().end.complete, "it has no end");
    }

    #[test]
    fn other_records_are_refused() {
        let mut nested = start();
        nested["bench"] = "nested".into();
        let mut other = run("close", 1.0);
        other["case"] = "all/2M".into();
        for (text, why) in [
            (String::new(), "does not begin"),
            (text(&[run("close", 1.0)]), "does not begin"),
            (text(&[nested]), "it is a record of bench nested"),
            (text(&[start(), other]), "line 2 is not a run"),
            (text(&[start(), run("beside", 1.0)]), "its variant is not"),
            ("{}\n".to_owned(), "line 1 is not of schema"),
            ("half\n".to_owned(), "line 1 is not JSON"),
        ] {
            let error = format!("{:#}", UncoreRecord::parse(&text).unwrap_err());
            assert!(error.contains(why), "{why}: {error}");
        }
    }
}
