//! Thread attributes have the same effect as without the shim.

mod common;

use common::{HostProgram, HostRun, pinned};

#[test]
fn every_setting_of_an_attribute_reaches_the_thread() {
    let Some(program) = HostProgram::c("attributes.c") else { return };
    let (Some(native), Some(guest)) = (HostRun::native().run(&program), pinned("B/A").run(&program)) else {
        return;
    };
    let (native, guest) = (native.text(), guest.text());
    assert_eq!(native.lines().count(), guest.lines().count());
    for (native, guest) in native.lines().zip(guest.lines()) {
        let Some((facts, mask)) = guest.rsplit_once(" mask ") else {
            assert_eq!(guest, native);
            continue;
        };
        assert_eq!(Some((facts, "AB")), native.rsplit_once(" mask "));
        // The meaning of "nothing set" depends on the creator there, so the thread is left alone.
        let pinned = !facts.starts_with("explicit nothing, creator batch");
        assert_eq!(mask, if pinned { "A" } else { "AB" }, "{facts}");
    }
}

#[test]
fn an_affinity_in_the_attribute_is_left_alone_and_takes_no_slot() {
    let Some(program) = HostProgram::c("affinity.c") else { return };
    let (Some(native), Some(guest)) = (HostRun::native().run(&program), pinned("A/B").run(&program)) else {
        return;
    };
    let (native, guest) = (native.text(), guest.text());
    let all = native.lines().find_map(|line| line.strip_prefix("all there can be: ")).unwrap();
    let all = all.split_whitespace().next().unwrap();
    assert_eq!(
        guest.lines().collect::<Vec<_>>(),
        [
            "a: A next B",
            "b: B next B",
            &format!("all there can be: {all} next B"),
            "taken back: B next A",
            "nowhere: 22",
            "default: B B",
        ]
    );
}
