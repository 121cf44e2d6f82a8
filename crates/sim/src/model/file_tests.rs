//! Tests of allowed machine files, and of how others are refused.

use super::file::{KEYS, read};
use super::shipped::{SHIPPED, find};
use proptest::prelude::*;
use trimtab_core::ids::NodeId;

const GOOD: &str = r#"name = "two"
topology = "pack:2 numa:1 l3:1 core:2 pu:2"
distance = 20
[cores]
speed = [1.0, 1.0, 0.5, 0.5]
smt = [1.0, 1.25]
turbo = [1.2, 1.0]
[caches]
private = "256K"
shared = "8M"
shared_ns = 15
transfer_ns = 30
far_transfer_ns = 50
[memory]
local_ns = 80
per_distance_ns = 4
node_gbs = 20
link_gbs = 10
core_gbs = 8
page = "4K"
[switching]
switch_ns = 2000
migrate_ns = 4000
wake_ns = 5000
yield_ns = 500
[source]
memory.local_ns = "a ruler"
"#;

/// Returns the error of a file with one line replaced, or added at the end of its section.
fn refused(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old}");
    read("m.toml", &GOOD.replacen(old, new, 1)).map(|model| format!("{model:?}")).unwrap_err().to_string()
}

#[test]
fn a_good_file_is_read_with_its_values() {
    let model = read("m.toml", GOOD).unwrap();
    assert_eq!(model.machine.name(), "two");
    assert_eq!(model.machine.distance(NodeId(0), NodeId(1)), 20);
    assert_eq!(model.speeds, [1.0, 1.0, 0.5, 0.5]);
    assert_eq!(model.caches.shared_bytes, 8 << 20);
    assert_eq!(model.memory.port_bandwidth, None);
    assert_eq!(model.switching.wake.0, 5000);
    assert_eq!(model.sources["memory.local_ns"], "a ruler");
    let boards = GOOD.replace("topology = \"pack:2 numa:1", "topology = \"group:2 pack:2 numa:1");
    let boards =
        boards.replace("distance = 20", "distance = [20, 250]").replace("speed = [1.0, 1.0, 0.5, 0.5]", "");
    let model = read("m.toml", &boards).unwrap();
    let row: Vec<u32> = (0..4).map(|to| model.machine.distance(NodeId(0), NodeId(to))).collect();
    assert_eq!(row, [10, 20, 250, 250]);
}

#[test]
fn absurd_values_are_refused_by_name_and_with_the_allowed_range() {
    for (old, new, expected) in [
        (
            "core:2 pu:2",
            "core:0 pu:2",
            "m.toml:2: topology = \"pack:2 numa:1 l3:1 core:0 pu:2\": \"0\" is not a count of at least 1",
        ),
        ("core:2 pu:2", "core:1000000000 pu:2", "more than 65536 hardware threads"),
        (
            "local_ns = 80",
            "local_ns = -3",
            "m.toml:15: memory.local_ns = -3: nanoseconds from 0.1 to 10000000 are allowed",
        ),
        ("local_ns = 80", "local_ns = nan", "memory.local_ns = nan: nanoseconds from"),
        ("local_ns = 80", "local_ns = inf", "memory.local_ns = inf: nanoseconds from"),
        ("local_ns = 80", "local_ns = \"80\"", "memory.local_ns = \"80\": nanoseconds from"),
        ("local_ns = 80", "", "m.toml:14: memory.local_ns: is missing: nanoseconds from"),
        (
            "local_ns = 80",
            "local_ns = 80\nlocale_ns = 80",
            "m.toml:16: memory.locale_ns = 80: is unknown here; known are bus_gbs, core_gbs",
        ),
        ("link_gbs = 10", "", "memory.link_gbs: is missing, and the topology has 2 nodes"),
        ("core_gbs = 8", "core_gbs = 21", "memory.core_gbs = 21: contradicts node_gbs = 20"),
        ("distance = 20", "distance = 9", "distance = 9: distances from 10 to 255 are allowed"),
        ("distance = 20", "distance = 20\ndistances = [[10, 20], [20, 10]]", "contradicts distance"),
        ("distance = 20", "distances = [[10, 20]]", "rows of 2 distances are allowed"),
        ("distance = 20", "distances = [[10, 20], [20, 11]]", "only 10 is allowed"),
        ("distance = 20", "distances = 3", "a list of rows is allowed"),
        ("distance = 20", "distance = [30, 20]", "one number is allowed, or two that rise"),
        ("speed = [1.0, 1.0, 0.5, 0.5]", "speed = [1.0, 2.0, 3.0]", "3 speeds for 4 cores"),
        (
            "speed = [1.0, 1.0, 0.5, 0.5]",
            "speed = 0",
            "cores.speed = 0: factors from 0.001 to 1000 are allowed",
        ),
        ("smt = [1.0, 1.25]", "smt = [1.0, 1.25, 1.3]", "cores have 2 hardware threads"),
        ("smt = [1.0, 1.25]", "smt = [1.0, 2.5]", "none is faster than alone"),
        ("smt = [1.0, 1.25]", "smt = []", "1 to 2 factors"),
        ("turbo = [1.2, 1.0]", "turbo = [1.0, 1.2]", "rises with busy cores"),
        ("private = \"256K\"", "private = \"lots\"", "caches.private = \"lots\": bytes up to"),
        ("private = \"256K\"", "private = -1", "caches.private = -1: bytes up to"),
        ("far_transfer_ns = 50", "far_transfer_ns = 5", "a far line would come sooner than a near one"),
        ("page = \"4K\"", "page = \"5K\"", "powers of two from 512"),
        ("wake_ns = 5000", "wake_ns = 1e300", "switching.wake_ns = 1e300: nanoseconds from 0 to 1000000000"),
        (
            "memory.local_ns = \"a ruler\"",
            "memory.lcoal_ns = \"a ruler\"",
            "memory.lcoal_ns: is not a key of a machine",
        ),
        ("memory.local_ns = \"a ruler\"", "memory.local_ns = 3", "text in quotes is allowed"),
        ("[switching]", "[switchboard]", "the section [switching] is missing"),
        ("[caches]", "caches = 3\n[cache]", "cores.caches = 3: is unknown here; known are smt, speed, turbo"),
        ("name = \"two\"", "name = 2", "name = 2: text in quotes is allowed"),
        ("name = \"two\"", "name = ", "m.toml:1: "),
    ] {
        let message = refused(old, new);
        assert!(message.contains(expected), "{new}: {message}");
    }
}

#[test]
fn limits_hold_for_large_values() {
    let nodes = GOOD
        .replace("pack:2 numa:1 l3:1 core:2 pu:2", "numa:4096 core:1")
        .replace("speed = [1.0, 1.0, 0.5, 0.5]", "")
        .replace(", 1.25", "");
    let message = read("m.toml", &nodes).unwrap_err().to_string();
    assert!(message.contains("4096 nodes; up to 1024"), "{message}");
    let long = format!("{GOOD}#{}", "x".repeat(5 << 20));
    assert!(read("m.toml", &long).unwrap_err().to_string().contains("more than the"));
    let deep = format!("{GOOD}a.b.c.d.e.f.g = \"x\"\n");
    assert!(read("m.toml", &deep).is_err());
    let value = format!("name = \"{}\"\n", "n".repeat(1000));
    assert!(read("m.toml", &value).unwrap_err().to_string().len() < 300);
}

#[test]
fn every_key_that_may_have_a_source_is_read() {
    // A source for a key that no file has would never be noticed.
    let all: Vec<String> =
        SHIPPED.iter().flat_map(|shipped| shipped.model().unwrap().sources.into_keys()).collect();
    for key in KEYS.iter().filter(|&&key| key != "distances") {
        assert!(all.iter().any(|known| known == key), "{key}");
    }
    assert!(find("host-2").is_some());
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(at in 0..GOOD.len(), cut in 0..40usize, put in "[-0-9a-zA-Z\\[\\]{}\".=\\n ]{0,12}") {
        let end = (at + cut).min(GOOD.len());
        let text = format!("{}{put}{}", &GOOD[..at], &GOOD[end..]);
        if let Err(error) = read("m.toml", &text) {
            prop_assert!(error.line >= 1 && !error.problem.is_empty());
            prop_assert!(error.to_string().starts_with("m.toml:"));
        }
    }
}
