//! Text drawing of a machine: one glyph per core, grouped by package, node and last-level cache.
//!
//! Unit: columns of text. Problem: the drawing must be readable at a glance with 2 cores and with
//! 2,048, and the CPU number of every glyph must be found easily. Idea: a leaf of the outline
//! consists of a *head* (`node 0   62 GiB`) and *cells* (`l3 0 ........ 0-7,64-71`), padded to
//! columns over the whole drawing. Among the few ways to fold them into the width, the one with the
//! fewest lines is used. Spaces between glyphs separate clusters, or second-level caches that cores
//! share, else groups of eight; a name and a colon (`P:`) start a run of one core kind. Properties:
//! ASCII; no line is longer than the width, of which at least [`WIDTH_MIN`] is assumed; the legend
//! explains exactly the glyphs that occur; equal input gives equal text.

use super::marks::{CoreMark, Marks};
use super::outline::{self, Attached, Block, Content, Frame, MemoryGroup, list, nodes};
use super::{Level, Machine};
use crate::ids::Pu;
use crate::set::CpuSet;
use crate::words::plural;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Default width in columns, for an unknown terminal.
pub const WIDTH: usize = 80;
/// Smallest width in columns to which a drawing is folded.
pub const WIDTH_MIN: usize = 40;

/// Number of adjacent glyphs without a space.
const GLYPHS_TOGETHER_MAX: usize = 8;
/// Maximum columns for the CPU numbers of a cell: two ranges of four-digit numbers, or three of
/// three digits.
const CPUS_MAX: usize = 24;
/// Columns between two cells of a line.
const CELL_GAP: usize = 3;

/// Returns the machine in one line:
/// `2 packages, 4 nodes, 8 L3, 32 cores, 64 CPUs (SMT 2), 251 GiB`.
pub fn summary(machine: &Machine) -> String {
    let mut parts = Vec::new();
    let mut shared = [0, 0]; // numbers of L3s, and of L2s with several cores
    for object in machine.objects() {
        match object.level {
            Level::L3 => shared[0] += 1,
            Level::L2 if machine.cores_in(&object.pus).len() > 1 => shared[1] += 1,
            _ => {}
        }
    }
    let packages = machine.at(Level::Package).count();
    parts.extend((packages > 0).then(|| plural(packages, "package")));
    let without = machine.nodes().iter().filter(|node| node.cores.is_empty()).count();
    parts.extend(match machine.nodes().len() {
        0 => None,
        nodes if without == 0 => Some(plural(nodes, "node")),
        nodes => Some(format!("{} ({without} without cores)", plural(nodes, "node"))),
    });
    parts.extend(match shared {
        [0, 0] => None,
        [0, l2] => Some(format!("{l2} L2")),
        [l3, _] => Some(format!("{l3} L3")),
    });
    let mut cores = plural(machine.cores().len(), "core");
    if machine.kinds().len() > 1 {
        let of = |at: usize| machine.cores().iter().filter(|core| usize::from(core.kind.0) == at).count();
        let kinds = machine.kinds().iter().enumerate().map(|(at, kind)| format!("{} {}", of(at), kind.name));
        cores.push_str(&format!(" ({})", kinds.collect::<Vec<_>>().join(", ")));
    }
    parts.push(cores);
    let smt = if machine.smt() > 1 { format!(" (SMT {})", machine.smt()) } else { String::new() };
    parts.push(format!("{}{smt}", plural(machine.pu_count(), "CPU")));
    let bytes = machine.nodes().iter().filter_map(|node| node.bytes).reduce(u64::saturating_add);
    parts.extend(bytes.map(outline::size));
    parts.join(", ")
}

/// Returns the machine in at most `width` columns, one glyph per core, with a legend of the glyphs
/// that occur.
pub fn grid(machine: &Machine, marks: &Marks, width: usize) -> String {
    let width = width.max(WIDTH_MIN);
    let glyphs = Glyphs::of(machine, |core| marks.of_core(machine, core).glyph());
    let (mut lines, word) = fold(machine, &glyphs, width);
    lines.extend(memories(machine, width));
    lines.extend(devices(machine, width));
    lines.extend(remarks(machine, width));
    lines.extend(legend(machine, marks, word, width));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Returns only the lines of the grid. Each `glyph` in them represents a core; cores are in logical
/// order.
pub(super) fn bare(machine: &Machine, glyph: char, width: usize) -> Vec<String> {
    fold(machine, &Glyphs::of(machine, |_| glyph), width.max(WIDTH_MIN)).0
}

/// Returns the lines of the grid, and whether the word `cpus` introduces its numbers.
fn fold(machine: &Machine, glyphs: &Glyphs<'_>, width: usize) -> (Vec<String>, bool) {
    let contents = outline::contents(machine);
    let mut rows = Vec::new();
    flatten(&contents, 0, &mut rows);
    let folds = [(false, true), (false, false), (true, true), (true, false)];
    let folded = folds.into_iter().filter_map(|(tall, word)| {
        let lines = Fold { width, tall, word }.lines(&rows, glyphs)?;
        Some((lines, word))
    });
    // Among equal numbers of lines, the first fold is used.
    folded.min_by_key(|(lines, _)| lines.len()).unwrap_or_default()
}

/// Row of the drawing, made of a frame.
enum GridRow<'a> {
    /// Frame that contains frames: a line of its own.
    Heading { indent: usize, name: String },
    /// Frame that contains only blocks, or blocks outside such a frame.
    Leaf { indent: usize, name: String, memory: &'a str, blocks: Vec<&'a Block> },
}

/// Turns frames into rows. A frame that contains only one frame shares its line: `pack 0 node 0`.
fn flatten<'a>(contents: &'a [Content], indent: usize, rows: &mut Vec<GridRow<'a>>) {
    let mut loose = Vec::new();
    let flush = |loose: &mut Vec<&'a Block>, rows: &mut Vec<GridRow<'a>>| {
        if !loose.is_empty() {
            let blocks = std::mem::take(loose);
            rows.push(GridRow::Leaf { indent, name: String::new(), memory: "", blocks });
        }
    };
    for content in contents {
        match content {
            Content::Block(block) => loose.push(block),
            Content::Frame(frame) => {
                flush(&mut loose, rows);
                self::frame(frame, String::new(), indent, rows);
            }
        }
    }
    flush(&mut loose, rows);
}

fn frame<'a>(frame: &'a Frame, before: String, indent: usize, rows: &mut Vec<GridRow<'a>>) {
    let name = if before.is_empty() { frame.name.clone() } else { format!("{before} {}", frame.name) };
    match frame.content.as_slice() {
        [Content::Frame(only)] if frame.memory.is_none() => self::frame(only, name, indent, rows),
        content if content.iter().all(|content| matches!(content, Content::Block(_))) => {
            let blocks = content.iter().filter_map(|content| match content {
                Content::Block(block) => Some(block),
                Content::Frame(_) => None,
            });
            let memory = frame.memory.as_deref().unwrap_or("");
            rows.push(GridRow::Leaf { indent, name, memory, blocks: blocks.collect() });
        }
        content => {
            let memory = frame.memory.as_ref().map(|memory| format!("   {memory}")).unwrap_or_default();
            rows.push(GridRow::Heading { indent, name: name + &memory });
            flatten(content, indent + 2, rows);
        }
    }
}

/// Returns the indices of all cores.
fn cores(machine: &Machine) -> Range<u32> {
    0..u32::try_from(machine.cores().len()).unwrap_or(u32::MAX)
}

/// Glyphs of all cores, and the modules at which spaces separate them.
struct Glyphs<'m> {
    machine: &'m Machine,
    of: Vec<char>,
    modules: Vec<Option<(u32, &'static str)>>,
}

/// Run of cores with adjacent glyphs.
struct Token {
    cores: Range<u32>,
    text: String,
}

impl<'m> Glyphs<'m> {
    fn of(machine: &'m Machine, glyph: impl Fn(u32) -> char) -> Self {
        Self { machine, of: cores(machine).map(glyph).collect(), modules: outline::modules(machine) }
    }

    fn tokens(&self, block: &Block) -> Vec<Token> {
        let kinds = self.machine.kinds();
        let cores = self.machine.cores();
        let mut tokens: Vec<Token> = Vec::new();
        for core in block.cores.clone() {
            let at = core as usize;
            let fresh_kind =
                kinds.len() > 1 && (core == block.cores.start || cores[at].kind != cores[at - 1].kind);
            let kind = if fresh_kind {
                format!("{}:", kinds[usize::from(cores[at].kind.0)].name)
            } else {
                String::new()
            };
            let glyph = self.of[at];
            match tokens.last_mut() {
                Some(token)
                    if !fresh_kind
                        && token.cores.len() < GLYPHS_TOGETHER_MAX
                        && self.modules[at] == self.modules[at - 1] =>
                {
                    token.cores.end = core + 1;
                    token.text.push(glyph);
                }
                _ => tokens.push(Token { cores: core..core + 1, text: format!("{kind}{glyph}") }),
            }
        }
        tokens
    }

    fn cpus(&self, cores: &Range<u32>) -> String {
        let of = |core: u32| self.machine.cores()[core as usize].pus.clone();
        let cpus: CpuSet = cores.clone().flat_map(of).map(|pu| self.machine.os(Pu(pu))).collect();
        shorten(list(&cpus), CPUS_MAX)
    }
}

/// Cuts a list at a comma, with `..` for the rest.
fn shorten(list: String, most: usize) -> String {
    if list.len() <= most {
        return list;
    }
    let room = list.get(..most.saturating_sub(2)).unwrap_or("");
    room.rfind(',').map_or_else(String::new, |comma| format!("{},..", &list[..comma]))
}

/// Style of folding rows into lines.
#[derive(Clone, Copy)]
struct Fold {
    width: usize,
    /// Whether heads have lines of their own.
    tall: bool,
    /// Whether a word introduces the numbers.
    word: bool,
}

/// Block, or the part of it that fits a line.
struct GridCell {
    name: String,
    glyphs: String,
    cpus: String,
}

/// Widths of the columns over the whole drawing.
struct Columns {
    name: usize,
    glyphs: usize,
    cpus: usize,
    /// Widths of the heads' names and memory sizes, by indentation.
    heads: BTreeMap<usize, [usize; 2]>,
}

impl Columns {
    fn measure(rows: &[GridRow<'_>], cells: &[Vec<GridCell>]) -> Self {
        let widest = |of: fn(&GridCell) -> &String| {
            let widths = cells.iter().flatten().map(|cell| of(cell).len());
            widths.max().unwrap_or(0)
        };
        let mut heads: BTreeMap<usize, [usize; 2]> = BTreeMap::new();
        for row in rows {
            if let GridRow::Leaf { indent, name, memory, .. } = row {
                let [names, memories] = heads.entry(*indent).or_default();
                *names = name.len().max(*names);
                *memories = memory.len().max(*memories);
            }
        }
        Self {
            name: widest(|cell| &cell.name),
            glyphs: widest(|cell| &cell.glyphs),
            cpus: widest(|cell| &cell.cpus),
            heads,
        }
    }

    fn cell(&self) -> usize {
        [self.name, self.glyphs, self.cpus]
            .into_iter()
            .filter(|&width| width > 0)
            .map(|width| width + 1)
            .sum::<usize>()
            - 1
    }

    /// Returns a head, padded to the width of its column, with the gap after it.
    fn head(&self, indent: usize, name: &str, memory: &str) -> String {
        let [names, memories] = self.heads.get(&indent).copied().unwrap_or_default();
        let mut head = format!("{:indent$}{name:names$}", "");
        if memories > 0 {
            head.push_str(&format!("{:CELL_GAP$}{memory:>memories$}", ""));
        }
        if names + memories > 0 {
            head.push_str(&format!("{:CELL_GAP$}", ""));
        }
        head
    }

    fn pad(&self, cell: &GridCell) -> String {
        let mut text = String::new();
        for (part, width) in [(&cell.name, self.name), (&cell.glyphs, self.glyphs), (&cell.cpus, self.cpus)] {
            if width > 0 {
                text.push_str(&format!("{}{part:width$}", if text.is_empty() { "" } else { " " }));
            }
        }
        text
    }
}

impl Fold {
    /// Returns the column at which the cells of a leaf begin.
    fn start(self, columns: &Columns, indent: usize, name: &str) -> usize {
        match (self.tall, name) {
            (true, "") => indent,
            (true, _) => indent + 2,
            (false, _) => columns.head(indent, "", "").len(),
        }
    }

    /// Returns the lines of the grid in this style; `None` if they do not fit.
    fn lines(self, rows: &[GridRow<'_>], glyphs: &Glyphs<'_>) -> Option<Vec<String>> {
        // Number of tokens on a line: as many as fit, in powers of two so that lines break at round
        // numbers.
        let sizes: &[usize] = if self.tall { &[usize::MAX, 32, 16, 8, 4, 2, 1] } else { &[usize::MAX] };
        sizes.iter().find_map(|&most| {
            let mut cells: Vec<Vec<GridCell>> =
                rows.iter().map(|row| self.cells(row, glyphs, most)).collect();
            let mut columns = Columns::measure(rows, &cells);
            let starts = rows.iter().filter_map(|row| match row {
                GridRow::Leaf { indent, name, .. } => Some(self.start(&columns, *indent, name)),
                GridRow::Heading { .. } => None,
            });
            let room = self.width.saturating_sub(starts.max().unwrap_or(0));
            if columns.cell() > room {
                if most > 1 {
                    return None;
                }
                let spare = room.saturating_sub(columns.cell() - columns.cpus);
                for cell in cells.iter_mut().flatten() {
                    cell.cpus = shorten(std::mem::take(&mut cell.cpus), spare);
                }
                columns = Columns::measure(rows, &cells);
            }
            Some(self.print(rows, &cells, &columns))
        })
    }

    fn cells(self, row: &GridRow<'_>, glyphs: &Glyphs<'_>, most: usize) -> Vec<GridCell> {
        let GridRow::Leaf { blocks, .. } = row else { return Vec::new() };
        let mut cells = Vec::new();
        for block in blocks {
            let tokens = glyphs.tokens(block);
            for (at, part) in tokens.chunks(most.min(tokens.len())).enumerate() {
                let name = block.name.as_deref().filter(|_| at == 0).unwrap_or("");
                let words: Vec<&str> = part.iter().map(|token| token.text.as_str()).collect();
                let cores = part[0].cores.start..part[part.len() - 1].cores.end;
                cells.push(GridCell {
                    name: name.to_owned(),
                    glyphs: words.join(" "),
                    cpus: format!("{}{}", if self.word { "cpus " } else { "" }, glyphs.cpus(&cores)),
                });
            }
        }
        cells
    }

    fn print(self, rows: &[GridRow<'_>], cells: &[Vec<GridCell>], columns: &Columns) -> Vec<String> {
        let mut lines = Vec::new();
        let mut open: Option<(usize, usize)> = None; // indentation, and the number of tiles on the last line if more may join
        for (row, cells) in rows.iter().zip(cells) {
            let (indent, name, memory) = match row {
                GridRow::Heading { indent, name } => {
                    lines.extend(wrap(&" ".repeat(*indent), name, self.width));
                    open = None;
                    continue;
                }
                GridRow::Leaf { indent, name, memory, .. } => (*indent, name.as_str(), *memory),
            };
            let start = self.start(columns, indent, name);
            let head = columns.head(indent, name, memory);
            if self.tall || cells.len() != 1 {
                let fit =
                    ((self.width + CELL_GAP).saturating_sub(start) / (columns.cell() + CELL_GAP)).max(1);
                let mut margin = if self.tall { format!("{:start$}", "") } else { head.clone() };
                if self.tall && !name.is_empty() {
                    lines.extend(wrap(&" ".repeat(indent), head.trim(), self.width));
                }
                for cells in cells.chunks(fit) {
                    let cells: Vec<String> = cells.iter().map(|cell| columns.pad(cell)).collect();
                    lines.push(format!("{margin}{}", cells.join(&" ".repeat(CELL_GAP))));
                    margin = " ".repeat(start);
                }
                open = None;
                continue;
            }
            let tile = format!("{head}{}", columns.pad(&cells[0]));
            let width = tile.len() - indent;
            let fit = ((self.width + CELL_GAP).saturating_sub(indent) / (width + CELL_GAP)).max(1);
            match (open, lines.last_mut()) {
                (Some((like, tiles)), Some(line)) if like == indent && tiles < fit => {
                    line.push_str(&format!("{:CELL_GAP$}{}", "", &tile[indent..]));
                    open = Some((indent, tiles + 1));
                }
                _ => {
                    lines.push(tile);
                    open = Some((indent, 1));
                }
            }
        }
        lines
    }
}

/// Returns the lines for nodes without cores, one line for equal ones.
fn memories(machine: &Machine, width: usize) -> Vec<String> {
    let memories = outline::memories(machine);
    let name = |memory: &MemoryGroup| nodes(&memory.nodes);
    let names = memories.iter().map(|memory| name(memory).len()).max().unwrap_or(0);
    let line = |memory: &MemoryGroup| {
        let each = if memory.size.is_some() && memory.nodes.len() > 1 { " each" } else { "" };
        let size = memory.size.as_ref().map(|size| format!("{size}{each}, ")).unwrap_or_default();
        let near = if memory.near.is_empty() {
            String::new()
        } else {
            format!(", nearest to {}", nodes(&memory.near))
        };
        wrap(&format!("{:names$}  ", name(memory)), &format!("{size}no cores{near}"), width)
    };
    memories.iter().flat_map(line).collect()
}

/// Returns the lines for devices, one per device.
fn devices(machine: &Machine, width: usize) -> Vec<String> {
    let devices = outline::attached(machine);
    let widest =
        |of: fn(&Attached) -> &String| devices.iter().map(|device| of(device).len()).max().unwrap_or(0);
    let (names, addresses) = (widest(|device| &device.name).min(width / 3), widest(|device| &device.address));
    let line = |device: &Attached| {
        let Attached { kind, name, address, near } = device;
        let near = if near.is_empty() { String::new() } else { format!("  nearest to {}", nodes(near)) };
        let gap = usize::from(addresses > 0) * 2;
        wrap(&format!("{kind}  "), &format!("{name:names$}{:gap$}{address:addresses$}{near}", ""), width)
    };
    devices.iter().flat_map(line).collect()
}

/// Returns the lines for facts that the grid does not show: the CPUs of each kind, and the offline
/// CPUs.
fn remarks(machine: &Machine, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    if machine.kinds().len() > 1 {
        let kinds = machine.kinds().iter().map(|kind| format!("{} cpus {}", kind.name, list(&kind.cpus)));
        lines.extend(wrap("kinds    ", &kinds.collect::<Vec<_>>().join("  "), width));
    }
    if !machine.offline().is_empty() {
        lines.extend(wrap("offline  ", &format!("cpus {}", list(machine.offline())), width));
    }
    lines
}

/// Returns the meaning of the glyphs that occur.
fn legend(machine: &Machine, marks: &Marks, word: bool, width: usize) -> Vec<String> {
    let occur: BTreeSet<CoreMark> = cores(machine).map(|core| marks.of_core(machine, core)).collect();
    let mut seen = BTreeSet::new();
    let mut words = Vec::new();
    for mark in occur {
        if seen.insert(mark.glyph()) {
            let meaning = if marks.is_bare() { "a core".to_owned() } else { mark.words() };
            words.push(format!("{} {meaning}", mark.glyph()));
        }
    }
    if !word {
        words.push("numbers are CPUs".to_owned());
    }
    wrap("", &words.join("   "), width)
}

/// Folds text at wide gaps, else at blanks, else after commas, else anywhere. Continuation lines
/// are indented to the start of the text.
fn wrap(first: &str, text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut margin = first.to_owned();
    let mut rest = text;
    loop {
        let room = width.saturating_sub(margin.len()).max(1);
        if rest.len() <= room {
            lines.push(format!("{margin}{rest}"));
            return lines;
        }
        let head = &rest[..room]; // all text in a picture is ASCII
        let blank = |gap: &str| rest[..(room + gap.len()).min(rest.len())].rfind(gap).filter(|&at| at > 0);
        let at = blank("   ")
            .or_else(|| blank("  "))
            .or_else(|| blank(" "))
            .or_else(|| head.rfind(',').map(|at| at + 1))
            .unwrap_or(room);
        lines.push(format!("{margin}{}", &rest[..at]));
        rest = rest[at..].trim_start();
        margin = " ".repeat(first.len());
    }
}
