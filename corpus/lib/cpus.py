"""Sets of CPUs, as the kernel writes them."""


def cpus_of(words):
    """The CPUs of a kernel's list, as 0-3,8."""
    cpus = set()
    for part in words.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def list_of(cpus):
    """The kernel's list of CPUs, for messages."""
    return ",".join(str(cpu) for cpu in sorted(cpus))
