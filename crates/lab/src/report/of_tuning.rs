//! Page of a tuning: each setting that was tried with its runs, and the evidence for the winner.

use super::sheet::{CellColour, Section, Sheet, SheetCell, Table};
use super::strip_plot::{Strip, StripRow};
use crate::tune::record::{Record, TuningStart};
use trimtab_cli::tuning_store::{Conditions, Kept};
use trimtab_core::setting::Setting;
use trimtab_core::stats::{Better, compare, median};
use trimtab_core::tuning::{Ran, Stage};
use trimtab_launch::options::words;

/// Builds the page of a whole tuning, as `trimtab tune --json` prints it.
pub(super) fn sheet(record: &Record) -> Sheet {
    let Record { start, runs, profile, is_over } = record;
    let mut sections: Vec<Section> = profile.iter().map(evidence).collect();
    sections.push(tried(record));
    let values: Vec<Vec<SheetCell>> = runs
        .iter()
        .map(|run| {
            let (what, number, mood) = match &run.ran {
                Ran::Well { value, .. } => (figure(*value), Some(*value), CellColour::Plain),
                Ran::Slow { took } => {
                    (format!("stopped after {:.3} s", took.seconds()), None, CellColour::Bad)
                }
                Ran::Failed { why, .. } => (format!("failed: {why}"), None, CellColour::Bad),
            };
            let order = SheetCell::number(run.number as f64, run.number.to_string());
            vec![
                order,
                run.stage.word().into(),
                run.setting.to_string().into(),
                SheetCell { text: what, number, mood },
            ]
        })
        .collect();
    sections.push(Section {
        title: "Every run".to_owned(),
        table: Some(Table {
            columns: ["RUN", "STAGE", "SETTING", unit(&start.metric)].map(str::to_owned).to_vec(),
            rows: values,
        }),
        ..Section::default()
    });
    let mut warnings: Vec<String> =
        start.left_out.iter().map(|left| format!("{} was not tried: {}", left.knob, left.why)).collect();
    if !is_over {
        warnings.push("The tuning was stopped before its end: --resume continues it.".to_owned());
    }
    let mut facts = conditions(&start.conditions);
    facts.push(("start setting".to_owned(), start.from.to_string()));
    facts.push(("settings in the full grid".to_owned(), format!("{:.0}", start.grid)));
    facts.push(("runs".to_owned(), runs.len().to_string()));
    Sheet {
        title: start.command.join(" "),
        about: verdict(start, profile.as_ref(), *is_over),
        facts,
        warnings,
        sections,
    }
}

/// Builds the page of a stored tuning, as `trimtab tune export` writes it.
pub(super) fn kept_sheet(kept: &Kept) -> Sheet {
    let name = kept.conditions.program.display().to_string();
    Sheet {
        title: format!("{name} {}", kept.conditions.arguments).trim_end().to_owned(),
        about: gain(kept),
        facts: conditions(&kept.conditions),
        warnings: Vec::new(),
        sections: vec![evidence(kept)],
    }
}

fn verdict(start: &TuningStart, profile: Option<&Kept>, is_over: bool) -> String {
    match profile {
        Some(kept) => gain(kept),
        None if is_over => format!(
            "No setting is significantly better than {} by {:.0} % or more: no change.",
            start.from,
            100.0 * start.gain_min
        ),
        None => "No decision yet.".to_owned(),
    }
}

fn gain(kept: &Kept) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    format!(
        "{} is better than {} by {:.1} % (95 % confidence: {:.1} to {:.1} %). As options: trimtab run {}",
        kept.setting,
        kept.from,
        percent(kept.gain),
        percent(kept.low),
        percent(kept.high),
        words(&kept.setting).join(" ")
    )
}

fn conditions(of: &Conditions) -> Vec<(String, String)> {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        fact("program", of.program.display().to_string()),
        fact("arguments", if of.arguments.is_empty() { "none".to_owned() } else { of.arguments.clone() }),
        fact("machine", of.machine.clone()),
        fact("cores", of.cores.to_string()),
    ]
}

/// Returns the section of the runs that decided.
fn evidence(kept: &Kept) -> Section {
    let after = StripRow { chosen: true, ..StripRow::of(&kept.setting.to_string(), kept.after.clone()) };
    let rows = vec![StripRow::of(&kept.from.to_string(), kept.before.clone()), after];
    let adds =
        kept.adds.iter().map(|(knob, gain)| format!("{knob} contributes {:+.1} %", 100.0 * (gain - 1.0)));
    Section {
        title: "The evidence".to_owned(),
        words: format!(
            "{} pairs of alternating runs, made after the choice; only these decide.",
            kept.before.len().min(kept.after.len())
        ),
        strip: Some(Strip { of: unit(&kept.metric).to_owned(), rows, ..Strip::default() }),
        lines: adds.collect(),
        ..Section::default()
    }
}

/// Returns the section of all settings with their runs.
fn tried(record: &Record) -> Section {
    let Record { start, runs, profile, .. } = record;
    let mut all: Vec<(&Setting, Vec<f64>, usize, Option<&str>)> = Vec::new();
    for run in runs.iter().filter(|run| run.stage != Stage::Warm) {
        let at = all.iter().position(|(setting, ..)| **setting == run.setting).unwrap_or_else(|| {
            all.push((&run.setting, Vec::new(), 0, None));
            all.len() - 1
        });
        match &run.ran {
            Ran::Well { value, .. } => all[at].1.push(*value),
            Ran::Slow { .. } => all[at].2 += 1,
            Ran::Failed { why, .. } => all[at].3 = Some(why),
        }
    }
    let better = if start.higher { Better::More } else { Better::Less };
    let base: Vec<f64> =
        all.iter().find(|(setting, ..)| **setting == start.from).map(|one| one.1.clone()).unwrap_or_default();
    let rows = all.iter().map(|(setting, values, slow, failed)| {
        let gain = compare(&base, values, better, start.seed).gain.map(|gain| gain.median - 1.0);
        let mood = match gain {
            Some(gain) if gain >= start.gain_min => CellColour::Good,
            Some(gain) if gain <= -start.gain_min => CellColour::Bad,
            _ => CellColour::Plain,
        };
        let note = match (failed, slow) {
            (Some(why), _) => format!("out: {why}"),
            (None, 1..) => format!("{slow} stopped as too slow"),
            _ => String::new(),
        };
        vec![
            setting.to_string().into(),
            SheetCell::number(values.len() as f64, values.len().to_string()),
            median(values).map_or_else(|| "-".into(), |value| SheetCell::number(value, figure(value))),
            gain.map_or_else(
                || "-".into(),
                |gain| SheetCell::number(gain, format!("{:+.1} %", 100.0 * gain)).looks(mood),
            ),
            note.into(),
        ]
    });
    let winner = profile.as_ref().map(|kept| &kept.setting);
    let pictured = all.iter().filter(|one| !one.1.is_empty()).map(|(setting, values, ..)| StripRow {
        chosen: winner == Some(*setting),
        ..StripRow::of(&setting.to_string(), values.clone())
    });
    Section {
        title: "Settings tried".to_owned(),
        words: "A dot is a run, the tick their median; the dashed line is the median of the start. Settings that \
                appeared worse got fewer runs; the setting in bold was kept."
            .to_owned(),
        strip: Some(Strip {
            of: unit(&start.metric).to_owned(),
            mark: median(&base),
            rows: pictured.collect(),
            ..Strip::default()
        }),
        table: Some(Table {
            columns: ["SETTING", "RUNS", unit(&start.metric), "TO START", ""].map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }),
        lines: Vec::new(),
    }
}

fn unit(metric: &str) -> &'static str {
    if metric == "time" { "SECONDS" } else { "METRIC" }
}

fn figure(value: f64) -> String {
    if value.abs() >= 1000.0 { format!("{value:.1}") } else { format!("{value:.4}") }
}
