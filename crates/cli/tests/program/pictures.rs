//! `trimtab topo`: text, SVG, JSON.

use crate::util::{Sandbox, need, python, two};
use serde_json::Value;

const SERVER: &str = "pack:2 numa:2 l3:2 core:4 pu:2";

#[test]
fn the_machine_is_drawn_as_text() {
    let sandbox = Sandbox::new();
    let live = sandbox.trimtab("topo").ends().ok();
    assert!(live.contains("node 0") && live.contains("cpus 0"), "{live}");
    insta::assert_snapshot!("a_machine", sandbox.trimtab("topo --machine").arg(SERVER).ends().ok(), SERVER);
}

#[test]
fn the_drawing_fits_a_page_and_a_wide_machine_too() {
    let sandbox = Sandbox::new();
    for machine in [SERVER, "pack:8 numa:1 l3:8 core:16 pu:2", "core:500", "pack:64 core:2"] {
        let drawn = sandbox.trimtab("topo --survey none --machine").arg(machine).ends().ok();
        for line in drawn.lines().skip(2) {
            assert!(line.chars().count() <= 80, "{machine}: {line}");
        }
    }
}

#[test]
fn the_machine_is_drawn_as_svg() {
    let sandbox = Sandbox::new();
    let _held = sandbox.hold("-c 1");
    let printed = sandbox.trimtab("topo --survey none --svg -").ends().ok();
    assert!(printed.starts_with("<svg ") && printed.ends_with("</svg>"), "{printed}");
    let file = sandbox.path("machine.svg");
    assert_eq!(sandbox.trimtab("topo --survey none --svg").arg(&file).ends().ok(), "");
    assert_eq!(crate::util::text(&file).trim_end(), printed);
    sandbox.trimtab("topo --svg /no/such/folder.svg").ends().fails(2, &["cannot write /no/such/folder.svg"]);
    assert_eq!(sandbox.trimtab("topo --svg - --json").ends().code, Some(2));
    need!(python(), "Python is not installed: the SVG is not parsed");
    let big = sandbox.path("big.svg");
    sandbox
        .trimtab("topo --machine")
        .arg("pack:4 numa:2 l3:4 core:8 pu:2")
        .arg("--svg")
        .arg(&big)
        .ends()
        .ok();
    for picture in [&file, &big] {
        let script = "import sys, xml.dom.minidom as m; print(m.parse(sys.argv[1]).documentElement.tagName)";
        let said =
            std::process::Command::new(python().unwrap()).args(["-c", script]).arg(picture).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&said.stdout),
            "svg\n",
            "{}",
            String::from_utf8_lossy(&said.stderr)
        );
    }
}

#[test]
fn the_machine_is_written_as_json() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold(&format!("--cpus {a}"));
    let text = sandbox.trimtab("topo --survey none --json").ends().ok();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["schema"], "trimtab.topo/1");
    assert_eq!(document["taken"]["held"], a.to_string(), "{text}");
    let allowed = crate::util::cpus(document["taken"]["allowed"].as_str().unwrap());
    assert_eq!(allowed, [a, b].into(), "{text}");
    assert!(document["machine"].is_object() && document["summary"].is_string(), "{text}");
}

#[test]
fn marks_are_explained() {
    let [a, _] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let _held = sandbox.hold(&format!("--cpus {a}"));
    let drawn = sandbox.trimtab("topo --survey none").ends().ok();
    assert!(drawn.contains("H held"), "{drawn}");
}
