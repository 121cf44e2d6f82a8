//! Tests of keys that are set and swept: which value replaces which, refusals, and the writing of
//! names.

use super::tests::{SMALL, one, open, refused};
use super::*;
use proptest::prelude::*;

const VARIANTS: &str = "variant = [\n { name = 'LOAD', kernel = 'linux-2.6.28' },\n \
    { name = 'SPEED', policy = { kind = 'speed', interval = '20 ms' }, program.app.wait = 'sleep' } ]\n";

fn swept(lines: &str) -> String {
    format!("{SMALL}[sweep]\n{lines}")
}

#[test]
fn a_key_that_a_variant_sets_is_not_overridden_silently() {
    let text = swept(VARIANTS);
    for (set, key) in [
        ("policy=auto", "policy"),
        ("policy.kind=auto", "policy"),
        ("policy.interval=10 ms", "policy"),
        ("program.1.wait=spin", "program.app.wait"),
        ("program.app={ wait = 'spin' }", "program.app.wait"),
        ("policy=['auto', 'none']", "policy"),
    ] {
        refused(&text, &[set], &[key, "the variant SPEED"]);
    }
    refused(
        &text,
        &["kernel=linux-6.1"],
        &["--set kernel=linux-6.1: kernel: the variant LOAD", "variant=NAME", "(line 9)"],
    );
    // If the kept variants leave the key alone, it is set; so is another key of the same section.
    let kept = one(&text, &["policy=auto", "variant=LOAD"]);
    assert!(kept.policy.is_some());
    let both =
        open(&text, &["program.app.threads=5", "kernel.slice=2 ms", "policy.threshold=0.5", "variant=SPEED"])
            .unwrap();
    let speed = both.scenario(0).unwrap();
    assert_eq!((speed.programs[0].threads, speed.kernel.slice), (5, Span::from_ms(2)));
    assert_eq!(speed.policy.unwrap().1.threshold, 0.5);
}

#[test]
fn a_setting_takes_the_place_of_the_sweep_of_its_key_and_of_no_part_of_it() {
    let text =
        swept("program.app.threads = [1, 2]\npolicy = ['none', { kind = 'speed', interval = '20 ms' }]\n");
    // This holds for each name of the program.
    let file = open(&text, &["program.1.threads=7", "policy=none"]).unwrap();
    assert_eq!((file.len(), file.scenario(0).unwrap().programs[0].threads), (1, 7));
    let file = open(&text, &["program.1.threads=[7, 8, 9]", "policy=none"]).unwrap();
    assert_eq!(file.len(), 3);
    let part = [
        "--set policy.interval=10 ms: policy.interval: the sweep of policy",
        "--set policy=VALUE",
        "(line 10)",
    ];
    refused(&text, &["policy.interval=10 ms"], &part);
    refused(&text, &["program.1={ threads = 3 }"], &["the sweep of program.app.threads", "(line 9)"]);
    // Of a key that is set twice, the last value counts, as always; no part of it is lost silently.
    assert_eq!(one(SMALL, &["program.app.threads=[1, 2]", "program.1.threads=5"]).programs[0].threads, 5);
    assert_eq!(open(SMALL, &["program.app.threads=5", "program.1.threads=[1, 2]"]).unwrap().len(), 2);
    refused(
        SMALL,
        &["policy=speed", "policy.kind=['auto', 'none']"],
        &["--set policy=speed: policy: the sweep of policy.kind"],
    );
}

#[test]
fn a_key_is_swept_once() {
    let twice = |lines: &str, words: &[&str]| refused(&swept(lines), &[], words);
    twice(
        "program.app.threads = [1, 2]\nprogram.1.threads = [3, 4]\n",
        &["x.toml:10: program.1.threads: the sweep of program.app.threads gives it too", "(line 9)"],
    );
    twice("program.app = [{ threads = 1 }]\nprogram.1.threads = [3]\n", &["x.toml:10", "(line 9)"]);
    twice("policy = ['none']\n'policy.kind' = ['speed']\n", &["x.toml:10: policy.kind: the sweep of policy"]);
    twice(
        &format!("{VARIANTS}policy = ['none']\n"),
        &["x.toml:12: policy: the variant SPEED gives it too", "(line 9)"],
    );
    twice(
        &format!("{VARIANTS}'policy.interval' = ['1 s']\n"),
        &["x.toml:12: policy.interval: the variant SPEED gives it too: one"],
    );
    twice(
        &format!("program.1.wait = ['spin']\n{VARIANTS}"),
        &["x.toml:10: program.app.wait", "program.1.wait", "(line 9)"],
    );
    twice(
        "variant = [{ name = 'x', program.app.threads = 1, 'program.1.threads' = 2 }]\n",
        &["x.toml:9: sweep.variant: the variant x", "which are one key"],
    );
    // Other keys of one section are no conflict.
    let fine = swept(
        "policy = ['speed', 'none']\n'policy.interval' = ['10 ms', '20 ms']\nprogram.1.wait = ['spin']\n",
    );
    assert_eq!(open(&fine, &[]).unwrap().len(), 4);
}

#[test]
fn names_differ() {
    let program = |name: &str| format!("[[program]]\n{name}threads = 1\nwork = '1 ms'\n");
    let two = |name: &str| format!("{SMALL}{}", program(name));
    refused(&two("name = 'app'\n"), &[], &["x.toml:9: program.app.name = 'app'", "program 1 at line 4"]);
    // Copies have names of their own.
    let copies = SMALL.replace("threads = 3", "threads = 3\ncount = 2");
    refused(&format!("{copies}{}", program("name = 'app 2'\n")), &[], &["program 1 at line 4", "\"app 2\""]);
    assert_eq!(one(&format!("{copies}{}", program("name = 'app'\n")), &[]).programs[2].name, "app");
    // The meaning of a key is not guessed while the names are read either.
    refused(&two("name = 'app'\n"), &["program.app.threads=2"], &["program 1 and 2 are both called app"]);
    refused(&two("name = '1'\n"), &["program.1.threads=2"], &["program 2 is called 1", "rename it"]);
    assert_eq!(one(&two("name = '2'\n"), &["program.2.threads=2"]).programs[1].threads, 2);
    // Default names avoid given ones.
    let like = "profile = 'cg'\nthreads = 1\n[[program]]\n";
    let text = SMALL.replace("name = 'app'\n", &format!("{like}{like}name = 'cg 2'\n"));
    let names: Vec<String> = one(&text, &[]).programs.into_iter().map(|program| program.name).collect();
    assert_eq!(names, ["cg", "cg 3", "cg 2"]);
    let stream =
        |name: &str| format!("[[arrivals]]\n{name}every = '1 ms'\nmost = 1\nthreads = 1\nwork = '1 ms'\n");
    let streams = one(&format!("{SMALL}{}{}", stream(""), stream("")), &[]).arrivals;
    assert_eq!((&*streams[0].program.name, &*streams[1].program.name), ("job", "job 2"));
    let named = format!("{SMALL}{0}{0}", stream("name = 'j'\n"));
    refused(&named, &[], &["x.toml:15: arrivals.j.name", "arrivals 1 at line 8"]);
    refused(
        &swept("variant = [{ name = 'x', seed = 1 }, { name = 'x', seed = 2 }]\n"),
        &[],
        &["x.toml:9", "two variants are called \"x\""],
    );
    refused(&swept("variant = [{ name = '', seed = 1 }]\n"), &[], &["tables with a name"]);
    refused(&swept(VARIANTS), &["variant=['LOAD', 'LOAD']"], &["\"LOAD\" is listed twice"]);
    refused(SMALL, &["variant=LOAD"], &["--set variant=LOAD: variant", "no variants"]);
}

#[test]
fn names_with_dots_are_written_in_quotes() {
    let dotted = SMALL.replace("'app'", "'a.b=c'");
    let set = r#"program."a.b=c".threads"#;
    assert_eq!(one(&dotted, &[&format!("{set}=5")]).programs[0].threads, 5);
    assert_eq!(one(&dotted, &["program.'a.b=c'.threads = 6"]).programs[0].threads, 6);
    for lines in [
        format!("[sweep]\n{set} = [1, 2]\n"),
        "[sweep.program.'a.b=c']\nthreads = [1, 2]\n".to_owned(),
        format!("[sweep]\n'{set}' = [1, 2]\n"),
    ] {
        let file = open(&format!("{dotted}{lines}"), &[]).unwrap_or_else(|error| panic!("{lines}: {error}"));
        assert_eq!((file.axes()[0].key.as_str(), file.len()), (set, 2));
        assert_eq!(file.scenario(1).unwrap().programs[0].threads, 2);
    }
    let variant = format!(
        "{dotted}[sweep]\nvariant = [{{ name = 'x', {set} = 4, '{}' = 'spin' }}]\n",
        set.replace("threads", "wait")
    );
    assert_eq!(one(&variant, &[]).programs[0].threads, 4);
    // Errors write the key in a form that can be written again.
    refused(&dotted.replace("= 3", "= 0"), &[], &[&format!("x.toml:6: {set} = 0")]);
    refused(&dotted, &["program.a.b.threads=5"], &["no program is called a"]);
    refused(&dotted, &["program.a b.threads=5"], &["is not a key", "in quotes"]);
    refused(SMALL, &[&format!("{}=1", vec!["a"; 100_000].join("."))], &["up to 16 parts"]);
}

#[test]
fn places_of_errors_are_places_that_there_are() {
    let many: Vec<String> = (0..101).map(|seed| seed.to_string()).collect();
    let many = many.join(", ");
    let (seeds, own) = (format!("seed=[{many}]"), format!("policy.seed=[{many}]"));
    refused(
        SMALL,
        &[&seeds, &own, "policy.kind=speed"],
        &["--set policy.seed=[0, 1, 2", "...: sweep: 101 x 101 runs"],
    );
    refused(&swept(&format!("seed = [{many}]\n")), &[&own], &["--set policy.seed", "101 x 101 runs"]);
    refused(SMALL, &vec!["seed=1"; 1001], &["--set: 1001 settings: up to 1000"]);
    refused(&swept("seed = []\n"), &[], &["x.toml:9: sweep.seed = []", "a list of 1 to 1000 values"]);
    // The line of a machine file does not belong to a setting, however long the file.
    let set = ["machine=own.toml".to_owned(), "seed=3".to_owned()];
    for lines in [0, 7, 8, 9, 40] {
        let mut bad = |_: &str| Ok(format!("name = 'x'\n{}topology = 'core:0'\n", "\n".repeat(lines)));
        let error = File::open("x.toml", SMALL, &set, &mut bad).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("own.toml:{}: topology = 'core:0'", lines + 2)), "{error}");
        assert!(error.ends_with("(--set machine=own.toml names this file)"), "{error}");
    }
}

/// Number of ways to give a key: its form, its value, and the check that a scenario has it.
const KEY_FORMS: usize = 7;

fn way(which: usize, value: u32) -> (&'static str, String) {
    let kind = ["none", "speed", "auto"][value as usize % 3];
    match which {
        0 => ("program.app.threads", value.to_string()),
        1 => ("program.1.threads", value.to_string()),
        2 => ("program.app", format!("{{ threads = {value} }}")),
        3 => ("policy", format!("'{kind}'")),
        4 => ("policy.kind", format!("'{kind}'")),
        5 => ("policy", format!("{{ kind = '{kind}', interval = '{value} ms' }}")),
        _ => ("policy.interval", format!("'{value} ms'")),
    }
}

fn has(scenario: &Scenario, which: usize, value: u32) -> bool {
    let kind = [None, Some("speed"), Some("auto")][value as usize % 3];
    let (own, interval) = match &scenario.policy {
        Some((kind, settings)) => (Some(kind.word()), Some(settings.interval)),
        None => (None, None),
    };
    let timed = interval.is_none_or(|interval| interval == Span::from_ms(u64::from(value)));
    match which {
        0..3 => scenario.programs[0].threads == value,
        3 | 4 => own == kind,
        5 => own == kind && timed,
        _ => timed,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_row_has_its_own_values_and_the_set_ones(
        axes in proptest::collection::btree_map(0..KEY_FORMS, proptest::collection::vec(1..9_u32, 1..3), 0..3),
        varied in proptest::collection::vec((0..KEY_FORMS, 1..9_u32), 0..3),
        set in (0..KEY_FORMS, proptest::collection::vec(1..9_u32, 1..3), any::<bool>()),
    ) {
        let mut text = format!("policy = 'speed'\n{SMALL}[sweep]\n");
        for (&which, values) in axes.iter().filter(|(which, _)| **which != 5 || !axes.contains_key(&3)) {
            let values: Vec<String> = values.iter().map(|&value| way(which, value).1).collect();
            text.push_str(&format!("'{}' = [{}]\n", way(which, 0).0, values.join(", ")));
        }
        let variant = |(at, &(which, value)): (usize, &(usize, u32))| {
            let (key, value) = way(which, value);
            format!("{{ name = 'v{at}', '{key}' = {value} }}")
        };
        let variants: Vec<String> = varied.iter().enumerate().map(variant).collect();
        if !variants.is_empty() {
            text.push_str(&format!("variant = [{}]\n", variants.join(", ")));
        }
        let (which, values, list) = set;
        let words: Vec<String> = values.iter().map(|&value| way(which, value).1).collect();
        let key = way(which, 0).0;
        let setting = if list { format!("{key}=[{}]", words.join(", ")) } else { format!("{key}={}", words[0]) };
        for set in [&[][..], &[setting.as_str()]] {
            // A refused file is fine; an accepted one must hold.
            let Ok(file) = open(&text, set) else { continue };
            for run in 0..file.len() {
                let (scenario, places) = (file.scenario(run).unwrap(), file.places(run));
                let mut from_outside = false;
                for (axis, &place) in file.axes().iter().zip(&places) {
                    let label = axis.values[place].trim_matches('\'');
                    if let Some(variant) = label.strip_prefix('v') {
                        let (which, value) = varied[variant.parse::<usize>().unwrap()];
                        prop_assert!(has(&scenario, which, value), "{text}{set:?}: run {run}");
                        continue;
                    }
                    let told = (0..KEY_FORMS).flat_map(|which| (1..9).map(move |value| (which, value)));
                    let mut told = told.filter(|&(which, value)| {
                        let (key, written) = way(which, value);
                        key == axis.key && written.trim_matches('\'') == label
                    });
                    prop_assert!(told.any(|(which, value)| has(&scenario, which, value)), "{text}{set:?}: run {run}: {axis:?}");
                    from_outside |= list && axis.key == key;
                }
                let one = !list && has(&scenario, which, values[0]);
                prop_assert!(set.is_empty() || from_outside || one, "{text}{set:?}: run {run}");
            }
        }
    }
}
