//! Machine in a scenario file: its name, or a base with the keys that differ, or all of it.

use super::{number, quoted};
use crate::model::{Model, shipped};
use crate::reader::{Section, Text};
use crate::scenario::file::ReadContext;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Returns the shortest text that is read as this machine: a key of the file, or a section.
pub(super) fn written(model: &Model) -> Option<String> {
    let named = [model.machine.name(), &model.topology];
    let words = named.map(|word| format!("machine = {}\n", quoted(word)));
    let based = named.map(|word| differing(model, word).unwrap_or_default());
    let texts = words.into_iter().chain(based).chain([whole(model)]);
    texts.into_iter().find(|text| is(text, model))
}

/// Returns whether a text is read as this machine.
fn is(text: &str, model: &Model) -> bool {
    let text = Text { file: "written", text };
    let Ok(table) = text.table() else { return false };
    let mut reading =
        ReadContext { file: "written", said: &|error| error, machines: &mut |_| Err(String::new()) };
    reading.machine(&Section::top(text, table.get_ref())).is_ok_and(|read| read == *model)
}

/// Returns the machine as another one with the keys that differ.
fn differing(model: &Model, base: &str) -> Option<String> {
    let found = match shipped::find(base) {
        Some(found) => found.ok()?,
        None => Model::plain(trimtab_core::topology::parse_synthetic(base).ok()?),
    };
    let known = keys(&found);
    let mut text = format!("\n[machine]\nbase = {}\n", quoted(base));
    if model.machine.name() != found.machine.name() {
        let _ = writeln!(text, "name = {}", quoted(model.machine.name()));
    }
    for (key, value) in keys(model) {
        if known.get(&key) != Some(&value) {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    Some(text.trim_start().to_owned())
}

/// Returns the machine with all keys of a machine file.
fn whole(model: &Model) -> String {
    let mut text = format!(
        "[machine]\nname = {}\ntopology = {}\n",
        quoted(model.machine.name()),
        quoted(&model.topology)
    );
    let nodes = model.machine.nodes().len();
    let distances = &model.machine.parts().distances;
    if !distances.is_empty() {
        let rows: Vec<String> = distances.chunks(nodes.max(1)).map(|row| format!("{row:?}")).collect();
        let _ = writeln!(text, "distances = [{}]", rows.join(", "));
    }
    for (key, value) in keys(model) {
        let _ = writeln!(text, "{key} = {value}");
    }
    if !model.sources.is_empty() {
        text.push_str("\n[machine.source]\n");
        for (key, source) in &model.sources {
            let _ = writeln!(text, "{} = {}", quoted(key), quoted(source));
        }
    }
    text
}

/// Returns the numbers of a machine, by key.
fn keys(model: &Model) -> BTreeMap<String, String> {
    let list = |values: &[f64]| {
        let values: Vec<String> = values.iter().map(|&value| number(value)).collect();
        format!("[{}]", values.join(", "))
    };
    let speeds = match &model.speeds[..] {
        [first, rest @ ..] if rest.iter().all(|speed| speed == first) => number(*first),
        speeds => list(speeds),
    };
    let (caches, memory, switching) = (&model.caches, &model.memory, &model.switching);
    let mut keys = BTreeMap::from(
        [
            ("cores.speed", speeds),
            ("cores.smt", list(&model.smt.throughput)),
            ("cores.turbo", list(&model.turbo.factors)),
            ("caches.private", caches.private_bytes.to_string()),
            ("caches.shared", caches.shared_bytes.to_string()),
            ("caches.shared_ns", number(caches.shared_ns)),
            ("caches.transfer_ns", number(caches.transfer_ns)),
            ("caches.far_transfer_ns", number(caches.far_transfer_ns)),
            ("memory.local_ns", number(memory.local_ns)),
            ("memory.per_distance_ns", number(memory.per_distance_ns)),
            ("memory.node_gbs", number(memory.node_bandwidth)),
            ("memory.core_gbs", number(memory.core_bandwidth)),
            ("memory.page", memory.page_bytes.to_string()),
            ("switching.switch_ns", switching.switch.0.to_string()),
            ("switching.migrate_ns", switching.migrate.0.to_string()),
            ("switching.wake_ns", switching.wake.0.to_string()),
            ("switching.yield_ns", switching.yielding.0.to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    // A missing number is infinite.
    let optional = [
        ("memory.link_gbs", Some(memory.link_bandwidth).filter(|bandwidth| bandwidth.is_finite())),
        ("memory.port_gbs", memory.port_bandwidth),
        ("memory.bus_gbs", memory.bus_bandwidth),
    ];
    keys.extend(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), number(value?)))));
    keys
}
