//! Traces: every accepted trace is played, folded into columns and written again.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_core::telemetry::account::{Keep, Playback, Timeline};
use trimtab_core::trace::{Line, Trace};

fuzz_target!(|text: &str| {
    // The header alone is long; the fuzzed lines after it are those that programs and balancers
    // produce.
    let header = concat!(
        r#"{"header":{"trimtab-trace":1,"policy":"float","settings":{"seed":0,"interval":100,"metric":"run-wait","#,
        r#""threshold":0.9,"across_nodes":false},"command":"x","usable":"0-3","machine":{"name":"m","cpu":{"vendor":null,"#,
        r#""family":null,"model":null},"pus":[0,1,2,3],"domains":[],"nodes":[],"distances":[],"kinds":[],"devices":[],"#,
        r#""offline":"","allowed":null}}}"#,
    );
    for text in [text.to_owned(), format!("{header}\n{text}")] {
        let Ok(trace) = Trace::parse(&text) else { continue };
        for step in &trace.steps {
            let line = Line::Step(Box::new(step.clone())).encode();
            assert!(Line::decode(&line).is_ok(), "what is written is read: {line}");
        }
        let mut playback = Playback::new(&trace.header, Keep::default());
        for step in &trace.steps {
            playback.step(step, &mut |_, account| {
                for thread in account.threads() {
                    assert!(thread.speed.is_none_or(|speed| (0.0..=1.0).contains(&speed)));
                }
                for program in account.programs() {
                    assert!(program.expected.is_none_or(|share| (0.0..=1.0).contains(&share)));
                    assert!(program.balance.is_none_or(|share| (0.0..=1.0).contains(&share)));
                }
            });
        }
        let timeline = Timeline::of(&trace, 7, 5, 3);
        assert!(timeline.lanes.iter().all(|lane| lane.cells.len() + 1 == timeline.edges.len()));
    }
});
