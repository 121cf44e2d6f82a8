//! Grid of a machine in pieces: text, and cores that the caller fills in.
//!
//! The grid is the one that [`draw::grid`] folds. It serves screens that give each core its own
//! character and colour and update them at every sample. Each core takes one character; cores are
//! in logical order.

use super::Machine;
use super::draw;
use crate::ids::CoreId;

/// Piece of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    /// Words, numbers and blanks, in ASCII.
    Text(String),
    /// Position of a core: one character.
    Core(CoreId),
}

/// Placeholder for a core; no name or number in a drawing contains this character.
const PLACE: char = '\u{1a}';

/// Returns the grid in at most `width` columns (at least [`draw::WIDTH_MIN`]), line by line.
pub fn map(machine: &Machine, width: usize) -> Vec<Vec<Piece>> {
    let mut next = 0;
    let mut line = |text: &String| {
        let mut pieces = Vec::new();
        for (at, part) in text.trim_end_matches(' ').split(PLACE).enumerate() {
            if at > 0 {
                pieces.push(Piece::Core(CoreId(next)));
                next += 1;
            }
            if !part.is_empty() {
                pieces.push(Piece::Text(part.to_owned()));
            }
        }
        pieces
    };
    draw::bare(machine, PLACE, width).iter().map(&mut line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Taken;
    use crate::topology::{Marks, parse_synthetic};

    #[test]
    fn filled_in_it_is_the_grid() {
        for text in [
            "core:1",
            "core:3 pu:2",
            "pack:2 numa:2 l3:2 core:4 pu:2",
            "pack:2 numa:4 l3:4 l2:4 core:2 pu:2",
            "pack:8 numa:2 l3:4 core:16 pu:1",
        ] {
            let machine = parse_synthetic(text).unwrap();
            // Every third CPU is held, so that cores differ.
            let held = machine.cpus().iter().filter(|cpu| cpu.0 % 3 == 0).collect();
            let taken = Taken { held, ..Taken::nothing(machine.cpus()) };
            let marks = Marks::around(&machine, &taken);
            for width in [0, 40, 63, 80, 120, 200] {
                let glyph = |piece: &Piece| match piece {
                    Piece::Text(text) => text.clone(),
                    Piece::Core(core) => marks.of_core(&machine, core.0).glyph().to_string(),
                };
                let lines: Vec<String> =
                    map(&machine, width).iter().map(|line| line.iter().map(glyph).collect()).collect();
                let grid = draw::grid(&machine, &marks, width);
                let grid: Vec<&str> = grid.lines().take(lines.len()).collect();
                assert_eq!(lines, grid, "{text} at {width}");
            }
        }
    }
}
