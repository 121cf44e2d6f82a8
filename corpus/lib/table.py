"""The table of docs/corpus.md."""

from .load import NOISY_PERCENT
from .places import PAGE
from .program import ON_REQUEST, VARIANTS
from .variant import JUDGED_BY_TIME

MARKS = ("<!-- corpus: begin -->", "<!-- corpus: end -->")
TIMED = tuple(name for name in VARIANTS if name != "plain")


def page(about, results):
    """What stands between the marks."""
    seed = about["seed"]
    there = [result for result in results if not result.skipped]
    skipped = [result for result in results if result.skipped]
    failed = [result for result in there if result.failed(seed)]
    passed = [result for result in there if not result.failed(seed)]
    lines = [heading(about, there), "", f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped.", ""]
    if failed:
        lines += ["### Losses", "", *losses(failed, seed), ""]
    lines += ["### All", "", *rows(failed + passed, seed), ""]
    if skipped:
        lines += ["### Skipped", "", "| program | why |", "|---|---|"]
        lines += [f"| {result.name} | {cell(result.skipped)} |" for result in skipped]
        lines.append("")
    return "\n".join(lines)


def heading(about, results):
    """When, on what, and how busy it was."""
    first = (f"Measured {about['date'][:16].replace('T', ' ')} UTC at commit {about['commit'] or 'unknown'} ({about['build']} build): "
             f"{about['processor']}{' (virtual machine)' if about['virtual'] else ''}, {about['cpus']} CPUs, Linux {about['kernel']}, "
             f"{about['system']}; ")
    if about.get("survey", "auto") != "auto":
        first += f"`--survey {about['survey']}`; "
    if not about["rounds"]:
        return first + "behaviour only: each variant ran once, and times were not measured."
    shares = [others for result in results if (others := result.others())]
    middle = sorted(share[0] for share in shares)[len(shares) // 2] if shares else 0.0
    noisy = sum(flag for result in results for measured in result.variants.values() for flag in measured.noisy)
    samples = sum(len(measured.noisy) for result in results for measured in result.variants.values())
    return (f"{first}{about['rounds']} rounds, seed {about['seed']}. Others took {middle:.0f} % of one CPU in the "
            f"middle; {noisy} of {samples} samples were noisy (others above {NOISY_PERCENT:.0f} %) and their times do not count. Programs that seemed slower "
            f"were measured again, and only the later rounds decide.")


def losses(failed, seed):
    """A line for each difference, those of behaviour first."""
    lines = []
    for result in failed:
        if result.fault:
            lines.append(f"- **{result.name}**: {cell(result.fault)}")
        for difference, names in grouped(result).items():
            lines.append(f"- **{result.name}** ({', '.join(names)}): {cell(difference)}")
    for result in failed:
        for name in result.slower(seed):
            lines.append(f"- **{result.name}** ({name}): slower, {result.interval(name, seed).words()}")
    return lines


def grouped(result):
    """Difference -> the variants that have it."""
    found = {}
    for name, measured in result.variants.items():
        for difference in measured.differences:
            found.setdefault(difference, []).append(name)
    return found


def rows(results, seed):
    timed = [name for name in TIMED if name not in ON_REQUEST or any(name in result.variants for result in results)]
    lines = ["| program | version | what it is | same behaviour | plain s | " + " | ".join(timed) + " | others % | notes |",
             "|---|---|---|---|---:|" + "---|" * (len(timed) + 2)]
    for result in results:
        others = result.others()
        lines.append(" | ".join([
            f"| {result.name}", result.version, cell(result.about), behaviour(result), plain_seconds(result),
            *(time_cell(result, name, seed) for name in timed),
            f"{others[0]:.0f} to {others[1]:.0f}" if others else "", f"{cell(notes(result))} |"]))
    return lines


def notes(result):
    first = [f"{name} in the first rounds: {words}" for name, words in result.first.items()]
    return "; ".join([result.note] * bool(result.note) + first)


def behaviour(result):
    if result.fault:
        return "**not judged**"
    different = result.different()
    return f"**no**: {', '.join(different)}" if different else "yes"


def plain_seconds(result):
    times = sorted(time for time in result.variants["plain"].seconds if time) if "plain" in result.variants else []
    return f"{times[len(times) // 2]:.2f}" if times else ""


def time_cell(result, name, seed):
    """The interval; bold where it is a loss, in brackets where too few samples were quiet."""
    if name not in result.variants or "plain" not in result.variants:
        return "-"
    interval = result.interval(name, seed)
    if interval is None:
        return "noisy" if result.variants[name].seconds else ""
    if interval.slower is None:
        return f"({interval.words()})"
    return f"**{interval.words()}**" if interval.slower and name in JUDGED_BY_TIME else interval.words()


def cell(text):
    """Text that breaks no table."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def put(text, path=PAGE):
    """Puts the text between the marks of the page."""
    content = path.read_text()
    begin, end = (content.index(mark) for mark in MARKS)  # the page is ours: marks that are gone are a bug
    path.write_text(f"{content[:begin]}{MARKS[0]}\n{text}\n{content[end:]}")
