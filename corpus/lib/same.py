"""Sameness: in what a sample differs from a plain one."""

import re

from .cpus import list_of
from .program import COUNTS

OWN = "trimtab:"  # how lines begin that trimtab itself writes on standard error
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?")
SHOWN = 160  # characters of a difference that are shown


def own_lines(err):
    """The lines of standard error that trimtab wrote."""
    return [line for line in err.decode(errors="replace").splitlines() if line.startswith(OWN)]


def differences(same, plain, other):
    """In what two samples differ, each in one line; empty where they are the same."""
    found = []
    if other.status != plain.status:
        found.append(f"status {status_words(other.status)} instead of {status_words(plain.status)}{last_words(other.err)}")
    for name, mode, before, after in (("stdout", same.stdout, plain.out, other.out), ("stderr", same.stderr, plain.err, other.err)):
        difference = text_difference(mode, same, before, after)
        # Where a program stops early its output differs too, and says no more.
        if difference and not found:
            found.append(f"{name}: {difference}")
    for name in same.files:
        if other.files.get(name) != plain.files.get(name):
            found.append(f"{name}: " + ("missing" if other.files.get(name) is None else "other bytes"))
    if other.left != plain.left:
        found.append(f"left behind: {', '.join(other.left) or 'nothing'} instead of {', '.join(plain.left) or 'nothing'}")
    if other.attach and not other.late:
        found.append(other.attach)
    return found


def seen_differences(same, plain, other):
    """The same of what was seen of processes and threads."""
    found = []
    if same.threads == "same" and None not in (plain.threads, other.threads) and other.threads != plain.threads:
        found.append(f"starts {other.threads} threads instead of {plain.threads}")
    if same.threads == "same" and plain.lost + other.lost:
        found.append(f"threads not counted: {plain.lost + other.lost} records of births were lost")
    if same.masks == "hold" and other.held is not None:
        for mask, name in other.masks.items():
            if not mask <= other.held:
                found.append(f"{name} may run on CPUs {list_of(mask)}, held are {list_of(other.held)}")
                break
    for variable in (*(COUNTS if same.counts == "same" else ()), *same.environment):
        for process in plain.environments.keys() & other.environments.keys():
            before, after = (seen.environments[process].get(variable) for seen in (plain, other))
            if before != after:
                found.append(f"{process} sees {variable} {value_words(after)} instead of {value_words(before)}")
                break
    return found


def changed_variables(plain, other):
    """Names of variables that any program seen in both samples had otherwise: added, removed, changed."""
    added, removed, changed = set(), set(), set()
    for process in plain.environments.keys() & other.environments.keys():
        before, after = plain.environments[process], other.environments[process]
        added |= after.keys() - before.keys()
        removed |= before.keys() - after.keys()
        changed |= {name for name in before.keys() & after.keys() if before[name] != after[name]}
    changed -= {"TMPDIR", "PWD", "_"}
    return {"added": sorted(added), "removed": sorted(removed), "changed": sorted(changed)}


def text_difference(mode, same, before, after):
    """In what two outputs differ, or nothing."""
    if mode == "ignored":
        return ""
    before, after = (wanted_lines(same, text) for text in (before, after))
    if mode == "lines":
        before, after = sorted(before), sorted(after)
    if before == after:
        return ""
    if mode == "numbers":
        return number_difference("\n".join(before), "\n".join(after), same.tolerance)
    for one, two in zip(before, after):
        if one != two:
            return f"{short(two)} instead of {short(one)}"
    if len(after) > len(before):
        return f"also {short(after[len(before)])}"
    return f"{short(before[len(after)])} is missing"


def wanted_lines(same, text):
    """The lines of a text that are compared, with masks put in. Trimtab's own are left out."""
    kept = []
    for line in text.decode(errors="replace").splitlines():
        if line.startswith(OWN) or any(re.search(pattern, line) for pattern in same.drop):
            continue
        if same.keep and not any(re.search(pattern, line) for pattern in same.keep):
            continue
        for pattern in same.mask:
            line = re.sub(pattern, "~", line)
        kept.append(line)
    return kept


def number_difference(before, after, tolerance):
    """The first number that is beyond the tolerance, or words that differ."""
    words = [NUMBER.sub("#", " ".join(text.split())) for text in (before, after)]
    if words[0] != words[1]:
        return f"other words: {first_difference(words[0], words[1])}"
    for one, two in zip(NUMBER.findall(before), NUMBER.findall(after)):
        x, y = (float(number.replace("d", "e").replace("D", "e")) for number in (one, two))
        if abs(x - y) > tolerance * max(abs(x), abs(y)):
            return f"{two} instead of {one}"
    return ""


def first_difference(before, after):
    position = next((at for at, (one, two) in enumerate(zip(before, after)) if one != two), min(len(before), len(after)))
    begin = max(0, position - 20)
    return f"{short(after[begin:begin + 60])} instead of {short(before[begin:begin + 60])}"


def status_words(status):
    if status is None:
        return "none (it hung and was killed)"
    return f"{status}" if status >= 0 else f"signal {-status}"


def last_words(err):
    """The words of standard error that tell most of a status that is not the plain one: from the last error on, or the last line."""
    lines = [line.strip() for line in err.decode(errors="replace").splitlines() if re.search(r"\w", line)]
    if not lines:
        return ""
    errors = [at for at, line in enumerate(lines) if re.search(r"\berror\b", line, re.IGNORECASE)]
    return f" ({short(' '.join(lines[errors[-1]:][:3] if errors else lines[-1:]))})"


def value_words(value):
    return "not at all" if value is None else repr(value)


def short(line):
    line = line.strip()
    return repr(line if len(line) <= SHOWN else line[:SHOWN] + "...")
