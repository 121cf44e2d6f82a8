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

/// The data of one step: every rank knows what every other gives.
#[derive(Clone, Copy)]
struct StepData {
    step: u64,
    ranks: u32,
}

impl StepData {
    /// Returns the first elements that a rank gives.
    fn of(self, rank: u32, n: usize) -> Vec<u64> {
        (0..n).map(|at| given(self.step, rank, at)).collect()
    }

    /// Returns what all ranks give, one after another: of each `n` elements, from one on.
    fn of_all(self, from: usize, n: usize) -> Vec<u64> {
        (0..self.ranks).flat_map(|rank| (from..from + n).map(move |at| given(self.step, rank, at))).collect()
    }

    /// Returns the sums of ranks up to one: `n` elements, from one on.
    fn sums(self, upto: u32, from: usize, n: usize) -> Vec<u64> {
        let sum = |at| (0..=upto).fold(0, |sum: u64, rank| sum.wrapping_add(given(self.step, rank, at)));
        (from..from + n).map(sum).collect()
    }

    /// Returns the sums of all ranks.
    fn total(self, from: usize, n: usize) -> Vec<u64> {
        self.sums(self.ranks - 1, from, n)
    }
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
        let sync = self.lot.of(&[Sync::MINE, Sync::LOOSE, Sync::STRICT]);
        let n = self.lot.of(&[0, 1, 2, 14, 15, 200, 600, 1100, 3000, 4500]);
        let root = self.lot.below(self.rank.ranks().into()) as u32;
        match self.lot.below(14) {
            0 | 1 => {
                self.rank.barrier()?;
                Ok(true)
            }
            9 => self.broadcast_block(root, sync),
            10 => {
                self.from.store(0, &self.data().of(self.rank.rank(), BLOCK))?;
                self.rank.allreduce_shared(&self.from, &self.to, Operator::Sum, sync)?;
                self.summed()
            }
            13 => self.start_allreduce(n % 7, sync),
            kind => self.slices(kind, n, root, sync),
        }
    }

    fn data(&self) -> StepData {
        StepData { step: self.step, ranks: self.rank.ranks() }
    }

    /// Makes a call of slices.
    fn slices(&self, kind: u64, n: usize, root: u32, sync: Sync) -> Result<bool> {
        let (data, me, sum) = (self.data(), self.rank.rank(), Operator::Sum);
        let calls = self.rank.with(sync);
        let (all, mine) = (n * data.ranks as usize, me as usize * n);
        let mut out = vec![0; n];
        Ok(match kind {
            2 => {
                calls.allreduce(&data.of(me, n), &mut out, sum)?;
                out == data.total(0, n)
            }
            3 => {
                let mut buffer = if me == root { data.of(me, n) } else { out };
                calls.broadcast(&mut buffer, root)?;
                buffer == data.of(root, n)
            }
            4 => {
                let mut out = vec![0; all];
                calls.allgather(&data.of(me, n), &mut out)?;
                out == data.of_all(0, n)
            }
            5 => {
                out.truncate(if me == root { n } else { 0 });
                calls.reduce(&data.of(me, n), &mut out, sum, root)?;
                me != root || out == data.total(0, n)
            }
            6 => {
                let mut out = vec![0; all];
                calls.alltoall(&data.of(me, all), &mut out)?;
                out == data.of_all(mine, n)
            }
            7 => {
                calls.scan(&data.of(me, n), &mut out, sum)?;
                out == data.sums(me, 0, n)
            }
            8 => {
                let mut out = vec![0; if me == root { all } else { 0 }];
                calls.gather(&data.of(me, n), &mut out, root)?;
                me != root || out == data.of_all(0, n)
            }
            11 => {
                calls.reduce_scatter(&data.of(me, all), &mut out, sum)?;
                out == data.total(mine, n)
            }
            _ => {
                let input = if me == root { data.of(me, all) } else { Vec::new() };
                calls.scatter(&input, &mut out, root)?;
                out == data.of(root, all)[mine..][..n]
            }
        })
    }

    fn broadcast_block(&self, root: u32, sync: Sync) -> Result<bool> {
        let me = self.rank.rank();
        if me == root {
            self.from.store(0, &self.data().of(me, BLOCK))?;
        }
        self.rank.broadcast_shared(&self.from, root, sync)?;
        let mut out = vec![0; BLOCK];
        self.from.load(me, 0, &mut out)?;
        self.rank.fence()?;
        Ok(out == self.data().of(root, BLOCK))
    }

    /// Starts a call, asks for its end some times, and waits for it.
    fn start_allreduce(&self, asks: usize, sync: Sync) -> Result<bool> {
        self.from.store(0, &self.data().of(self.rank.rank(), BLOCK))?;
        let call = CollectiveCall {
            kind: Kind::Allreduce,
            elements: u64::TYPE,
            operator: Some(Operator::Sum),
            kernel: Some(Kernel::of(u64::TYPE, Operator::Sum)?),
            count: BLOCK,
            root: 0,
            input: self.from.own().cast_const().cast(),
            output: self.to.own().cast(),
            sync,
        };
        // SAFETY: blocks of the segment, which no other rank uses before the request is over.
        let request = unsafe { self.rank.start(call) }?;
        for _ in 0..asks {
            self.rank.test(&request)?;
        }
        self.rank.wait(&request)?;
        self.summed()
    }

    /// Returns whether the block holds the sums of all ranks.
    fn summed(&self) -> Result<bool> {
        let mut out = vec![0; BLOCK];
        self.to.load(self.rank.rank(), 0, &mut out)?;
        self.rank.fence()?;
        Ok(out == self.data().total(0, BLOCK))
    }
}
