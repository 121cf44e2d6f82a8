//! Map of the machine, one character per core, coloured by its use.

use super::scene::{Around, CoreStyle, CpuStyles};
use super::width;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use trimtab_core::telemetry::account::Account;
use trimtab_core::topology::{Machine, Piece, map};

/// Draws the grid in `columns` columns and at most `most` lines; if it is cut, the last line says
/// so.
pub(super) fn grid(
    machine: &Machine,
    account: Option<&Account>,
    around: &Around,
    (columns, most): (usize, usize),
    colour: bool,
) -> Vec<Line<'static>> {
    let lines = map(machine, columns);
    let cut = lines.len() > most;
    let shown = if cut { most.saturating_sub(1) } else { lines.len() };
    let looks = CpuStyles::of(account, around);
    let style = |piece: &Piece| match piece {
        Piece::Text(text) => Span::styled(text.clone(), dim(colour)),
        Piece::Core(core) => {
            let look = looks.core(machine, *core);
            Span::styled(look.glyph().to_string(), of_core(look, colour))
        }
    };
    let mut drawn: Vec<Line<'static>> =
        lines.iter().take(shown).map(|line| Line::from(line.iter().map(style).collect::<Vec<_>>())).collect();
    if cut && most > 0 {
        let more = format!("... {} more lines of cores (m hides the map)", lines.len() - shown);
        drawn.push(Line::styled(width::cut(&more, columns), dim(colour)));
    }
    drawn
}

/// Returns the legend of colours and underlining.
pub(super) fn legend(colour: bool) -> Line<'static> {
    let look = CoreStyle { busy: None, ours: false, held: false, pinned: false, allowed: true };
    let word = |words: &'static str, look| Span::styled(words, of_core(look, colour));
    Line::from(vec![
        Span::styled("load in tenths, # full: ", dim(colour)),
        word("watched", CoreStyle { ours: true, ..look }),
        Span::raw("  "),
        word("held", CoreStyle { held: true, ..look }),
        Span::raw("  "),
        word("pinned by others", CoreStyle { pinned: true, ..look }),
    ])
}

/// Returns the style of a core; without colours: bold, underlined and reversed.
fn of_core(look: CoreStyle, colour: bool) -> Style {
    let style = Style::new();
    match (look.ours, look.held, look.pinned) {
        _ if !look.allowed => dim(colour),
        (true, _, true) => paint(style.add_modifier(Modifier::BOLD | Modifier::REVERSED), Color::Red, colour),
        (true, true, _) => {
            paint(style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED), Color::Green, colour)
        }
        (true, ..) => paint(style.add_modifier(Modifier::BOLD), Color::Green, colour),
        (_, _, true) => paint(style.add_modifier(Modifier::REVERSED), Color::Magenta, colour),
        (_, true, _) => paint(style.add_modifier(Modifier::UNDERLINED), Color::Yellow, colour),
        _ => style,
    }
}

/// Adds a colour to a style if colours are allowed.
pub(super) fn paint(style: Style, colour: Color, may: bool) -> Style {
    if may { style.fg(colour) } else { style }
}

/// Style of secondary text.
pub(super) fn dim(colour: bool) -> Style {
    paint(Style::new(), Color::DarkGray, colour)
}
