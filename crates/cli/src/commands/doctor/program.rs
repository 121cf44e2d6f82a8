//! `trimtab doctor ./app`: runs the program plainly and under `trimtab run`. If the results differ,
//! it leaves out each change of a run in turn, to find the change that the program does not
//! tolerate.

use crate::args::DoctorArgs;
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::table::{Align, Table};
use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Schema of the JSON document.
const SCHEMA: &str = "trimtab.doctor-program/1";

/// The options that leave out one change each, and the name of that change.
const WITHOUT: [(&[&str], &str); 6] = [
    (&["--fit", "keep"], "fitted thread counts"),
    (&["--wait-policy", "keep"], "wait policy"),
    (&["--pin", "mask"], "thread places and the preload library's binding"),
    (&["--no-tuning"], "the stored tuning"),
    (&["--no-rules"], "site and user rules"),
    (&["--env", "keep"], "all variables and the preload library"),
];
/// Time from SIGTERM to SIGKILL for a program that exceeds the limit.
const KILL_DELAY: Duration = Duration::from_secs(2);
/// Time between two checks of a running program.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Most bytes of a program's standard error that are read back.
const ERRORS_MAX: u64 = 4096;

/// One way to start the program, and the outcome.
#[derive(Debug, Serialize)]
struct Variant {
    /// The command line before the program: empty for the plain one.
    command: String,
    /// The change that this variant leaves out, in words; absent for plain and default runs.
    without: Option<&'static str>,
    /// How it ended, in words.
    ended: String,
    /// The status as a shell shows it; absent where the limit was exceeded.
    status: Option<u8>,
    /// Wall-clock time in seconds.
    seconds: f64,
    /// The last line on standard error, if the program failed.
    last_error: Option<String>,
}

#[derive(Serialize)]
struct VariantsJson<'a> {
    schema: &'static str,
    variants: &'a [Variant],
    verdict: &'a str,
    remedy: Option<&'a str>,
}

/// Tries the variants and judges them.
///
/// # Errors
/// The program cannot be found, or stdout cannot be written.
pub(super) fn run(args: &DoctorArgs) -> Result<u8, Exit> {
    let failed = |cause: anyhow::Error| Exit::new(exit::FAILED, cause);
    let limit = args.timeout.map(Duration::from);
    let variants = attempts(&args.command, limit).map_err(failed)?;
    let (good, verdict, remedy) = judge(&variants);
    let text = if args.json {
        let document = VariantsJson {
            schema: SCHEMA,
            variants: &variants,
            verdict: &verdict,
            remedy: remedy.as_deref(),
        };
        serde_json::to_string_pretty(&document).map_err(|error| Exit::new(exit::FAILED, error))?
    } else {
        words(&variants, &verdict, remedy.as_deref())
    };
    print(&text).map_err(|error| Exit::new(exit::FAILED, error))?;
    Ok(if good { exit::DONE } else { exit::NO })
}

/// Runs the program plainly and under a default run; the other variants only if these two end
/// differently.
fn attempts(program: &[OsString], limit: Option<Duration>) -> Result<Vec<Variant>> {
    let own = std::env::current_exe().context("this program's own path is unknown")?;
    let mut variants = vec![attempt(None, &[], None, program, limit)?];
    let own = Some(own.as_os_str());
    variants.push(attempt(own, &[], None, program, limit)?);
    if variants[0].status == variants[1].status {
        return Ok(variants);
    }
    for (options, without) in WITHOUT {
        variants.push(attempt(own, options, Some(without), program, limit)?);
    }
    Ok(variants)
}

/// Runs the program once, without input and without its output.
fn attempt(
    trimtab: Option<&std::ffi::OsStr>,
    options: &[&str],
    without: Option<&'static str>,
    program: &[OsString],
    limit: Option<Duration>,
) -> Result<Variant> {
    let mut errors = tempfile_of_errors()?;
    let mut command = match trimtab {
        None => Command::new(&program[0]),
        Some(own) => {
            let mut command = Command::new(own);
            command.arg("run").args(options).arg("--").arg(&program[0]);
            command
        }
    };
    command.args(&program[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.try_clone()?);
    let begin = Instant::now();
    let child =
        command.spawn().map_err(|error| anyhow!("cannot start {}: {error}", program[0].to_string_lossy()))?;
    let status = wait(child, begin, limit)?;
    let seconds = begin.elapsed().as_secs_f64();
    let success = status.is_some_and(|status| status.success());
    let last_error = if success { None } else { last_line(&mut errors) };
    let words = if trimtab.is_some() { format!("trimtab run {}", options.join(" ")) } else { String::new() };
    Ok(Variant {
        command: words.trim_end().to_owned(),
        without,
        ended: ended(status),
        status: status.map(shell_status),
        seconds,
        last_error,
    })
}

/// Returns an unnamed file for the program's standard error.
fn tempfile_of_errors() -> Result<std::fs::File> {
    let descriptor = rustix::fs::memfd_create("errors", rustix::fs::MemfdFlags::CLOEXEC)
        .context("no memory for the program's standard error")?;
    Ok(descriptor.into())
}

/// Waits for the program's end, or ends the program when the limit is exceeded; then it returns no
/// status.
fn wait(mut child: Child, begin: Instant, limit: Option<Duration>) -> Result<Option<ExitStatus>> {
    let mut late = false;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the program")? {
            return Ok((!late).then_some(status));
        }
        let over = limit.map(|limit| begin.elapsed().saturating_sub(limit)).unwrap_or_default();
        if !over.is_zero() {
            let signal = if over > KILL_DELAY { Signal::KILL } else { Signal::TERM };
            // The process was not waited for, so its number cannot belong to another process.
            let _ = kill_process(Pid::from_child(&child), signal);
            late = true;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn ended(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        None => "exceeded the time limit".to_owned(),
        Some((Some(code), _)) => format!("status {code}"),
        Some((None, Some(signal))) => format!("signal {signal}"),
        Some((None, None)) => "ended".to_owned(),
    }
}

fn shell_status(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.or_else(|| status.signal().map(exit::by_signal)).unwrap_or(exit::FAILED)
}

/// Returns the last line of the program's standard error that is not blank, made printable.
fn last_line(errors: &mut std::fs::File) -> Option<String> {
    let length = errors.metadata().ok()?.len();
    errors.seek(SeekFrom::Start(length.saturating_sub(ERRORS_MAX))).ok()?;
    let mut bytes = Vec::new();
    errors.take(ERRORS_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    Some(trimtab_linux::text::printable(line.trim().as_bytes()))
}

/// Returns whether a default run ends like the plain one, the verdict, and the remedy.
fn judge(variants: &[Variant]) -> (bool, String, Option<String>) {
    let (plain, run) = (&variants[0], &variants[1]);
    if plain.status == run.status {
        let also = if plain.status == Some(0) { "" } else { ", also without trimtab" };
        return (
            true,
            format!("the program ends the same way with and without trimtab run: {}{also}", run.ended),
            None,
        );
    }
    let verdict = format!("plain: {}; under trimtab run: {}", plain.ended, run.ended);
    let alike: Vec<&Variant> =
        variants[2..].iter().filter(|variant| variant.status == plain.status).collect();
    match alike.first() {
        Some(variant) => {
            let cause = variant.without.unwrap_or_default();
            let remedy = format!("{} -- ... (it leaves out {cause})", variant.command);
            (false, format!("{verdict}; the cause is one of: {cause}"), Some(remedy))
        }
        None => (false, format!("{verdict}; no single change explains it"), None),
    }
}

fn words(variants: &[Variant], verdict: &str, remedy: Option<&str>) -> String {
    let mut table = Table::new(&[
        ("STARTED BY", Align::Left),
        ("TIME", Align::Right),
        ("ENDED", Align::Left),
        ("LAST ERROR", Align::Left),
    ]);
    for variant in variants {
        let command = if variant.command.is_empty() { "plain" } else { &variant.command };
        let error: String = variant.last_error.clone().unwrap_or_default().chars().take(60).collect();
        table.row([command.to_owned(), format!("{:.2} s", variant.seconds), variant.ended.clone(), error]);
    }
    let mut text = format!("{table}\n{verdict}");
    if let Some(remedy) = remedy {
        text.push_str(&format!("\nremedy: {remedy}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variant(options: &str, without: Option<&'static str>, status: Option<u8>) -> Variant {
        let ended = status.map_or("exceeded the time limit".to_owned(), |status| format!("status {status}"));
        Variant { command: options.to_owned(), without, ended, status, seconds: 0.1, last_error: None }
    }

    #[test]
    fn the_first_change_without_which_it_runs_is_named() {
        let plain = || variant("", None, Some(0));
        let (good, ..) = judge(&[plain(), variant("trimtab run", None, Some(0))]);
        assert!(good);
        let (good, verdict, remedy) = judge(&[
            plain(),
            variant("trimtab run", None, Some(1)),
            variant("trimtab run --fit keep", Some("fitted thread counts"), Some(1)),
            variant("trimtab run --pin mask", Some("pins"), Some(0)),
            variant("trimtab run --env keep", Some("all"), Some(0)),
        ]);
        assert!(!good && verdict.ends_with("the cause is one of: pins"), "{verdict}");
        assert_eq!(remedy.as_deref(), Some("trimtab run --pin mask -- ... (it leaves out pins)"));
        let (good, verdict, remedy) = judge(&[plain(), variant("trimtab run", None, None)]);
        assert!(!good && remedy.is_none() && verdict.contains("no single change"), "{verdict}");
    }

    #[test]
    fn a_program_that_fails_by_itself_is_no_fault_of_the_runs() {
        let (good, verdict, _) = judge(&[variant("", None, Some(3)), variant("trimtab run", None, Some(3))]);
        assert!(good && verdict.ends_with("status 3, also without trimtab"), "{verdict}");
    }
}
