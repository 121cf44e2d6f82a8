//! The `bpf` system call, as far as an iterator needs it: a program is loaded, linked to an
//! iterator, and the link gives a file for each pass.
//!
//! All of it belongs to descriptors: when the last one is closed, the kernel drops program and
//! link.

use super::errno;
use rustix::io::Errno;
use std::ffi::{CStr, c_int, c_long};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Commands of the call (`enum bpf_cmd`).
const PROG_LOAD: c_int = 5;
const LINK_CREATE: c_int = 28;
const ITER_CREATE: c_int = 33;
/// `BPF_PROG_TYPE_TRACING`.
const TRACING: u32 = 26;
/// `BPF_TRACE_ITER`.
const TRACE_ITER: u32 = 28;

/// One instruction (`struct bpf_insn`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Instruction {
    /// The operation.
    pub code: u8,
    /// The registers: destination in the low half, source in the high half; the other way round on
    /// big-endian machines.
    pub registers: u8,
    /// A distance, in bytes or instructions.
    pub offset: i16,
    /// A constant.
    pub immediate: i32,
}

/// `union bpf_attr` for [`PROG_LOAD`], up to the last field that is used.
#[repr(C)]
struct LoadAttr {
    kind: u32,
    instructions_len: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
    btf: u32,
    function_size: u32,
    functions: u64,
    functions_len: u32,
    line_size: u32,
    lines: u64,
    lines_len: u32,
    attach_function: u32,
    attach_object: u32,
    zero: u32,
}

/// `union bpf_attr` for [`LINK_CREATE`].
#[repr(C)]
struct LinkAttr {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    parameter: u64,
    parameter_len: u32,
    zero: u32,
}

/// `union bpf_iter_link_info` for tasks.
#[repr(C)]
struct TaskParameter {
    thread: u32,
    process: u32,
    process_file: u32,
}

/// `union bpf_attr` for [`ITER_CREATE`].
#[repr(C)]
struct IterAttr {
    link: u32,
    flags: u32,
}

const _: () = assert!(size_of::<Instruction>() == 8, "as the kernel lays it out");
const _: () = assert!(size_of::<LoadAttr>() == 120, "as the kernel lays it out, without gaps");
const _: () = assert!(size_of::<LinkAttr>() == 32, "as the kernel lays it out, without gaps");

/// Returns a descriptor as the kernel's structures have it.
fn number(fd: RawFd) -> Result<u32, Errno> {
    u32::try_from(fd).map_err(|_| Errno::BADF)
}

fn address<T: ?Sized>(of: *const T) -> u64 {
    of.cast::<u8>() as usize as u64
}

/// Calls the kernel with a structure; the answer is a new descriptor.
fn call<T>(command: c_int, attr: &T) -> Result<OwnedFd, Errno> {
    let size = size_of::<T>() as c_long;
    // SAFETY: the kernel reads `size` bytes from the pointer, which is the size of the live
    // structure behind it. The structures of this module have no gaps, and the addresses in them
    // point to values that their makers borrow during the call. The kernel keeps no reference, and
    // writes into none of them: no log is requested.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size) };
    match c_int::try_from(answer) {
        // SAFETY: the kernel made this descriptor just now, and nothing else knows of it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(errno::last()),
    }
}

/// Loads a program for an iterator. `function` is the number of the iterator's function among the
/// kernel's types.
///
/// # Errors
/// `EPERM` without `CAP_BPF` and `CAP_PERFMON`; `EACCES` or `EINVAL` if the kernel finds the
/// program unsound or has no such iterator; `ENOSYS` on a kernel without the call.
pub fn load_iterator(
    program: &[Instruction],
    licence: &CStr,
    name: [u8; 16],
    function: u32,
) -> Result<OwnedFd, Errno> {
    let attr = LoadAttr {
        kind: TRACING,
        instructions_len: u32::try_from(program.len()).map_err(|_| Errno::TOOBIG)?,
        instructions: address(program.as_ptr()),
        licence: address(licence.as_ptr()),
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
        interface: 0,
        attach_type: TRACE_ITER,
        btf: 0,
        function_size: 0,
        functions: 0,
        functions_len: 0,
        line_size: 0,
        lines: 0,
        lines_len: 0,
        attach_function: function,
        attach_object: 0,
        zero: 0,
    };
    call(PROG_LOAD, &attr)
}

/// Links a program to an iterator over the threads of one process.
///
/// # Errors
/// `E2BIG` or `EINVAL` on a kernel whose iterator takes no process (before 6.1); other errors of
/// the kernel.
pub fn link_to_process(program: impl AsFd, process: u32) -> Result<OwnedFd, Errno> {
    let parameter = TaskParameter { thread: 0, process, process_file: 0 };
    let attr = LinkAttr {
        program: number(program.as_fd().as_raw_fd())?,
        target: 0,
        attach_type: TRACE_ITER,
        flags: 0,
        parameter: address(&raw const parameter),
        parameter_len: size_of::<TaskParameter>() as u32,
        zero: 0,
    };
    call(LINK_CREATE, &attr)
}

/// Begins a pass: the file gives the output of the program for each task, to its end.
///
/// # Errors
/// The kernel's error.
pub fn begin_pass(link: impl AsFd) -> Result<OwnedFd, Errno> {
    call(ITER_CREATE, &IterAttr { link: number(link.as_fd().as_raw_fd())?, flags: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_and_no_descriptor_comes_of_it() {
        let endless = [Instruction { code: 0x05, registers: 0, offset: -1, immediate: 0 }];
        assert!(load_iterator(&endless, c"Dual MIT/GPL", [0; 16], 1).is_err());
        assert!(load_iterator(&[], c"Dual MIT/GPL", [0; 16], 0).is_err());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(link_to_process(&file, 1).is_err());
        assert!(begin_pass(&file).is_err());
    }
}
