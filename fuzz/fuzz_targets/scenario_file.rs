//! Scenario files of the simulator: the scenarios of every accepted file can be written, and read
//! again with equal contents.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_sim::scenario::file::{File, write};

fuzz_target!(|text: &str| {
    // The text after a zero byte is set from outside.
    let (text, set) = text.split_once('\0').unwrap_or((text, ""));
    let set: Vec<String> = set.lines().map(str::to_owned).collect();
    // The required keys, so that not all inputs fail without them.
    let head = "machine = 'core:2'\nkernel = 'linux-6.12'\nend = '1 s'\n";
    let program = "[[program]]\nthreads = 3\nwork = '10 ms'\n";
    for text in [text.to_owned(), format!("{head}{text}"), format!("{head}{program}{text}")] {
        let Ok(file) = File::open("fuzzed.toml", &text, &set, &mut |_| Err("no other file".to_owned())) else {
            continue;
        };
        for run in [0, file.len() - 1] {
            let Ok(scenario) = file.scenario(run) else { panic!("run {run} was checked") };
            // A file cannot give a machine without a description.
            let written = write(&scenario).unwrap_or_else(|error| panic!("{error}"));
            let Ok(again) = File::open("written.toml", &written, &[], &mut |_| Err(String::new())) else {
                panic!("what is written is read")
            };
            assert!(again.scenario(0).is_ok_and(|again| again == scenario), "{written}");
        }
    }
});
