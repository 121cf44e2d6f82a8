//! Results of a tuning of teams, as text and as JSON.

use anyhow::Result;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use trimtab_front::date::date;
use trimtab_front::table::{Align, Table};
use trimtab_team::tune::{Cell, Checked, Job, Measured, Origin, Tried, Tuning, store};

/// Schema of the JSON document.
const SCHEMA: &str = "trimtab.tune-team/1";

/// The whole document.
#[derive(Debug, Serialize)]
pub(super) struct TuneTeamReport {
    schema: &'static str,
    what: &'static str,
    trimtab: &'static str,
    machine: String,
    unoptimised: bool,
    pub(super) file: Option<PathBuf>,
    pub(super) complete: bool,
    pub(super) signal: Option<i32>,
    pub(super) verdict: Option<GoalVerdict>,
    pub(super) teams: Vec<TeamOf>,
}

/// The result for one number of ranks.
#[derive(Debug, Serialize)]
pub(super) struct TeamOf {
    pub(super) key: String,
    #[serde(flatten)]
    pub(super) of: TeamResult,
}

/// Kinds of results.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum TeamResult {
    Tuned(Tuning),
    Checked { ranks: u32, crowded: bool, cells: Vec<Checked>, left: usize },
    Planned { ranks: u32, crowded: bool, cells: Vec<(Job, Vec<Tried>)> },
}

/// Whether the choices are good.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct GoalVerdict {
    /// Cells in which the choice is within 5 % of the best.
    pub(super) good: usize,
    /// Cells that other programs did not disturb.
    pub(super) judged: usize,
    /// Cells that other programs disturbed.
    pub(super) noisy: usize,
    /// Share of the cells that must be good.
    pub(super) goal: f64,
    /// Whether the goal is met; null if no cell could be judged.
    pub(super) met: Option<bool>,
}

impl TuneTeamReport {
    pub(super) fn new(what: &'static str, file: Option<&Path>, teams: Vec<TeamOf>) -> Self {
        Self {
            schema: SCHEMA,
            what,
            trimtab: env!("CARGO_PKG_VERSION"),
            machine: store::fingerprint(),
            unoptimised: cfg!(debug_assertions),
            file: file.map(Path::to_owned),
            complete: true,
            signal: None,
            verdict: None,
            teams,
        }
    }

    pub(super) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// Returns the number of cells that were not measured.
    pub(super) fn left(&self) -> usize {
        let of = |team: &TeamOf| match &team.of {
            TeamResult::Tuned(tuning) => tuning.left,
            TeamResult::Checked { left, .. } => *left,
            TeamResult::Planned { .. } => 0,
        };
        self.teams.iter().map(of).sum()
    }

    fn tunings(&self) -> impl Iterator<Item = (&str, &Tuning)> {
        self.teams.iter().filter_map(|team| match &team.of {
            TeamResult::Tuned(tuning) => Some((team.key.as_str(), tuning)),
            _ => None,
        })
    }
}

/// Returns the heading of a team.
pub(super) fn title(ranks: u32, crowded: bool) -> String {
    format!("{ranks} ranks, {}", if crowded { "more than CPUs" } else { "a CPU each" })
}

fn us(time: Option<f64>) -> String {
    match time {
        None => "-".to_owned(),
        Some(time) if time < 10.0 => format!("{time:.3}"),
        Some(time) => format!("{time:.1}"),
    }
}

fn bytes(job: Job) -> String {
    if job.bytes == 0 { String::new() } else { job.bytes.to_string() }
}

fn gain(cell: &Cell) -> String {
    match (cell.verdict.winner, cell.usual().best, cell.winner().best) {
        (winner, Some(usual), Some(own)) if winner != 0 && own > 0.0 => format!("{:.2}x", usual / own),
        _ => "-".to_owned(),
    }
}

fn rows(tuning: &Tuning) -> Table {
    let mut table = Table::new(&[
        ("OPERATION", Align::Left),
        ("BYTES", Align::Right),
        ("CALL CLASS", Align::Left),
        ("USUAL", Align::Left),
        ("US", Align::Right),
        ("CHOSEN", Align::Left),
        ("US", Align::Right),
        ("GAIN", Align::Right),
        ("WHY", Align::Left),
    ]);
    for cell in &tuning.cells {
        let why = match (cell.judged, cell.verdict.winner) {
            (false, _) => format!(
                "usual algorithm: other programs used {:.0} % of the machine",
                cell.foreign.unwrap_or_default() * 100.0
            ),
            (true, 0) => format!("usual algorithm: {}", cell.verdict.why),
            (true, _) => cell.verdict.why.clone(),
        };
        table.row([
            cell.job.kind.name().to_owned(),
            bytes(cell.job),
            cell.job.manner.word().to_owned(),
            cell.usual().tried.to_string(),
            us(cell.usual().best),
            cell.winner().tried.to_string(),
            us(cell.winner().best),
            gain(cell),
            why,
        ]);
    }
    table
}

/// Formats the results of a tuning.
pub(super) fn tuned(document: &TuneTeamReport) -> String {
    let mut text = String::new();
    let (mut other, mut all, mut noisy) = (0, 0, 0);
    for (key, tuning) in document.tunings() {
        if !tuning.cells.is_empty() {
            let _ = writeln!(text, "{key}\n{}", rows(tuning));
        }
        all += tuning.cells.len();
        other += tuning.cells.iter().filter(|cell| cell.judged && cell.verdict.winner != 0).count();
        noisy += tuning.cells.iter().filter(|cell| !cell.judged).count();
    }
    let _ = writeln!(text, "{other} of {all} cells use another algorithm than usual");
    if noisy > 0 {
        let _ = writeln!(text, "{noisy} were disturbed by other programs and keep the usual algorithm");
    }
    ending(&mut text, document);
    match &document.file {
        Some(file) => {
            let _ = writeln!(text, "stored in {}: teams use it from now on", file.display());
        }
        None => text.push_str("nothing was stored\n"),
    }
    if document.unoptimised {
        text.push_str(
            "this trimtab was built without optimisation: its measurements are not representative\n",
        );
    }
    text
}

fn ending(text: &mut String, document: &TuneTeamReport) {
    let left = document.left();
    if document.signal.is_some() {
        let _ =
            writeln!(text, "it was stopped early: finished cells are stored; {left} cells were not measured");
    } else if left > 0 {
        let _ = writeln!(text, "{left} cells were not measured within the time: set a larger --budget");
    }
}

/// Formats the stored tables.
pub(super) fn kept(document: &TuneTeamReport) -> String {
    let mut text = String::new();
    for (key, tuning) in document.tunings() {
        let how = if tuning.how.is_empty() { String::new() } else { format!(", {}", tuning.how) };
        let _ = writeln!(text, "{key}: tuned {}{how}\n{}", date(tuning.when), rows(tuning));
        for cell in tuning.cells.iter().filter(|cell| cell.judged && cell.verdict.winner != 0) {
            let _ = writeln!(text, "{}", explained(cell));
        }
        text.push('\n');
    }
    if text.is_empty() {
        text.push_str("nothing is stored for this machine: teams use the usual algorithms\n");
    }
    let _ = writeln!(text, "machine: {}", document.machine);
    if let Some(file) = &document.file {
        let _ = writeln!(text, "file: {}", file.display());
    }
    text
}

fn explained(cell: &Cell) -> String {
    let size = if cell.job.bytes == 0 { String::new() } else { format!(" of {} bytes", cell.job.bytes) };
    let others = |measured: &Measured| format!("{} {} us", measured.tried, us(measured.best));
    let all: Vec<String> = cell.candidates.iter().map(others).collect();
    let when = match cell.origin {
        Origin::Offline => "beforehand",
        Origin::Lazy => "in calls of a program",
    };
    format!(
        "{}{size}, {}: {}, measured {when}: {} ({})",
        cell.job.kind.name(),
        cell.job.manner.word(),
        cell.winner().tried,
        cell.verdict.why,
        all.join(", ")
    )
}

/// Formats the tables that were removed.
pub(super) fn forgotten(document: &TuneTeamReport) -> String {
    let mut text = String::new();
    for (key, tuning) in document.tunings() {
        let _ = writeln!(text, "removed: {key}, tuned {}", date(tuning.when));
    }
    if text.is_empty() {
        text.push_str("there was nothing to remove\n");
    }
    text
}

/// Formats the cells that would be measured.
pub(super) fn planned(document: &TuneTeamReport) -> String {
    let mut text = String::new();
    for team in &document.teams {
        let TeamResult::Planned { cells, .. } = &team.of else { continue };
        let _ = writeln!(text, "{}: {} cells", team.key, cells.len());
        for (job, tried) in cells {
            let ways: Vec<String> = tried.iter().map(ToString::to_string).collect();
            let size = if job.bytes == 0 { String::new() } else { format!("/{}", job.bytes) };
            let _ = writeln!(text, "  {}{size}/{}: {}", job.kind.name(), job.manner.word(), ways.join(", "));
        }
    }
    text
}

/// Formats the comparison of choices with the best.
pub(super) fn checked(document: &TuneTeamReport) -> String {
    let mut text = String::new();
    for team in &document.teams {
        let TeamResult::Checked { cells, .. } = &team.of else { continue };
        let mut table = Table::new(&[
            ("OPERATION", Align::Left),
            ("BYTES", Align::Right),
            ("CALL CLASS", Align::Left),
            ("IN USE", Align::Left),
            ("US", Align::Right),
            ("BEST", Align::Left),
            ("US", Align::Right),
            ("RATIO", Align::Right),
            ("", Align::Left),
        ]);
        for cell in cells {
            let of = |wanted: Tried| {
                cell.candidates.iter().find(|one| one.tried == wanted).and_then(|one| one.best)
            };
            let word = match (cell.judged, cell.good()) {
                (false, _) => "noisy",
                (true, true) => "good",
                (true, false) => "not good",
            };
            table.row([
                cell.job.kind.name().to_owned(),
                bytes(cell.job),
                cell.job.manner.word().to_owned(),
                cell.kept.to_string(),
                us(of(cell.kept)),
                cell.best.to_string(),
                us(of(cell.best)),
                format!("{:.3}", cell.ratio),
                word.to_owned(),
            ]);
        }
        let _ = writeln!(text, "{}\n{table}", team.key);
    }
    ending(&mut text, document);
    if let Some(GoalVerdict { good, judged, noisy, goal, met }) = &document.verdict {
        let share = *good as f64 / (*judged).max(1) as f64 * 100.0;
        let word = match met {
            None => "not judged",
            Some(true) => "met",
            Some(false) => "missed",
        };
        let _ = writeln!(
            text,
            "{word}: within 5 % of the best in {good} of {judged} cells ({share:.0} %; the goal is {:.0} %); {noisy} disturbed by other programs",
            goal * 100.0
        );
    }
    text
}

/// Judges whether the choices are good.
pub(super) fn verdict(document: &TuneTeamReport, goal: f64) -> GoalVerdict {
    let (mut good, mut judged, mut noisy) = (0, 0, 0);
    for team in &document.teams {
        let TeamResult::Checked { cells, .. } = &team.of else { continue };
        let clear = super::clear(cells).count();
        (judged, noisy) = (judged + clear, noisy + cells.len() - clear);
        good += super::clear(cells).filter(|cell| cell.good()).count();
    }
    let met = (judged > 0).then_some(good as f64 >= goal * judged as f64);
    GoalVerdict { good, judged, noisy, goal, met }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_team::algorithm_table::CallClass;
    use trimtab_team::{Kind, barrier::Barrier};

    #[test]
    fn a_goal_is_judged_on_undisturbed_cells() {
        let barrier = Tried::Barrier(Barrier::Flat);
        let job = Job { kind: Kind::Barrier, bytes: 0, manner: CallClass::Mine };
        let cell = |ratio, foreign| Checked {
            job,
            kept: barrier,
            candidates: Vec::new(),
            best: barrier,
            ratio,
            foreign,
            judged: foreign.is_none_or(|share: f64| share < 0.05),
        };
        let judge = |cells: Vec<Checked>| {
            let of = TeamResult::Checked { ranks: 2, crowded: false, cells, left: 0 };
            verdict(&TuneTeamReport::new("checked", None, vec![TeamOf { key: String::new(), of }]), 0.95)
        };
        assert_eq!(judge(vec![cell(1.0, Some(0.3))]).met, None);
        let mut cells = vec![cell(1.05, None); 19];
        cells.push(cell(1.3, Some(0.01)));
        cells.push(cell(9.0, Some(0.3)));
        let said = judge(cells.clone());
        assert_eq!((said.good, said.judged, said.noisy, said.met), (19, 20, 1, Some(true)));
        cells.push(cell(1.06, None));
        assert_eq!(judge(cells).met, Some(false));
    }
}
