//! Plain command lines of `trimtab run`, parsed without the definition of its options.
//!
//! Problem: a start spends more time on building the definition of 60 options than on finding and
//! reserving a core. Idea: nearly all launches use a few options, each once and in full. Such a
//! line is parsed here, value by value with the types' own parsers. Any other line, with help, an
//! abbreviation, a value that does not parse or an option not named here, is parsed by the
//! definition, which also makes all messages.
//!
//! A test compares both parsers on random command lines.

use super::{PlaceArgs, RunArgs, RunOnly, SurveyMode, time};
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

/// Number of threads that can be requested.
pub(super) const THREADS: RangeInclusive<i64> = 1..=65536;

/// Parses the words behind `run`; `None` if the line is not plain.
pub(super) fn run(words: &[OsString]) -> Option<RunArgs> {
    let mut line =
        PlainLine { words, place: PlaceArgs::default(), run: RunOnly::default(), given: Vec::new() };
    let command = loop {
        let (word, rest) = line.words.split_first()?;
        if !word.as_bytes().starts_with(b"-") {
            break line.words;
        }
        line.words = rest;
        let word = word.to_str()?;
        if word == "--" {
            break rest;
        }
        line.option(word)?;
    };
    // A missing or empty program is an error, and so is `-v` together with `-q`.
    if command.first()?.is_empty() || line.run.verbose && line.run.quiet {
        return None;
    }
    Some(RunArgs { place: line.place, run: line.run, command: command.to_vec() })
}

/// A command line that is being parsed.
struct PlainLine<'a> {
    /// The words that follow.
    words: &'a [OsString],
    place: PlaceArgs,
    run: RunOnly,
    /// Names of the options so far: no option may be repeated.
    given: Vec<&'a str>,
}

impl<'a> PlainLine<'a> {
    /// Takes an option and its value.
    fn option(&mut self, word: &'a str) -> Option<()> {
        let (name, value) = match word {
            "-c" => ("cores", None),
            "-s" => ("strategy", None),
            "-v" => ("verbose", None),
            "-q" => ("quiet", None),
            _ => match word.strip_prefix("--")?.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word.strip_prefix("--")?, None),
            },
        };
        if self.given.contains(&name) {
            return None;
        }
        self.given.push(name);
        self.switch(name, value).or_else(|| self.valued(name, value))
    }

    /// Takes an option without a value.
    fn switch(&mut self, name: &str, value: Option<&str>) -> Option<()> {
        let (place, run) = (&mut self.place, &mut self.run);
        let switch = match name {
            "share" => &mut place.share,
            "or-fewer" => &mut place.or_fewer,
            "no-rules" => &mut place.no_rules,
            "strict" => &mut place.strict,
            "no-tuning" => &mut run.no_tuning,
            "verbose" => &mut run.verbose,
            "quiet" => &mut run.quiet,
            _ => return None,
        };
        *switch = value.is_none();
        (*switch).then_some(())
    }

    /// Takes an option with a value, which may be the next word.
    fn valued(&mut self, name: &str, value: Option<&'a str>) -> Option<()> {
        if name == "wait" {
            // Its value must follow an equals sign.
            self.run.wait = Some(time::wait(value.unwrap_or("forever")).ok()?);
            return Some(());
        }
        let value = match value {
            Some(value) => value,
            None => {
                let (next, rest) = self.words.split_first()?;
                self.words = rest;
                next.to_str()?
            }
        };
        if value.is_empty() || value.starts_with('-') {
            return None;
        }
        let (place, run) = (&mut self.place, &mut self.run);
        match name {
            "cores" => set(&mut place.cores, value),
            "cpus" => set(&mut place.cpus, value),
            "near" => set(&mut place.near, value),
            "strategy" => set(&mut place.strategy, value),
            "smt" => set(&mut place.smt, value),
            "kind" => set(&mut place.kind, value),
            "mem" => set(&mut place.mem, value),
            "mem-size" => set(&mut place.mem_size, value),
            "thp" => set(&mut place.thp, value),
            "nest" => set(&mut place.nest, value),
            "survey" => {
                place.survey = match value {
                    "auto" => SurveyMode::Auto,
                    "full" => SurveyMode::Full,
                    "none" => SurveyMode::None,
                    _ => return None,
                };
                Some(())
            }
            "threads" => {
                set(&mut run.threads, value)?;
                run.threads.filter(|threads| THREADS.contains(&i64::from(*threads))).map(drop)
            }
            "pin" => set(&mut run.pin, value),
            "fit" => set(&mut run.fit, value),
            "wait-policy" => set(&mut run.wait_policy, value),
            "env" => {
                run.env = value.parse().ok()?;
                Some(())
            }
            _ => None,
        }
    }
}

/// Parses a value.
fn set<T: FromStr>(option: &mut Option<T>, value: &str) -> Option<()> {
    *option = Some(value.parse().ok()?);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use proptest::prelude::*;

    /// Words of random command lines: options in their forms, valid and invalid values.
    const WORDS: &[&str] = &[
        "-c",
        "-s",
        "-v",
        "-q",
        "-c4",
        "-vq",
        "-",
        "--",
        "--cores",
        "--cores=2xl3",
        "--cores=",
        "--cpus",
        "--cpus=0-3",
        "--cpus=S0:0-1@node:1.core:even",
        "--near",
        "--near=gpu:0",
        "--near=gpu",
        "--near=gpu:each",
        "--visible-devices",
        "--strategy",
        "--smt",
        "--smt=all",
        "--kind=P",
        "--mem",
        "--mem=bind:0",
        "--mem-size",
        "--mem-size=64G",
        "--mem-size=64",
        "--thp",
        "--thp=off",
        "--nest",
        "--nest=2,scatter",
        "--share",
        "--share=yes",
        "--or-fewer",
        "--no-rules",
        "--strict",
        "--survey",
        "--survey=full",
        "--survey=Full",
        "--wait",
        "--wait=2h",
        "--wait=",
        "--wait=soon",
        "--threads",
        "--threads=0",
        "--threads=+4",
        "--threads=65537",
        "--pin",
        "--pin=mask",
        "--fit",
        "--fit=keep",
        "--wait-policy",
        "--wait-policy=passive",
        "--env",
        "--env=print",
        "--no-tuning",
        "--no-profile",
        "--verbose",
        "--quiet",
        "--balance",
        "--ranks=2",
        "--priority=1",
        "--help",
        "-h",
        "--cor=4",
        "4",
        "-3",
        "0",
        "none",
        "all",
        "2",
        "compact",
        "spin",
        "keep",
        "off",
        "bind",
        "50%",
        "./app",
        "",
        "help",
    ];

    fn defined(words: &[OsString]) -> Result<String, String> {
        let line = [OsString::from("trimtab"), "run".into()].into_iter().chain(words.iter().cloned());
        match Cli::try_parse_from(line) {
            Ok(Cli { command: Command::Run(run) }) => Ok(format!("{run:?}")),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_usual_lines_are_plain() {
        for line in [
            "./app",
            "-c 4 ./app -c 5 -- --help",
            "-c 1 --survey none -- true",
            "--cores=2xl3 -s scatter --smt 1 --kind P --mem=bind:0 --mem-size 1G --thp off ./app",
            "--cpus 0-3 --near=gpu:0 --nest 2,scatter --share --or-fewer --no-rules --strict ./app",
            "--wait ./app",
            "--wait=2h --threads 3 --pin mask --fit keep --wait-policy spin --no-tuning -q ./app",
            "--env keep ./app",
            "-v -- -x",
        ] {
            let line = words(line);
            let plain = run(&line).map(|run| format!("{run:?}"));
            assert!(plain.is_some(), "{line:?}");
            assert_eq!(plain.ok_or_else(String::new), defined(&line), "{line:?}");
        }
    }

    #[test]
    fn other_lines_are_left_to_the_definition() {
        for line in
            ["-c", "", "--", "-c -3 ./app", "-c 4 -c 5 ./app", "-v -q ./app", "--help", "--cor=4 ./app"]
        {
            assert!(run(&words(line)).is_none(), "{line:?}");
        }
        assert!(run(&[]).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_500))]

        #[test]
        fn a_plain_line_means_what_the_definition_says(
            picked in prop::collection::vec(prop::sample::select(WORDS), 0..7),
            program in any::<bool>(),
        ) {
            let program = program.then_some("./app");
            let line: Vec<OsString> = picked.into_iter().chain(program).map(OsString::from).collect();
            if let Some(plain) = run(&line) {
                prop_assert_eq!(Ok(format!("{plain:?}")), defined(&line), "{:?}", line);
            }
        }
    }
}
