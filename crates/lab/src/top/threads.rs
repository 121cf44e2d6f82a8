//! Rows of programs and threads: their choice, order and content.

use super::width;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use trimtab_core::ids::{ProgramId, ThreadId};
use trimtab_core::telemetry::account::{Account, ProgramAccount, ThreadAccount};
use trimtab_core::words::plural;
use trimtab_front::units;
use trimtab_linux::text::printable;

/// A row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TableRow {
    Program(ProgramId),
    Thread(ThreadId),
}

/// Sort key of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Sort {
    /// Lowest speed first.
    #[default]
    Speed,
    /// Most CPU time first.
    Run,
    /// Most waiting time first.
    Wait,
    /// Most migrations first.
    Migrations,
    /// By CPU.
    Cpu,
    /// By thread number.
    Tid,
    /// By name.
    Name,
}

impl Sort {
    /// Returns the next key.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Speed => Self::Run,
            Self::Run => Self::Wait,
            Self::Wait => Self::Migrations,
            Self::Migrations => Self::Cpu,
            Self::Cpu => Self::Tid,
            Self::Tid => Self::Name,
            Self::Name => Self::Speed,
        }
    }

    /// Returns its name.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Speed => "speed",
            Self::Run => "run",
            Self::Wait => "wait",
            Self::Migrations => "migrations",
            Self::Cpu => "cpu",
            Self::Tid => "tid",
            Self::Name => "name",
        }
    }

    fn compare(self, one: &ThreadAccount, other: &ThreadAccount) -> Ordering {
        match self {
            // A thread without a value comes last in both orders.
            Self::Speed => known(one.speed, other.speed, f64::total_cmp),
            Self::Run => known(one.run_share, other.run_share, |one, other| other.total_cmp(one)),
            Self::Wait => known(one.wait_share, other.wait_share, |one, other| other.total_cmp(one)),
            Self::Migrations => other.totals.migrations.cmp(&one.totals.migrations),
            Self::Cpu => known(one.cpu, other.cpu, Ord::cmp),
            Self::Tid => one.info.tid.cmp(&other.info.tid),
            Self::Name => one.info.name.cmp(&other.info.name),
        }
    }
}

fn known<T>(one: Option<T>, other: Option<T>, compare: impl Fn(&T, &T) -> Ordering) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => compare(&one, &other),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

/// Returns the rows: programs with most CPU time first, each with its threads below.
pub(super) fn rows(
    account: &Account,
    (sort, reverse): (Sort, bool),
    filter: &str,
    folded: &BTreeSet<ProgramId>,
) -> Vec<TableRow> {
    let filter = filter.to_lowercase();
    let mut programs: Vec<&ProgramAccount> =
        account.programs().filter(|program| program.threads > 0 || program.ended > 0).collect();
    programs.sort_by_key(|program| (std::cmp::Reverse(program.totals.run), program.id));
    let mut rows = Vec::new();
    for program in programs {
        let whole = program.name().to_lowercase().contains(&filter);
        let mut threads: Vec<&ThreadAccount> = account
            .threads()
            .filter(|thread| thread.info.program == program.id && (whole || matches(thread, &filter)))
            .collect();
        if threads.is_empty() && !whole {
            continue;
        }
        threads.sort_by(|one, other| {
            let order = sort.compare(one, other);
            let order = if reverse { order.reverse() } else { order };
            order.then(one.info.id.cmp(&other.info.id))
        });
        rows.push(TableRow::Program(program.id));
        if !folded.contains(&program.id) {
            rows.extend(threads.iter().map(|thread| TableRow::Thread(thread.info.id)));
        }
    }
    rows
}

fn matches(thread: &ThreadAccount, filter: &str) -> bool {
    thread.info.name.to_lowercase().contains(filter)
        || thread.info.tid.to_string().contains(filter)
        || thread.info.pid.to_string().contains(filter)
}

/// A column of the thread table.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) width: usize,
    /// Columns with a higher value are dropped first when room is short.
    spare: u8,
    pub(super) cell: fn(&ThreadAccount, &Account) -> String,
}

/// All columns but the name and the history.
const COLUMNS: [Column; 10] = [
    Column { title: "TID", width: 7, spare: 0, cell: |thread, _| thread.info.tid.to_string() },
    Column { title: "SPEED", width: 5, spare: 1, cell: |thread, _| percent(thread.speed) },
    Column { title: "CPU", width: 4, spare: 2, cell: |thread, _| number(thread.cpu) },
    Column {
        title: "CORE",
        width: 4,
        spare: 8,
        cell: |thread, account| number(thread.cpu.and_then(|cpu| account.seat(cpu)).map(|seat| seat.core)),
    },
    Column { title: "NODE", width: 4, spare: 6, cell: |thread, _| number(thread.node) },
    Column { title: "WAIT", width: 5, spare: 3, cell: |thread, _| percent(thread.wait_share) },
    Column { title: "RUN", width: 5, spare: 5, cell: |thread, _| percent(thread.run_share) },
    Column { title: "MIGR", width: 5, spare: 4, cell: |thread, _| thread.totals.migrations.to_string() },
    Column { title: "MOVES", width: 5, spare: 9, cell: |thread, _| thread.moves.to_string() },
    Column { title: "SLP/S", width: 5, spare: 10, cell: |thread, _| rate(thread.sleeps) },
];

/// Least and greatest width of the name.
const NAME: (usize, usize) = (9, 24);
/// Least width of the name beside a history.
const NAME_BESIDE_HISTORY: usize = 13;
/// Least and greatest width of the history; it is left out if it would displace more important
/// columns.
const HISTORY: (usize, usize) = (10, 64);
/// Columns with a greater `spare` value give way to the history.
const SPARED_FOR_HISTORY: u8 = 7;

/// Returns the columns that fit, in order, and the widths of the name and the history.
pub(super) fn columns(width: usize) -> (Vec<&'static Column>, usize, usize) {
    static ALL: [Column; 10] = COLUMNS;
    let mut chosen: Vec<&Column> = ALL.iter().collect();
    let total = |chosen: &[&Column]| chosen.iter().map(|column| column.width + 1).sum::<usize>();
    let worst = |chosen: &[&Column]| (0..chosen.len()).max_by_key(|&at| chosen[at].spare);
    while total(&chosen) + NAME_BESIDE_HISTORY + 1 + HISTORY.0 > width {
        let Some(at) = worst(&chosen).filter(|&at| chosen[at].spare > SPARED_FOR_HISTORY) else { break };
        chosen.remove(at);
    }
    while total(&chosen) + NAME.0 > width {
        let Some(at) = worst(&chosen) else { break };
        chosen.remove(at);
    }
    let rest = width.saturating_sub(total(&chosen));
    let history = rest.saturating_sub(NAME_BESIDE_HISTORY + 1);
    if history < HISTORY.0 {
        return (chosen, rest.min(NAME.1), 0);
    }
    let name = (rest - 1 - HISTORY.0).min(NAME.1);
    (chosen, name, (rest - 1 - name).min(HISTORY.1))
}

/// Formats a program as one line, the most important values first.
pub(super) fn headline(program: &ProgramAccount, folded: bool) -> String {
    let name = if program.name().is_empty() { "(unknown)".to_owned() } else { clean(program.name()) };
    let name = width::cut(&name, 24);
    let mut words = vec![
        format!("{} {name}", if folded { '+' } else { '-' }),
        plural(program.threads, "thread"),
        format!("end {}", percent(program.expected)),
        format!("balance {}", percent(program.balance)),
        format!("speed {} least {}", percent(program.speed), percent(program.slowest)),
        format!("waited {}", percent(program.waited)),
        format!("migr {}", program.totals.migrations),
        format!("moved {}", program.moves),
    ];
    if let Some(info) = &program.info {
        words.push(format!("pid {}", info.pid));
    }
    if program.ended > 0 {
        words.push(format!("{} ended", program.ended));
    }
    words.join("  ")
}

/// Makes foreign text safe to show.
pub(super) fn clean(text: &str) -> String {
    printable(text.as_bytes())
}

/// Formats a share; a dash if it is unknown.
pub(super) fn percent(share: Option<f64>) -> String {
    units::or_dash(share, |share| units::percent(share, 0))
}

fn number<T: ToString>(value: Option<T>) -> String {
    units::or_dash(value, |value| value.to_string())
}

fn rate(value: Option<f64>) -> String {
    value.map_or_else(
        || "-".to_owned(),
        |value| if value < 10_000.0 { format!("{value:.0}") } else { format!("{:.0}k", value / 1e3) },
    )
}

/// Draws the latest speeds as bars: a full bar is speed 1, a dot is asleep or not read.
pub(super) fn sparkline(thread: &ThreadAccount, width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |speed: f64| BARS[((speed * 7.0).round().clamp(0.0, 7.0)) as usize];
    let skip = thread.history.len().saturating_sub(width);
    thread.history.iter().skip(skip).map(|past| past.speed.map_or('·', bar)).collect()
}
