//! Timed runs of one program, or of two at once.
//!
//! Of two programs, the one that ends first is started again until the other one has ended, so that
//! each runs beside the other all the time; only the first run of each counts. A run that takes too
//! long is stopped. Signals go to whole process groups: first a request to end, because MPI
//! launchers then end their ranks, and soon after it a kill.

use super::programs::ProgramStart;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use trimtab_core::set::CpuSet;
use trimtab_front::interrupt::Interrupt;

/// Period of the check for ended programs: long enough not to disturb the measured program.
const CHECK_PERIOD: Duration = Duration::from_millis(5);
/// Time that a program has to end after a request.
const END_GRACE: Duration = Duration::from_secs(3);
/// Longest part of a failing program's standard error that is kept, in characters.
const STDERR_CHARS_MAX: usize = 2_000;
const TICKS_A_SECOND: f64 = 100.0;
/// Fewest ticks of the busiest core from which a balance is computed.
const TICKS_MIN: f64 = 20.0;

/// End of a run.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum RunEnding {
    /// The program ended successfully, with this output.
    Well(String),
    /// The program was stopped because it took too long.
    Slower,
    /// The program failed, with this error.
    Badly(String),
}

/// Result of one program's run.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ProgramRun {
    pub(super) ending: RunEnding,
    pub(super) wall: f64,
    /// CPU seconds in user mode and in the kernel, of all its processes; `None` if they did not end
    /// by themselves.
    pub(super) cpu: Option<(f64, f64)>,
    pub(super) stderr: String,
}

/// Result of programs that ran at once.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct JointRun {
    pub(super) ran: Vec<ProgramRun>,
    /// Lowest over highest user time of the cores.
    pub(super) balance: Option<f64>,
    /// Share of the cores' time that other processes used.
    pub(super) foreign: Option<f64>,
}

/// Program to run, and its time limit in seconds.
#[derive(Clone, Debug)]
pub(super) struct TimedStart {
    pub(super) start: ProgramStart,
    pub(super) most: f64,
}

struct RunSlot<'a> {
    timed: &'a TimedStart,
    child: Option<(Child, Instant)>,
    /// Messages of a command that may write more than a pipe holds.
    messages: Option<File>,
    first: Option<ProgramRun>,
}

/// Runs these programs at once. `None` after a signal.
pub(super) fn run(all: &[TimedStart], cpus: &CpuSet, interrupt: &Interrupt) -> Option<JointRun> {
    let before = CpuUsage::now(cpus);
    let began = Instant::now();
    let mut reaped = children_cpu();
    let start_of_all = reaped;
    let mut slots: Vec<RunSlot<'_>> =
        all.iter().map(|timed| RunSlot { timed, child: None, messages: None, first: None }).collect();
    for slot in &mut slots {
        slot.begin(interrupt);
    }
    while interrupt.came().is_none() && slots.iter().any(|slot| slot.first.is_none()) {
        for at in 0..slots.len() {
            let others_go_on =
                slots.iter().enumerate().any(|(other, slot)| other != at && slot.first.is_none());
            let Some(slot) = slots.get_mut(at) else { continue };
            let Some(ran) = slot.look(&mut reaped) else { continue };
            // A program that fails at once would only be restarted again and again.
            let again = others_go_on && !matches!(ran.ending, RunEnding::Badly(_));
            slot.first.get_or_insert(ran);
            if again {
                slot.begin(interrupt);
            }
        }
        // If one program fails, the whole run has failed.
        if slots
            .iter()
            .any(|slot| slot.first.as_ref().is_some_and(|ran| matches!(ran.ending, RunEnding::Badly(_))))
        {
            break;
        }
        std::thread::sleep(CHECK_PERIOD);
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
    let (after, wall) = (CpuUsage::now(cpus), began.elapsed().as_secs_f64());
    let own = children_cpu().zip(start_of_all).map(|(now, then)| now.0 + now.1 - then.0 - then.1);
    let used = before.zip(after);
    let balance = used.as_ref().and_then(|(before, after)| before.balance(after));
    let foreign = used.zip(own).and_then(|((before, after), own)| before.foreign(&after, own, wall));
    let missing = || ProgramRun {
        ending: RunEnding::Badly("the program beside it failed".to_owned()),
        wall,
        cpu: None,
        stderr: String::new(),
    };
    Some(JointRun {
        ran: slots.into_iter().map(|slot| slot.first.unwrap_or_else(missing)).collect(),
        balance,
        foreign,
    })
}

impl RunSlot<'_> {
    fn begin(&mut self, interrupt: &Interrupt) {
        let ProgramStart { words, variables, reports } = &self.timed.start;
        let Some(program) = words.first() else { return };
        let mut command = Command::new(program);
        command.args(words.iter().skip(1)).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !reports {
            self.messages = memfd_create("messages", MemfdFlags::CLOEXEC).ok().map(File::from);
            let messages = self.messages.as_ref().and_then(|file| file.try_clone().ok());
            command.stdout(Stdio::null()).stderr(messages.map_or_else(Stdio::null, Stdio::from));
        }
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
                let ending = RunEnding::Badly(format!("cannot start {}: {error}", program.display()));
                self.first.get_or_insert(ProgramRun { ending, wall: 0.0, cpu: None, stderr: String::new() });
            }
        }
    }

    /// Returns the result of the program if it has ended or exceeded its limit.
    fn look(&mut self, reaped: &mut Option<(f64, f64)>) -> Option<ProgramRun> {
        let (child, began) = self.child.as_mut()?;
        let status = child.try_wait();
        let wall = began.elapsed().as_secs_f64();
        match status {
            Ok(Some(status)) => {
                let now = children_cpu();
                let cpu = now.zip(*reaped).map(|(now, then)| (now.0 - then.0, now.1 - then.1));
                *reaped = now;
                let said = all_of(child.stdout.take());
                let stderr = match &mut self.messages {
                    Some(file) => last_of(&all_of(at_the_end(file).ok().map(|()| file))),
                    None => last_of(&all_of(child.stderr.take())),
                };
                self.child = None;
                Some(ProgramRun { ending: judge(status, said), wall, cpu, stderr })
            }
            Ok(None) if self.first.is_some() || wall < self.timed.most => None,
            Ok(None) => {
                stop(child);
                *reaped = children_cpu();
                self.child = None;
                Some(ProgramRun { ending: RunEnding::Slower, wall, cpu: None, stderr: String::new() })
            }
            Err(error) => {
                self.child = None;
                let ending = RunEnding::Badly(format!("cannot wait for the program: {error}"));
                Some(ProgramRun { ending, wall, cpu: None, stderr: String::new() })
            }
        }
    }
}

fn judge(status: ExitStatus, said: String) -> RunEnding {
    match (status.code(), status.signal()) {
        (Some(0), _) => RunEnding::Well(said),
        (Some(code), _) => RunEnding::Badly(format!("exit status: {code}")),
        (_, Some(signal)) => RunEnding::Badly(format!("signal {signal}")),
        _ => RunEnding::Badly(status.to_string()),
    }
}

fn all_of(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // Output that cannot be read will be missed in the report.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Moves to the last part of a file that is kept, whose letters have up to four bytes.
fn at_the_end(file: &mut File) -> std::io::Result<()> {
    let kept = 4 * STDERR_CHARS_MAX as u64;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(kept))).map(|_| ())
}

/// Returns the end of a text, which is more useful than its beginning.
fn last_of(said: &str) -> String {
    let said: Vec<char> = said.trim().chars().collect();
    said[said.len().saturating_sub(STDERR_CHARS_MAX)..].iter().collect()
}

/// Ends a program with all its processes.
fn stop(child: &mut Child) {
    let group = Pid::from_child(child);
    let _ = kill_process_group(group, Signal::TERM);
    let asked = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < END_GRACE {
        std::thread::sleep(CHECK_PERIOD);
    }
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

/// Returns the CPU seconds, in user mode and in the kernel, of all children that have ended and
/// been waited for, and of their children.
fn children_cpu() -> Option<(f64, f64)> {
    of_children(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// Reads these times from a line of `/proc/PID/stat`: fields 16 and 17, counted after the name,
/// which may contain any character.
fn of_children(stat: &str) -> Option<(f64, f64)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace().skip(13).map(|word| word.parse::<f64>().ok());
    Some((fields.next()?? / TICKS_A_SECOND, fields.next()?? / TICKS_A_SECOND))
}

/// Ticks of CPUs since boot: in user mode, and in total.
#[derive(Clone, PartialEq, Debug)]
struct CpuUsage(Vec<(f64, f64)>);

impl CpuUsage {
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

    /// Returns the lowest over the highest user-mode time, from then to now.
    fn balance(&self, now: &Self) -> Option<f64> {
        let users = self.0.iter().zip(&now.0).map(|((then, _), (now, _))| now - then);
        let (low, high) =
            users.fold((f64::INFINITY, 0.0_f64), |(low, high), one| (low.min(one), high.max(one)));
        (high >= TICKS_MIN).then(|| low / high)
    }

    /// Returns the share of these CPUs' time from then to now that other processes used; `own` and
    /// `wall` in seconds.
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
        let (before, after) = (
            CpuUsage::read(&text(100, 100), &cpus).unwrap(),
            CpuUsage::read(&text(200, 150), &cpus).unwrap(),
        );
        assert_eq!(before.balance(&after), Some(0.5));
        // 1.5 s used, 1 s of it by our processes, of 2 s on two CPUs.
        assert_eq!(before.foreign(&after, 1.0, 2.0), Some(0.125));
        assert_eq!(before.balance(&before), None, "nothing was measured");
        assert_eq!(CpuUsage::read("cpu0 1 2\n", &cpus), None);
        assert_eq!(last_of(" end\n"), "end");
    }
}
