//! The lines of a record of balancing, written and read back.

use super::super::record::{Head, SCHEMA};
use super::scenarios::Cell;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use trimtab_core::ideal_ratio::{Judged, Rivals, Run};
use trimtab_core::stats::{Comparison, Estimate};

/// What is measured, where, and how. What makes samples comparable is checked before a record is gone on with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Start {
    #[serde(flatten)]
    pub(super) head: Head,
    /// CPUs used: one of each core.
    pub(super) cpus: String,
    pub(super) cores: usize,
    pub(super) repeats: u32,
    pub(super) quick: bool,
    pub(super) seed: u64,
    /// Steps of work a second, measured once.
    pub(super) rate: u64,
    pub(super) programs: String,
}

/// One run of a cell.
#[derive(Debug, Serialize)]
pub(super) struct RunLine<'a> {
    pub(super) cell: String,
    pub(super) round: u32,
    pub(super) rivals: Rivals,
    /// Time over the ideal's; null when it failed.
    pub(super) ratio: Option<f64>,
    /// The part of the machine that others had.
    pub(super) noise: Option<f64>,
    pub(super) clean: bool,
    pub(super) command: Vec<String>,
    /// What the program printed; null when it failed.
    pub(super) report: Option<&'a Value>,
    pub(super) error: Option<&'a str>,
    pub(super) stderr: &'a str,
}

/// All runs of a cell.
#[derive(Debug, Serialize)]
pub(super) struct CellLine<'a> {
    pub(super) cell: String,
    pub(super) clean: &'a [f64],
    pub(super) noisy: &'a [f64],
    pub(super) estimate: Option<Estimate>,
    pub(super) spread: Option<f64>,
    pub(super) against_kernel: Option<Comparison>,
    pub(super) goals: Vec<Judged>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct End {
    /// Whether all rounds were run.
    pub(super) complete: bool,
    pub(super) runs: usize,
    pub(super) failed: usize,
    pub(super) clean: usize,
}

/// A line.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum Line<'a> {
    Start(&'a Start),
    Run(Box<RunLine<'a>>),
    Result(CellLine<'a>),
    End(End),
}

/// A program's report as the yardstick takes it.
pub(super) fn read_run(report: &Value, cores: usize, rivals: Rivals) -> Option<Run> {
    let compute =
        report["compute_seconds"].as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>()?;
    Some(Run {
        cores,
        rivals,
        seconds: report["seconds"].as_f64()?,
        compute,
        machine_cpus: usize::try_from(report["machine_cpus"].as_u64()?).ok()?,
        foreign: report["foreign_seconds"].as_f64(),
        steal: report["steal_seconds"].as_f64(),
    })
}

/// The words of a command, for a record.
pub(super) fn words(command: &[OsString]) -> Vec<String> {
    command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// What a record holds already.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) start: Start,
    /// The reports of the runs that went well, by round and name of cell.
    pub(super) reports: BTreeMap<(u32, String), Value>,
}

impl Before {
    /// Reads a record.
    ///
    /// # Errors
    /// It cannot be read, or is no record of this benchmark.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot go on with {}: it cannot be read", file.display()))?;
        Self::parse(&text).with_context(|| format!("cannot go on with {}", file.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut start = None;
        let mut reports = BTreeMap::new();
        // A last line without an end was cut off by a sudden end, and will be run again.
        for (at, line) in text.split_inclusive('\n').filter(|line| line.ends_with('\n')).enumerate() {
            let line: Value =
                serde_json::from_str(line).with_context(|| format!("line {} is not JSON", at + 1))?;
            if line["schema"] != SCHEMA {
                bail!("line {} is not of schema {SCHEMA}", at + 1);
            }
            match line["record"].as_str() {
                Some("start") if start.is_none() => {
                    let read: Start = serde_json::from_value(line)
                        .with_context(|| format!("line {} is no start of bench balance", at + 1))?;
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

    /// Why its samples and those of a measurement that begins now would not be comparable.
    pub(super) fn differs(&self, now: &Start) -> Option<String> {
        let then = &self.start;
        let differs = |what: &str, then: &dyn std::fmt::Display, now: &dyn std::fmt::Display| {
            (then.to_string() != now.to_string()).then(|| format!("its {what} was {then}, now it is {now}"))
        };
        differs("machine", &then.head.summary, &now.head.summary)
            .or_else(|| differs("kernel", &then.head.kernel, &now.head.kernel))
            .or_else(|| differs("set of CPUs", &then.cpus, &now.cpus))
            .or_else(|| differs("trimtab", &then.head.trimtab, &now.head.trimtab))
            .or_else(|| differs("--quick", &then.quick, &now.quick))
            .or_else(|| differs("seed", &then.seed, &now.seed))
    }
}

/// The name under which a run of a cell is found again.
pub(super) fn key(round: u32, cell: &Cell) -> (u32, String) {
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

    fn start() -> Start {
        Start {
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
    fn a_record_is_gone_on_with_from_its_good_runs() {
        let run = |round: u32, report: Value| serde_json::json!({"record": "run", "cell": "a/b/c", "round": round, "report": report});
        let good = serde_json::json!({"seconds": 1.0});
        let mut all = text(&[begin(), run(1, good.clone()), run(2, Value::Null)]);
        all.push_str("{\"schema\":\"trimtab.bench/1\",\"rec");
        let before = Before::parse(&all).unwrap();
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
            (text(&[serde_json::json!({"record": "start"})]), "line 1 is no start"),
            ("{}\n".to_owned(), "line 1 is not of schema"),
            ("half\n".to_owned(), "line 1 is not JSON"),
        ] {
            let error = format!("{:#}", Before::parse(&text).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn what_is_not_comparable_is_said() {
        let before = Before { start: start(), reports: BTreeMap::new() };
        assert_eq!(before.differs(&Start { rate: 9, repeats: 9, ..start() }), None);
        let other = before.differs(&Start { cpus: "0-3".into(), ..start() }).unwrap();
        assert_eq!(other, "its set of CPUs was 0-1, now it is 0-3");
        assert!(before.differs(&Start { quick: true, ..start() }).is_some());
        assert!(before.differs(&Start { head: Head { kernel: "7".into(), ..head() }, ..start() }).is_some());
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
