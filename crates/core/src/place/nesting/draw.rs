//! Text drawing of nested teams: the machine, once for each level, with the threads on their cores.

use super::map::Map;
use super::spec::Resolved;
use super::tree::{CoreGroup, Tree};
use std::fmt::Write as _;

/// Maximum number of threads named on one core; the others are counted.
const NAMES_MAX: usize = 2;

/// Draws each level: a line for each memory domain and a field for each core. A field contains the
/// thread's path (`2.0` is thread 0 of the team that outer thread 2 opened), or `·` without a
/// thread. Lines are folded at `width` columns.
pub fn draw(tree: &Tree, nest: &Resolved, map: &Map, width: usize) -> String {
    let mut text = String::new();
    let mut teams = 1u64;
    for (at, (&(_, strategy), places)) in nest.levels().iter().zip(map.levels()).enumerate() {
        let size = map.sizes()[at];
        let plural = if teams == 1 { "team" } else { "teams" };
        let _ = writeln!(text, "level {}: {teams} {plural} of {size}, {strategy}", at + 1);
        teams *= u64::from(size);
        let mut on = vec![Vec::new(); tree.cores()];
        for (thread, place) in places.iter().enumerate() {
            on[place.core as usize].push(path_of(thread, &map.sizes()[..=at]));
        }
        let fields: Vec<String> = on.iter().map(|threads| field(threads)).collect();
        let wide = fields.iter().map(|field| field.chars().count()).max().unwrap_or(1);
        let domains: Vec<_> = tree.domains().collect();
        let label = domains.iter().map(|(_, name)| name.len()).max().unwrap_or(0);
        for (cores, name) in domains {
            let room = width.saturating_sub(label + 2).max(wide + 1);
            for (at, line) in lines(tree, cores, &fields, wide, room).into_iter().enumerate() {
                let name = if at == 0 { name } else { "" };
                let _ = writeln!(text, "{}", format!("{name:label$}  {line}").trim_end());
            }
        }
    }
    text
}

/// Returns the fields of a domain's cores in lines, with a bar at the start of each group inside
/// the domain.
fn lines(
    tree: &Tree,
    cores: std::ops::Range<u32>,
    fields: &[String],
    wide: usize,
    room: usize,
) -> Vec<String> {
    let mut lines = vec![String::new()];
    for core in cores.clone() {
        let begins = |group: &CoreGroup| {
            group.cores.start == core && cores.contains(&core) && group.cores.len() < cores.len()
        };
        let bar = core > cores.start && tree.around(core).any(begins);
        let field = fields.get(core as usize).map_or("", String::as_str);
        let text = format!("{}{field:<wide$}", if bar { "| " } else { "" });
        let line = lines
            .last_mut()
            .filter(|line| line.is_empty() || line.chars().count() + 1 + text.chars().count() <= room);
        match line {
            Some(line) if line.is_empty() => line.push_str(&text),
            Some(line) => {
                line.push(' ');
                line.push_str(&text);
            }
            None => lines.push(text),
        }
    }
    lines
}

fn field(threads: &[String]) -> String {
    match threads {
        [] => "·".to_owned(),
        _ if threads.len() <= NAMES_MAX => threads.join("+"),
        _ => format!("{}+{}", threads[0], threads.len() - 1),
    }
}

/// Returns the path of a thread from its position in its level.
pub(super) fn path_of(thread: usize, sizes: &[u32]) -> String {
    let mut rest = thread;
    let mut path: Vec<String> = Vec::new();
    for &size in sizes.iter().rev() {
        path.push((rest % size as usize).to_string());
        rest /= size as usize;
    }
    path.reverse();
    path.join(".")
}
