//! Messages of any process to the daemon, answers of any process in the daemon's place, and lines
//! of a guest at its port.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_core::tags::{Port, PortState, Request, Response};
use trimtab_core::time::Moment;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::parse(bytes) {
        let text = serde_json::to_vec(&request).expect("a request is text");
        assert_eq!(Request::parse(&text), Ok(request));
    }
    if let Ok(answer) = serde_json::from_slice::<Response>(bytes) {
        let text = serde_json::to_vec(&answer).expect("an answer is text");
        assert!(serde_json::from_slice::<Response>(&text).is_ok());
    }
    let mut port = Port::default();
    let mut heard = 0;
    for (at, part) in bytes.chunks(7).enumerate() {
        heard += port.take(part, Moment(at as u64)).0.len() as u64;
    }
    assert_eq!(heard, port.lines);
    if port.state == PortState::Open {
        // Each line counts once; a line above the limit counts once for each full length of the
        // limit.
        let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        let last = lines.pop().unwrap_or_default();
        let whole: usize = lines.iter().map(|line| (line.len() / 64).max(1)).sum();
        let times = whole + if last.len() > 64 { last.len() / 64 } else { 0 };
        assert_eq!(port.lines + port.garbage + port.dropped, times as u64);
    }
});
