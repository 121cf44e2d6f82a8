//! SIGKILL of holders, keepers, targets and resizers at random moments: no core stays held, and
//! none is granted twice. `TRIMTAB_KILLS` and `TRIMTAB_SEED` choose the number and the moments.

use crate::delegate::hold;
use crate::ledger::{held, keepers, used};
use crate::util::{Random, Running, Sandbox, eventually, need, two, two_users};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::time::Duration;

/// Longest time after which a command is killed: somewhat longer than it takes here.
const MOMENT_MAX_US: u64 = 60_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A program of one user, and facts about its hold.
struct Victim<'s> {
    sandbox: &'s Sandbox,
    user: Option<u32>,
    process: Running<'s>,
    /// Whether it was bound completely, and its keeper was not killed since.
    bound: bool,
    kills: u64,
}

impl<'s> Victim<'s> {
    fn start(sandbox: &'s Sandbox, user: Option<u32>) -> Self {
        let call = as_user(sandbox.shell("sleep 600 & echo on; read line"), user);
        let mut process = call.copy("sh".as_ref()).begins();
        process.line();
        Self { sandbox, user, process, bound: false, kills: 0 }
    }

    fn name(&self) -> String {
        format!("process {}", self.process.pid())
    }

    /// Does one thing at random, and kills what does it, or not.
    fn act(&mut self, random: &mut Random) {
        let pid = self.process.pid();
        let cores = 1 + random.below(2);
        match random.below(5) {
            0 | 1 => {
                let call = hold(self.sandbox, &format!("-c {cores} --pid {pid}"));
                if let Some(done) = self.killed(as_user(call, self.user).begins(), random) {
                    self.bound |= done;
                }
            }
            2 | 3 => {
                let call = self.sandbox.trimtab(&format!("resize --survey none {pid} -c {cores}"));
                self.killed(as_user(call, self.user).begins(), random);
            }
            _ => {
                for keeper in keepers(&self.name()) {
                    self.bound = false;
                    self.kills += 1;
                    let _ =
                        kill_process(Pid::from_raw(i32::try_from(keeper).unwrap()).unwrap(), Signal::KILL);
                }
            }
        }
    }

    /// Lets a command end, or kills it at a random moment; `None` if it was killed, else whether it
    /// succeeded.
    fn killed(&mut self, mut command: Running<'s>, random: &mut Random) -> Option<bool> {
        if random.below(2) == 0 {
            return Some(command.ends().code == Some(0));
        }
        std::thread::sleep(Duration::from_micros(random.below(MOMENT_MAX_US)));
        if !command.lives() {
            return Some(command.ends().code == Some(0));
        }
        self.kills += 1;
        command.signal(Signal::KILL);
        command.ends();
        None
    }
}

fn as_user(call: crate::util::Call<'_>, user: Option<u32>) -> crate::util::Call<'_> {
    match user {
        Some(uid) => call.user(uid),
        None => call,
    }
}

/// Asserts what holds at every quiet moment.
#[track_caller]
fn check(sandbox: &Sandbox, programs: &[&Victim<'_>], why: &str) {
    let kept = || programs.iter().any(|program| !keepers(&program.name()).is_empty());
    // A process that was killed takes its time to end.
    eventually(why, || held(sandbox).is_empty() != kept());
    let locked = held(sandbox);
    let bound: Vec<BTreeSet<u32>> =
        programs.iter().filter(|program| program.bound).map(|program| used(program.process.pid())).collect();
    for mask in &bound {
        assert!(mask.is_subset(&locked), "{why}: {mask:?} of {locked:?}");
    }
    if let [first, second] = &bound[..] {
        assert!(first.is_disjoint(second), "{why}: both use {first:?} and {second:?}");
    }
}

#[test]
fn no_core_is_lost_or_granted_twice_whatever_is_killed() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let (kills, seed) = (number("TRIMTAB_KILLS", 40), number("TRIMTAB_SEED", 1));
    let users = two_users().map_or([None, None], |users| users.map(Some));
    let (mut done, mut round) = (0, 0);
    while done < kills {
        round += 1;
        let mut programs = users.map(|user| Victim::start(&sandbox, user));
        for step in 0..4 {
            std::thread::scope(|scope| {
                for (at, program) in programs.iter_mut().enumerate() {
                    let mut random = Random(seed + 1_000 * round + 10 * step + at as u64);
                    scope.spawn(move || program.act(&mut random));
                }
            });
            check(&sandbox, &programs.each_ref(), &format!("seed {seed}, round {round}, step {step}"));
        }
        let names = programs.each_ref().map(Victim::name);
        done += programs.iter().map(|program| program.kills + 1).sum::<u64>();
        // Dropping kills the programs with all their children.
        drop(programs);
        eventually("all cores are free", || held(&sandbox).is_empty());
        eventually("all keepers have ended", || names.iter().all(|name| keepers(name).is_empty()));
    }
    sandbox.run("-c 2").arg("true").ends().ok();
    assert!(done >= kills, "{done} kills in {round} rounds (seed {seed})");
}
