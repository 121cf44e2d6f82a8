//! Events for the view, and actions that it requests.

use super::scene::{Around, Scene};
use ratatui::crossterm::event::KeyEvent;
use trimtab_core::time::Span;

/// An event.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A key.
    Key(KeyEvent),
    /// The terminal has another size, or must be drawn again.
    Redraw,
    /// A sample of the programs.
    Scene(Box<Scene>),
    /// A sample of the machine around them.
    Around(Box<Around>),
    /// Time passed.
    Tick(Span),
    /// No more samples will come, with the reason.
    Over(String),
    /// Nothing can be observed: the view ends, with the reason.
    Failed(String),
    /// A signal requests the end.
    Stop(i32),
}

/// An action that the view requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Nothing.
    None,
    /// Draw the screen.
    Draw,
    /// End, as after this signal if there was one.
    Quit(Option<i32>),
}
