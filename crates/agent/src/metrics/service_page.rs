//! The state of a service in Prometheus' text format.
//!
//! Tags come and go, and each would remain a series in a database. So only the tags with the most
//! threads have series of their own, and the number of the others is given. The tags of a group are
//! one program and have one series.

use super::page::{Page, label};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use trimtab_core::ids::ProgramId;
use trimtab_core::tags::{Mark, ProgramFigures, Status, TagStatus};
use trimtab_linux::pressure::{self, Pressure};
use trimtab_linux::resctrl::{self, MonitorGroup};

/// Bound of the tags that have series of their own.
pub(super) const TAGS_MAX: usize = 128;

/// A tag, or a group of tags, with its figures.
struct Tagged<'s> {
    labels: String,
    status: &'s TagStatus,
    figures: ProgramFigures,
}

/// Returns the page. `figures` are those of each tag of `status`, in its order.
pub(super) fn text(
    status: &Status,
    figures: &[(ProgramId, Option<ProgramFigures>)],
    findings: &[&str],
    machine: &MachineFigures,
) -> String {
    let mut page = Page::default();
    let version = label(&[("version", env!("CARGO_PKG_VERSION")), ("policy", &status.policy)]);
    page.metric(("info", "gauge", "The version of trimtab and the policy."), [(version, Some(1))]);
    service(&mut page, status);
    of_machine(&mut page, machine);
    let mut kinds: Vec<&str> = findings.to_vec();
    kinds.sort_unstable();
    kinds.dedup();
    page.metric(
        ("finding", "gauge", "Findings of the policy that hold now."),
        kinds.into_iter().map(|finding| (label(&[("finding", finding)]), Some(1))),
    );
    tags(&mut page, status, figures);
    page.0
}

/// Figures of the machine beside those of the service.
#[derive(Clone, Debug, Default)]
pub(crate) struct MachineFigures {
    /// Time that the hypervisor took from its CPUs.
    pub(crate) steal: Option<Duration>,
    pub(crate) pressure: Vec<Pressure>,
    /// Groups that resctrl monitors.
    pub(crate) monitors: Vec<MonitorGroup>,
}

impl MachineFigures {
    /// Reads pressure and monitors.
    pub(crate) fn read(proc: &Path, sys: &Path, steal: Option<Duration>) -> Self {
        let monitors = resctrl::groups(&sys.join("fs/resctrl"), TAGS_MAX);
        Self { steal, pressure: pressure::of_machine(proc), monitors }
    }
}

fn of_machine(page: &mut Page, machine: &MachineFigures) {
    page.metric(
        ("machine_steal_seconds_total", "counter", "Time that the hypervisor took from this machine's CPUs."),
        [(String::new(), machine.steal.map(|steal| steal.as_secs_f64()))],
    );
    let stalls = machine.pressure.iter().flat_map(|one| {
        let of = |which: &str, time: Option<Duration>| {
            let labels = label(&[("resource", one.of.word()), ("tasks", which)]);
            (labels, time.map(|time| time.as_secs_f64()))
        };
        [of("some", Some(one.some)), of("all", one.full)]
    });
    page.metric(
        (
            "machine_pressure_seconds_total",
            "counter",
            "Time in which some or all tasks of this machine waited for a resource.",
        ),
        stalls,
    );
    let caches = || {
        let all = machine.monitors.iter();
        all.flat_map(|group| {
            group.caches.iter().map(move |(cache, monitor)| (group, cache.to_string(), monitor))
        })
    };
    let labels = |group: &MonitorGroup, cache: &str| label(&[("group", &group.name), ("cache", cache)]);
    page.metric(
        ("monitored_cache_bytes", "gauge", "Bytes of a last-level cache that a group of resctrl occupies."),
        caches().map(|(group, cache, of)| (labels(group, &cache), of.occupied.map(|bytes| bytes as f64))),
    );
    let memory = caches().flat_map(|(group, cache, of)| {
        let place = |place: &str, bytes: Option<u64>| {
            let labels = label(&[("group", &group.name), ("cache", &cache), ("place", place)]);
            (labels, bytes.map(|bytes| bytes as f64))
        };
        // The kernel's own counters: their difference, of two reads, might fall.
        [place("near", of.local), place("all", of.total)]
    });
    page.metric(
        (
            "monitored_memory_bytes_total",
            "counter",
            "Bytes that a group of resctrl read from memory, of the cache's node (near) and of all nodes (all).",
        ),
        memory,
    );
}

fn service(page: &mut Page, status: &Status) {
    let (cost, clients) = (&status.cost, &status.clients);
    let figures: [(&str, &str, &str, Option<f64>); 18] = [
        ("service_up_seconds", "gauge", "Time since the start of the service.", Some(status.up.seconds())),
        ("service_observing", "gauge", "1 if no thread is moved.", Some(f64::from(u8::from(status.observe)))),
        ("service_tags", "gauge", "Tags.", Some(status.tags.len() as f64)),
        ("service_threads", "gauge", "Tagged threads.", Some(f64::from(status.threads))),
        ("service_moves_total", "counter", "Moves.", Some(status.moves as f64)),
        ("service_refused_moves_total", "counter", "Moves that were refused.", Some(status.refused as f64)),
        (
            "service_withheld_moves_total",
            "counter",
            "Moves that were not made, since they are only observed.",
            Some(status.withheld as f64),
        ),
        ("service_samples_total", "counter", "Samples taken.", Some(status.looks as f64)),
        ("service_cpu_seconds_total", "counter", "CPU time of the service.", Some(cost.total.seconds())),
        ("service_cost_ratio", "gauge", "Share of a core that the latest samples took.", cost.share),
        ("service_budget_ratio", "gauge", "Share of a core that it may take.", Some(cost.budget)),
        (
            "service_delayed_samples_total",
            "counter",
            "Samples that came later to keep the budget.",
            Some(cost.slowed as f64),
        ),
        ("service_faults", "gauge", "Parts that do not work.", Some(status.faults.len() as f64)),
        ("service_connections", "gauge", "Connections at its socket.", Some(f64::from(clients.now))),
        ("service_requests_total", "counter", "Requests answered.", Some(clients.requests as f64)),
        ("service_refused_requests_total", "counter", "Requests refused.", Some(clients.refused as f64)),
        (
            "service_dropped_connections_total",
            "counter",
            "Connections that were closed: too many, too slow, or not of the protocol.",
            Some(clients.dropped as f64),
        ),
        ("service_guests", "gauge", "Ports of guests.", Some(status.guests.len() as f64)),
    ];
    for (name, kind, help, value) in figures {
        page.metric((name, kind, help), [(String::new(), value)]);
    }
}

fn tags(page: &mut Page, status: &Status, figures: &[(ProgramId, Option<ProgramFigures>)]) {
    let mut programs = BTreeSet::new();
    let all = status.tags.iter().zip(figures);
    let all = all.filter(|(tag, (program, _))| tag.group.is_none() || programs.insert(*program));
    let mut all: Vec<Tagged<'_>> = all
        .map(|(status, (_, figures))| Tagged {
            labels: labels(status),
            status,
            figures: figures.clone().unwrap_or_default(),
        })
        .collect();
    all.sort_by(|one, other| {
        other.figures.threads.cmp(&one.figures.threads).then_with(|| one.labels.cmp(&other.labels))
    });
    // Two tags of one thing by the same requester differ in their group, so this is a safeguard.
    let mut known = BTreeSet::new();
    all.retain(|tag| known.insert(tag.labels.clone()));
    let omitted = all.len().saturating_sub(TAGS_MAX);
    all.truncate(TAGS_MAX);
    page.metric(
        ("tags_omitted", "gauge", "Tags that have no series of their own."),
        [(String::new(), Some(omitted))],
    );
    type FigureOf = fn(&ProgramFigures) -> Option<f64>;
    let figures: [(&str, &str, &str, FigureOf); 8] = [
        ("tag_threads", "gauge", "Living threads.", |of| Some(f64::from(of.threads))),
        ("tag_active_threads", "gauge", "Threads that wanted a CPU lately.", |of| Some(f64::from(of.active))),
        ("tag_run_seconds_total", "counter", "Time on CPUs.", |of| Some(of.run.seconds())),
        (
            "tag_wait_seconds_total",
            "counter",
            "Time ready without a CPU; for virtual CPUs, the steal time of the guest.",
            |of| of.wait.map(|wait| wait.seconds()),
        ),
        ("tag_penalty_cycles", "gauge", "Uncore penalty: busy cycles per request.", |of| of.penalty),
        ("tag_moves_total", "counter", "Moves.", |of| Some(of.moves as f64)),
        ("tag_refused_moves_total", "counter", "Moves that were refused.", |of| Some(of.refused as f64)),
        (
            "tag_withheld_moves_total",
            "counter",
            "Moves that were not made, since they are only observed.",
            |of| Some(of.withheld as f64),
        ),
    ];
    for (name, kind, help, figure) in figures {
        page.metric((name, kind, help), all.iter().map(|tag| (tag.labels.clone(), figure(&tag.figures))));
    }
    let memory = all.iter().flat_map(|tag| {
        let share = |place: &str, share: Option<f64>| (format!("{},place=\"{place}\"", tag.labels), share);
        [share("near", tag.figures.far.map(|far| 1.0 - far)), share("far", tag.figures.far)]
    });
    page.metric(
        (
            "tag_memory_ratio",
            "gauge",
            "Share of memory on the node of the threads (near) and on others (far).",
        ),
        memory,
    );
    page.metric(
        ("tag_fault", "gauge", "1 if the tag has no effect."),
        all.iter().map(|tag| (tag.labels.clone(), Some(u8::from(tag.status.fault.is_some())))),
    );
}

/// Returns the labels of a tag: the tagged object, and its requester.
fn labels(tag: &TagStatus) -> String {
    let by = tag.by.to_string();
    let group = tag.group.as_deref();
    let (kind, name) = match (&tag.mark, group) {
        (_, Some(group)) => ("group", group.to_owned()),
        (Mark::Process { pid, .. }, _) => ("process", pid.to_string()),
        (Mark::Thread { pid, tid, .. }, _) => ("thread", format!("{pid}:{tid}")),
        (Mark::Cgroup(path), _) => ("cgroup", path.clone()),
        (Mark::Vm { name, .. }, _) => ("vm", name.clone()),
        (Mark::Vcpu { vm, index, .. }, _) => ("vcpu", format!("{vm}:{index}")),
    };
    label(&[("kind", kind), ("name", &name), ("by", &by)])
}
