//! HTML page of a trace: one file with its data, style and script, which loads nothing from a
//! network.
//!
//! Users choose the names of threads and commands. The names are data in a block that no text can
//! end, and the script shows them as text, never as markup.

use serde::Serialize;
use serde_json::Value;
use trimtab_core::ids::OsCpu;
use trimtab_core::telemetry::account::{CpuLane, Lane, Point, ProgramAccount, Timeline, TimelineCell};
use trimtab_core::time::Moment;
use trimtab_core::topology::draw;
use trimtab_core::trace::Trace;

const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const CHARTS: &str = include_str!("charts.js");

/// Digits of numbers in cells; a blank means an unknown value.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// All data of the page.
#[derive(Serialize)]
struct Data<'a> {
    command: &'a str,
    policy: &'static str,
    about: &'static str,
    seed: u64,
    interval_ms: f64,
    metric: trimtab_core::observe::Metric,
    began_s: Option<u64>,
    machine: String,
    machine_name: &'a str,
    steps: usize,
    watched_s: f64,
    cut: bool,
    end: Option<String>,
    status: Option<u8>,
    jumps: u64,
    omitted: usize,
    /// Boundaries of the columns in milliseconds.
    edges: Vec<f64>,
    /// Number of digits of a CPU in a cell.
    wide: usize,
    cpus: Vec<Cpu>,
    threads: Vec<Thread<'a>>,
    programs: Vec<Program<'a>>,
    decided: u64,
    moves: Vec<MoveRow<'a>>,
    findings: Vec<TimedFindings>,
}

#[derive(Serialize)]
struct Cpu {
    cpu: u32,
    core: Option<u32>,
    node: Option<u32>,
    ours: String,
    busy: String,
}

#[derive(Serialize)]
struct Thread<'a> {
    id: u32,
    pid: u32,
    tid: u32,
    name: &'a str,
    program: u32,
    run_s: f64,
    waited: Option<f64>,
    speed: Option<f64>,
    migrations: u64,
    moves: u64,
    born_ms: f64,
    ended_ms: Option<f64>,
    left: Option<String>,
    /// CPU, speed, share of time on a CPU, changes of core and decisions in each column.
    cpus: String,
    speeds: String,
    runs: String,
    marks: String,
    decisions: String,
}

#[derive(Serialize)]
struct Program<'a> {
    #[serde(flatten)]
    account: &'a ProgramAccount,
    speeds: Vec<Option<f64>>,
    slowests: Vec<Option<f64>>,
    balances: Vec<Option<f64>>,
    expecteds: Vec<Option<f64>>,
}

#[derive(Serialize)]
struct MoveRow<'a> {
    at_ms: f64,
    thread: u32,
    tid: Option<u32>,
    name: &'a str,
    from: Option<OsCpu>,
    act: String,
    why: String,
    gain: Option<f64>,
    end: String,
}

#[derive(Serialize)]
struct TimedFindings {
    at_ms: f64,
    words: Vec<String>,
}

/// Makes the page.
///
/// # Errors
/// The data cannot be written as JSON.
pub(super) fn page(trace: &Trace, timeline: &Timeline) -> serde_json::Result<String> {
    let data = serde_json::to_value(data(trace, timeline))?;
    let title = escaped(&trace.header.command);
    Ok(fill(&title, &embedded(&data)))
}

/// Fills the template. All parts are inserted in one pass, so that no part can contain the
/// placeholder of another.
fn fill(title: &str, data: &str) -> String {
    let script = format!("{CHARTS}\n{SCRIPT}");
    let parts = [("{{title}}", title), ("{{style}}", STYLE), ("{{data}}", data), ("{{script}}", &script)];
    let mut page = String::with_capacity(data.len() + SCRIPT.len() + HTML.len() + STYLE.len());
    let mut rest = HTML;
    for (place, part) in parts {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        page.push_str(before);
        page.push_str(part);
        rest = after;
    }
    page + rest
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            letter => safe.push(letter),
        }
    }
    safe
}

/// Escapes JSON for a script block: nothing in it can be mistaken for a tag.
fn embedded(data: &Value) -> String {
    data.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn data<'a>(trace: &'a Trace, timeline: &'a Timeline) -> Data<'a> {
    let header = &trace.header;
    let start = timeline.edges.first().copied().unwrap_or_default();
    let cpus: Vec<OsCpu> = timeline.cpus.iter().map(|lane| lane.cpu).collect();
    let wide = if cpus.len() <= 64 { 1 } else { 1 + usize::from(cpus.len() > 64 * 64) + 1 };
    let cpu = |lane: &CpuLane| {
        let seat = timeline.account.seat(lane.cpu);
        Cpu {
            cpu: lane.cpu.0,
            core: seat.map(|seat| seat.core.0),
            node: seat.and_then(|seat| seat.node).map(|node| node.0),
            ours: lane.ours.iter().map(|&share| digit(Some(share))).collect(),
            busy: lane.busy.iter().map(|&share| digit(share)).collect(),
        }
    };
    let thought = |(at, findings): &(Moment, Vec<trimtab_core::balance::Finding>)| TimedFindings {
        at_ms: ms(*at, start),
        words: findings.iter().map(ToString::to_string).collect(),
    };
    Data {
        command: &header.command,
        policy: header.policy.word(),
        about: header.policy.about(),
        seed: header.settings.seed,
        interval_ms: header.settings.interval.seconds() * 1e3,
        metric: header.settings.metric,
        began_s: header.began,
        machine: draw::summary(&header.machine),
        machine_name: header.machine.name(),
        steps: trace.steps.len(),
        watched_s: timeline.account.watched().seconds(),
        cut: trace.cut,
        end: trace.end.as_ref().map(|end| end.why.clone()),
        status: trace.end.as_ref().and_then(|end| end.status),
        jumps: timeline.account.jumps(),
        omitted: timeline.omitted,
        edges: timeline.edges.iter().map(|&edge| ms(edge, start)).collect(),
        wide,
        cpus: timeline.cpus.iter().map(cpu).collect(),
        threads: timeline.lanes.iter().map(|lane| thread(lane, timeline, start, &cpus, wide)).collect(),
        programs: programs(timeline),
        decided: timeline.account.decided(),
        moves: moves(timeline, start),
        findings: timeline.findings.iter().map(thought).collect(),
    }
}

fn thread<'a>(lane: &'a Lane, timeline: &Timeline, start: Moment, cpus: &[OsCpu], wide: usize) -> Thread<'a> {
    let Lane { thread, cells } = lane;
    let cpu = |cell: &TimelineCell| {
        let at = cell.cpu.and_then(|cpu| cpus.binary_search(&cpu).ok());
        at.map_or_else(|| " ".repeat(wide), |at| number(at, wide))
    };
    Thread {
        id: thread.info.id.0,
        pid: thread.info.pid,
        tid: thread.info.tid,
        name: &thread.info.name,
        program: thread.info.program.0,
        run_s: thread.totals.run.seconds(),
        waited: thread.totals.wait_share(),
        speed: thread.speed_overall(timeline.account.metric()),
        migrations: thread.totals.migrations,
        moves: thread.moves,
        born_ms: ms(thread.born, start),
        ended_ms: thread.ended.map(|ended| ms(ended, start)),
        left: thread.info.left.as_ref().map(ToString::to_string),
        cpus: cells.iter().map(cpu).collect(),
        speeds: cells.iter().map(|cell| digit(cell.speed)).collect(),
        runs: cells.iter().map(|cell| digit(cell.run)).collect(),
        marks: cells.iter().map(|cell| count(cell.migrations)).collect(),
        decisions: cells.iter().map(|cell| count(cell.decisions)).collect(),
    }
}

fn programs(timeline: &Timeline) -> Vec<Program<'_>> {
    let line = |account| -> Option<Program<'_>> {
        let account: &ProgramAccount = account;
        let line = timeline.programs.iter().find(|line| line.id == account.id)?;
        let of = |value: fn(&Point) -> Option<f64>| line.points.iter().map(value).map(rounded).collect();
        Some(Program {
            account,
            speeds: of(|point| point.speed),
            slowests: of(|point| point.slowest),
            balances: of(|point| point.balance),
            expecteds: of(|point| point.expected),
        })
    };
    timeline.account.programs().filter_map(line).collect()
}

fn moves(timeline: &Timeline, start: Moment) -> Vec<MoveRow<'_>> {
    let moves = timeline.moves.iter().map(|one| MoveRow {
        at_ms: ms(one.at, start),
        thread: one.thread.0,
        tid: one.tid,
        name: &one.name,
        from: one.from,
        act: one.act.to_string(),
        why: one.reason.to_string(),
        gain: rounded(one.gain),
        end: one.end.to_string(),
    });
    moves.collect()
}

fn ms(moment: Moment, start: Moment) -> f64 {
    (moment.since(start).seconds() * 1e6).round() / 1e3
}

fn rounded(value: Option<f64>) -> Option<f64> {
    value.map(|value| (value * 1e4).round() / 1e4)
}

/// Encodes a share in 64 steps.
fn digit(share: Option<f64>) -> char {
    share.map_or(' ', |share| char::from(DIGITS[(share.clamp(0.0, 1.0) * 63.0).round() as usize & 63]))
}

/// Encodes a small count; 63 means 63 or more.
fn count(count: u32) -> char {
    char::from(DIGITS[count.min(63) as usize])
}

/// Encodes a number in `wide` digits.
fn number(number: usize, wide: usize) -> String {
    (0..wide).rev().map(|place| char::from(DIGITS[number >> (6 * place) & 63])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use trimtab_agent::output::{OutputKind, spare};

    #[test]
    fn no_text_can_end_the_block_it_stands_in() {
        let data = embedded(&json!({"name": "</script><script>alert(1)</script><!--&"}));
        assert!(!data.contains(['<', '>', '&']), "{data}");
        assert_eq!(escaped("<b a='1' c=\"2\">&"), "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;");
    }

    #[test]
    fn parts_cannot_hold_the_place_of_others() {
        let page = fill("{{data}} {{script}}", "{\"name\": \"{{style}} {{script}}\"}");
        assert!(
            page.contains("{\"name\": \"{{style}} {{script}}\"}") && page.contains("{{data}} {{script}}")
        );
        assert_eq!(page.matches("</html>").count(), 1);
    }

    #[test]
    fn a_page_is_known_again_and_may_be_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        std::fs::write(&path, fill("", "")).unwrap();
        assert!(spare("x", &path, OutputKind::Page).is_ok());
        assert!(spare("x", &path, OutputKind::Picture).is_err());
    }

    #[test]
    fn numbers_are_digits() {
        assert_eq!((digit(None), digit(Some(0.0)), digit(Some(1.0)), digit(Some(7.0))), (' ', 'A', '_', '_'));
        assert_eq!((number(0, 2), number(64 * 63 + 1, 2), count(9_999)), ("AA".into(), "_B".into(), '_'));
    }
}
