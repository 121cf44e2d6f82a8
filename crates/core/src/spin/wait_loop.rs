//! Proof that a loop only waits.

use super::decode::{Instruction, Registers, decode};

/// Most instructions of a wait loop. Chosen: compilers make two to eight.
const INSTRUCTIONS_MAX: usize = 16;

/// Piece of a program's code.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// Address of the first byte.
    pub start: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl<'a> Code<'a> {
    /// Returns the bytes from an address on; empty outside the piece.
    pub fn from(&self, address: u64) -> &'a [u8] {
        let at = address.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.bytes.get(at..)).unwrap_or_default()
    }

    fn instruction(&self, address: u64) -> Option<Instruction> {
        decode(self.from(address))
    }
}

/// A loop that only waits for memory to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitLoop {
    /// Address of its first instruction, the target of its backward jump.
    pub head: u64,
    /// Address of the backward jump, its last instruction, which is two bytes long.
    pub jump: u64,
}

impl WaitLoop {
    /// Returns the address behind the loop.
    pub const fn end(&self) -> u64 {
        self.jump + 2
    }

    /// Returns the loop that contains the instruction at this address, if it is a wait loop. A
    /// thread was seen at the address, so that an instruction begins there.
    pub fn around(code: &Code<'_>, address: u64) -> Option<Self> {
        let mut at = address;
        for _ in 0..INSTRUCTIONS_MAX {
            let instruction = code.instruction(at)?;
            let end = at.checked_add(instruction.length as u64)?;
            if let Some(jump) = instruction.jump {
                let target = end.checked_add_signed(jump.distance)?;
                if target <= address {
                    let found = Self { head: target, jump: at };
                    return (jump.short && found.only_waits(code, address)).then_some(found);
                }
                if !jump.conditional {
                    return None;
                }
            }
            at = end;
        }
        None
    }

    /// Returns whether no iteration changes anything, and `address` is an instruction of the loop.
    fn only_waits(&self, code: &Code<'_>, address: u64) -> bool {
        let (mut read_first, mut written) = (Registers::default(), Registers::default());
        let (mut flags, mut loads, mut ends, mut holds) = (false, false, false, false);
        let mut at = self.head;
        for _ in 0..INSTRUCTIONS_MAX {
            let Some(instruction) = code.instruction(at) else { return false };
            let end = at + instruction.length as u64;
            holds |= at == address;
            read_first = read_first.and(instruction.reads.without(written));
            written = written.and(instruction.writes);
            // Flags of the iteration before would be a result that an iteration passes on. They
            // are also what the instructions of the detour change.
            if instruction.reads_flags && !flags {
                return false;
            }
            flags |= instruction.sets_flags;
            loads |= instruction.loads;
            if let Some(jump) = instruction.jump {
                ends |= jump.conditional;
                if at == self.jump {
                    return holds && loads && ends && !read_first.meets(written);
                }
                let target = end.checked_add_signed(jump.distance);
                let leaves = target.is_some_and(|target| target < self.head || target >= self.end());
                if !jump.conditional || !leaves {
                    return false;
                }
            }
            if end > self.jump {
                return false;
            }
            at = end;
        }
        false
    }
}
