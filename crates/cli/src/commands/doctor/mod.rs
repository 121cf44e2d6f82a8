//! `trimtab doctor`: common faults of machines and environments, each with its remedy; with a
//! program, the variants of a run that the program tolerates (`program`).

mod parts;
mod program;

use crate::args::DoctorArgs;
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::world::{MACHINE, World};
use serde::Serialize;
use std::path::Path;
use trimtab_core::place::{MemoryPlan, MemoryPolicy};
use trimtab_core::topology::draw;
use trimtab_hold::site_facts::{Situation, in_container, location, only_here};
use trimtab_linux::launch::preload_library;
use trimtab_linux::ledger::{Ledger, LedgerView};
use trimtab_linux::limits::{Limiter, Limits};
use trimtab_linux::memory::{self, Cause, SystemHugePages, system_huge_pages};
use trimtab_linux::perf::Why;
use trimtab_linux::process;
use trimtab_linux::sys::mempolicy;
use trimtab_linux::task_iterator::TaskIterator;

/// Schema of the JSON document.
pub const SCHEMA: &str = "trimtab.doctor/1";

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    /// In order.
    Good,
    /// Information; no change is needed.
    Note,
    /// Should be changed.
    Fault,
}

/// Result of one check.
#[derive(Debug, Serialize)]
struct CheckResult {
    verdict: Severity,
    subject: &'static str,
    found: String,
    /// The remedy; absent if none is needed.
    remedy: Option<String>,
}

#[derive(Serialize)]
struct DoctorJson {
    schema: &'static str,
    findings: Vec<CheckResult>,
}

impl CheckResult {
    fn good(subject: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Severity::Good, subject, found: found.into(), remedy: None }
    }

    fn note(subject: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Severity::Note, ..Self::good(subject, found) }
    }

    fn fault(subject: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Severity::Fault, remedy: Some(remedy.into()), ..Self::good(subject, found) }
    }
}

/// Checks everything, or tries a program.
///
/// # Errors
/// Stdout cannot be written; the program cannot be started.
pub fn run(world: &World, args: &DoctorArgs) -> Result<u8, Exit> {
    if !args.command.is_empty() {
        return program::run(args);
    }
    let situation = Situation::live(world, false);
    let nodes = situation.as_ref().map_or(0, |situation| situation.machine.nodes().len());
    let mut findings = vec![machine(world, &situation)];
    findings.extend(parts::check());
    findings.extend(bounds(world));
    findings.extend([
        ledger(world),
        library(),
        memory_policies(nodes),
        balancing(world, nodes),
        huge_pages(world),
        reading(world),
        rules(world),
    ]);
    findings.extend(process_hiding(world));
    findings.extend(environment(world));
    let worst = findings.iter().map(|finding| finding.verdict).max();
    let text = if args.json {
        let document = DoctorJson { schema: SCHEMA, findings };
        serde_json::to_string_pretty(&document).map_err(|error| Exit::new(exit::FAILED, error))?
    } else {
        words(&findings)
    };
    print(&text).map_err(|error| Exit::new(exit::FAILED, error))?;
    Ok(if worst == Some(Severity::Fault) { exit::NO } else { exit::DONE })
}

fn words(findings: &[CheckResult]) -> String {
    let mut lines = Vec::new();
    for CheckResult { verdict, subject, found, remedy } in findings {
        let mark = match verdict {
            Severity::Good => "ok   ",
            Severity::Note => "note ",
            Severity::Fault => "FAULT",
        };
        lines.push(format!("{mark} {subject}: {found}"));
        lines.extend(remedy.iter().map(|remedy| format!("      remedy: {remedy}")));
    }
    lines.join("\n")
}

fn machine(world: &World, situation: &anyhow::Result<Situation>) -> CheckResult {
    let said = world.raw(MACHINE).is_some_and(|said| !said.is_empty());
    match situation {
        Ok(situation) if said => CheckResult::note("machine", situation.warnings.join("; ")),
        Err(error) if said => CheckResult::fault("machine", format!("{error:#}"), "unset it"),
        Ok(situation) if situation.warnings.is_empty() => {
            CheckResult::good("machine", draw::summary(&situation.machine))
        }
        Ok(situation) => CheckResult::fault(
            "machine",
            situation.warnings.join("; "),
            "make the cache folder writable, or set XDG_CACHE_HOME; until then every start discovers the machine again",
        ),
        Err(error) => CheckResult::fault(
            "machine",
            format!("{error:#}"),
            "reinstall trimtab; a helper that was built with a shared hwloc needs it (Debian: libhwloc15)",
        ),
    }
}

fn bounds(world: &World) -> Vec<CheckResult> {
    let limits = match Limits::read(&world.root, None) {
        Ok(limits) => limits,
        Err(error) => return vec![CheckResult::fault("limits", error.to_string(), "mount /proc")],
    };
    let mut findings: Vec<CheckResult> = limits
        .limiters
        .iter()
        .map(|limiter| match limiter {
            Limiter::Mask { .. } => CheckResult::note(
                "limits",
                format!("{limiter}; programs started from this shell get the rest"),
            ),
            other => CheckResult::note("limits", other.to_string()),
        })
        .collect();
    if let Some(quota) = &limits.quota {
        let cpus = limits.allowed.len();
        let found = format!(
            "{} group {} grants {}.{:02} CPUs of time for {cpus} CPUs",
            quota.hierarchy,
            quota.group,
            quota.milli_cpus / 1000,
            quota.milli_cpus % 1000 / 10
        );
        findings.push(if (quota.milli_cpus as usize) < cpus * 1000 {
            CheckResult::fault("quota", found, "most runtimes ignore quotas and are throttled; trimtab run sets their thread counts, or raise cpu.max")
        } else {
            CheckResult::good("quota", found)
        });
    }
    if findings.is_empty() {
        findings.push(CheckResult::good(
            "limits",
            format!("all {} online CPUs may be used, without a quota", limits.allowed.len()),
        ));
    }
    findings
}

fn ledger(world: &World) -> CheckResult {
    let location = match location(world) {
        Ok(location) => location,
        Err(error) => return CheckResult::fault("ledger", error.to_string(), "mount /proc"),
    };
    let seen = LedgerView::open(&location);
    let path = match Ledger::open(&location) {
        Ok(ledger) => ledger.path(),
        Err(error) => {
            let remedy = "until then runs may share cores; as root: mkdir -m 1777 /run/trimtab, or install the tmpfiles rule";
            return CheckResult::fault("ledger", error.to_string(), remedy);
        }
    };
    let found = path.display().to_string();
    if in_container(world) && !path.starts_with("/run/trimtab") {
        return CheckResult::fault(
            "ledger",
            only_here(&path),
            "bind-mount the same folder into every container, for example -v /run/trimtab:/run/trimtab",
        );
    }
    match seen {
        Ok(None) => CheckResult::good("ledger", format!("{found} (created now)")),
        _ => CheckResult::good("ledger", found),
    }
}

fn library() -> CheckResult {
    match preload_library() {
        Ok(path) => CheckResult::good("preload library", path.display().to_string()),
        Err(error) => CheckResult::fault(
            "preload library",
            error,
            "run make install; until then new threads are not pinned when they start",
        ),
    }
}

/// Reads the memory policy in force and sets the same policy again, which changes nothing.
fn memory_policies(nodes: usize) -> CheckResult {
    let subject = "memory policy";
    if let Err(errno) = mempolicy::get() {
        return CheckResult::fault(
            subject,
            format!("get_mempolicy is refused ({errno})"),
            "containers block it by default: add --cap-add SYS_NICE, or allow set_mempolicy and get_mempolicy in the seccomp profile",
        );
    }
    let outcome = memory::apply(&MemoryPlan { policy: MemoryPolicy::Local, nodes: Default::default() });
    match outcome.refused.first() {
        Some(refusal) if matches!(refusal.cause, Cause::Filtered | Cause::FilteredOrNoNuma) => {
            CheckResult::fault(
                subject,
                refusal.to_string(),
                "containers block it by default: add --cap-add SYS_NICE, or allow set_mempolicy in the seccomp profile",
            )
        }
        Some(refusal) => CheckResult::note(subject, refusal.to_string()),
        None => CheckResult::good(
            subject,
            format!("can be set; {nodes} NUMA node{}", if nodes == 1 { "" } else { "s" }),
        ),
    }
}

fn balancing(world: &World, nodes: usize) -> CheckResult {
    let subject = "NUMA balancing";
    let path = world.proc().join("sys/kernel/numa_balancing");
    let Ok(text) = std::fs::read_to_string(&path) else {
        return CheckResult::good(subject, "not part of this kernel");
    };
    balancing_in_mode(subject, text.trim(), nodes)
}

/// Judges a mode of NUMA balancing, in agreement with `trimtab counters`: without hardware counters
/// `brm` knows most with it, and programs that nothing places are better off with it.
fn balancing_in_mode(subject: &'static str, mode: &str, nodes: usize) -> CheckResult {
    match (mode, nodes > 1) {
        ("0", false) => CheckResult::good(subject, "off"),
        ("0", true) => CheckResult::note(
            subject,
            format!(
                "off: fine if programs and their memory are placed. Otherwise nothing brings memory to threads, and without hardware counters brm does not see which memory each thread uses ({})",
                Why::BalancingOff
            ),
        ),
        (mode, true) => CheckResult::good(
            subject,
            format!(
                "on (mode {mode}): the kernel moves memory to threads, and brm sees by thread which memory is used; only memory without a policy (numactl, trimtab run --mem) is unmapped for it, which may stall a thread for milliseconds"
            ),
        ),
        (mode, false) => CheckResult::note(subject, format!("on (mode {mode}), without effect on one node")),
    }
}

fn huge_pages(world: &World) -> CheckResult {
    let subject = "huge pages";
    match system_huge_pages(&world.sys()) {
        Ok(Some(SystemHugePages::Always)) => CheckResult::note(
            subject,
            "transparent huge pages are always on: this helps most programs and slows some; try trimtab run --thp off ./app, and put a useful setting into rules.toml",
        ),
        Ok(Some(mode)) => CheckResult::good(
            subject,
            format!("transparent huge pages: {}", format!("{mode:?}").to_lowercase()),
        ),
        Ok(None) => CheckResult::note(subject, "this kernel has no transparent huge pages"),
        Err(error) => CheckResult::note(subject, error.to_string()),
    }
}

/// Checks whether a balancer can read all threads of a large process at once.
fn reading(world: &World) -> CheckResult {
    let subject = "reading threads";
    match TaskIterator::open(&world.root) {
        Ok(_) => {
            CheckResult::good(subject, "a balancer of this user reads those of a large process all at once")
        }
        Err(why) => CheckResult::note(
            subject,
            format!("one by one, so that balancing a hundred threads or more costs more CPU time: {why}"),
        ),
    }
}

fn rules(world: &World) -> CheckResult {
    match trimtab_hold::site::Policy::read(&world.config()) {
        Ok(_) => CheckResult::good("site and rules files", "absent or in order"),
        Err(error) => CheckResult::fault(
            "site and rules files",
            error.to_string(),
            "correct the file, or run with --no-rules",
        ),
    }
}

fn process_hiding(world: &World) -> Option<CheckResult> {
    process::has_hidepid(&world.proc()).then(|| {
        CheckResult::note("/proc", "other users' processes are hidden (hidepid): cores to which they are bound cannot be avoided, busy cores can")
    })
}

/// Finds variables that conflict with a launcher.
fn environment(world: &World) -> Vec<CheckResult> {
    let mut findings = Vec::new();
    for name in ["GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND"] {
        if let Some(value) = world.of_user(name) {
            findings.push(CheckResult::fault(
                "environment",
                format!("{name}={value} is set: it binds OpenMP threads regardless of the cores of a run"),
                format!("unset {name}, and let trimtab run place the threads"),
            ));
        }
    }
    if let Some(value) = world.of_user("LD_PRELOAD") {
        let missing =
            value.split([':', ' ']).filter(|path| path.starts_with('/') && !Path::new(path).exists());
        for path in missing {
            findings.push(CheckResult::fault(
                "environment",
                format!("LD_PRELOAD names {path}, which does not exist"),
                "unset LD_PRELOAD",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numa_balancing_is_judged_as_the_ladder_of_counters_judges_it() {
        let of = |mode, nodes| balancing_in_mode("NUMA balancing", mode, nodes);
        // The ladder asks for it where it is off, so it is no fault where it is on.
        assert!(of("0", 2).found.contains(&Why::BalancingOff.to_string()), "{:?}", of("0", 2));
        for mode in ["1", "2", "3"] {
            assert_eq!(of(mode, 2).verdict, Severity::Good);
            assert_eq!(of(mode, 1).verdict, Severity::Note);
        }
        assert_eq!((of("0", 1).verdict, of("0", 2).verdict), (Severity::Good, Severity::Note));
        assert!([of("0", 2), of("1", 2)].iter().all(|found| found.remedy.is_none()));
    }
}
