//! Findings of a field record: tables of medians, for a terminal and for the page of `trimtab
//! report`.

use super::facts::FieldMachine;
use super::record::{FieldPartRecord, FieldRecord};
use crate::args::FieldPart;
use serde_json::Value;
use std::fmt::Write as _;
use trimtab_core::counts::Rung;
use trimtab_front::table::{Align, Table};
use trimtab_front::units;

/// A table of findings, and the words about it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct FieldTable {
    pub(crate) title: String,
    /// Names of the columns. The first ones have words, the others numbers.
    pub(crate) columns: &'static [&'static str],
    pub(crate) rows: Vec<Vec<String>>,
    /// How the part ended, and what could not be measured.
    pub(crate) notes: Vec<String>,
}

/// Returns facts of the machine by name.
pub(crate) fn facts(record: &FieldRecord) -> Vec<(String, String)> {
    let FieldMachine { summary, processor, allowed, settings, counters, .. } = &record.machine;
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![
        fact("machine", summary.clone()),
        fact("processor", processor.clone().unwrap_or_else(|| "not known".to_owned())),
        fact("CPUs used", allowed.clone()),
    ];
    let known = settings.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
    facts.extend(known);
    facts.push(fact("counters", counters.rung.to_string()));
    for (at, (_, why)) in counters.missing.iter().enumerate() {
        let same = |one: &&(Rung, String)| one.1 == *why;
        // Several rungs that are missing for one reason are one line.
        if counters.missing[..at].iter().any(|one| one.1 == *why) {
            continue;
        }
        let rungs: Vec<&str> = counters.missing.iter().filter(same).map(|(rung, _)| rung.word()).collect();
        facts.push(fact(&format!("not {}", rungs.join(", ")), why.clone()));
    }
    facts.push(fact(
        "measured",
        format!("{} with trimtab {}, in {:.0} s", record.day, record.trimtab, record.seconds),
    ));
    facts
}

/// Returns the tables of all parts.
pub(crate) fn tables(record: &FieldRecord) -> Vec<FieldTable> {
    record.parts.iter().flat_map(of_part).collect()
}

/// Returns the findings as text.
pub(crate) fn text(record: &FieldRecord) -> String {
    let mut text = String::new();
    for (name, value) in facts(record) {
        let _ = writeln!(text, "{name}: {value}");
    }
    for FieldTable { title, columns, rows, notes } in tables(record) {
        let _ = writeln!(text, "\n{title}");
        if !rows.is_empty() {
            let aligned: Vec<(&str, Align)> = columns.iter().map(|name| (*name, Align::Left)).collect();
            let mut table = Table::new(&aligned);
            rows.into_iter().for_each(|row| table.row(row));
            let _ = write!(text, "\n{table}");
        }
        for note in notes {
            let _ = writeln!(text, "  {note}");
        }
    }
    if !record.complete {
        text.push_str("\nStopped early: not all parts are whole\n");
    }
    text
}

fn of_part(part: &FieldPartRecord) -> Vec<FieldTable> {
    let known = FieldPart::ALL.into_iter().find(|known| known.word() == part.part);
    let mut tables = match known {
        Some(FieldPart::Nodes) => nodes(part),
        Some(FieldPart::Index) => vec![index(part)],
        Some(FieldPart::Nested) => vec![nested(part)],
        Some(FieldPart::Balance) => vec![balance(part)],
        None => Vec::new(),
    };
    if tables.is_empty() {
        tables.push(FieldTable { title: part.part.clone(), ..FieldTable::default() });
    }
    if let Some(last) = tables.last_mut() {
        let runs = part.of_kind("run").count();
        last.notes.push(format!("{} in {:.0} s: {runs} runs", part.end.words(), part.seconds));
        last.notes.extend(part.why.iter().cloned());
        let errors = part.of_kind("run").filter_map(|run| run["error"].as_str());
        let mut errors: Vec<String> = errors.map(|error| format!("a run failed: {error}")).collect();
        errors.sort();
        errors.dedup();
        last.notes.extend(errors);
    }
    tables
}

/// Formats a median with its interval, as records have it.
fn estimate(value: &Value) -> String {
    let Some(median) = value["median"].as_f64() else { return "-".to_owned() };
    let number = |value: f64| units::number(value, 3);
    match (value["interval"]["low"].as_f64(), value["interval"]["high"].as_f64()) {
        (Some(low), Some(high)) => format!("{} [{}, {}]", number(median), number(low), number(high)),
        _ => number(median),
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the number of samples and the verdict of a comparison.
fn verdict(comparison: &Value) -> String {
    match comparison["verdict"].as_str() {
        Some("better") => "better".to_owned(),
        Some("worse") => "WORSE".to_owned(),
        Some("no-difference") => "no difference".to_owned(),
        Some(_) => "not known".to_owned(),
        None => String::new(),
    }
}

fn nodes(part: &FieldPartRecord) -> Vec<FieldTable> {
    let samples = |line: &Value| line["samples"].as_array().map_or(0, Vec::len).to_string();
    let (placed, memory): (Vec<&Value>, Vec<&Value>) =
        part.of_kind("result").partition(|line| line["kind"] == "placed");
    let row = |line: &Value| {
        vec![text_of(&line["case"]), estimate(&line["estimate"]), text_of(&line["unit"]), samples(line)]
    };
    let far = FieldTable {
        title: "Far memory against near".to_owned(),
        columns: &["MEMORY", "MEDIAN", "UNIT", "SAMPLES"],
        rows: memory.into_iter().map(row).collect(),
        notes: Vec::new(),
    };
    let row = |line: &Value| {
        let against = &line["against_linux"];
        vec![
            text_of(&line["case"]),
            text_of(&line["way"]),
            estimate(&line["estimate"]),
            estimate(&against["gain"]),
            verdict(against),
            samples(line),
        ]
    };
    let brm = FieldTable {
        title: "brm against Linux, programs that begin on the wrong node".to_owned(),
        columns: &["BEGINS", "VARIANT", "M ACCESSES/S", "GAIN", "AGAINST LINUX", "SAMPLES"],
        rows: placed.into_iter().map(row).collect(),
        notes: Vec::new(),
    };
    vec![far, brm]
}

fn index(part: &FieldPartRecord) -> FieldTable {
    let row = |line: &Value| {
        let agree = line["signs"]["agree"].as_u64()?;
        let of = line["signs"]["of"].as_u64().filter(|of| *of > 0)?;
        Some(vec![
            text_of(&line["index"]),
            format!("{agree} of {of}"),
            correlation(&line["changes"]),
            correlation(&line["levels"]),
        ])
    };
    let all = part.of_kind("worth").filter(|line| line["experiment"].is_null());
    FieldTable {
        title: "Does the index tell slow placements from fast ones?".to_owned(),
        columns: &["INDEX", "RIGHT ABOUT CHANGES", "R OF CHANGES", "R OF LEVELS"],
        rows: all.filter_map(row).collect(),
        notes: part
            .of_kind("result")
            .filter_map(|line| {
                let (time, case) = (&line["time"], line["case"].as_str()?);
                let ways = line["ways"].as_array()?.iter().filter_map(Value::as_str).collect::<Vec<_>>();
                let (first, second) = (time["first"].as_f64()?, time["second"].as_f64()?);
                Some(format!("{case}: {first:.1} ns {}, {second:.1} ns {}", ways.first()?, ways.get(1)?))
            })
            .collect(),
    }
}

fn correlation(value: &Value) -> String {
    value["pearson"].as_f64().map_or("-".to_owned(), |r| format!("{r:.2}"))
}

fn nested(part: &FieldPartRecord) -> FieldTable {
    let row = |line: &Value| {
        let comparison = &line["comparison"];
        vec![
            text_of(&line["program"]),
            format!("{}x{}", text_of(&line["outer"]), text_of(&line["inner"])),
            format!("{} ({})", text_of(&line["figure"]), text_of(&line["unit"])),
            estimate(&comparison["baseline"]),
            estimate(&comparison["candidate"]),
            estimate(&comparison["gain"]),
            verdict(comparison),
        ]
    };
    FieldTable {
        title: "Nested teams, placed against plain".to_owned(),
        columns: &["PROGRAM", "SHAPE", "FIGURE", "PLAIN", "PLACED", "GAIN", "PLACED IS"],
        rows: part.of_kind("result").map(row).collect(),
        notes: Vec::new(),
    }
}

fn balance(part: &FieldPartRecord) -> FieldTable {
    let row = |line: &Value| {
        let against = &line["against_kernel"];
        let count = |name: &str| line[name].as_array().map_or(0, Vec::len);
        vec![
            text_of(&line["cell"]),
            estimate(&line["estimate"]),
            estimate(&against["gain"]),
            verdict(against),
            format!("{} clean, {} noisy", count("clean"), count("noisy")),
        ]
    };
    FieldTable {
        title: "Balancing against Linux: time over that of the ideal".to_owned(),
        columns: &["CELL", "TIME OVER IDEAL", "GAIN", "AGAINST LINUX", "RUNS"],
        rows: part.of_kind("result").filter(|line| !line["estimate"].is_null()).map(row).collect(),
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::PartEnd;
    use super::*;
    use serde_json::json;

    fn part(name: &str, lines: Vec<Value>) -> FieldPartRecord {
        let why = vec!["far memory needs two nodes".to_owned()];
        FieldPartRecord { part: name.to_owned(), end: PartEnd::TimeOver, why, seconds: 7.0, lines }
    }

    #[test]
    fn results_become_rows_and_gaps_become_notes() {
        let line = json!({"record": "result", "case": "placed/far", "kind": "placed", "way": "brm", "unit": "M/s",
            "samples": [1.0, 2.0], "estimate": {"median": 1.5, "interval": null},
            "against_linux": {"gain": {"median": 1.25, "interval": {"low": 1.1, "high": 1.4}}, "verdict": "better"}});
        let failed = json!({"record": "run", "case": "placed/far", "error": "it ended too early"});
        let tables = of_part(&part("nodes", vec![line, failed.clone(), failed]));
        assert_eq!(tables.len(), 2);
        let row = ["placed/far", "brm", "1.50", "1.25 [1.10, 1.40]", "better", "2"];
        assert_eq!(tables[1].rows, [row.map(str::to_owned).to_vec()]);
        assert_eq!(
            tables[1].notes,
            [
                "as many rounds as its time allowed in 7 s: 2 runs",
                "far memory needs two nodes",
                "a run failed: it ended too early"
            ]
        );
    }

    #[test]
    fn an_index_is_shown_where_it_was_counted() {
        let line = |index: &str, of: u64| {
            json!({"record": "worth", "experiment": null, "index": index, "signs": {"agree": 3, "of": of},
                "changes": {"pearson": 0.5}, "levels": {"pearson": null}})
        };
        let tables = of_part(&part("index", vec![line("penalty", 4), line("far", 0)]));
        assert_eq!(tables[0].rows, [["penalty", "3 of 4", "0.50", "-"].map(str::to_owned).to_vec()]);
    }

    #[test]
    fn a_part_of_a_later_version_is_shown_by_its_name() {
        let tables = of_part(&part("other", vec![json!({"record": "result"})]));
        assert_eq!((tables.len(), tables[0].title.as_str()), (1, "other"));
    }
}
