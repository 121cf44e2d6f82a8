//! A run of one program, or of two at once, with an eye on the clock.
//!
//! Of two programs the one that ends first is started again until the other has ended too, so that each has company all the time; what
//! counts is each one's first run. A run that takes too long is stopped. Whole groups of processes are stopped: first asked, since
//! launchers of MPI end their ranks then, and soon made to.

use super::programs::Start;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use trimtab_core::set::CpuSet;
use trimtab_front::interrupt::Interrupt;

/// Looked at so often: a program that is measured is not disturbed.
const LOOK: Duration = Duration::from_millis(5);
/// What is asked to end has so much time to.
const GRACE: Duration = Duration::from_secs(3);
/// So much of what a failing program said is kept.
const SAID_MAX: usize = 2_000;
const TICKS_A_SECOND: f64 = 100.0;
/// Fewer ticks than this on the busiest core say nothing about balance.
const TICKS_MIN: f64 = 20.0;

/// How a run ended.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Ending {
    /// By itself, well: what it said.
    Well(String),
    /// Stopped, since it took too long.
    Slower,
    /// Badly, and why.
    Badly(String),
}

/// What a run came to.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Ran {
    pub(super) ending: Ending,
    pub(super) wall: f64,
    /// In the program and in the kernel, of all its processes; `None` where they did not end by themselves.
    pub(super) cpu: Option<(f64, f64)>,
    pub(super) stderr: String,
}

/// What runs at once came to.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Together {
    pub(super) ran: Vec<Ran>,
    /// Lowest over highest user time of the cores.
    pub(super) balance: Option<f64>,
    /// The part of the cores' time that nobody of these used, and that was used.
    pub(super) foreign: Option<f64>,
}

/// What is to be run, and how long at most, in seconds.
#[derive(Clone, Debug)]
pub(super) struct Timed {
    pub(super) start: Start,
    pub(super) most: f64,
}

struct Slot<'a> {
    timed: &'a Timed,
    child: Option<(Child, Instant)>,
    first: Option<Ran>,
}

/// Runs these. `None` when a signal came.
pub(super) fn run(all: &[Timed], cpus: &CpuSet, interrupt: &Interrupt) -> Option<Together> {
    let before = Usage::now(cpus);
    let began = Instant::now();
    let mut reaped = children_cpu();
    let start_of_all = reaped;
    let mut slots: Vec<Slot<'_>> = all.iter().map(|timed| Slot { timed, child: None, first: None }).collect();
    for slot in &mut slots {
        slot.begin(interrupt);
    }
    while interrupt.came().is_none() && slots.iter().any(|slot| slot.first.is_none()) {
        for at in 0..slots.len() {
            let others_go_on =
                slots.iter().enumerate().any(|(other, slot)| other != at && slot.first.is_none());
            let Some(slot) = slots.get_mut(at) else { continue };
            let Some(ran) = slot.look(&mut reaped) else { continue };
            // Who fails at once would only be started again and again.
            let again = others_go_on && !matches!(ran.ending, Ending::Badly(_));
            slot.first.get_or_insert(ran);
            if again {
                slot.begin(interrupt);
            }
        }
        // All failed together with the one that did.
        if slots
            .iter()
            .any(|slot| slot.first.as_ref().is_some_and(|ran| matches!(ran.ending, Ending::Badly(_))))
        {
            break;
        }
        std::thread::sleep(LOOK);
    }
    for slot in &mut slots {
        if let Some((child, _)) = &mut slot.child {
            stop(child);
        }
    }
    interrupt.ended();
    if interrupt.came().is_some() {
        return None;
    }
    let (after, wall) = (Usage::now(cpus), began.elapsed().as_secs_f64());
    let own = children_cpu().zip(start_of_all).map(|(now, then)| now.0 + now.1 - then.0 - then.1);
    let used = before.zip(after);
    let balance = used.as_ref().and_then(|(before, after)| before.balance(after));
    let foreign = used.zip(own).and_then(|((before, after), own)| before.foreign(&after, own, wall));
    let missing = || Ran {
        ending: Ending::Badly("its company failed".to_owned()),
        wall,
        cpu: None,
        stderr: String::new(),
    };
    Some(Together {
        ran: slots.into_iter().map(|slot| slot.first.unwrap_or_else(missing)).collect(),
        balance,
        foreign,
    })
}

impl Slot<'_> {
    fn begin(&mut self, interrupt: &Interrupt) {
        let Start { words, variables } = &self.timed.start;
        let Some(program) = words.first() else { return };
        let mut command = Command::new(program);
        command.args(words.iter().skip(1)).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        match command.spawn() {
            Ok(child) => {
                interrupt.runs(&child);
                self.child = Some((child, Instant::now()));
            }
            Err(error) => {
                let ending = Ending::Badly(format!("cannot start {}: {error}", program.display()));
                self.first.get_or_insert(Ran { ending, wall: 0.0, cpu: None, stderr: String::new() });
            }
        }
    }

    /// What it came to, if it has ended or has to.
    fn look(&mut self, reaped: &mut Option<(f64, f64)>) -> Option<Ran> {
        let (child, began) = self.child.as_mut()?;
        let status = child.try_wait();
        let wall = began.elapsed().as_secs_f64();
        match status {
            Ok(Some(status)) => {
                let now = children_cpu();
                let cpu = now.zip(*reaped).map(|(now, then)| (now.0 - then.0, now.1 - then.1));
                *reaped = now;
                let (said, stderr) = (all_of(child.stdout.take()), last_of(&all_of(child.stderr.take())));
                self.child = None;
                Some(Ran { ending: judge(status, said), wall, cpu, stderr })
            }
            Ok(None) if self.first.is_some() || wall < self.timed.most => None,
            Ok(None) => {
                stop(child);
                *reaped = children_cpu();
                self.child = None;
                Some(Ran { ending: Ending::Slower, wall, cpu: None, stderr: String::new() })
            }
            Err(error) => {
                self.child = None;
                let ending = Ending::Badly(format!("cannot wait for it: {error}"));
                Some(Ran { ending, wall, cpu: None, stderr: String::new() })
            }
        }
    }
}

fn judge(status: ExitStatus, said: String) -> Ending {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ending::Well(said),
        (Some(code), _) => Ending::Badly(format!("exit status: {code}")),
        (_, Some(signal)) => Ending::Badly(format!("signal {signal}")),
        _ => Ending::Badly(status.to_string()),
    }
}

fn all_of(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What cannot be read is not there, and will be missed in the report.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Its end tells more than its beginning.
fn last_of(said: &str) -> String {
    let said: Vec<char> = said.trim().chars().collect();
    said[said.len().saturating_sub(SAID_MAX)..].iter().collect()
}

/// Ends a program with all its processes.
fn stop(child: &mut Child) {
    let group = Pid::from_child(child);
    let _ = kill_process_group(group, Signal::TERM);
    let asked = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < GRACE {
        std::thread::sleep(LOOK);
    }
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

/// CPU seconds, in the program and in the kernel, of all children that have ended and been waited for, and of theirs.
fn children_cpu() -> Option<(f64, f64)> {
    of_children(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// The same from a line of `/proc/PID/stat`: fields 16 and 17, counted after the name, which may hold anything.
fn of_children(stat: &str) -> Option<(f64, f64)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace().skip(13).map(|word| word.parse::<f64>().ok());
    Some((fields.next()?? / TICKS_A_SECOND, fields.next()?? / TICKS_A_SECOND))
}

/// What CPUs have done since the machine was started, in ticks: in programs, and at all.
#[derive(Clone, PartialEq, Debug)]
struct Usage(Vec<(f64, f64)>);

impl Usage {
    fn now(cpus: &CpuSet) -> Option<Self> {
        Self::read(&std::fs::read_to_string("/proc/stat").ok()?, cpus)
    }

    fn read(text: &str, cpus: &CpuSet) -> Option<Self> {
        let of = |name: String| {
            let line = text.lines().find_map(|line| line.strip_prefix(&name))?;
            let ticks: Vec<f64> =
                line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
            let [user, nice, system, _idle, _wait, interrupts, soft, steal] = ticks[..] else { return None };
            Some((user + nice, user + nice + system + interrupts + soft + steal))
        };
        cpus.iter().map(|cpu| of(format!("cpu{cpu} "))).collect::<Option<Vec<_>>>().map(Self)
    }

    /// Lowest over highest time in programs, from then to now.
    fn balance(&self, now: &Self) -> Option<f64> {
        let users = self.0.iter().zip(&now.0).map(|((then, _), (now, _))| now - then);
        let (low, high) =
            users.fold((f64::INFINITY, 0.0_f64), |(low, high), one| (low.min(one), high.max(one)));
        (high >= TICKS_MIN).then(|| low / high)
    }

    /// The share of these CPUs' time from then to now that was used, but not by ourselves; `own` and `wall` in seconds.
    fn foreign(&self, now: &Self, own: f64, wall: f64) -> Option<f64> {
        let busy: f64 = self.0.iter().zip(&now.0).map(|((_, then), (_, now))| now - then).sum();
        let all = wall * self.0.len() as f64;
        (all * TICKS_A_SECOND >= TICKS_MIN).then(|| ((busy / TICKS_A_SECOND - own) / all).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::ids::OsCpu;

    #[test]
    fn time_of_children_is_found_behind_any_name() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 11 12 250 50 20 0 1 0 5 6 7";
        assert_eq!(of_children(stat), Some((2.5, 0.5)));
        assert_eq!(of_children("7 (a) S 1"), None);
    }

    #[test]
    fn balance_and_foreign_time_are_of_these_cpus() {
        let text = |first: u32, second: u32| {
            format!(
                "cpu  9 9 9 9 9 9 9 9\ncpu0 {first} 0 10 5 0 0 0 0 0 0\ncpu1 {second} 0 10 5 0 0 0 0 0 0\ncpu10 900 0 0 0 0 0 0 0 0 0\n"
            )
        };
        let cpus: CpuSet = [OsCpu(0), OsCpu(1)].into_iter().collect();
        let (before, after) =
            (Usage::read(&text(100, 100), &cpus).unwrap(), Usage::read(&text(200, 150), &cpus).unwrap());
        assert_eq!(before.balance(&after), Some(0.5));
        // 1.5 s used, 1 s of it our own, of 2 s on two CPUs.
        assert_eq!(before.foreign(&after, 1.0, 2.0), Some(0.125));
        assert_eq!(before.balance(&before), None, "nothing was measured");
        assert_eq!(Usage::read("cpu0 1 2\n", &cpus), None);
        assert_eq!(last_of(" end\n"), "end");
    }
}
