//! Progress display while many runs are made.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Makes a bar on stderr, if that is a terminal. It is drawn between runs only, so that it disturbs
/// none.
pub fn bar(runs: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(runs as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}  {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Quotes a program's messages in one line.
pub fn quoted(stderr: &str) -> String {
    let said: Vec<&str> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if said.is_empty() { "it said nothing".to_owned() } else { format!("it said: {}", said.join(" / ")) }
}
