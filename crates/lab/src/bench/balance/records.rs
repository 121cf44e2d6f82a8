//! Lines of a record of `bench balance`, written and read back.

use super::super::harness::{Head, SCHEMA, difference};
use super::matrix::BalanceCell;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use trimtab_core::ideal_ratio::{Judged, MeasuredRun, Rivals};
use trimtab_core::stats::{Comparison, Estimate};

/// First line of a record: machine, CPUs and options. A record is continued only if the facts that
/// make samples comparable agree.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct BalanceStart {
    #[serde(flatten)]
    pub(super) head: Head,
    /// CPUs used: one of each core.
    pub(super) cpus: String,
    pub(super) cores: usize,
    pub(super) repeats: u32,
    pub(super) quick: bool,
    pub(super) seed: u64,
    /// Steps of work per second, measured once.
    pub(super) rate: u64,
    pub(super) programs: String,
}

/// One run of a cell.
#[derive(Debug, Serialize)]
pub(super) struct BalanceRunLine<'a> {
    pub(super) cell: String,
    pub(super) round: u32,
    pub(super) rivals: Rivals,
    /// Run time over the ideal time; null for a failed run.
    pub(super) ratio: Option<f64>,
    /// Share of the machine that other processes used.
    pub(super) noise: Option<f64>,
    pub(super) clean: bool,
    pub(super) command: Vec<String>,
    /// The report that the program printed; null for a failed run.
    pub(super) report: Option<&'a Value>,
    pub(super) error: Option<&'a str>,
    pub(super) stderr: &'a str,
}

/// Evaluation of all runs of a cell.
#[derive(Debug, Serialize)]
pub(super) struct BalanceCellLine<'a> {
    pub(super) cell: String,
    pub(super) clean: &'a [f64],
    pub(super) noisy: &'a [f64],
    pub(super) estimate: Option<Estimate>,
    pub(super) spread: Option<f64>,
    pub(super) against_kernel: Option<Comparison>,
    pub(super) goals: Vec<Judged>,
}

/// Last line of a record.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct BalanceEnd {
    /// Whether all rounds were run.
    pub(super) complete: bool,
    pub(super) runs: usize,
    pub(super) failed: usize,
    pub(super) clean: usize,
}

/// A line of the record.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum BalanceLine<'a> {
    Start(&'a BalanceStart),
    Run(Box<BalanceRunLine<'a>>),
    Result(BalanceCellLine<'a>),
    End(BalanceEnd),
}

/// Reads a program's report as a run of `trimtab_core::ideal_ratio`; `None` if a value is missing.
pub(super) fn read_run(report: &Value, cores: usize, rivals: Rivals) -> Option<MeasuredRun> {
    let compute =
        report["compute_seconds"].as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>()?;
    Some(MeasuredRun {
        cores,
        rivals,
        seconds: report["seconds"].as_f64()?,
        compute,
        machine_cpus: usize::try_from(report["machine_cpus"].as_u64()?).ok()?,
        foreign: report["foreign_seconds"].as_f64(),
        steal: report["steal_seconds"].as_f64(),
    })
}

/// Contents of a record that is continued.
#[derive(Debug)]
pub(super) struct BalanceRecord {
    pub(super) start: BalanceStart,
    /// Reports of the successful runs, by round and cell name.
    pub(super) reports: BTreeMap<(u32, String), Value>,
}

impl BalanceRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// The file cannot be read, or is not a record of this benchmark.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = crate::bench::harness::read_text(file)
            .with_context(|| format!("cannot continue {}: it cannot be read", file.display()))?;
        Self::parse(&text).with_context(|| format!("cannot continue {}", file.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut start = None;
        let mut reports = BTreeMap::new();
        // A last line without an end was cut off when the program was killed; its run is repeated.
        for (at, line) in text.split_inclusive('\n').filter(|line| line.ends_with('\n')).enumerate() {
            let line: Value =
                serde_json::from_str(line).with_context(|| format!("line {} is not JSON", at + 1))?;
            if line["schema"] != SCHEMA {
                bail!("line {} is not of schema {SCHEMA}", at + 1);
            }
            match line["record"].as_str() {
                Some("start") if start.is_none() => {
                    let read: BalanceStart = serde_json::from_value(line)
                        .with_context(|| format!("line {} is not a start of bench balance", at + 1))?;
                    start = Some(read);
                }
                Some("run") => {
                    let round = line["round"].as_u64().and_then(|round| u32::try_from(round).ok());
                    let cell = line["cell"].as_str().map(str::to_owned);
                    if let (Some(round), Some(cell), false) = (round, cell, line["report"].is_null()) {
                        reports.insert((round, cell), line["report"].clone());
                    }
                }
                _ => {}
            }
        }
        let start = start
            .filter(|start| start.head.bench == "balance")
            .context("it does not begin as a record of bench balance")?;
        Ok(Self { start, reports })
    }

    /// Returns why samples of this record and of a measurement that begins now are not comparable,
    /// or `None`.
    pub(super) fn differs(&self, now: &BalanceStart) -> Option<String> {
        let then = &self.start;
        difference(&[
            ("machine", &then.head.summary, &now.head.summary),
            ("kernel", &then.head.kernel, &now.head.kernel),
            ("set of CPUs", &then.cpus, &now.cpus),
            ("trimtab", &then.head.trimtab, &now.head.trimtab),
            ("--quick", &then.quick, &now.quick),
            ("seed", &then.seed, &now.seed),
        ])
    }
}

/// Returns the key of a run in [`BalanceRecord::reports`].
pub(super) fn key(round: u32, cell: &BalanceCell) -> (u32, String) {
    (round, cell.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            bench: "balance".into(),
            trimtab: "1".into(),
            machine: "m".into(),
            summary: "s".into(),
            kernel: "6".into(),
        }
    }

    fn start() -> BalanceStart {
        BalanceStart {
            head: head(),
            cpus: "0-1".into(),
            cores: 2,
            repeats: 5,
            quick: false,
            seed: 1,
            rate: 7,
            programs: "/b".into(),
        }
    }

    fn text(lines: &[Value]) -> String {
        let with_schema = |line: &Value| {
            let mut line = line.clone();
            line["schema"] = "trimtab.bench/1".into();
            format!("{line}\n")
        };
        lines.iter().map(with_schema).collect()
    }

    fn begin() -> Value {
        let mut line = serde_json::to_value(start()).unwrap();
        line["record"] = "start".into();
        line
    }

    #[test]
    fn a_record_is_resumed_after_its_good_runs() {
        let run = |round: u32, report: Value| serde_json::json!({"record": "run", "cell": "a/b/c", "round": round, "report": report});
        let good = serde_json::json!({"seconds": 1.0});
        let mut all = text(&[begin(), run(1, good.clone()), run(2, Value::Null)]);
        all.push_str("{\"schema\":\"trimtab.bench/1\",\"rec");
        let before = BalanceRecord::parse(&all).unwrap();
        assert_eq!(before.start, start());
        assert_eq!(before.reports.into_iter().collect::<Vec<_>>(), [((1, "a/b/c".to_owned()), good)]);
    }

    #[test]
    fn another_record_is_refused() {
        let mut nested = begin();
        nested["bench"] = "nested".into();
        for (text, why) in [
            (String::new(), "does not begin as a record"),
            (text(&[nested]), "does not begin as a record"),
            (text(&[serde_json::json!({"record": "start"})]), "line 1 is not a start"),
            ("{}\n".to_owned(), "line 1 is not of schema"),
            ("half\n".to_owned(), "line 1 is not JSON"),
        ] {
            let error = format!("{:#}", BalanceRecord::parse(&text).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn records_that_are_not_comparable_are_reported() {
        let before = BalanceRecord { start: start(), reports: BTreeMap::new() };
        assert_eq!(before.differs(&BalanceStart { rate: 9, repeats: 9, ..start() }), None);
        let other = before.differs(&BalanceStart { cpus: "0-3".into(), ..start() }).unwrap();
        assert_eq!(other, "its set of CPUs was 0-1, now it is 0-3");
        assert!(before.differs(&BalanceStart { quick: true, ..start() }).is_some());
        assert!(
            before
                .differs(&BalanceStart { head: Head { kernel: "7".into(), ..head() }, ..start() })
                .is_some()
        );
    }

    #[test]
    fn reports_are_read_as_far_as_they_go() {
        let report = serde_json::json!({"seconds": 2.0, "compute_seconds": [1.0, 1.5], "machine_cpus": 4, "foreign_seconds": null, "steal_seconds": 0.1});
        let run = read_run(&report, 2, Rivals::Hogs(1)).unwrap();
        assert_eq!((run.seconds, run.compute, run.machine_cpus), (2.0, vec![1.0, 1.5], 4));
        assert_eq!((run.foreign, run.steal), (None, Some(0.1)));
        for name in ["seconds", "compute_seconds", "machine_cpus"] {
            let mut less = report.clone();
            less[name] = Value::Null;
            assert_eq!(read_run(&less, 2, Rivals::None), None, "{name}");
        }
    }
}
