//! Instructions of x86-64 that may occur in a wait loop: what they read and write.
//!
//! Everything else is unknown here, and a loop that contains it is no wait loop. So stores, calls,
//! floating point, counting in memory and all rare instructions are left out on purpose. Each form
//! is from the Intel 64 manual, volume 2.

/// Registers as bits: the lowest byte of register `n` is bit `n`, its other bytes are bit `n + 16`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Registers(u32);

impl Registers {
    const fn whole(register: u8) -> Self {
        Self((1 << register) | (1 << (register + 16)))
    }

    const fn low_byte(register: u8) -> Self {
        Self(1 << register)
    }

    /// Returns the registers of both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the registers of this that are not in the other.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether both have a part of a register in common.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// An instruction: its length and its effects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Instruction {
    /// Length in bytes.
    pub length: usize,
    /// Registers that it reads, those of an address included.
    pub reads: Registers,
    /// Registers that it writes.
    pub writes: Registers,
    /// Whether it reads the flags.
    pub reads_flags: bool,
    /// Whether it sets all flags that a branch may read.
    pub sets_flags: bool,
    /// Whether it reads memory.
    pub loads: bool,
    /// The jump, if it is one.
    pub jump: Option<Jump>,
}

/// A jump to a fixed address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jump {
    /// Distance of the target from the end of the instruction.
    pub distance: i64,
    /// Whether it depends on the flags.
    pub conditional: bool,
    /// Whether the distance is the last byte of the instruction, and its only byte.
    pub short: bool,
}

/// Prefixes of an instruction.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    operand: bool,
    repeat: bool,
    lock: bool,
    segment: bool,
    rex: Option<u8>,
}

impl Prefixes {
    fn bit(self, bit: u8) -> u8 {
        self.rex.map_or(0, |rex| rex >> bit & 1) << 3
    }
}

/// Reader of the bytes of one instruction.
struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.at += count;
        (self.at <= self.bytes.len()).then_some(())
    }

    fn number(&mut self, count: usize) -> Option<i64> {
        let end = self.at.checked_add(count)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        match *bytes {
            [a] => Some(i64::from(a as i8)),
            [a, b, c, d] => Some(i64::from(i32::from_le_bytes([a, b, c, d]))),
            _ => None,
        }
    }
}

/// Operands of an instruction: a register, and a register or memory.
#[derive(Clone, Copy)]
struct Operands {
    register: u8,
    /// The second register; `None`: memory.
    other: Option<u8>,
    address: Registers,
    /// The field of the register as an extension of the operation.
    extension: u8,
}

fn operands(bytes: &mut Bytes<'_>, prefixes: Prefixes) -> Option<Operands> {
    let byte = bytes.next()?;
    let (mode, extension, base) = (byte >> 6, byte >> 3 & 7, byte & 7);
    let mut found = Operands {
        register: extension | prefixes.bit(2),
        other: None,
        address: Registers::default(),
        extension,
    };
    if mode == 3 {
        found.other = Some(base | prefixes.bit(0));
        return Some(found);
    }
    let mut distance = match mode {
        1 => 1,
        2 => 4,
        _ => 0,
    };
    if base == 4 {
        let scaled = bytes.next()?;
        let (index, base) = ((scaled >> 3 & 7) | prefixes.bit(1), scaled & 7);
        if index != 4 {
            found.address = found.address.and(Registers::whole(index));
        }
        if base == 5 && mode == 0 {
            distance = 4;
        } else {
            found.address = found.address.and(Registers::whole(base | prefixes.bit(0)));
        }
    } else if base == 5 && mode == 0 {
        distance = 4; // relative to the next instruction
    } else {
        found.address = found.address.and(Registers::whole(base | prefixes.bit(0)));
    }
    bytes.skip(distance)?;
    Some(found)
}

/// Returns the byte register of this number; `None` if it is the second byte of a register.
fn byte_register(register: u8, prefixes: Prefixes) -> Option<Registers> {
    (register < 4 || prefixes.rex.is_some()).then(|| Registers::low_byte(register))
}

fn part(register: u8, byte: bool, prefixes: Prefixes) -> Option<Registers> {
    if byte { byte_register(register, prefixes) } else { Some(Registers::whole(register)) }
}

/// Decodes the first instruction of `bytes`; `None` if it may not occur in a wait loop, or is not
/// there as a whole.
pub fn decode(bytes: &[u8]) -> Option<Instruction> {
    let mut bytes = Bytes { bytes, at: 0 };
    let mut prefixes = Prefixes::default();
    let mut code = loop {
        match bytes.next()? {
            0x66 if !prefixes.operand => prefixes.operand = true,
            0xf3 if !prefixes.repeat => prefixes.repeat = true,
            0xf0 if !prefixes.lock => prefixes.lock = true,
            0x64 | 0x65 | 0x2e if !prefixes.segment => prefixes.segment = true,
            code => break code,
        }
    };
    if code & 0xf0 == 0x40 {
        prefixes.rex = Some(code);
        code = bytes.next()?;
    }
    let mut made = if code == 0x0f {
        let code = bytes.next()?;
        two_bytes(code, prefixes, &mut bytes)?
    } else {
        one_byte(code, prefixes, &mut bytes)?
    };
    made.length = bytes.at;
    // A write of 16 bits keeps the other bits of the register.
    let partial = prefixes.operand && made.writes != Registers::default();
    (!partial && bytes.at <= bytes.bytes.len()).then_some(made)
}

fn one_byte(code: u8, prefixes: Prefixes, bytes: &mut Bytes<'_>) -> Option<Instruction> {
    if prefixes.lock {
        return fence(code, prefixes, bytes);
    }
    if prefixes.repeat {
        // A pause; with other operations the prefix has other meanings.
        return (code == 0x90).then(Instruction::default);
    }
    let immediate = if prefixes.operand { 2 } else { 4 };
    match code {
        0x00..=0x3d if code & 7 < 6 => arithmetic(code, prefixes, bytes, immediate),
        0x63 => load(bytes, prefixes, true),
        0x70..=0x7f => jump(bytes, 1, true),
        0xeb => jump(bytes, 1, false),
        0xe9 if !prefixes.operand => jump(bytes, 4, false),
        0x80 | 0x81 | 0x83 => with_immediate(code, prefixes, bytes, immediate),
        0x84 | 0x85 => test(code == 0x84, prefixes, bytes, None),
        0xa8 | 0xa9 => {
            bytes.skip(if code == 0xa8 { 1 } else { immediate })?;
            Some(Instruction { reads: Registers::whole(0), sets_flags: true, ..Instruction::default() })
        }
        0xf6 | 0xf7 => test(code == 0xf6, prefixes, bytes, Some(immediate)),
        0x89 => {
            let found = operands(bytes, prefixes)?;
            let to = Registers::whole(found.other?);
            Some(Instruction {
                reads: Registers::whole(found.register),
                writes: to,
                ..Instruction::default()
            })
        }
        0x8a => {
            let found = operands(bytes, prefixes)?;
            let writes = byte_register(found.register, prefixes)?;
            let reads = found.other.map_or(Some(found.address), |other| byte_register(other, prefixes))?;
            Some(Instruction { reads, writes, loads: found.other.is_none(), ..Instruction::default() })
        }
        0x8b => load(bytes, prefixes, true),
        0x8d => load(bytes, prefixes, false)
            .filter(|made| made.loads)
            .map(|made| Instruction { loads: false, ..made }),
        0x90 if prefixes.rex.is_none() => Some(Instruction::default()),
        0x98 => {
            let all = Registers::whole(0);
            Some(Instruction { reads: all, writes: all, ..Instruction::default() })
        }
        0xb8..=0xbf => {
            bytes.skip(if prefixes.bit(3) != 0 { 8 } else { 4 })?;
            let writes = Registers::whole((code & 7) | prefixes.bit(0));
            Some(Instruction { writes, ..Instruction::default() })
        }
        0xc1 | 0xd1 => {
            let found = operands(bytes, prefixes)?;
            let to = Registers::whole(found.other.filter(|_| [4, 5, 7].contains(&found.extension))?);
            bytes.skip(usize::from(code == 0xc1))?;
            // A shift by 0 leaves the flags, so it does not count as setting them.
            Some(Instruction { reads: to, writes: to, ..Instruction::default() })
        }
        _ => None,
    }
}

fn two_bytes(code: u8, prefixes: Prefixes, bytes: &mut Bytes<'_>) -> Option<Instruction> {
    if prefixes.lock {
        return None;
    }
    if prefixes.repeat {
        // The mark of a branch target.
        return (code == 0x1e && bytes.next()? == 0xfa).then(Instruction::default);
    }
    match code {
        0x1f => operands(bytes, prefixes).map(|_| Instruction::default()),
        0x40..=0x4f => {
            let made = load(bytes, prefixes, true)?;
            Some(Instruction { reads: made.reads.and(made.writes), reads_flags: true, ..made })
        }
        0x80..=0x8f if !prefixes.operand => jump(bytes, 4, true),
        0x90..=0x9f => {
            let found = operands(bytes, prefixes)?;
            let writes = byte_register(found.other?, prefixes)?;
            Some(Instruction { writes, reads_flags: true, ..Instruction::default() })
        }
        0xae => {
            // Fences of loads, of all, of stores.
            let found = operands(bytes, prefixes)?;
            (found.other.is_some() && found.extension >= 5 && !prefixes.operand).then(Instruction::default)
        }
        0xaf => {
            let made = load(bytes, prefixes, true)?;
            Some(Instruction { reads: made.reads.and(made.writes), sets_flags: true, ..made })
        }
        0xb6 | 0xb7 | 0xbe | 0xbf => {
            let found = operands(bytes, prefixes)?;
            let reads = match found.other {
                Some(other) => part(other, code & 1 == 0, prefixes)?,
                None => found.address,
            };
            let writes = Registers::whole(found.register);
            Some(Instruction { reads, writes, loads: found.other.is_none(), ..Instruction::default() })
        }
        _ => None,
    }
}

/// Decodes a move into a register. Without `whole_source`, the operand is only an address.
fn load(bytes: &mut Bytes<'_>, prefixes: Prefixes, whole_source: bool) -> Option<Instruction> {
    let found = operands(bytes, prefixes)?;
    let reads = match found.other {
        Some(other) if whole_source => Registers::whole(other),
        Some(_) => return None,
        None => found.address,
    };
    let writes = Registers::whole(found.register);
    Some(Instruction { reads, writes, loads: found.other.is_none(), ..Instruction::default() })
}

fn jump(bytes: &mut Bytes<'_>, size: usize, conditional: bool) -> Option<Instruction> {
    let distance = bytes.number(size)?;
    let jump = Jump { distance, conditional, short: size == 1 };
    Some(Instruction { jump: Some(jump), reads_flags: conditional, ..Instruction::default() })
}

/// Operation number of comparing: it writes flags only.
const COMPARE: u8 = 7;

/// Decodes the two-operand operations: 0 add, 1 or, 4 and, 5 sub, 6 xor, 7 compare. Those that read
/// the carry are left out.
fn arithmetic(code: u8, prefixes: Prefixes, bytes: &mut Bytes<'_>, immediate: usize) -> Option<Instruction> {
    let (operation, form) = (code >> 3 & 7, code & 7);
    if operation == 2 || operation == 3 {
        return None;
    }
    let byte = form & 1 == 0;
    let made = Instruction { sets_flags: true, ..Instruction::default() };
    if form >= 4 {
        bytes.skip(if byte { 1 } else { immediate })?;
        let all = part(0, byte, prefixes)?;
        let writes = if operation == COMPARE { Registers::default() } else { all };
        return Some(Instruction { reads: all, writes, ..made });
    }
    let found = operands(bytes, prefixes)?;
    let own = part(found.register, byte, prefixes)?;
    let other = match found.other {
        Some(other) => part(other, byte, prefixes)?,
        None => found.address,
    };
    let to_register = form >= 2;
    let writes = match (operation, to_register) {
        (COMPARE, _) => Registers::default(),
        (_, true) => own,
        // Into memory: a store.
        (_, false) => found.other.map(|_| other)?,
    };
    // A register that is combined with itself by xor is set, whatever it was.
    let clears = operation == 6 && !byte && found.other == Some(found.register);
    let reads = if clears { Registers::default() } else { own.and(other) };
    Some(Instruction { reads, writes, loads: found.other.is_none(), ..made })
}

fn with_immediate(
    code: u8,
    prefixes: Prefixes,
    bytes: &mut Bytes<'_>,
    immediate: usize,
) -> Option<Instruction> {
    let found = operands(bytes, prefixes)?;
    let byte = code == 0x80;
    bytes.skip(if code == 0x81 { immediate } else { 1 })?;
    let other = match found.other {
        Some(other) => part(other, byte, prefixes)?,
        None => found.address,
    };
    let writes = match found.extension {
        2 | 3 => return None,
        COMPARE => Registers::default(),
        _ => found.other.map(|_| other)?,
    };
    let loads = found.other.is_none();
    Some(Instruction { reads: other, writes, loads, sets_flags: true, ..Instruction::default() })
}

/// Decodes a test of bits: of two operands, or of one with an immediate.
fn test(
    byte: bool,
    prefixes: Prefixes,
    bytes: &mut Bytes<'_>,
    immediate: Option<usize>,
) -> Option<Instruction> {
    let found = operands(bytes, prefixes)?;
    let mut reads = match found.other {
        Some(other) => part(other, byte, prefixes)?,
        None => found.address,
    };
    match immediate {
        Some(_) if found.extension > 1 => return None,
        Some(immediate) => bytes.skip(if byte { 1 } else { immediate })?,
        None => reads = reads.and(part(found.register, byte, prefixes)?),
    }
    let loads = found.other.is_none();
    Some(Instruction { reads, loads, sets_flags: true, ..Instruction::default() })
}

/// Decodes `lock or $0, (address)`, which compilers use as a fence: it changes no memory.
fn fence(code: u8, prefixes: Prefixes, bytes: &mut Bytes<'_>) -> Option<Instruction> {
    if code != 0x83 {
        return None;
    }
    let found = operands(bytes, prefixes)?;
    let fences = found.extension == 1 && found.other.is_none() && bytes.next()? == 0;
    fences.then_some(Instruction { reads: found.address, sets_flags: true, ..Instruction::default() })
}
