//! A machine as a self-contained SVG: nested boxes from package to hardware thread, coloured by mark.
//!
//! Unit: pixels at scale 1. Problem: 2 and 4,096 hardware threads must both give a picture of sensible size and shape,
//! readable in print and without colour. Idea: boxes know their size bottom up; each lays its content out in rows, as
//! many to a row as bring it nearest to the shape of a page. Every hardware thread is a square with its mark's fill *and*
//! pattern *and* letter, and a tooltip. Thread size shrinks in steps as the machine grows.
//! Properties: no script, no font, no link from outside; text from outside is escaped; coordinates are whole numbers, so
//! equal input gives equal bytes.

use super::draw::summary;
use super::marks::{Mark, Marks};
use super::outline::{self, Block, Content, Frame, list, plain};
use super::{Level, Machine};
use crate::ids::{CoreId, Pu};
use crate::set::CpuSet;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Width to height that boxes are brought near to: a landscape page.
const SHAPE: f64 = 1.5;
/// Width of a character relative to the font size: that of the usual monospaced fonts.
const ADVANCE: f64 = 0.602;
const TITLE_SIZE: u32 = 15;
const TEXT_SIZE: u32 = 12;
const MARGIN: u32 = 16;

/// The sizes that follow from how many hardware threads there are.
#[derive(Clone, Copy)]
struct Scale {
    /// Side of a hardware thread.
    thread: u32,
    /// Between cores.
    gap: u32,
    /// Inside a frame.
    pad: u32,
    /// Font size of cache names.
    small: u32,
}

impl Scale {
    fn of(pus: usize) -> Self {
        match pus {
            ..=32 => Self { thread: 26, gap: 7, pad: 10, small: 12 },
            ..=512 => Self { thread: 16, gap: 5, pad: 8, small: 11 },
            _ => Self { thread: 10, gap: 3, pad: 6, small: 10 },
        }
    }
}

/// The machine as an SVG document.
pub fn picture(machine: &Machine, marks: &Marks) -> String {
    let scale = Scale::of(machine.pu_count());
    let painter = Painter { machine, marks, scale };
    let mut boxes: Vec<Boxed> = painter.boxes(&outline::contents(machine));
    let mut around: Vec<Boxed> = painter.memories();
    around.extend(painter.devices());
    let mut rows = vec![flow(std::mem::take(&mut boxes), scale.pad)];
    if !around.is_empty() {
        let width = rows[0].width;
        rows.push(shelf(around, width, scale.pad));
    }
    let body = stack(rows, scale.pad);
    painter.document(&body)
}

/// A box with its size and what is in it.
struct Boxed {
    width: u32,
    height: u32,
    style: &'static str,
    /// The line on top; empty for none.
    label: String,
    label_size: u32,
    tip: String,
    /// Content and where it stands in the box.
    inside: Vec<(u32, u32, Boxed)>,
    /// A hardware thread's mark.
    mark: Option<Mark>,
}

fn text_width(text: &str, size: u32) -> u32 {
    (text.chars().count() as f64 * f64::from(size) * ADVANCE).ceil() as u32
}

/// A box without border around content that stands already.
fn bare(width: u32, height: u32, inside: Vec<(u32, u32, Boxed)>) -> Boxed {
    Boxed { width, height, style: "", label: String::new(), label_size: 0, tip: String::new(), inside, mark: None }
}

/// Lays boxes out in rows of `columns`, each row as high as its highest box.
fn grid(boxes: Vec<Boxed>, columns: usize, gap: u32) -> Boxed {
    let (mut x, mut y, mut high, mut width) = (0, 0, 0, 0);
    let mut inside = Vec::with_capacity(boxes.len());
    for (at, item) in boxes.into_iter().enumerate() {
        if at > 0 && at % columns == 0 {
            (x, y, high) = (0, y + high + gap, 0);
        }
        let (w, h) = (item.width, item.height);
        inside.push((x, y, item));
        width = width.max(x + w);
        high = high.max(h);
        x += w + gap;
    }
    bare(width, y + high, inside)
}

/// The size [`grid`] would give.
fn extent(sizes: &[(u32, u32)], columns: usize, gap: u32) -> (u32, u32) {
    let rows = sizes.chunks(columns).map(|row| {
        let width = row.iter().map(|size| size.0 + gap).sum::<u32>() - gap;
        (width, row.iter().map(|size| size.1).max().unwrap_or(0) + gap)
    });
    let (width, height) = rows.fold((0, 0), |all, row| (all.0.max(row.0), all.1 + row.1));
    (width, height.saturating_sub(gap))
}

/// Lays boxes out in as many columns as bring the whole nearest to [`SHAPE`], full rows preferred.
fn flow(boxes: Vec<Boxed>, gap: u32) -> Boxed {
    let sizes: Vec<(u32, u32)> = boxes.iter().map(|item| (item.width, item.height)).collect();
    let count = boxes.len().max(1);
    // Every count to 8, then steps of a quarter: enough to hit any shape, and cheap for thousands of boxes.
    let steps = std::iter::successors(Some(1), |&step| Some(if step < 8 { step + 1 } else { step + step / 4 }));
    let columns = steps.take_while(|&step| step < count).chain([count]);
    let badness = |&columns: &usize| {
        let (width, height) = extent(&sizes, columns, gap);
        let shape = (f64::from(width) / f64::from(height.max(1)) / SHAPE).ln().abs();
        let empty = count.next_multiple_of(columns) - count;
        shape + empty as f64 / columns as f64
    };
    let best = columns.min_by(|a, b| badness(a).total_cmp(&badness(b))).unwrap_or(1);
    grid(boxes, best, gap)
}

/// Lays boxes out from left to right, starting a new row where the width is reached.
fn shelf(boxes: Vec<Boxed>, most: u32, gap: u32) -> Boxed {
    let (mut x, mut y, mut high, mut width) = (0, 0, 0, 0);
    let mut inside = Vec::with_capacity(boxes.len());
    for item in boxes {
        if x > 0 && x + item.width > most {
            (x, y, high) = (0, y + high + gap, 0);
        }
        width = width.max(x + item.width);
        high = high.max(item.height);
        let next = x + item.width + gap;
        inside.push((x, y, item));
        x = next;
    }
    bare(width, y + high, inside)
}

fn stack(rows: Vec<Boxed>, gap: u32) -> Boxed {
    grid(rows, 1, gap)
}
