//! A machine in plain text: one glyph per core, grouped by package, node and last-level cache.
//!
//! Unit: columns of text. Problem: the picture must be read at a glance with 2 cores and with 2,048, and every glyph must
//! be found again as a CPU number of the kernel. Idea: a leaf of the outline is a *head* (`node 0   62 GiB`) and *cells*
//! (`l3 0 ........ 0-7,64-71`), padded to columns over the whole picture; of the few ways to fold them into the width
//! the one with the fewest lines wins. Spaces between glyphs part clusters and second-level caches that cores share, else
//! eights; a name and a colon (`P:`) open a run of one core kind.
//! Properties: ASCII; no line is longer than the width, of which at least [`WIDTH_MIN`] is assumed; the legend explains
//! the glyphs that occur, and no others; equal input gives equal text.

use super::marks::{CoreMark, Marks};
use super::outline::{self, Attached, Block, Content, Frame, Memory, list, nodes};
use super::{Level, Machine};
use crate::ids::Pu;
use crate::set::CpuSet;
use crate::words::plural;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The width where none is known.
pub const WIDTH: usize = 80;
/// The least width a picture is folded to.
pub const WIDTH_MIN: usize = 40;

/// Glyphs that stand together without a space.
const TOGETHER: usize = 8;
/// Most columns for the CPU numbers of a cell: two ranges of four-digit numbers, or three of three digits.
const CPUS_MAX: usize = 24;
/// Between two cells of a line.
const GAP: usize = 3;

/// The machine in one line: `2 packages, 4 nodes, 8 L3, 32 cores, 64 CPUs (SMT 2), 251 GiB`.
pub fn summary(machine: &Machine) -> String {
    let mut parts = Vec::new();
    let mut shared = [0, 0]; // L3s, and L2s of several cores
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

/// The machine in at most `width` columns, one glyph per core, with a legend of the glyphs that occur.
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

/// Only the grid, with a character for each core: as lines whose `glyph`s stand for the cores in logical order.
pub(super) fn bare(machine: &Machine, glyph: char, width: usize) -> Vec<String> {
    fold(machine, &Glyphs::of(machine, |_| glyph), width.max(WIDTH_MIN)).0
}

/// The lines of the grid, and whether words introduce its numbers.
fn fold(machine: &Machine, glyphs: &Glyphs<'_>, width: usize) -> (Vec<String>, bool) {
    let contents = outline::contents(machine);
    let mut rows = Vec::new();
    flatten(&contents, 0, &mut rows);
    let folds = [(false, true), (false, false), (true, true), (true, false)];
    let folded = folds.into_iter().filter_map(|(tall, word)| {
        let lines = Fold { width, tall, word }.lines(&rows, glyphs)?;
        Some((lines, word))
    });
    // Of those with equally many lines the first.
    folded.min_by_key(|(lines, _)| lines.len()).unwrap_or_default()
}

/// A frame flattened to its place in the text.
enum Row<'a> {
    /// A frame that holds frames: a line of its own.
    Heading { indent: usize, name: String },
    /// A frame that holds only blocks, or blocks outside such a frame.
    Leaf { indent: usize, name: String, memory: &'a str, blocks: Vec<&'a Block> },
}

/// Frames to rows. A frame whose only content is a frame shares its line: `pack 0 node 0`.
fn flatten<'a>(contents: &'a [Content], indent: usize, rows: &mut Vec<Row<'a>>) {
    let mut loose = Vec::new();
    let flush = |loose: &mut Vec<&'a Block>, rows: &mut Vec<Row<'a>>| {
        if !loose.is_empty() {
            let blocks = std::mem::take(loose);
            rows.push(Row::Leaf { indent, name: String::new(), memory: "", blocks });
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

fn frame<'a>(frame: &'a Frame, before: String, indent: usize, rows: &mut Vec<Row<'a>>) {
    let name = if before.is_empty() { frame.name.clone() } else { format!("{before} {}", frame.name) };
    match frame.content.as_slice() {
        [Content::Frame(only)] if frame.memory.is_none() => self::frame(only, name, indent, rows),
        content if content.iter().all(|content| matches!(content, Content::Block(_))) => {
            let blocks = content.iter().filter_map(|content| match content {
                Content::Block(block) => Some(block),
                Content::Frame(_) => None,
            });
            let memory = frame.memory.as_deref().unwrap_or("");
            rows.push(Row::Leaf { indent, name, memory, blocks: blocks.collect() });
        }
        content => {
            let memory = frame.memory.as_ref().map(|memory| format!("   {memory}")).unwrap_or_default();
            rows.push(Row::Heading { indent, name: name + &memory });
            flatten(content, indent + 2, rows);
        }
    }
}

/// The cores by their places in the model.
fn cores(machine: &Machine) -> Range<u32> {
    0..u32::try_from(machine.cores().len()).unwrap_or(u32::MAX)
}

/// The glyphs of every core, and where spaces part them.
struct Glyphs<'m> {
    machine: &'m Machine,
    of: Vec<char>,
    modules: Vec<Option<(u32, &'static str)>>,
}

/// A run of cores whose glyphs stand together.
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
                        && token.cores.len() < TOGETHER
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

/// A list cut at a comma, with `..` for the rest.
fn shorten(list: String, most: usize) -> String {
    if list.len() <= most {
        return list;
    }
    let room = list.get(..most.saturating_sub(2)).unwrap_or("");
    room.rfind(',').map_or_else(String::new, |comma| format!("{},..", &list[..comma]))
}

/// One way to fold rows into lines.
#[derive(Clone, Copy)]
struct Fold {
    width: usize,
    /// Heads stand on lines of their own.
    tall: bool,
    /// Numbers are introduced by a word.
    word: bool,
}

/// A block, or as much of it as fits a line.
struct Cell {
    name: String,
    glyphs: String,
    cpus: String,
}

/// Widths of the columns over the whole picture.
struct Columns {
    name: usize,
    glyphs: usize,
    cpus: usize,
    /// By indentation: the heads' names and memories.
    heads: BTreeMap<usize, [usize; 2]>,
}

impl Columns {
    fn measure(rows: &[Row<'_>], cells: &[Vec<Cell>]) -> Self {
        let widest = |of: fn(&Cell) -> &String| {
            let widths = cells.iter().flatten().map(|cell| of(cell).len());
            widths.max().unwrap_or(0)
        };
        let mut heads: BTreeMap<usize, [usize; 2]> = BTreeMap::new();
        for row in rows {
            if let Row::Leaf { indent, name, memory, .. } = row {
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

    /// A head, padded to the width of its like, with the gap after it.
    fn head(&self, indent: usize, name: &str, memory: &str) -> String {
        let [names, memories] = self.heads.get(&indent).copied().unwrap_or_default();
        let mut head = format!("{:indent$}{name:names$}", "");
        if memories > 0 {
            head.push_str(&format!("{:GAP$}{memory:>memories$}", ""));
        }
        if names + memories > 0 {
            head.push_str(&format!("{:GAP$}", ""));
        }
        head
    }

    fn pad(&self, cell: &Cell) -> String {
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
    /// Where the cells of a leaf begin.
    fn start(self, columns: &Columns, indent: usize, name: &str) -> usize {
        match (self.tall, name) {
            (true, "") => indent,
            (true, _) => indent + 2,
            (false, _) => columns.head(indent, "", "").len(),
        }
    }

    /// The lines of the grid folded this way; `None` when they do not fit.
    fn lines(self, rows: &[Row<'_>], glyphs: &Glyphs<'_>) -> Option<Vec<String>> {
        // How many tokens stand on a line: as many as fit, in powers of two so that lines break at round numbers.
        let sizes: &[usize] = if self.tall { &[usize::MAX, 32, 16, 8, 4, 2, 1] } else { &[usize::MAX] };
        sizes.iter().find_map(|&most| {
            let mut cells: Vec<Vec<Cell>> = rows.iter().map(|row| self.cells(row, glyphs, most)).collect();
            let mut columns = Columns::measure(rows, &cells);
            let starts = rows.iter().filter_map(|row| match row {
                Row::Leaf { indent, name, .. } => Some(self.start(&columns, *indent, name)),
                Row::Heading { .. } => None,
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

    fn cells(self, row: &Row<'_>, glyphs: &Glyphs<'_>, most: usize) -> Vec<Cell> {
        let Row::Leaf { blocks, .. } = row else { return Vec::new() };
        let mut cells = Vec::new();
        for block in blocks {
            let tokens = glyphs.tokens(block);
            for (at, part) in tokens.chunks(most.min(tokens.len())).enumerate() {
                let name = block.name.as_deref().filter(|_| at == 0).unwrap_or("");
                let words: Vec<&str> = part.iter().map(|token| token.text.as_str()).collect();
                let cores = part[0].cores.start..part[part.len() - 1].cores.end;
                cells.push(Cell {
                    name: name.to_owned(),
                    glyphs: words.join(" "),
                    cpus: format!("{}{}", if self.word { "cpus " } else { "" }, glyphs.cpus(&cores)),
                });
            }
        }
        cells
    }

    fn print(self, rows: &[Row<'_>], cells: &[Vec<Cell>], columns: &Columns) -> Vec<String> {
        let mut lines = Vec::new();
        let mut open: Option<(usize, usize)> = None; // indentation, and tiles on the last line that more may join
        for (row, cells) in rows.iter().zip(cells) {
            let (indent, name, memory) = match row {
                Row::Heading { indent, name } => {
                    lines.extend(wrap(&" ".repeat(*indent), name, self.width));
                    open = None;
                    continue;
                }
                Row::Leaf { indent, name, memory, .. } => (*indent, name.as_str(), *memory),
            };
            let start = self.start(columns, indent, name);
            let head = columns.head(indent, name, memory);
            if self.tall || cells.len() != 1 {
                let fit = ((self.width + GAP).saturating_sub(start) / (columns.cell() + GAP)).max(1);
                let mut margin = if self.tall { format!("{:start$}", "") } else { head.clone() };
                if self.tall && !name.is_empty() {
                    lines.extend(wrap(&" ".repeat(indent), head.trim(), self.width));
                }
                for cells in cells.chunks(fit) {
                    let cells: Vec<String> = cells.iter().map(|cell| columns.pad(cell)).collect();
                    lines.push(format!("{margin}{}", cells.join(&" ".repeat(GAP))));
                    margin = " ".repeat(start);
                }
                open = None;
                continue;
            }
            let tile = format!("{head}{}", columns.pad(&cells[0]));
            let width = tile.len() - indent;
            let fit = ((self.width + GAP).saturating_sub(indent) / (width + GAP)).max(1);
            match (open, lines.last_mut()) {
                (Some((like, tiles)), Some(line)) if like == indent && tiles < fit => {
                    line.push_str(&format!("{:GAP$}{}", "", &tile[indent..]));
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

/// Nodes without cores, one line for those that are alike.
fn memories(machine: &Machine, width: usize) -> Vec<String> {
    let memories = outline::memories(machine);
    let name = |memory: &Memory| nodes(&memory.nodes);
    let names = memories.iter().map(|memory| name(memory).len()).max().unwrap_or(0);
    let line = |memory: &Memory| {
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

/// Devices, one a line.
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

/// What does not show in the grid: which CPUs are which kind, and which are switched off.
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

/// What the glyphs mean that occur.
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

/// Text folded at wide gaps, else at blanks, else after commas, else anywhere; what follows is indented under the text.
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
