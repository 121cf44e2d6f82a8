//! The program inside the kernel: for each task of a pass it writes one record.
//!
//! Each value is a load from the task, at the place that this kernel's own description of its types
//! gives, and a store into a record on the stack. The kernel checks all of it before it runs.

use super::btf::{Btf, Field, TypeId};
use super::record::{MARK, RECORD_BYTES, place};
use crate::sys::bpf::Instruction;
use std::ffi::CStr;

/// Licence of the program, which is part of trimtab (MIT or Apache-2.0). The kernel lends
/// `bpf_seq_write` only to programs that say they are compatible with the GPL, and this is its word
/// for a program under MIT. No code under the GPL is linked.
pub(super) const LICENCE: &CStr = c"Dual MIT/GPL";
/// Name of the program, as `bpftool prog` shows it.
pub(super) const NAME: [u8; 16] = *b"trimtab_tasks\0\0\0";

/// Registers.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const SEQUENCE: u8 = 6;
const TASK: u8 = 7;
const STACK: u8 = 10;
/// Operations.
const LOAD_4: u8 = 0x61;
const LOAD_8: u8 = 0x79;
const STORE_4: u8 = 0x63;
const STORE_8: u8 = 0x7b;
const STORE_CONSTANT_4: u8 = 0x62;
const MOVE: u8 = 0xbf;
const MOVE_CONSTANT: u8 = 0xb7;
const ADD_CONSTANT: u8 = 0x07;
const JUMP_IF_EQUAL: u8 = 0x15;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Number of `bpf_seq_write(sequence, data, bytes)`.
const SEQ_WRITE: i32 = 127;

/// The values of a record: place in the record, bytes there, names of the field in `task_struct`.
/// The second name is that of older kernels.
const VALUES: [(i16, u32, [&str; 2]); 10] = [
    (place::TGID, 4, ["tgid", ""]),
    (place::TID, 4, ["pid", ""]),
    (place::RUN, 8, ["se.sum_exec_runtime", ""]),
    (place::WAIT, 8, ["sched_info.run_delay", ""]),
    (place::SLICES, 8, ["sched_info.pcount", ""]),
    (place::VOLUNTARY, 8, ["nvcsw", ""]),
    (place::START, 8, ["start_boottime", ""]),
    (place::STATE, 4, ["__state", ""]),
    (place::EXIT, 4, ["exit_state", ""]),
    (place::CPU, 4, ["thread_info.cpu", "cpu"]),
];

/// A program, and the function of the kernel that it belongs to.
#[derive(Debug)]
pub(super) struct IteratorProgram {
    pub(super) instructions: Vec<Instruction>,
    pub(super) function: TypeId,
}

fn step(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    Instruction { code, registers, offset, immediate }
}

impl IteratorProgram {
    /// Writes the program for the kernel with these types.
    ///
    /// # Errors
    /// The name that the kernel lacks.
    pub(super) fn new(btf: &Btf<'_>) -> Result<Self, &'static str> {
        let function = btf.function("bpf_iter_task").ok_or("bpf_iter_task")?;
        let task = btf.structure("task_struct").ok_or("task_struct")?;
        let context = btf.structure("bpf_iter__task").ok_or("bpf_iter__task")?;
        let meta = btf.structure("bpf_iter_meta").ok_or("bpf_iter_meta")?;
        let offset = |of: TypeId, name: &'static str| {
            let field = btf.field(of, name).filter(|field| field.bytes == 8);
            field.and_then(|field| i16::try_from(field.offset).ok()).ok_or(name)
        };
        let record = -(RECORD_BYTES as i16);
        let mut steps = vec![
            step(LOAD_8, SEQUENCE, R1, offset(context, "meta")?, 0),
            step(LOAD_8, TASK, R1, offset(context, "task")?, 0),
        ];
        // The jump over all that follows up to the end, which has two instructions.
        let jump = steps.len();
        steps.push(step(LOAD_8, SEQUENCE, SEQUENCE, offset(meta, "seq")?, 0));
        for (to, bytes, names) in VALUES {
            let field = names.iter().find_map(|name| btf.field(task, name)).ok_or(names[0])?;
            let (load, from) = load(field).filter(|_| field.bytes <= bytes).ok_or(names[0])?;
            steps.push(step(load, R1, TASK, from, 0));
            steps.push(step(if bytes == 8 { STORE_8 } else { STORE_4 }, STACK, R1, record + to, 0));
        }
        steps.extend([
            step(STORE_CONSTANT_4, STACK, 0, record + place::MARK, MARK as i32),
            step(MOVE, R1, SEQUENCE, 0, 0),
            step(MOVE, R2, STACK, 0, 0),
            step(ADD_CONSTANT, R2, 0, 0, i32::from(record)),
            step(MOVE_CONSTANT, R3, 0, 0, RECORD_BYTES as i32),
            step(CALL, 0, 0, 0, SEQ_WRITE),
        ]);
        let over = i16::try_from(steps.len() - jump).map_err(|_| "task_struct")?;
        // After its last task a pass calls once more, without a task.
        steps.insert(jump, step(JUMP_IF_EQUAL, TASK, 0, over, 0));
        steps.extend([step(MOVE_CONSTANT, R0, 0, 0, 0), step(EXIT, 0, 0, 0, 0)]);
        Ok(Self { instructions: steps, function })
    }
}

/// Returns operation and distance for a load of this field.
fn load(field: Field) -> Option<(u8, i16)> {
    let code = match field.bytes {
        4 => LOAD_4,
        8 => LOAD_8,
        _ => return None,
    };
    i16::try_from(field.offset).ok().map(|offset| (code, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_the_iterator_is_told_apart() {
        let bytes = crate::task_iterator::btf::tests::small();
        let missing = IteratorProgram::new(&Btf::parse(&bytes).unwrap()).unwrap_err();
        assert_eq!(missing, "bpf_iter_task");
    }

    #[test]
    fn the_jump_without_a_task_leads_to_the_end() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            return crate::skip::skipped("this kernel does not describe its types");
        };
        let steps = IteratorProgram::new(&Btf::parse(&bytes).unwrap()).unwrap().instructions;
        let jump = steps.iter().position(|step| step.code == JUMP_IF_EQUAL).unwrap();
        let target = jump + 1 + usize::try_from(steps[jump].offset).unwrap();
        assert_eq!((target, steps.last().unwrap().code), (steps.len() - 2, EXIT));
    }
}
