//! Grid of a search: the values of each knob that make a difference on this machine, for this
//! program.
//!
//! Unit: one [`Choice`] per knob. Problem: the full list of values is long, and on a given machine
//! most values have the same effect or are not available. Idea: facts about the machine and the run
//! decide. A knob that makes no difference is not listed, with the reason in words.

use super::Choice;
use crate::balance::Kind;
use crate::setting::Knob;

/// Facts about the machine and the program.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Facts {
    /// Cores that the program gets.
    pub cores: u32,
    /// Hardware threads per core.
    pub smt: u32,
    /// Memory nodes of the machine.
    pub nodes: u32,
    /// Last-level caches of the machine.
    pub caches: u32,
    /// Cores of the machine that may be used.
    pub machine_cores: u32,
    /// Whether a program can request huge pages: the system's setting is not `never`.
    pub huge: bool,
    /// Whether the system gives huge pages without being asked: its setting is `always`.
    pub huge_always: bool,
    /// Whether a process can restrict huge pages to memory for which it requests them (Linux 6.18).
    pub advised: bool,
    /// Whether the C library's allocator has a setting for huge pages (glibc 2.35).
    pub allocator: bool,
    /// Whether the kernel accepts slices (Linux 6.12).
    pub slice: bool,
}

/// A knob that is not tried, with the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// Knob.
    pub knob: Knob,
    /// Reason.
    pub why: String,
}

/// Returns the choices for these knobs, and the knobs that are not tried.
pub fn grid(facts: &Facts, knobs: &[Knob]) -> (Vec<Choice>, Vec<Left>) {
    let (mut choices, mut left) = (Vec::new(), Vec::new());
    for knob in knobs {
        match values(facts, *knob) {
            Ok(values) => {
                let values = std::iter::once(None).chain(values.into_iter().map(Some)).collect();
                choices.push(Choice { knob: *knob, values });
            }
            Err(why) => left.push(Left { knob: *knob, why: why.to_owned() }),
        }
    }
    (choices, left)
}

/// Returns the number of settings in the full product.
pub fn product(choices: &[Choice]) -> f64 {
    choices.iter().map(|choice| choice.values.len() as f64).product()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn values(facts: &Facts, knob: Knob) -> Result<Vec<String>, &'static str> {
    Ok(match knob {
        Knob::Threads => threads(facts),
        Knob::Cores if facts.cores < 2 => return Err("there is one core"),
        Knob::Cores => halves(facts.cores),
        Knob::Smt if facts.smt < 2 => return Err("cores have one hardware thread each"),
        Knob::Smt => words(&["all"]),
        Knob::Strategy if facts.cores >= facts.machine_cores => {
            return Err("all cores are taken, so there is only one way to choose them");
        }
        Knob::Strategy if facts.nodes.max(facts.caches) < 2 => {
            return Err("all cores lie under one cache and node");
        }
        Knob::Strategy => words(&["scatter", "balanced"]),
        Knob::Memory if facts.nodes < 2 => return Err("there is one memory node"),
        Knob::Memory => words(&["local", "bind", "interleave"]),
        Knob::Thp => {
            let mut values = Vec::new();
            if facts.huge {
                values.push("off");
            }
            if facts.huge_always && facts.advised {
                values.push("advised");
            }
            if facts.huge && facts.allocator {
                values.push("on");
            }
            if values.is_empty() {
                return Err("the system gives no transparent huge pages");
            }
            words(&values)
        }
        Knob::Wait => words(&["spin", "yield", "sleep"]),
        Knob::Pin => words(&["mask"]),
        Knob::Balance => words(&[Kind::Auto.word(), Kind::Speed.word()]),
        Knob::Slice if !facts.slice => return Err("this kernel does not accept slices (Linux 6.12 does)"),
        Knob::Slice => words(&["0.1", "1", "10", "100"]),
    })
}

/// Thread counts: from one to all cores by doubling, all hardware threads, and two and four times
/// the number of cores.
fn threads(facts: &Facts) -> Vec<String> {
    let cores = facts.cores.max(1);
    let mut counts = vec![cores, cores * facts.smt.max(1), 2 * cores, 4 * cores];
    counts.extend(std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count < cores));
    counts.sort_unstable();
    counts.dedup();
    counts.iter().map(ToString::to_string).collect()
}

/// Half of the cores, a quarter, ... one.
fn halves(cores: u32) -> Vec<String> {
    std::iter::successors(Some(cores / 2), |count| Some(count / 2))
        .take_while(|count| *count > 0)
        .map(|count| count.to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Setting;

    #[test]
    fn values_without_an_effect_are_not_tried_and_the_reason_is_said() {
        let facts = Facts { cores: 2, smt: 1, nodes: 1, caches: 1, machine_cores: 2, ..Facts::default() };
        let (choices, left) = grid(&facts, &Knob::ALL);
        let tried: Vec<Knob> = choices.iter().map(|choice| choice.knob).collect();
        assert_eq!(tried, [Knob::Threads, Knob::Cores, Knob::Wait, Knob::Pin, Knob::Balance]);
        assert_eq!(left.len() + tried.len(), Knob::ALL.len());
        assert!(left.iter().all(|left| !left.why.is_empty()));
        let values = |count: &str| Some(count.to_owned());
        assert_eq!(choices[0].values, [None, values("1"), values("2"), values("4"), values("8")]);
    }

    #[test]
    fn every_value_is_one_that_a_setting_takes() {
        for cores in [1, 2, 6, 64] {
            let facts = Facts {
                cores,
                smt: 2,
                nodes: 2,
                caches: 4,
                machine_cores: 128,
                huge: true,
                huge_always: true,
                advised: true,
                allocator: true,
                slice: true,
            };
            let (choices, left) = grid(&facts, &Knob::ALL);
            assert!(left.is_empty() || cores == 1, "{left:?}");
            for Choice { knob, values } in &choices {
                for value in values.iter().flatten() {
                    assert!(Setting::new().with(*knob, value.clone()).is_ok(), "{knob}={value}");
                }
            }
            assert!(product(&choices) >= 1_000.0);
        }
    }
}
