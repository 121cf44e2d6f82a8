"""Confinement: a plain sample on some of the machine's CPUs, as a run has them.

An affinity mask tells most programs how many CPUs there are. Some ask the C library for the number of
online CPUs instead (pigz). A run answers them with its own CPUs, and a mask does not change what they
are told. For these a file that lists the CPUs is put over the kernel's, in a mount namespace of the
sample's own, which needs root.
"""

import ctypes
import os

from .cpus import list_of

ONLINE = b"/sys/devices/system/cpu/online"
NEW_MOUNTS = 0x20000  # CLONE_NEWNS
BIND, RECURSIVE, PRIVATE = 0x1000, 0x4000, 0x40000  # MS_BIND, MS_REC, MS_PRIVATE


def by_mask(cpus, _folder):
    """A function that confines the calling process by its mask."""
    return lambda: os.sched_setaffinity(0, cpus)


def by_online(cpus, folder):
    """The same, and the CPUs are the only ones that are online; None where this is not allowed."""
    if os.geteuid() != 0:
        return None
    listed = folder / "online"
    listed.write_text(list_of(cpus) + "\n")
    library, path = ctypes.CDLL(None), bytes(listed)

    def confine():
        os.sched_setaffinity(0, cpus)
        # A container may refuse it to its root, too; the mask alone counts then.
        if library.unshare(NEW_MOUNTS) == 0 and library.mount(b"none", b"/", None, ctypes.c_ulong(RECURSIVE | PRIVATE), None) == 0:
            library.mount(path, ONLINE, None, ctypes.c_ulong(BIND), None)

    return confine
