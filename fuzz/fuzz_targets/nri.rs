//! What a container runtime sends: frames, messages, and what a container gets by them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use trimtab_nri::config::Config;
use trimtab_nri::message::{About, StateChange, Synchronize};
use trimtab_nri::mux::Splitter;
use trimtab_nri::ttrpc::{Assembler, CallRequest};
use trimtab_nri::wanted::{quota, wanted};

fuzz_target!(|bytes: &[u8]| {
    let (mut splitter, mut assembler) = (Splitter::default(), Assembler::default());
    for (_, payload) in splitter.take(bytes).unwrap_or_default() {
        for frame in assembler.take(&payload).unwrap_or_default() {
            let _ = CallRequest::decode(&*frame.payload);
        }
    }
    let _ = Synchronize::decode(bytes);
    let _ = StateChange::decode(bytes);
    if let Ok(About { pod, container }) = About::decode(bytes) {
        let (pod, container) = (pod.unwrap_or_default(), container.unwrap_or_default());
        let _ = quota(&container);
        let _ = wanted(&Config::default(), &pod, &container);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = text.parse::<Config>();
    }
});
