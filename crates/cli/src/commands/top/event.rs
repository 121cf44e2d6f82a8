//! All that can happen to the view, and what it can ask for.

use super::scene::{Around, Scene};
use ratatui::crossterm::event::KeyEvent;
use trimtab_core::time::Span;

/// What happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A key.
    Key(KeyEvent),
    /// The terminal has another size, or wants to be drawn anew.
    Redraw,
    /// Programs were looked at.
    Scene(Box<Scene>),
    /// The machine around them was looked at.
    Around(Box<Around>),
    /// Time went by.
    Tick(Span),
    /// Nothing more will be seen, and why.
    Over(String),
    /// Nothing can be seen: the view ends, and says why.
    Failed(String),
    /// Somebody wants us to end: a signal.
    Stop(i32),
}

/// What the view asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Nothing.
    None,
    /// To be drawn.
    Draw,
    /// To end, as after this signal if there was one.
    Quit(Option<i32>),
}
