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
