//! What can be typed to see programs: `top` and `report`.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use trimtab_core::time::Span;

/// Show how threads run now: speed, core, migrations, waiting, balance; and what of the machine is taken.
///
/// Watches the programs of these processes, with all that they start; without any, the programs that hold cores and your
/// own busiest ones. Nothing is touched, no privilege is needed. ? shows the keys.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  trimtab top                      what holds cores, and what keeps them busy\n  \
    trimtab top 4242                 the program of process 4242\n  \
    trimtab top --once | less        one look, as text\n  \
    trimtab top --replay run.trace   a recorded run, in the same view"
)]
pub struct TopArgs {
    /// Processes to watch, each with all that it starts.
    #[arg(value_name = "PID", conflicts_with = "replay")]
    pub pids: Vec<u32>,
    /// Show a recorded run: the trace that --trace wrote.
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Time between two looks: 100ms, 1s, 2.5s.
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub interval: Span,
    /// Print one look as text and end: also for pipes; with --json as that.
    #[arg(long)]
    pub once: bool,
    /// Print one look as JSON and end (schema in docs/json.md).
    #[arg(long)]
    pub json: bool,
}

/// Show what a trace says: a page for any browser, a file for Perfetto, or JSON.
///
/// Without options the page is written beside the trace, with the ending .html. It holds all it needs and asks nothing of any
/// network. A trace that a crash cut off is fine.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  trimtab report run.trace                        writes run.html\n  \
    trimtab report run.trace --chrome run.json      for https://ui.perfetto.dev\n  \
    trimtab report run.trace --json | jq '.programs[0].balance'")]
pub struct ReportArgs {
    /// The trace; - for standard input.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Where to write the page; - for standard output.
    #[arg(short, long, value_name = "FILE.html", conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// Write Chrome trace events, which Perfetto opens; - for standard output.
    #[arg(long, value_name = "FILE.json")]
    pub chrome: Option<PathBuf>,
    /// Print as JSON (schema in docs/json.md) instead of a page.
    #[arg(long)]
    pub json: bool,
}

/// The least time between two looks: below this the looking is what one sees.
const INTERVAL_MIN: Span = Span::from_ms(20);
/// The most: an hour.
const INTERVAL_MAX: Span = Span::from_ms(3_600_000);

/// `100ms`, `1s`, `0.5`, `2m`.
fn parse_interval(text: &str) -> Result<Span, String> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let unit = match &text[digits..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        other => return Err(format!("\"{other}\" is no unit of time (known: ms, s, m)")),
    };
    let number: f64 =
        text[..digits].parse().map_err(|_| format!("\"{text}\" is no time such as 100ms or 1s"))?;
    let span = Duration::try_from_secs_f64(number * unit).map_or(Span(u64::MAX), Span::from);
    if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&span) {
        return Err(format!("{text} is not between {INTERVAL_MIN} and {INTERVAL_MAX}"));
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_units_and_bounds() {
        assert_eq!(parse_interval("100ms"), Ok(Span::from_ms(100)));
        assert_eq!(parse_interval("2.5"), Ok(Span::from_ms(2_500)));
        assert_eq!(parse_interval("1m"), Ok(Span::from_ms(60_000)));
        for bad in ["", "ms", "-1s", "1h", "0", "1ms", "1e9", "99999999999999999999", "1..2", "2 s", "nan"] {
            assert!(parse_interval(bad).is_err(), "{bad:?}");
        }
    }
}
