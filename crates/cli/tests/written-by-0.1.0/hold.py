"""Holds a CPU as a run of version 0.1.0 does: hold.py FOLDER BOOT CPU

Written from the layouts that version 0.1.0 documents (crates/linux/src/ledger, layout.rs and
record.rs), without its code. Prints "held" or "refused", and on "refused" the command in the
record. Ends with its standard input.
"""

import fcntl
import os
import struct
import sys
import time

F_OFD_SETLK = 37
MASK = (1 << 64) - 1


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & MASK
    return value


def lock(file, at):
    """Locks one byte; returns whether it was free."""
    try:
        fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhxxxxqqixxxx", fcntl.F_WRLCK, 0, at, 1, 0))
    except BlockingIOError:
        return False
    return True


folder, boot, cpu = sys.argv[1], sys.argv[2], int(sys.argv[3])
stem = f"trimtab-{boot}"
locks = open(os.path.join(folder, stem + ".locks"), "r+b")
holders = open(os.path.join(folder, stem + ".holders"), "r+b")
if not lock(locks, cpu):
    holders.seek(256 * cpu)
    record = holders.read(256)
    length = struct.unpack_from("<H", record, 56)[0]
    whole = record[:4] == b"ttab" and fnv1a(record[:248]) == struct.unpack_from("<Q", record, 248)[0]
    print("refused", record[64 : 64 + length].decode() if whole else "by an unreadable record", flush=True)
    sys.exit()
place = os.stat(folder)
tag = fnv1a(struct.pack("<QQQ", place.st_dev, place.st_ino, fnv1a(stem.encode()))) & 0xFFFFF
hold = 7
if not lock(locks, (1 << 62) + (tag << 41) + hold):
    sys.exit("another process has the same hold")
with open("/proc/self/stat") as file:
    start = int(file.read().rsplit(")", 1)[1].split()[19])
label = b"a run of 0.1.0"
record = b"ttab" + struct.pack(
    "<HHIIQQQQQH6x",
    1,
    0,
    os.getpid(),
    os.getuid(),
    start,
    os.stat("/proc/self/ns/pid").st_ino,
    hold,
    0,
    time.clock_gettime_ns(time.CLOCK_BOOTTIME),
    len(label),
)
record += label.ljust(184, b"\0")
holders.seek(256 * cpu)
holders.write(record + struct.pack("<Q", fnv1a(record)))
holders.flush()
print("held", flush=True)
sys.stdin.read()
