//! Drawing of the screen, from the state alone.
//!
//! From top to bottom: the watched programs, the machine, holders of cores, threads, the chosen
//! thread, keys. Without enough room, parts are left out, the table last.

use super::map::{self, dim, paint};
use super::scene::{NOBODY, NOBODY_THEN};
use super::state::State;
use super::threads::{TableRow, clean, columns, headline, percent, sparkline};
use super::width;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};
use trimtab_core::ids::ThreadId;
use trimtab_core::telemetry::account::{Account, ThreadAccount};
use trimtab_core::words::plural;

/// Lines about the chosen thread.
const DETAIL_LINES: usize = 5;

/// Draws the screen.
pub(super) fn draw(state: &State, frame: &mut Frame<'_>) {
    let area = frame.area();
    let (wide, high) = (usize::from(area.width), usize::from(area.height));
    if wide == 0 || high == 0 {
        return;
    }
    let mut lines = vec![title(state, wide)];
    if high >= 8 {
        lines.extend(above(state, wide, high));
    }
    let detail = if high >= 20 { detail(state, wide) } else { Vec::new() };
    let footer = usize::from(high >= 3);
    let room = high.saturating_sub(lines.len() + detail.len() + footer);
    lines.extend(table(state, wide, room));
    lines.truncate(high - detail.len() - footer);
    lines.resize(high - detail.len() - footer, Line::default());
    lines.extend(detail);
    if footer > 0 {
        lines.push(keys(state, wide));
    }
    frame.render_widget(Paragraph::new(lines), area);
    if state.help {
        help(state, frame, area);
    }
}

fn title(state: &State, wide: usize) -> Line<'static> {
    let mut words = Vec::new();
    match &state.player {
        Some(player) => {
            let (at, of) = player.position();
            let (playing, speed) = player.pace();
            let pace = if speed < 1.0 { format!("1/{:.0}", 1.0 / speed) } else { format!("{speed:.0}") };
            words.push(format!("{} step {at}/{of}", if playing { "PLAY" } else { "STILL" }));
            words.push(format!("{pace}x"));
            words.extend(state.account().map(|account| format!("{:.1} s", account.watched().seconds())));
            words.push(clean(&player.title()));
            if player.unfinished() {
                words.push("(incomplete)".to_owned());
            }
        }
        None => {
            words.push("trimtab top".to_owned());
            if state.paused {
                words.push("PAUSED".to_owned());
            }
            words.push(match state.account() {
                None => "looking ...".to_owned(),
                Some(account) => {
                    let programs = account.programs().filter(|program| program.threads > 0).count();
                    format!(
                        "{}  {}",
                        plural(programs, "program"),
                        plural(account.threads().count(), "thread")
                    )
                }
            });
            words.push(format!("every {} s", state.interval.seconds()));
            words.extend(state.over.clone());
        }
    }
    if let Some(throttled) = state.account().and_then(Account::throttled).filter(|share| *share > 0.0) {
        words.push(format!("throttled by quota {}", percent(Some(throttled))));
    }
    let style = Style::new().add_modifier(Modifier::BOLD);
    Line::styled(width::cut(&words.join("  "), wide), paint(style, Color::Cyan, state.colour))
}

/// Returns the machine, holders and findings, in at most half of the screen.
fn above(state: &State, wide: usize, high: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if state.map {
        let most = (high / 3).max(2);
        lines.extend(map::grid(&state.machine, state.account(), &state.around, (wide, most), state.colour));
        if wide >= 60 && high >= 14 {
            lines.push(map::legend(state.colour));
        }
    }
    let mut said: Vec<String> = state
        .around
        .holds
        .iter()
        .flat_map(|row| {
            let held = format!("held {}  {} pid {}  {}", row.cpus, row.user, row.pid, row.command);
            let budget = row.budget.as_ref().map(|of| format!("budget of pid {}: {}", row.pid, of.phrase()));
            [Some(held), budget].into_iter().flatten()
        })
        .collect();
    if !state.around.taken.pinned.is_empty() {
        said.push(format!("pinned by others: CPUs {}", state.around.taken.pinned));
    }
    if let Some(account) = state.account() {
        said.extend(account.findings().iter().map(|finding| clean(&finding.to_string())));
    }
    said.extend(state.around.notes.iter().map(|note| format!("note: {note}")));
    let room = (high / 2).saturating_sub(lines.len() + 1).min(6);
    let cut = said.len() > room;
    let shown = if cut { room.saturating_sub(1) } else { said.len() };
    lines.extend(said.iter().take(shown).map(|text| Line::styled(width::cut(text, wide), dim(state.colour))));
    if cut && room > 0 {
        lines.push(Line::styled(format!("... {} more", said.len() - shown), dim(state.colour)));
    }
    lines
}

fn table(state: &State, wide: usize, room: usize) -> Vec<Line<'static>> {
    let Some(account) = state.account() else { return Vec::new() };
    let (columns, name, history) = columns(wide);
    let mut heading = width::left(&format!("  {}", "THREAD"), name);
    for column in &columns {
        heading.push_str(&format!(" {}", width::right(column.title, column.width)));
    }
    if history > 0 {
        heading.push_str(&format!(" {}", width::left("SPEED THEN", history)));
    }
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let mut lines = vec![Line::styled(width::left(&heading, wide), style)];
    let rows = state.rows();
    let at = state.chosen.and_then(|chosen| rows.iter().position(|row| *row == chosen));
    let room = room.saturating_sub(1);
    // The cursor stays in the middle if the table is longer than its room.
    let first = at.unwrap_or(0).saturating_sub(room / 2).min(rows.len().saturating_sub(room));
    for (place, row) in rows.iter().enumerate().skip(first).take(room) {
        let mut line = match row {
            TableRow::Program(id) => {
                let program = account.programs().find(|program| program.id == *id);
                let folded = state.folded.contains(id);
                let text = program.map(|program| headline(program, folded)).unwrap_or_default();
                Line::styled(width::cut(&text, wide), Style::new().add_modifier(Modifier::BOLD))
            }
            TableRow::Thread(id) => match account.thread(*id) {
                Some(thread) => {
                    let mut text = width::left(&format!("  {}", clean(&thread.info.name)), name);
                    for column in &columns {
                        let cell = (column.cell)(thread, account);
                        text.push_str(&format!(" {}", width::right(&cell, column.width)));
                    }
                    let mut spans = vec![Span::styled(text, of_speed(thread, state.colour))];
                    if history > 0 {
                        spans.push(Span::raw(format!(" {}", sparkline(thread, history))));
                    }
                    Line::from(spans)
                }
                None => Line::default(),
            },
        };
        if Some(place) == at {
            line = line.style(Style::new().add_modifier(Modifier::REVERSED));
        }
        lines.push(line);
    }
    if rows.is_empty() && room > 0 {
        let why = match (&state.filter, account.steps()) {
            (filter, _) if !filter.is_empty() => "no thread matches the filter (Esc clears it)",
            (_, 0) => "looking ...",
            _ if state.player.is_some() => NOBODY_THEN,
            _ => NOBODY,
        };
        lines.push(Line::raw(width::cut(why, wide)));
    }
    lines
}

/// Returns the style of a speed: slow threads are highlighted.
fn of_speed(thread: &ThreadAccount, colour: bool) -> Style {
    match thread.speed {
        None => dim(colour),
        Some(speed) if speed < 0.6 => paint(Style::new(), Color::Red, colour),
        Some(speed) if speed < 0.9 => paint(Style::new(), Color::Yellow, colour),
        Some(_) => Style::new(),
    }
}

/// Returns the lines about the chosen thread: where it ran, and the decisions about it.
fn detail(state: &State, wide: usize) -> Vec<Line<'static>> {
    let Some(account) = state.account() else { return Vec::new() };
    let Some(TableRow::Thread(id)) = state.chosen else { return Vec::new() };
    let Some(thread) = account.thread(id) else { return Vec::new() };
    let mut texts = vec!["-".repeat(wide), thread_label(thread), places(thread), moved(account, id)];
    texts.push(format!("speed  {}", sparkline(thread, wide.saturating_sub(7))));
    texts.truncate(DETAIL_LINES);
    texts.into_iter().map(|text| Line::styled(width::cut(&text, wide), dim(false))).collect()
}

fn thread_label(thread: &ThreadAccount) -> String {
    let info = &thread.info;
    let left = info.left.as_ref().map(|why| format!(", not moved: {}", clean(&why.to_string())));
    format!(
        "{} (tid {} of {}) may use CPUs {}{}; ran {}, waited {}",
        clean(&info.name),
        info.tid,
        info.pid,
        info.home,
        left.unwrap_or_default(),
        thread.totals.run,
        thread.totals.wait.map_or_else(|| "-".to_owned(), |wait| wait.to_string())
    )
}

fn places(thread: &ThreadAccount) -> String {
    let mut on: Vec<_> = thread.totals.run_on.keys().map(|&cpu| (cpu, thread.totals.share_on(cpu))).collect();
    on.sort_by(|one, other| {
        other.1.unwrap_or(0.0).total_cmp(&one.1.unwrap_or(0.0)).then(one.0.cmp(&other.0))
    });
    let on: Vec<String> = on.iter().map(|(cpu, share)| format!("CPU {cpu} {}", percent(*share))).collect();
    format!("ran on {}", if on.is_empty() { "no CPU yet".to_owned() } else { on.join(", ") })
}

fn moved(account: &Account, id: ThreadId) -> String {
    account
        .moves()
        .rev()
        .find(|one| one.thread == id)
        .map_or_else(|| "not moved by trimtab".to_owned(), |one| format!("{}: {}", one.act, one.reason))
}

fn keys(state: &State, wide: usize) -> Line<'static> {
    let text = if state.typing {
        format!("find: {}_   Enter accepts, Esc clears", clean(&state.filter))
    } else {
        let order = format!("{}{}", state.sort.word(), if state.reverse { " reversed" } else { "" });
        let find = if state.filter.is_empty() {
            String::new()
        } else {
            format!("  showing \"{}\"", clean(&state.filter))
        };
        let own = match (&state.player, state.paused) {
            (Some(_), _) => "space plays  <- -> steps  [ ] jump",
            (None, true) => "space continues",
            (None, false) => "space pauses",
        };
        format!("? help  q quit  s sort: {order}  / find  {own}{find}")
    };
    Line::styled(width::left(&text, wide), Style::new().add_modifier(Modifier::REVERSED))
}

const HELP: &str = "\
up down, j k      choose a row
PgUp PgDn g G     further, first, last
Enter             fold a program
s   r             sort by the next, turn around
/                 find by name, tid or pid
m                 machine map on or off
space             pause; play in a replay
q, Esc, Ctrl-C    quit

in a replay
<- ->             one step
[ ]   0 .. 9      a tenth back, on; to a tenth
<  >              slower, faster

SPEED  time on a CPU over time it wanted one
WAIT   share of the time waiting for a CPU
RUN    share of the time on a CPU
MIGR   changes of core seen
MOVES  moves by trimtab
SLP/S  times a second it went to sleep
end    slowest over mean progress: 100% when all
       end together
balance  lowest over highest time of its cores";

fn help(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let mut lines: Vec<&str> = HELP.lines().collect();
    if let Some(last) = usize::from(area.height).checked_sub(1).filter(|last| last + 1 < lines.len()) {
        lines.truncate(last);
        lines.push("... enlarge the window");
    }
    let high = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(area.height);
    let wide = lines.iter().map(|line| line.len()).max().unwrap_or(0) + 4;
    let wide = u16::try_from(wide).unwrap_or(u16::MAX).min(area.width);
    let place = Rect {
        x: area.x + (area.width - wide) / 2,
        y: area.y + (area.height - high) / 2,
        width: wide,
        height: high,
    };
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let style = paint(style, Color::Cyan, state.colour);
    let inside = usize::from(wide);
    let text = |line: &&str| Line::styled(width::left(&format!("  {line}"), inside), style);
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines.iter().map(text).collect::<Vec<_>>()), place);
}
