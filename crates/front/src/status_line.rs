//! A line on a terminal's standard error that its next text replaces.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Shortest time between two texts: faster changes cannot be read.
const PAUSE: Duration = Duration::from_millis(50);
/// Number of columns of a terminal that does not report it.
const COLUMNS_DEFAULT: usize = 80;
/// Units of time in seconds, with their signs.
const UNITS: [(u64, char); 4] = [(86_400, 'd'), (3_600, 'h'), (60, 'm'), (1, 's')];

/// The line. It is removed when this is dropped.
#[derive(Debug)]
pub struct StatusLine {
    began: Instant,
    /// When the last text was written.
    written: Option<Instant>,
    hidden: bool,
}

impl StatusLine {
    /// Begins a line. It stays empty if `hidden`, and where standard error is no terminal.
    pub fn new(hidden: bool) -> Self {
        Self { began: Instant::now(), written: None, hidden: hidden || !stderr().is_terminal() }
    }

    /// Replaces the text, after the time since the beginning.
    pub fn set(&mut self, text: &str) {
        if self.hidden || self.written.is_some_and(|written| written.elapsed() < PAUSE) {
            return;
        }
        self.written = Some(Instant::now());
        let columns = rustix::termios::tcgetwinsize(stderr()).map_or(0, |size| usize::from(size.ws_col));
        let columns = if columns == 0 { COLUMNS_DEFAULT } else { columns };
        let line = format!("{}  {text}", passed(self.began.elapsed()));
        let line: String = line.chars().take(columns).collect();
        let _ = write!(stderr(), "\r\x1b[2K{line}");
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        if self.written.is_some() {
            let _ = write!(stderr(), "\r\x1b[2K");
        }
    }
}

/// Returns a time in the largest unit of which it has one and a half.
fn passed(time: Duration) -> String {
    let seconds = time.as_secs();
    let (unit, sign) = UNITS.into_iter().find(|(unit, _)| seconds * 2 >= unit * 3).unwrap_or((1, 's'));
    format!("{}{sign}", (seconds + unit / 2) / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_the_largest_unit_of_which_they_have_one_and_a_half() {
        let words = |seconds| passed(Duration::from_secs(seconds));
        assert_eq!(
            [0, 1, 89, 90, 5_399, 5_400, 129_599, 129_600].map(words),
            ["0s", "1s", "89s", "2m", "90m", "2h", "36h", "2d"]
        );
    }
}
