//! Terminal of the view, restored however the view ends.

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{self, Stdout, stdout};
use std::sync::Once;

/// The screen.
pub(super) type Screen = ratatui::Terminal<CrosstermBackend<Stdout>>;

/// The terminal in raw mode, restored on drop.
pub(super) struct Terminal {
    pub(super) screen: Screen,
}

impl Terminal {
    /// Takes the terminal. A panic restores it, too, before its message is shown.
    ///
    /// # Errors
    /// There is no terminal.
    pub(super) fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                usual(panic);
            }));
        });
        enable_raw_mode()?;
        let entered = execute!(stdout(), EnterAlternateScreen);
        let screen = entered.and_then(|()| Screen::new(CrosstermBackend::new(stdout())));
        screen.map(|screen| Self { screen }).inspect_err(|_| give_back())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Restores the terminal. Errors are ignored: the terminal may be gone.
fn give_back() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}
