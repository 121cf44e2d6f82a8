//! Page file of a budget: messages between the processes of a hold, as words of shared memory.
//!
//! Problem: a process may be killed, stopped or replaced by exec at any instant, may close
//! descriptors that it did not open, and may write anything. Idea: each process has a slot, is its
//! only regular writer, and keeps its private data in its own memory. The slot says which process
//! owns it, so that a slot whose owner has ended is not read and can be taken over. No word is a
//! lock, and no word is trusted: each value read is limited to its range ([`State::read`]), and an
//! owner is accepted only while the kernel confirms it.
//!
//! A slot is one cache line, so that processes do not take lines from each other when teams start.
//! The file is `BYTES` long; its length is sealed, so that no process can shorten it while another
//! uses it.

/// First word of a page file of this form; the last byte is the version.
pub const MAGIC: u64 = 0x7472_696d_6275_6401;
/// Name of the memory file, by which other programs of the user find it.
pub const NAME: &str = "trimtab-budget";
/// Words of the header.
pub const HEADER: usize = 8;
/// Words of a slot: one cache line.
pub const SLOT: usize = 8;
/// Number of slots: the processes that can take part at the same time.
pub const SLOTS: usize = 512;
/// Length of the file in bytes, a multiple of the kernel's pages.
pub const BYTES: usize = ((HEADER + SLOT * SLOTS) * 8).next_multiple_of(4096);
/// Largest number of threads that a word can state.
pub const COUNT_MAX: u32 = 0xffff;

/// Words of the header.
pub mod header {
    /// [`MAGIC`](super::MAGIC).
    pub const MAGIC: usize = 0;
    /// Cores of the hold.
    pub const CORES: usize = 1;
    /// Number of slots that have been taken; those behind them are empty.
    pub const SLOT_END: usize = 2;
    /// The sums of ended processes begin here, in the order of the slot's words from
    /// [`slot::TEAMS`](super::slot::TEAMS) on.
    pub const ENDED: usize = 3;
    /// Number of times that a slot was taken: processes, and programs that replaced another by
    /// exec.
    pub const TAKEN: usize = 7;
}

/// Words of a slot.
pub mod slot {
    /// The owner: [`Owner::word`](super::Owner::word); 0 if the slot is free.
    pub const OWNER: usize = 0;
    /// [`State::word`](super::State::word).
    pub const STATE: usize = 1;
    /// Number of teams that were opened.
    pub const TEAMS: usize = 2;
    /// Number of teams that were made smaller.
    pub const BOUNDED: usize = 3;
    /// Number of threads that teams wanted and did not get.
    pub const REFUSED: usize = 4;
    /// Number of threads that teams got beyond the process's equal part of the cores.
    pub const BORROWED: usize = 5;
    /// Number of words from [`TEAMS`] on that are sums.
    pub const SUMS: usize = 4;
}

/// Process that owns a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Its process number, above 0.
    pub pid: u32,
    /// The low half of its start time in the kernel's ticks since boot. Process numbers are reused;
    /// the pair is not.
    pub started: u32,
}

impl Owner {
    /// Returns the owner as a word, not 0.
    pub const fn word(self) -> u64 {
        (self.pid as u64) << 32 | self.started as u64
    }

    /// Returns the owner that a word names; `None` if it names none.
    pub const fn read(word: u64) -> Option<Self> {
        let pid = (word >> 32) as u32;
        if pid == 0 || pid > i32::MAX as u32 {
            return None;
        }
        Some(Self { pid, started: word as u32 })
    }
}

/// State that a process publishes about its teams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Threads in its open teams; for nested teams each thread counts once.
    pub computing: u32,
    /// Largest number of threads that it wanted at a time since it last examined the page.
    pub wants: u32,
    /// Count of its teams, modulo two to the power of 32.
    pub teams: u32,
}

impl State {
    /// Returns the state as a word.
    pub const fn word(self) -> u64 {
        clamp(self.computing) | clamp(self.wants) << 16 | (self.teams as u64) << 32
    }

    /// Returns the state of a word, which may be anything.
    pub const fn read(word: u64) -> Self {
        Self {
            computing: word as u32 & COUNT_MAX,
            wants: (word >> 16) as u32 & COUNT_MAX,
            teams: (word >> 32) as u32,
        }
    }
}

const fn clamp(count: u32) -> u64 {
    if count > COUNT_MAX { COUNT_MAX as u64 } else { count as u64 }
}

/// Sums over teams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Number of teams that were opened.
    pub teams: u64,
    /// Number of teams that were made smaller.
    pub bounded: u64,
    /// Number of threads that teams wanted and did not get.
    pub refused: u64,
    /// Number of threads that teams got beyond the process's equal part of the cores: other
    /// processes lent them.
    pub borrowed: u64,
}

impl Sums {
    fn read(words: &[u64]) -> Option<Self> {
        let [teams, bounded, refused, borrowed] = *words.first_chunk::<{ slot::SUMS }>()?;
        Some(Self { teams, bounded, refused, borrowed })
    }

    /// Returns the sums of both.
    pub const fn plus(self, other: Self) -> Self {
        Self {
            teams: self.teams.saturating_add(other.teams),
            bounded: self.bounded.saturating_add(other.bounded),
            refused: self.refused.saturating_add(other.refused),
            borrowed: self.borrowed.saturating_add(other.borrowed),
        }
    }
}

/// Slot of a process as read from the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The process. It may have ended.
    pub owner: Owner,
    /// Its teams now.
    pub state: State,
    /// Its sums.
    pub sums: Sums,
}

/// Content of a page file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    /// Cores of the hold.
    pub cores: u32,
    /// Processes that own a slot, in the order of the page.
    pub members: Vec<Member>,
    /// Sums of processes that have ended and whose slot was taken over.
    pub ended: Sums,
    /// Number of programs that took part so far.
    pub programs: u64,
}

impl Content {
    /// Returns the sums of all processes.
    pub fn sums(&self) -> Sums {
        self.members.iter().fold(self.ended, |sums, member| sums.plus(member.sums))
    }
}

/// Reads a page file; `None` if it has another form.
pub fn read(bytes: &[u8]) -> Option<Content> {
    let words: Vec<u64> =
        bytes.chunks_exact(8).filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?))).collect();
    let head = words.get(..HEADER)?;
    if head[header::MAGIC] != MAGIC {
        return None;
    }
    let slots = words.get(HEADER..HEADER + SLOT * SLOTS)?.chunks_exact(SLOT);
    let members = slots.filter_map(|words| {
        Some(Member {
            owner: Owner::read(words[slot::OWNER])?,
            state: State::read(words[slot::STATE]),
            sums: Sums::read(&words[slot::TEAMS..])?,
        })
    });
    Some(Content {
        cores: u32::try_from(head[header::CORES]).unwrap_or(COUNT_MAX).clamp(1, COUNT_MAX),
        members: members.collect(),
        ended: Sums::read(&head[header::ENDED..])?,
        programs: head[header::TAKEN],
    })
}

/// Returns the first words of a new page file, as bytes.
pub fn fresh(cores: u32) -> [u8; HEADER * 8] {
    let mut words = [0; HEADER];
    words[header::MAGIC] = MAGIC;
    words[header::CORES] = u64::from(cores.clamp(1, COUNT_MAX));
    let mut bytes = [0; HEADER * 8];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}
