//! Profiles at the front end: writing as text and JSON, and reading.
//!
//! The run itself is `trimtab run`'s, and the monitor assembles the profile when the program has
//! ended ([`trimtab_agent::monitor`]).

use crate::say;
use crate::sync_text;
use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{PipeWriter, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use trimtab_agent::output::{self, Claim, OutputKind};
use trimtab_agent::sync_report::SyncReport;
use trimtab_core::profile::Profile;
use trimtab_core::setting::Setting;
use trimtab_core::words::plural;
use trimtab_front::units::{memory, percent_of_any_size as percent, time};
use trimtab_linux::child::End;

/// Schema of the JSON document.
pub const SCHEMA: &str = "trimtab.profile/1";

/// Where a profile goes.
#[derive(Clone, Debug)]
pub enum ProfileTarget {
    /// Standard error.
    Stderr,
    /// A file.
    File(PathBuf),
    /// The process that has the program measured.
    Process(Arc<PipeWriter>),
}

/// A request for a profile.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Whether to write JSON.
    pub json: bool,
    /// Where it goes.
    pub target: ProfileTarget,
    /// The setting in which the program runs.
    pub setting: Setting,
}

/// A profile in progress.
#[derive(Debug)]
pub struct Profiling {
    ask: Ask,
    _claim: Option<Claim>,
}

impl Profiling {
    /// Opens the output.
    ///
    /// # Errors
    /// It cannot be written, or would overwrite something else.
    pub fn open(ask: &Ask) -> Result<Self> {
        let claim = match &ask.target {
            ProfileTarget::File(path) => {
                Some(Claim::open(&format!("--output {}", path.display()), path, OutputKind::Profile, 0o666)?)
            }
            ProfileTarget::Stderr | ProfileTarget::Process(_) => None,
        };
        Ok(Self { ask: ask.clone(), _claim: claim })
    }

    /// Writes the profile of a program that ended with `end`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, profile: &Profile, stats: &SyncReport, end: End) -> Result<()> {
        let text = if self.ask.json { json(profile)? } else { words(profile, stats, end) };
        match &self.ask.target {
            ProfileTarget::Stderr => {
                say::report(&text);
                Ok(())
            }
            ProfileTarget::File(path) => output::replace(path, |out| out.write_all(text.as_bytes()))
                .with_context(|| format!("cannot write the profile: {}", path.display())),
            ProfileTarget::Process(pipe) => {
                pipe.as_ref().write_all(text.as_bytes()).context("cannot hand the profile over")
            }
        }
    }
}

fn json(profile: &Profile) -> Result<String> {
    #[derive(Serialize)]
    struct ProfileJson<'a> {
        schema: &'static str,
        #[serde(flatten)]
        profile: &'a Profile,
    }
    Ok(serde_json::to_string(&ProfileJson { schema: SCHEMA, profile })? + "\n")
}

/// Formats the profile as text.
fn words(profile: &Profile, stats: &SyncReport, end: End) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        let _ = writeln!(out, "profile: {text}");
    };
    let Profile { program, wall, user, system, cores, cpus, workers, .. } = profile;
    if let End::Killed(signal) = end {
        line(format!("{program} was ended by signal {signal}; the profile covers the time until then"));
    }
    line(format!(
        "{program}: {} on {} ({}), {} in the program and {} in the kernel, {} worked",
        time(*wall),
        plural(u64::from(*cores), "core"),
        plural(u64::from(*cpus), "CPU"),
        time(*user),
        time(*system),
        plural(u64::from(*workers), "thread"),
    ));
    if !profile.setting.is_empty() {
        line(format!("setting {}", profile.setting));
    }
    sync_text::lines(stats).into_iter().for_each(&mut line);
    if let Some(balance) = profile.balance {
        line(format!("balance {balance:.2} (lowest/highest CPU time of its cores)"));
    }
    if let Some(kept) = profile.kept_waiting {
        line(format!("threads were runnable but not running {} of the time", percent(kept)));
    }
    if let Some(misses) = profile.misses_per_kilo {
        line(format!("{misses:.2} LLC misses per 1,000 instructions"));
    }
    if let Some(resident) = profile.resident {
        let huge = profile
            .huge_share
            .map_or_else(String::new, |huge| format!(", {} of it in huge pages", percent(huge)));
        let remote =
            profile.remote_share.map_or_else(String::new, |far| format!(", {} of it remote", percent(far)));
        line(format!("peak memory {}{huge}{remote}", memory(resident)));
    }
    if let Some(set) = profile.working_set {
        line(format!("working set about {}", memory(set)));
    }
    if let (Some(faults), Some((own, forced))) = (profile.faults, profile.switches) {
        let yields =
            profile.yields.map_or_else(String::new, |yields| format!(", {}", plural(yields, "yield")));
        line(format!(
            "{}, {own} voluntary switches, {forced} involuntary{yields}",
            plural(faults, "page fault")
        ));
    }
    sync_text::cost(stats).into_iter().for_each(&mut line);
    for unseen in &profile.unseen {
        line(format!("not seen: {unseen}"));
    }
    out
}

/// Formats a profile as text, one line per fact.
pub fn in_words(profile: &Profile) -> String {
    words(profile, &SyncReport::in_profile(profile), End::Exited(0))
}

/// Reads a profile that was written as JSON.
///
/// # Errors
/// The text is not a profile, or is of a later schema.
pub fn read(text: &str) -> Result<Profile> {
    let document: serde_json::Value = serde_json::from_str(text).context("this is not a profile")?;
    match document.get("schema").and_then(|schema| schema.as_str()) {
        Some(SCHEMA) => serde_json::from_value(document).context("this is not a profile"),
        Some(other) => Err(anyhow!("the schema is {other}; this version of trimtab reads {SCHEMA}")),
        None => Err(anyhow!("this is not a profile of trimtab: it has no schema")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_is_written_is_read_again_and_others_are_refused() {
        let profile = Profile { program: "a".to_owned(), waiting: Some(0.25), ..Profile::default() };
        assert_eq!(read(&json(&profile).unwrap()).unwrap(), profile);
        assert!(read("{}").unwrap_err().to_string().contains("not a profile"));
        assert!(read(r#"{"schema":"trimtab.profile/2"}"#).unwrap_err().to_string().contains("profile/2"));
        assert!(read("profile: x").is_err());
    }
}
