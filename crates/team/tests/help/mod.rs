//! Helpers of the tests of teams of processes: ranks as copies of the test program, and random
//! collectives.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    unsafe_code,
    reason = "a part of several tests, each of which uses some"
)]

use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trimtab_team::segment::meet::{Invitation, VARIABLE, keep_over_exec};
use trimtab_team::{
    CollectiveCall, Element, Kernel, Kind, Operator, Options, Rank, Result, Shared, Sync, Team,
};

/// Random numbers, the same for the same seed.
pub struct Lot(pub u64);

impl Lot {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// Reads a number from the environment.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Returns a seed: the value in the environment, or another each time.
pub fn seed(name: &str) -> u64 {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    number(name).unwrap_or(clock.as_nanos() as u64 % 1_000_000_007)
}

/// Starts a rank: this test program again, with one of its tests, which does nothing otherwise.
pub fn spawn(team: &Team, rank: u32, test: &str, words: &[(&str, u64)]) -> Child {
    let (name, value) = team.invitation(rank);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(name, value);
    command.envs(words.iter().map(|(name, value)| (name, value.to_string())));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let fd = team.fd().as_raw_fd();
    // SAFETY: between fork and exec one system call is made. The descriptor is open: the team is
    // borrowed until the child is started.
    unsafe {
        command.pre_exec(move || {
            let fd = std::os::fd::BorrowedFd::borrow_raw(fd);
            keep_over_exec(fd).map_err(|_| std::io::Error::last_os_error())
        });
    }
    command.spawn().unwrap()
}

/// Returns the team that this process was started into, with options of its own; `None` if it was
/// not.
pub fn inherited(gather: Duration, deadline: Option<Duration>) -> Option<(Team, u32)> {
    let invitation = Invitation::parse(&std::env::var(VARIABLE).ok()?).unwrap();
    let options = Options { gather, deadline, ..Options::new(invitation.ranks) };
    let team = Team::adopt(invitation.accept().unwrap(), options).unwrap();
    // The descriptor belongs to this process, and there is a copy.
    // SAFETY: no other code in this program uses it.
    unsafe { libc::close(invitation.fd) };
    Some((team, invitation.rank))
}

/// Waits for a child to end; kills it at `until`, and returns `None`.
pub fn ended(child: &mut Child, until: Instant) -> Option<std::process::ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() > until {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the number of open descriptors of this process, and of its mappings of segments.
pub fn belongings() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
    (fds, maps.lines().filter(|line| line.contains("trimtab-team")).count())
}

fn given(step: u64, rank: u32, at: usize) -> u64 {
    Lot(step << 32 ^ u64::from(rank) << 20 ^ at as u64).next()
}

/// Elements of a block in the segment.
const BLOCK: usize = 3000;

/// A rank that makes random calls: all ranks draw the same.
pub struct Player<'a> {
    rank: &'a Rank,
    lot: Lot,
    from: Shared<u64>,
    to: Shared<u64>,
    step: u64,
}

impl<'a> Player<'a> {
    pub fn new(rank: &'a Rank, seed: u64) -> Result<Self> {
        Ok(Self { rank, lot: Lot(seed), from: rank.alloc(BLOCK)?, to: rank.alloc(BLOCK)?, step: 0 })
    }

    /// Makes one call. Returns whether its result is right.
    pub fn play(&mut self) -> Result<bool> {
        self.step += 1;
        let (rank, step, me, ranks) = (self.rank, self.step, self.rank.rank(), self.rank.ranks());
        let sync = self.lot.of(&[Sync::MINE, Sync::LOOSE, Sync::STRICT]);
        let n = self.lot.of(&[0, 1, 2, 14, 15, 200, 600, 1100, 3000, 4500]);
        let root = self.lot.below(ranks.into()) as u32;
        let kind = self.lot.below(14);
        let (calls, sum) = (rank.with(sync), Operator::Sum);
        let give = |rank: u32, n: usize| -> Vec<u64> { (0..n).map(|at| given(step, rank, at)).collect() };
        let add = |at: usize, upto: u32| {
            (0..=upto).fold(0, |sum: u64, rank| sum.wrapping_add(given(step, rank, at)))
        };
        let sums = |upto: u32| -> Vec<u64> { (0..n).map(|at| add(at, upto)).collect() };
        let all = n * ranks as usize;
        let mut out = vec![0; n];
        Ok(match kind {
            0 | 1 => {
                rank.barrier()?;
                true
            }
            2 => {
                calls.allreduce(&give(me, n), &mut out, sum)?;
                out == sums(ranks - 1)
            }
            3 => {
                let mut buffer = if me == root { give(me, n) } else { out };
                calls.broadcast(&mut buffer, root)?;
                buffer == give(root, n)
            }
            4 => {
                let mut out = vec![0; all];
                calls.allgather(&give(me, n), &mut out)?;
                out == (0..ranks).flat_map(|rank| give(rank, n)).collect::<Vec<_>>()
            }
            5 => {
                out.truncate(if me == root { n } else { 0 });
                calls.reduce(&give(me, n), &mut out, sum, root)?;
                me != root || out == sums(ranks - 1)
            }
            6 => {
                let mut out = vec![0; all];
                calls.alltoall(&give(me, all), &mut out)?;
                let of = |rank| give(rank, all)[me as usize * n..][..n].to_vec();
                out == (0..ranks).flat_map(of).collect::<Vec<_>>()
            }
            7 => {
                calls.scan(&give(me, n), &mut out, sum)?;
                out == sums(me)
            }
            8 => {
                let mut out = vec![0; if me == root { all } else { 0 }];
                calls.gather(&give(me, n), &mut out, root)?;
                me != root || out == (0..ranks).flat_map(|rank| give(rank, n)).collect::<Vec<_>>()
            }
            9 => {
                if me == root {
                    self.from.store(0, &give(me, BLOCK))?;
                }
                rank.broadcast_shared(&self.from, root, sync)?;
                let mut out = vec![0; BLOCK];
                self.from.load(me, 0, &mut out)?;
                rank.fence()?;
                out == give(root, BLOCK)
            }
            11 => {
                calls.reduce_scatter(&give(me, all), &mut out, sum)?;
                let of = |at: usize| {
                    (0..ranks)
                        .fold(0, |sum: u64, rank| sum.wrapping_add(given(step, rank, me as usize * n + at)))
                };
                out == (0..n).map(of).collect::<Vec<_>>()
            }
            12 => {
                let input = if me == root { give(me, all) } else { Vec::new() };
                calls.scatter(&input, &mut out, root)?;
                out == give(root, all)[me as usize * n..][..n]
            }
            10 => {
                self.from.store(0, &give(me, BLOCK))?;
                rank.allreduce_shared(&self.from, &self.to, sum, sync)?;
                self.summed()?
            }
            _ => {
                self.from.store(0, &give(me, BLOCK))?;
                let call = CollectiveCall {
                    kind: Kind::Allreduce,
                    elements: u64::TYPE,
                    operator: Some(sum),
                    kernel: Some(Kernel::of(u64::TYPE, sum)?),
                    count: BLOCK,
                    root: 0,
                    input: self.from.own().cast_const().cast(),
                    output: self.to.own().cast(),
                    sync,
                };
                // SAFETY: blocks of the segment, which no other rank uses before the request is
                // over.
                let request = unsafe { rank.start(call) }?;
                for _ in 0..n % 7 {
                    rank.test(&request)?;
                }
                rank.wait(&request)?;
                self.summed()?
            }
        })
    }

    /// Returns whether the block holds the sums of all ranks.
    fn summed(&self) -> Result<bool> {
        let (step, ranks) = (self.step, self.rank.ranks());
        let mut out = vec![0; BLOCK];
        self.to.load(self.rank.rank(), 0, &mut out)?;
        self.rank.fence()?;
        let sum = |at: usize| (0..ranks).fold(0, |sum: u64, rank| sum.wrapping_add(given(step, rank, at)));
        Ok(out.iter().enumerate().all(|(at, value)| *value == sum(at)))
    }
}
