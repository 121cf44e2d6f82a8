//! SVG picture of a machine: self-contained nested boxes from package to hardware thread, coloured
//! by mark.
//!
//! Unit: pixels at scale 1. Problem: 2 and 4,096 hardware threads must both give a picture of
//! sensible size and shape, readable in print and without colour. Idea: box sizes are computed
//! bottom up. Each box lays out its content in rows, with the number of boxes per row that
//! approximates the shape of a page best. Every hardware thread is a square with its mark's fill
//! *and* pattern *and* letter, and a tooltip. The size of a thread shrinks in steps as the machine
//! grows. Properties: The picture has no script, no font and no external link. External text is
//! escaped. Coordinates are whole numbers, so equal input gives equal bytes.

use super::draw::summary;
use super::marks::{CpuMark, Marks};
use super::outline::{self, Block, Content, Frame, list, nodes, plain};
use super::{Level, Machine};
use crate::ids::{CoreId, Pu};
use crate::set::CpuSet;
use std::collections::BTreeSet;

/// Target ratio of width to height for frames: a landscape page.
const FRAME_ASPECT: f64 = 1.5;
/// Target ratio for the cores in a cache: eight cores with two threads in two rows.
const CORES_ASPECT: f64 = 2.2;
const TITLE_SIZE: u32 = 15;
const TEXT_SIZE: u32 = 12;
const PAGE_MARGIN: u32 = 16;
/// Least size in pixels to which a narrow screen shrinks the text of names.
const SHRUNK_MIN: u32 = 9;
/// Minimum width in pixels of the rows outside the machine itself.
const WIDTH_MIN: u32 = 420;
/// Maximum length of a name in characters; longer names are cut.
const NAME_MAX: usize = 60;

/// Sizes in pixels, which depend on the number of hardware threads.
#[derive(Clone, Copy)]
struct Scale {
    /// Side of a hardware thread.
    thread: u32,
    /// Distance between cores.
    gap: u32,
    /// Margin inside a frame.
    pad: u32,
    /// Font size of cache names.
    small: u32,
}

impl Scale {
    fn of(pus: usize) -> Self {
        match pus {
            ..=32 => Self { thread: 26, gap: 7, pad: 10, small: 12 },
            33..=512 => Self { thread: 16, gap: 5, pad: 8, small: 11 },
            _ => Self { thread: 10, gap: 3, pad: 6, small: 10 },
        }
    }
}

/// Weight of an empty position in the last row, relative to an equally large deviation from the
/// target shape.
const EMPTY_PLACE_WEIGHT: f64 = 3.0;

/// Returns the machine as an SVG document.
pub fn picture(machine: &Machine, marks: &Marks) -> String {
    let mut painter = Painter {
        machine,
        marks,
        scale: Scale::of(machine.pu_count()),
        caches: outline::caches(machine),
        modules: outline::modules(machine),
        numbers: Numbers::Beside,
    };
    let gap = painter.scale.pad;
    let contents = outline::contents(machine);
    painter.numbers = painter.room(&contents);
    let note = |line: &str| text(line, TEXT_SIZE, "tt-note");
    let mut rows = vec![text(&title(machine), TITLE_SIZE, "tt-title"), note(&summary(machine))];
    rows.push(flow(painter.contents(&contents), gap, FRAME_ASPECT));
    let width = rows.iter().map(|row| row.width).fold(WIDTH_MIN, u32::max);
    let outside: Vec<Boxed> = painter.memories().into_iter().chain(painter.devices()).collect();
    if !outside.is_empty() {
        rows.push(shelf(outside, width, gap));
    }
    if !machine.offline().is_empty() {
        rows.push(note(&format!("offline: cpus {}", list(machine.offline()))));
    }
    rows.push(shelf(painter.legend(), width, PAGE_MARGIN));
    document(&grid(rows, 1, gap), painter.scale.small)
}

/// Box with its size and content.
#[derive(Default)]
struct Boxed {
    width: u32,
    height: u32,
    /// Class of the rectangle; empty for no rectangle.
    style: &'static str,
    /// Lines of text at the top left.
    labels: Vec<String>,
    label_style: &'static str,
    label_size: u32,
    /// One or two characters in the centre.
    sign: String,
    tip: String,
    /// Content boxes and their positions.
    inside: Vec<(u32, u32, Boxed)>,
}

fn text_width(text: &str, size: u32) -> u32 {
    // The advance width of the usual monospaced fonts is 0.602 of the size.
    (u32::try_from(text.len()).unwrap_or(u32::MAX).saturating_mul(size).saturating_mul(602)).div_ceil(1000)
}

/// Returns a line of text as a box.
fn text(line: &str, size: u32, style: &'static str) -> Boxed {
    Boxed {
        width: text_width(line, size),
        height: size + 3,
        labels: vec![line.to_owned()],
        label_style: style,
        label_size: size,
        ..Boxed::default()
    }
}

/// Draws a frame with labels around a box.
fn framed(style: &'static str, labels: Vec<String>, size: u32, tip: String, inner: Boxed, pad: u32) -> Boxed {
    let label_width = labels.iter().map(|label| text_width(label, size)).max().unwrap_or(0);
    let top =
        pad + u32::try_from(labels.len()).unwrap_or(0) * (size + 4) + if labels.is_empty() { 0 } else { 3 };
    Boxed {
        width: inner.width.max(label_width) + 2 * pad,
        height: top + inner.height + pad,
        style,
        labels,
        label_style: "tt-label",
        label_size: size,
        tip,
        inside: vec![(pad, top, inner)],
        ..Boxed::default()
    }
}

/// Lays boxes out in rows of `columns`, each row as high as its highest box.
fn grid(boxes: Vec<Boxed>, columns: usize, gap: u32) -> Boxed {
    let rows = boxes.into_iter().enumerate().map(|(at, item)| (at > 0 && at % columns == 0, item));
    rows_of(rows, gap)
}

/// Lays boxes out from left to right, starting a new row where the width is reached.
fn shelf(boxes: Vec<Boxed>, most: u32, gap: u32) -> Boxed {
    let mut x = 0;
    let rows = boxes.into_iter().map(|item| {
        let fresh = x > 0 && x + item.width > most;
        x = if fresh { 0 } else { x } + item.width + gap;
        (fresh, item)
    });
    rows_of(rows, gap)
}

/// Lays boxes out in rows; `true` starts a new row.
fn rows_of(boxes: impl Iterator<Item = (bool, Boxed)>, gap: u32) -> Boxed {
    let mut all = Boxed::default();
    let (mut x, mut y) = (0, 0);
    for (fresh, item) in boxes {
        if fresh {
            (x, y) = (0, all.height + gap);
        }
        all.width = all.width.max(x + item.width);
        all.height = all.height.max(y + item.height);
        let next = x + item.width + gap;
        all.inside.push((x, y, item));
        x = next;
    }
    all
}

/// Lays boxes out in the number of columns that approximates a shape best; full rows are preferred.
fn flow(boxes: Vec<Boxed>, gap: u32, shape: f64) -> Boxed {
    let count = boxes.len().max(1);
    // All counts up to 8, then steps of a quarter: enough to reach any shape, and cheap for
    // thousands of boxes.
    let steps =
        std::iter::successors(Some(1), |&step| Some(if step < 8 { step + 1 } else { step + step / 4 }));
    let badness = |&columns: &usize| {
        let (mut width, mut height) = (0, 0);
        for row in boxes.chunks(columns) {
            width = row.iter().map(|item| item.width + gap).sum::<u32>().max(width);
            height += row.iter().map(|item| item.height).max().unwrap_or(0) + gap;
        }
        let off = f64::from(width.max(1)) / f64::from(height.max(1)) / shape;
        let empty = count.next_multiple_of(columns) - count;
        off.max(1.0 / off) + EMPTY_PLACE_WEIGHT * empty as f64 / columns as f64
    };
    let columns = steps.take_while(|&step| step < count).chain([count]);
    let best = columns.min_by(|a, b| badness(a).total_cmp(&badness(b))).unwrap_or(1);
    grid(boxes, best, gap)
}

/// Position of a cache's CPU numbers, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Numbers {
    Beside,
    Below,
    /// Shown only in the tooltip.
    Hidden,
}

/// Converter of the outline and the marks into boxes.
struct Painter<'m> {
    machine: &'m Machine,
    marks: &'m Marks,
    scale: Scale,
    caches: Vec<Option<&'static str>>,
    modules: Vec<Option<(u32, &'static str)>>,
    numbers: Numbers,
}

impl Painter<'_> {
    fn contents(&self, contents: &[Content]) -> Vec<Boxed> {
        let one = |content: &Content| match content {
            Content::Frame(frame) => self.frame(frame),
            Content::Block(block) => self.block(block),
        };
        contents.iter().map(one).collect()
    }

    fn frame(&self, frame: &Frame) -> Boxed {
        let style = match frame.level {
            Level::Group => "tt-group",
            Level::Die => "tt-die",
            Level::Node => "tt-node",
            _ => "tt-package",
        };
        let memory = frame.memory.as_ref().map(|memory| format!("  {memory}")).unwrap_or_default();
        let label = format!("{}{memory}", frame.name);
        let inner = flow(self.contents(&frame.content), self.scale.pad, FRAME_ASPECT);
        let whole = format!("{label}  cpus {}", list(&self.cpu_set(frame.cores.clone())));
        // Cores without a cache box have their numbers here.
        let bare = matches!(frame.content.as_slice(), [Content::Block(Block { name: None, .. })]);
        let label = if bare && text_width(&whole, TEXT_SIZE) <= inner.width { whole.clone() } else { label };
        framed(style, vec![label], TEXT_SIZE, whole, inner, self.scale.pad)
    }

    /// Returns the box of cores with the same last-level cache.
    fn block(&self, block: &Block) -> Boxed {
        let inner = self.cores(block);
        let Some(name) = &block.name else { return inner };
        let numbers = list(&self.cpu_set(block.cores.clone()));
        let whole = format!("{name}  cpus {numbers}");
        let labels = match self.numbers {
            Numbers::Beside => vec![whole.clone()],
            Numbers::Below => vec![name.clone(), numbers],
            Numbers::Hidden => vec![name.clone()],
        };
        framed("tt-cache", labels, self.scale.small, whole, inner, self.scale.gap)
    }

    /// Returns the position with enough room for the CPU numbers of all caches, so that equal
    /// caches have equal boxes.
    fn room(&self, contents: &[Content]) -> Numbers {
        let of = |content: &Content| match content {
            Content::Frame(frame) => self.room(&frame.content),
            Content::Block(block) => {
                let Some(name) = &block.name else { return Numbers::Beside };
                let most = self.cores(block).width.max(5 * self.scale.thread);
                let numbers = list(&self.cpu_set(block.cores.clone()));
                let fits = |label: &str| text_width(label, self.scale.small) <= most;
                match () {
                    () if fits(&format!("{name}  cpus {numbers}")) => Numbers::Beside,
                    () if fits(&numbers) => Numbers::Below,
                    () => Numbers::Hidden,
                }
            }
        };
        contents.iter().map(of).max().unwrap_or(Numbers::Beside)
    }

    /// Returns the box of cores, grouped by kind and by shared second-level cache.
    fn cores(&self, block: &Block) -> Boxed {
        let kinds = self.machine.kinds();
        let ids: Vec<u32> = block.cores.clone().collect();
        let kind_of = |core: u32| self.machine.cores()[core as usize].kind;
        let gap = self.scale.gap;
        let module = |run: &[u32]| {
            let inner = flow(run.iter().map(|&core| self.core(core)).collect(), gap, CORES_ASPECT);
            match self.modules[run[0] as usize] {
                Some((_, word)) if run.len() < ids.len() => {
                    framed("tt-module", Vec::new(), 0, self.cpus(word, run), inner, gap)
                }
                _ => inner,
            }
        };
        let kind = |run: &[u32]| {
            let modules =
                run.chunk_by(|&a, &b| self.modules[a as usize] == self.modules[b as usize]).map(module);
            let inner = flow(modules.collect(), gap, CORES_ASPECT);
            let name = || format!("{} cores", kinds[usize::from(kind_of(run[0]).0)].name);
            match kinds.len() {
                0 | 1 => inner,
                _ => framed("tt-kind", vec![name()], self.scale.small, self.cpus(&name(), run), inner, gap),
            }
        };
        flow(ids.chunk_by(|&a, &b| kind_of(a) == kind_of(b)).map(kind).collect(), gap, CORES_ASPECT)
    }

    fn core(&self, core: u32) -> Boxed {
        let pus = self.machine.cores()[core as usize].pus.clone();
        let columns = match pus.len() {
            0..=2 => 2,
            3..=4 => 2,
            more => more.isqrt() + 1,
        };
        let threads: Vec<Boxed> = pus.clone().map(|pu| self.thread(core, Pu(pu))).collect();
        if threads.len() == 1 {
            return grid(threads, 1, 0);
        }
        let tip = self.cpus(&format!("core {core}"), &[core]);
        framed("tt-core", Vec::new(), 0, tip, grid(threads, columns, 1), 2)
    }

    fn thread(&self, core: u32, pu: Pu) -> Boxed {
        let cpu = self.machine.os(pu);
        let mark = self.marks.of(cpu);
        let place = self.machine.core(CoreId(core));
        let mut tip = format!("CPU {cpu}, core {core}");
        if self.machine.kinds().len() > 1 {
            tip.push_str(&format!(" ({})", self.machine.kinds()[usize::from(place.kind.0)].name));
        }
        if let Some(cache) = self.caches[core as usize] {
            tip.push_str(&format!(", {cache} {}", place.llc));
        }
        if let Some(node) = place.node {
            tip.push_str(&format!(", node {}", self.machine.nodes()[node.0 as usize].os));
        }
        let thread = self.marks.thread_on(cpu);
        if let Some(thread) = thread {
            tip.push_str(&format!(", thread {thread}"));
        }
        if !self.marks.is_bare() {
            tip.push_str(&format!(": {}", mark.words()));
        }
        let number = thread.map(|thread| thread.to_string());
        let fits = |number: &String| text_width(number, self.sign_size()) <= self.scale.thread;
        let sign = match mark {
            CpuMark::Free => String::new(),
            mark => number.filter(fits).unwrap_or_else(|| mark.glyph().to_string()),
        };
        let side = self.scale.thread;
        let label_size = self.sign_size();
        Boxed { width: side, height: side, style: class(mark), sign, label_size, tip, ..Boxed::default() }
    }

    fn sign_size(&self) -> u32 {
        self.scale.thread / 2
    }

    fn memories(&self) -> Vec<Boxed> {
        let one = |memory: outline::MemoryGroup| {
            let each = if memory.nodes.len() > 1 { " each" } else { "" };
            let size = memory.size.map(|size| format!("  {size}{each}")).unwrap_or_default();
            let near = if memory.near.is_empty() {
                String::new()
            } else {
                format!(", near {}", nodes(&memory.near))
            };
            let labels = vec![format!("{}{size}", nodes(&memory.nodes)), format!("no cores{near}")];
            framed(
                "tt-memory",
                labels.clone(),
                TEXT_SIZE,
                labels.join(": "),
                Boxed::default(),
                self.scale.pad,
            )
        };
        outline::memories(self.machine).into_iter().map(one).collect()
    }

    fn devices(&self) -> Vec<Boxed> {
        let one = |device: outline::Attached| {
            let name: String = device.name.chars().take(NAME_MAX).collect();
            let near = if device.near.is_empty() {
                String::new()
            } else {
                format!(", near {}", nodes(&device.near))
            };
            let place = format!("{}{near}", device.address);
            let labels = vec![format!("{}  {name}", device.kind), place.trim_start_matches(", ").to_owned()];
            let labels: Vec<String> = labels.into_iter().filter(|label| !label.is_empty()).collect();
            let tip = format!("{}  {}", device.kind, device.name);
            framed("tt-device", labels, TEXT_SIZE, tip, Boxed::default(), self.scale.pad)
        };
        outline::attached(self.machine).into_iter().map(one).collect()
    }

    /// Returns an example and the words of every mark that occurs.
    fn legend(&self) -> Vec<Boxed> {
        if self.marks.is_bare() {
            return Vec::new();
        }
        let occur: BTreeSet<CpuMark> =
            self.machine.parts().pus.iter().map(|&cpu| self.marks.of(cpu)).collect();
        let one = |mark: CpuMark| {
            let side = TEXT_SIZE + 4;
            let sign = if mark == CpuMark::Free { String::new() } else { mark.glyph().to_string() };
            let sample = Boxed {
                width: side,
                height: side,
                style: class(mark),
                sign,
                label_size: side / 2,
                tip: mark.words().to_owned(),
                ..Boxed::default()
            };
            let numbered = matches!(mark, CpuMark::Chosen | CpuMark::Contested);
            let words = format!("{}{}", mark.words(), if numbered { " (number: thread)" } else { "" });
            grid(vec![sample, text(&words, TEXT_SIZE, "tt-note")], 2, 6)
        };
        occur.into_iter().map(one).collect()
    }

    fn cpu_set(&self, cores: impl IntoIterator<Item = u32>) -> CpuSet {
        let pus = cores.into_iter().flat_map(|core| self.machine.cores()[core as usize].pus.clone());
        pus.map(|pu| self.machine.os(Pu(pu))).collect()
    }

    fn cpus(&self, what: &str, cores: &[u32]) -> String {
        format!("{what}: cpus {}", list(&self.cpu_set(cores.iter().copied())))
    }
}

fn class(mark: CpuMark) -> &'static str {
    match mark {
        CpuMark::Disallowed => "tt-disallowed",
        CpuMark::Free => "tt-free",
        CpuMark::Busy => "tt-busy",
        CpuMark::Pinned => "tt-pinned",
        CpuMark::Held => "tt-held",
        CpuMark::Idle => "tt-idle",
        CpuMark::Chosen => "tt-chosen",
        CpuMark::Contested => "tt-contested",
    }
}

fn title(machine: &Machine) -> String {
    let name = plain(machine.name());
    match name.len() {
        0 => "machine".to_owned(),
        1..=NAME_MAX => name,
        _ => format!("{}...", &name[..NAME_MAX - 3]),
    }
}

/// Escapes text for XML; characters that are invalid in XML become question marks.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            ' '..='~' => escaped.push(char),
            _ => escaped.push('?'),
        }
    }
    escaped
}

/// Returns the whole picture; its smallest text has this size. A narrow screen shrinks it as far as
/// that stays readable, and scrolls the rest.
fn document(body: &Boxed, small: u32) -> String {
    let (width, height) = (body.width + 2 * PAGE_MARGIN, body.height + 2 * PAGE_MARGIN);
    let least = width * SHRUNK_MIN / small;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xml:space=\"preserve\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" style=\"max-width:100%;min-width:{least}px;height:auto\">\n{STYLE}"
    );
    out.push_str(&format!("<rect class=\"tt-page\" width=\"{width}\" height=\"{height}\"/>\n"));
    write(&mut out, body, PAGE_MARGIN, PAGE_MARGIN);
    out.push_str("</svg>\n");
    out
}

fn write(out: &mut String, item: &Boxed, x: u32, y: u32) {
    let Boxed { width, height, style, labels, label_style, label_size, sign, tip, inside } = item;
    let mut drawn = String::new();
    if !style.is_empty() {
        drawn.push_str(&format!(
            "<rect class=\"{style}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"
        ));
    }
    let margin = if style.is_empty() { 0 } else { TEXT_SIZE / 2 };
    let mut base = y + margin / 2;
    for label in labels {
        base += label_size + if style.is_empty() { 0 } else { 4 };
        let (left, label) = (x + margin, escape(label));
        drawn.push_str(&format!(
            "<text class=\"{label_style}\" x=\"{left}\" y=\"{base}\" font-size=\"{label_size}\">{label}</text>"
        ));
    }
    if !sign.is_empty() {
        let (middle, base) = (x + width / 2, y + height / 2 + label_size / 3 + 1);
        let (tone, sign) = (
            if matches!(*style, "tt-chosen" | "tt-contested") { "tt-light" } else { "tt-dark" },
            escape(sign),
        );
        drawn.push_str(&format!(
            "<text class=\"{tone}\" x=\"{middle}\" y=\"{base}\" font-size=\"{label_size}\">{sign}</text>"
        ));
    }
    match (drawn.is_empty(), tip.is_empty()) {
        (true, _) => {}
        (false, true) => out.push_str(&format!("{drawn}\n")),
        (false, false) => out.push_str(&format!("<g><title>{}</title>{drawn}</g>\n", escape(tip))),
    }
    for (right, down, inner) in inside {
        write(out, inner, x + right, y + down);
    }
}

/// The colours can be distinguished with all common colour blindnesses; patterns and letters need
/// no colour at all.
const STYLE: &str = r##"<style>
text { font-family: monospace; fill: #2b2f36 }
.tt-page { fill: #ffffff }
.tt-title { font-weight: bold }
.tt-note { fill: #4a505a }
.tt-dark { text-anchor: middle; font-weight: bold }
.tt-light { text-anchor: middle; font-weight: bold; fill: #ffffff }
.tt-group { fill: #f6f6f6; stroke: #9a9a9a; stroke-dasharray: 6 3 }
.tt-package { fill: #e9edf2; stroke: #6f7c8d; stroke-width: 1.5 }
.tt-die { fill: #f1f3f6; stroke: #8f9aa8; stroke-dasharray: 3 2 }
.tt-node { fill: #fbfbf7; stroke: #8a8672 }
.tt-memory { fill: #fbfbf7; stroke: #8a8672; stroke-dasharray: 4 3 }
.tt-device { fill: #f2eef7; stroke: #8a7aa0 }
.tt-cache { fill: #ece8d9; stroke: #b9b08e }
.tt-kind, .tt-module { fill: none; stroke: #9b9374; stroke-dasharray: 2 2 }
.tt-core { fill: #ffffff; stroke: #6d6d6d }
.tt-free { fill: #ffffff; stroke: #a9b0a5 }
.tt-busy { fill: url(#tt-p-busy); stroke: #8f6a00 }
.tt-pinned { fill: url(#tt-p-pinned); stroke: #74457e }
.tt-held { fill: url(#tt-p-held); stroke: #9c4220 }
.tt-disallowed { fill: #d2d4d6; stroke: #b3b6b9 }
.tt-idle { fill: #dcebf8; stroke: #2f6fa8; stroke-dasharray: 2 2 }
.tt-chosen { fill: #1b62a5; stroke: #0d3d6b }
.tt-contested { fill: url(#tt-p-contested); stroke: #4d0f30 }
</style>
<defs>
<pattern id="tt-p-busy" width="4" height="4" patternUnits="userSpaceOnUse"><rect width="4" height="4" fill="#fbdf94"/><path d="M0 3.5h4" stroke="#e0a92b"/></pattern>
<pattern id="tt-p-pinned" width="4" height="4" patternUnits="userSpaceOnUse"><rect width="4" height="4" fill="#e6cdec"/><circle cx="2" cy="2" r="0.9" fill="#b07cbd"/></pattern>
<pattern id="tt-p-held" width="5" height="5" patternUnits="userSpaceOnUse"><rect width="5" height="5" fill="#f2b59c"/><path d="M-1 1l2 -2M0 5l5 -5M4 6l2 -2" stroke="#d9703f"/></pattern>
<pattern id="tt-p-contested" width="5" height="5" patternUnits="userSpaceOnUse"><rect width="5" height="5" fill="#8c2457"/><path d="M-1 4l2 2M0 0l5 5M4 -1l2 2" stroke="#5c1237"/></pattern>
</defs>
"##;
