//! Page of a profile: the measured values, in words and numbers, and the values that are missing.

use super::sheet::{Section, Sheet, SheetCell, Table};
use super::strip_plot::{Strip, StripRow};
use trimtab_cli::profile;
use trimtab_core::profile::Profile;
use trimtab_core::time::Span;
use trimtab_core::words::plural;
use trimtab_front::units::percent_apart;

/// Builds the page.
pub(super) fn sheet(profile: &Profile) -> Sheet {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![
        fact("took", format!("{:.3} s", profile.wall.seconds())),
        fact("cores", profile.cores.to_string()),
        fact("CPUs", profile.cpus.to_string()),
        fact("threads that worked", profile.workers.to_string()),
        fact("setting", profile.setting.to_string()),
    ];
    facts.extend(profile.wait.iter().map(|wait| fact("waiting", wait.clone())));
    let words = profile::in_words(profile);
    let lines = words.lines().map(|line| line.trim_start_matches("profile: ").to_owned());
    let mut sections = vec![Section {
        title: "In words".to_owned(),
        lines: lines.filter(|line| !line.starts_with("not seen: ")).collect(),
        ..Section::default()
    }];
    sections.extend(intervals(profile));
    sections.push(figures(profile));
    if !profile.unseen.is_empty() {
        sections.push(Section {
            title: "Not seen".to_owned(),
            words: "These values are unknown, not zero.".to_owned(),
            lines: profile.unseen.iter().map(|what| format!("not seen: {what}")).collect(),
            ..Section::default()
        });
    }
    Sheet {
        title: profile.program.clone(),
        about: "One monitored run: synchronisation, CPU and memory behaviour.".to_owned(),
        facts,
        warnings: Vec::new(),
        sections,
    }
}

/// Returns the picture of the intervals between synchronisations of threads.
fn intervals(profile: &Profile) -> Option<Section> {
    let meet = profile.intervals?;
    let us = |span: Span| span.seconds() * 1e6;
    let row = |name: &str, values: Vec<f64>, middle: f64| StripRow {
        name: name.to_owned(),
        values,
        middle: Some(middle),
        ..StripRow::default()
    };
    let bar = Some((us(meet.tenth), us(meet.ninetieth)));
    let rows = vec![
        StripRow {
            bar,
            ..row("tenth, median, ninetieth", vec![us(meet.tenth), us(meet.ninetieth)], us(meet.median))
        },
        row("mean", Vec::new(), us(meet.mean)),
    ];
    Some(Section {
        title: "Intervals between synchronisations of all threads".to_owned(),
        words: format!(
            "{}. The shorter they are, the more a delay of one thread costs.",
            plural(meet.count, "interval")
        ),
        strip: Some(Strip { of: "microseconds".to_owned(), rows, ..Strip::default() }),
        ..Section::default()
    })
}

fn figures(profile: &Profile) -> Section {
    let mut rows: Vec<Vec<SheetCell>> = Vec::new();
    let mut add = |name: &str, found: Option<SheetCell>, says: &str| {
        rows.push(vec![name.into(), found.unwrap_or_else(|| "not seen".into()), says.into()]);
    };
    let share = |share: Option<f64>| share.map(|share| SheetCell::number(share, percent_apart(share, 1)));
    let whole =
        |number: Option<u64>| number.map(|number| SheetCell::number(number as f64, number.to_string()));
    let seconds = |span: Span| Some(SheetCell::number(span.seconds(), format!("{:.3} s", span.seconds())));
    add("CPU time in the program", seconds(profile.user), "all threads together");
    add(
        "CPU time in the kernel",
        seconds(profile.system),
        "a high value: page faults, sleeping and waking, files",
    );
    add(
        "waiting at barriers",
        share(profile.waiting),
        "of the parallel time: upper bound of the gain from better balance",
    );
    add(
        "balance",
        profile.balance.map(|balance| SheetCell::number(balance, format!("{balance:.2}"))),
        "lowest/highest CPU time of its cores; spinning counts as work",
    );
    add(
        "runnable, not running",
        share(profile.kept_waiting),
        "of the runnable time: other programs used its CPUs, or it has more threads than CPUs",
    );
    add(
        "cache misses per 1,000 instructions",
        profile.misses_per_kilo.map(|misses| SheetCell::number(misses, format!("{misses:.2}"))),
        "a high value: memory and its location limit the speed",
    );
    add("memory in huge pages", share(profile.huge_share), "if low with much memory: try --thp on");
    add("memory on other nodes", share(profile.remote_share), "try --mem local, or --balance=brm");
    add("peak memory", whole(profile.resident), "bytes");
    add("working set", whole(profile.working_set), "bytes used while working, estimated");
    add("page faults", whole(profile.faults), "without device access");
    add(
        "voluntary switches",
        whole(profile.switches.map(|(own, _)| own)),
        "it slept: lock, barrier or device",
    );
    add(
        "involuntary switches",
        whole(profile.switches.map(|(_, forced)| forced)),
        "another task got its CPU",
    );
    add("yields", whole(profile.yields), "calls of sched_yield");
    add("measuring overhead", share(profile.overhead), "of the program's time");
    Section {
        title: "Figures".to_owned(),
        table: Some(Table { columns: ["WHAT", "MEASURED", "SAYS"].map(str::to_owned).to_vec(), rows }),
        ..Section::default()
    }
}
