//! Page of a field measurement: the machine, and a table for each part.

use super::sheet::{CellColour, Section, Sheet, SheetCell, Table};
use crate::field::findings::{self, FieldTable};
use crate::field::record::FieldRecord;

/// Builds the page.
pub(super) fn sheet(record: &FieldRecord) -> Sheet {
    let mut warnings = Vec::new();
    if !record.complete {
        warnings.push("The measurement was stopped early: not all parts are whole.".to_owned());
    }
    if record.quick {
        warnings.push("Small problems and few rounds (--quick): not for conclusions.".to_owned());
    }
    Sheet {
        title: "Field measurement".to_owned(),
        about: "Benchmarks of one machine: medians, with 95 % confidence intervals where there are at least five samples."
            .to_owned(),
        facts: findings::facts(record),
        warnings,
        sections: findings::tables(record).into_iter().map(section).collect(),
    }
}

fn section(FieldTable { title, columns, rows, notes }: FieldTable) -> Section {
    let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
    let rows: Vec<Vec<SheetCell>> = rows.into_iter().map(|row| row.into_iter().map(cell).collect()).collect();
    let table = (!rows.is_empty()).then_some(Table { columns, rows });
    Section { title, table, lines: notes, ..Section::default() }
}

/// Returns a cell, which sorts by the number with which its text begins.
fn cell(text: String) -> SheetCell {
    let colour = match text.as_str() {
        "better" => CellColour::Good,
        "WORSE" => CellColour::Bad,
        _ => CellColour::Plain,
    };
    let number = text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    SheetCell { number, ..SheetCell::from(text) }.looks(colour)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::record::SCHEMA;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use trimtab_core::topology::parse_synthetic;

    fn odd() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,9}".prop_map(Value::from),
            Just(Value::from("\u{1b}]0;title\u{7}\r\n\u{9b}2J\u{202e}")),
        ];
        // Half of the fields are those that the tables read.
        let name = prop_oneof![
            proptest::sample::select(vec![
                "record",
                "case",
                "kind",
                "way",
                "unit",
                "samples",
                "estimate",
                "median",
                "interval",
                "low",
                "high",
                "against_linux",
                "against_kernel",
                "verdict",
                "gain",
                "error",
                "experiment",
                "index",
                "signs",
                "agree",
                "of",
                "changes",
                "levels",
                "pearson",
                "time",
                "ways",
                "first",
                "second",
                "program",
                "outer",
                "inner",
                "figure",
                "comparison",
                "baseline",
                "candidate",
                "cell",
                "clean",
                "noisy",
            ])
            .prop_map(str::to_owned),
            ".{0,5}",
        ];
        leaf.prop_recursive(3, 24, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((name.clone(), inner), 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn line() -> impl Strategy<Value = Value> {
        let kind = proptest::sample::select(vec!["run", "result", "worth", "start"]);
        (kind, odd(), odd(), odd(), odd()).prop_map(|(kind, case, value, estimate, against)| {
            json!({"record": kind, "case": case, "program": case, "index": case, "cell": case, "error": value,
                "estimate": estimate, "comparison": against, "against_linux": against,
                "against_kernel": against, "signs": {"agree": 1, "of": 2}, "time": {"first": 1.0, "second": 2.0},
                "ways": [case, value]})
        })
    }

    fn controls(text: &str) -> bool {
        text.chars().any(|letter| letter != '\n' && letter.is_control() || letter == '\u{202e}')
    }

    proptest! {
        #[test]
        fn a_strangers_file_never_controls_the_terminal(
            part in proptest::sample::select(vec!["nodes", "index", "nested", "balance", "\u{1b}[2J"]),
            text in ".{0,20}",
            why in odd().prop_map(|value| format!("\u{1b}[31m{value}\r")),
            lines in prop::collection::vec(prop_oneof![odd(), line()], 0..6),
            seconds in any::<f64>().prop_filter("JSON has no others", |seconds| seconds.is_finite()),
        ) {
            let record = json!({
                "schema": SCHEMA, "trimtab": text, "day": why, "seconds_max": seconds, "seconds": seconds,
                "quick": true, "complete": false,
                "machine": {
                    "summary": why, "processor": text, "topology": parse_synthetic("node:2 core:2").unwrap(),
                    "allowed": why, "settings": {(why.clone()): text, "kernel": why},
                    "counters": {"rung": "nothing", "events": [why], "missing": [["nothing", why]]}
                },
                "parts": [{"part": part, "end": "failed", "why": [why, text], "seconds": seconds, "lines": lines}]
            });
            let read = FieldRecord::parse(&record.to_string());
            let read = read.map_err(|error| TestCaseError::fail(format!("{error:#}")))?;
            let words = findings::text(&read);
            prop_assert!(!controls(&words), "{:?}", words);
            let sheet = sheet(&read);
            let all = sheet.facts.iter().map(|(name, value)| format!("{name}{value}"));
            let lines = sheet.sections.iter().flat_map(|section| section.lines.clone());
            for text in all.chain(lines).chain(sheet.sections.iter().map(|section| section.title.clone())) {
                prop_assert!(!controls(&text), "{:?}", text);
            }
        }

        #[test]
        fn other_bytes_are_refused_without_control_characters(
            bytes in prop::collection::vec(any::<u8>(), 0..200), value in odd()
        ) {
            let texts = [String::from_utf8_lossy(&bytes).into_owned(), value.to_string(),
                json!({"schema": value, "end": "\u{1b}[2J"}).to_string()];
            for text in texts {
                if let Err(error) = FieldRecord::parse(&text) {
                    let said = format!("{error:#}");
                    prop_assert!(!controls(&said), "{:?}", said);
                }
            }
        }
    }
}
