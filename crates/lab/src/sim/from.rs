//! `trimtab sim --from RECORD`: the scenario of a recorded run, as a file on standard output.

use crate::args::ScenarioArgs;
use anyhow::{Context, Result, bail};
use std::path::Path;
use trimtab_cli::{profile, traces};
use trimtab_core::profile::Profile;
use trimtab_core::trace::Trace;
use trimtab_front::exit::{self, Exit};
use trimtab_front::print;
use trimtab_sim::recorded::{RecordedRun, of_profile, of_trace};
use trimtab_sim::scenario::file::write;

/// A record of a run.
enum RunRecord {
    Trace(Box<Trace>),
    Profile(Box<Profile>),
}

/// Prints the scenario of the records.
///
/// # Errors
/// [`exit::FAILED`] if a record cannot be read or gives no scenario.
pub(super) fn run(args: &ScenarioArgs) -> Result<u8, Exit> {
    printed(args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn printed(args: &ScenarioArgs) -> Result<u8> {
    let records = args.from.iter().map(|file| read(file)).collect::<Result<Vec<RunRecord>>>()?;
    let kernel = &args.kernel;
    let run = match &records[..] {
        [RunRecord::Trace(trace)] => of_trace(trace, None, kernel),
        [RunRecord::Profile(profile)] => of_profile(profile, kernel),
        [RunRecord::Trace(trace), RunRecord::Profile(profile)]
        | [RunRecord::Profile(profile), RunRecord::Trace(trace)] => of_trace(trace, Some(profile), kernel),
        _ => bail!("--from takes a trace, a profile, or one of each of the same program"),
    };
    let names: Vec<String> = args.from.iter().map(|file| traces::name(file)).collect();
    print(&text(&run.with_context(|| names.join(" and "))?, &names, kernel)?)?;
    Ok(exit::DONE)
}

/// Returns the scenario as a file, with its assumptions as comments.
fn text(run: &RecordedRun, names: &[String], kernel: &str) -> Result<String> {
    let made = format!("Made from {} by `trimtab sim --from`.", names.join(" and "));
    let kernel = format!("The kernel is {kernel} (--kernel); a record does not name it.");
    let mut text = String::new();
    for note in [&made].into_iter().chain(&run.notes).chain([&kernel]) {
        // Names of files and programs are texts of others.
        let plain: String =
            note.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect();
        text.push_str(&format!("# {plain}\n"));
    }
    text.push('\n');
    text.push_str(&write(&run.scenario)?);
    Ok(text)
}

fn read(file: &Path) -> Result<RunRecord> {
    let (name, text) = (traces::name(file), traces::text(file)?);
    if text.contains("\"schema\"") && !text.starts_with("{\"header\":") {
        return Ok(RunRecord::Profile(Box::new(profile::read(&text).with_context(|| name)?)));
    }
    Ok(RunRecord::Trace(Box::new(Trace::parse(&text).with_context(|| name)?)))
}
