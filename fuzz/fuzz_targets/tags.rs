//! What anybody may say to the daemon, and what a guest may say through its port.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_core::tags::{Port, Request};
use trimtab_core::time::Moment;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::parse(bytes) {
        let text = serde_json::to_vec(&request).expect("a request is text");
        assert_eq!(Request::parse(&text), Ok(request));
    }
    let mut port = Port::default();
    let mut heard = 0;
    for (at, part) in bytes.chunks(7).enumerate() {
        heard += port.take(part, Moment(at as u64)).0.len() as u64;
    }
    assert_eq!(heard, port.lines);
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert_eq!(port.lines + port.garbage + port.dropped, lines);
});
