//! One sample as plain text: for pipes, mails and dumb terminals.

use super::scene::{Around, CpuStyles, LEGEND};
use super::threads::{Sort, TableRow, clean, headline, percent, rows};
use std::collections::BTreeSet;
use trimtab_core::telemetry::account::Account;
use trimtab_core::topology::{Machine, Piece, draw, map};
use trimtab_front::table::{Align, Table};

/// Formats the sample; `empty` is printed instead of programs if none is watched.
pub(super) fn frame(
    machine: &Machine,
    account: &Account,
    around: &Around,
    wide: usize,
    empty: &str,
) -> String {
    let mut text = format!("{}: {}\n\n", clean(machine.name()), draw::summary(machine));
    let looks = CpuStyles::of(Some(account), around);
    for line in map(machine, wide) {
        for piece in line {
            match piece {
                Piece::Text(words) => text.push_str(&words),
                Piece::Core(core) => text.push(looks.core(machine, core).glyph()),
            }
        }
        text.push('\n');
    }
    text.push_str(&format!("{LEGEND}\n"));
    for row in &around.holds {
        text.push_str(&format!("held {} by {} (pid {}): {}\n", row.cpus, row.user, row.pid, row.command));
        if let Some(budget) = &row.budget {
            text.push_str(&format!("budget of pid {}: {}\n", row.pid, budget.phrase()));
        }
    }
    if !around.taken.pinned.is_empty() {
        text.push_str(&format!("pinned by others: CPUs {}\n", around.taken.pinned));
    }
    for note in &around.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    for finding in account.findings() {
        text.push_str(&format!("finding: {}\n", clean(&finding.to_string())));
    }
    text.push('\n');
    text.push_str(&programs(account, empty));
    text
}

fn programs(account: &Account, empty: &str) -> String {
    let rows = rows(account, (Sort::Speed, false), "", &BTreeSet::new());
    if rows.is_empty() {
        return format!("{empty}\n");
    }
    let blank = || {
        Table::new(&[
            ("  TID", Align::Right),
            ("THREAD", Align::Left),
            ("SPEED", Align::Right),
            ("CPU", Align::Right),
            ("CORE", Align::Right),
            ("NODE", Align::Right),
            ("RUN", Align::Right),
            ("WAIT", Align::Right),
            ("MIGR", Align::Right),
            ("MOVES", Align::Right),
        ])
    };
    let mut text = String::new();
    let mut table = blank();
    for row in rows {
        match row {
            TableRow::Program(id) => {
                text.push_str(&flush(std::mem::replace(&mut table, blank())));
                let program = account.programs().find(|program| program.id == id);
                text.push_str(&program.map(|program| headline(program, false)).unwrap_or_default());
                text.push('\n');
            }
            TableRow::Thread(id) => {
                let Some(thread) = account.thread(id) else { continue };
                let seat = thread.cpu.and_then(|cpu| account.seat(cpu));
                table.row([
                    format!("  {}", thread.info.tid),
                    clean(&thread.info.name),
                    percent(thread.speed),
                    shown(thread.cpu),
                    shown(seat.map(|seat| seat.core)),
                    shown(thread.node),
                    percent(thread.run_share),
                    percent(thread.wait_share),
                    thread.totals.migrations.to_string(),
                    thread.moves.to_string(),
                ]);
            }
        }
    }
    text + &flush(table)
}

fn flush(table: Table) -> String {
    if table.is_empty() { String::new() } else { table.to_string() }
}

fn shown<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
