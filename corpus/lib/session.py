"""A session: all chosen programs, one after the other."""

import fnmatch
import os
import shutil
import signal
import sys
import time

from . import births, machine, options as runner_options, record, table
from .measure import CONFIRM_TIMES, Measuring, Overdue, Plan
from .places import PROGRAMS
from .program import Fault, every
from .sample import adopt_orphans
from .supply import Missing, Supply


def main(words=None):
    options = runner_options.parse(words)
    try:
        programs = chosen(every(PROGRAMS), options.names, options.part)
    except Fault as fault:
        print(f"corpus: {fault}", file=sys.stderr)
        return 2
    if options.list:
        for program in programs:
            print(f"{program.name:24} {program.kind:12} {program.about}")
        return 0
    if options.provide:
        return provided(programs, options)
    if options.record:
        about, results = record.read(options.record)
        if options.confirm:
            confirmed(about, results, options)
    else:
        if not os.access(options.trimtab, os.X_OK):
            print(f"corpus: {options.trimtab} is not there: build it with make, or name another with --trimtab", file=sys.stderr)
            return 2
        about, results = measured(programs, options)
    if options.table:
        table.put(table.page(about, results))
    return summary(about, results)


def chosen(programs, names, part):
    """The programs that a command line means."""
    for name in names:
        if not any(fnmatch.fnmatch(program.name, name) for program in programs):
            raise Fault(f"there is no program {name} (--list names them)")
    return [program for program in programs if (not names or any(fnmatch.fnmatch(program.name, name) for name in names))
            and (part == "all" or program.part == part)]


def provided(programs, options):
    """Installs and fetches what programs need, and runs none of them; a later session finds it there."""
    supply = Supply(options.places, options.install, say)
    missing = 0
    for program in programs:
        try:
            supply.provide(program)
        except Missing as reason:
            missing += 1
            say(f"SKIPPED: {program.name}: {reason}")
    say(f"{len(programs) - missing} programs are there, {missing} are not")
    return 0


def measured(programs, options):
    """The machine's description and the results; Ctrl-C ends the session early and keeps what there is."""
    # A session that was started in the background of a script would not hear Ctrl-C otherwise.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    adopt_orphans()
    trimtab = options.trimtab.resolve()
    about = {**machine.describe(trimtab, options.seed, options.rounds), "births_refused": births.refusal(),
             "survey": options.survey}
    plan = Plan(trimtab, options.variant, options.rounds, options.seed, options.quiet_check, options.survey,
                time.monotonic() + options.seconds)
    supply = Supply(options.places, options.install, say)
    path = options.json or options.places.root / "record.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    say(f"seed {options.seed}, {options.rounds} rounds, {about['trimtab']} ({about['build']}), {len(programs)} programs")
    if about["births_refused"]:
        say(f"NOT COUNTED: threads, which need root or a lower kernel.perf_event_paranoid ({about['births_refused']})")
    results = []
    try:
        for number, program in enumerate(programs, 1):
            say(f"[{number}/{len(programs)}] {program.name}: {program.about}")
            measuring = Measuring(program, options.places, plan, say)
            results.append(measuring.result)
            one(supply, program, measuring)
            tell(measuring.result, options.seed)
            record.write(path, about, results, options.seed)
    except KeyboardInterrupt:
        say("stopped: what was measured until now is kept")
        record.write(path, about, results, options.seed)
    finally:
        shutil.rmtree(options.places.session, ignore_errors=True)
    say(f"record: {path}")
    return about, results


def confirmed(about, results, options):
    """Measures the programs of a record again that seem slower there; the later rounds decide. The record is written anew."""
    adopt_orphans()
    variants = tuple(name for name in options.variant if any(name in result.variants for result in results))
    plan = Plan(options.trimtab.resolve(), variants, CONFIRM_TIMES * about["rounds"], about["seed"], options.quiet_check,
                about.get("survey", "auto"))
    supply = Supply(options.places, options.install, say)
    programs = {program.name: program for program in every(PROGRAMS)}
    try:
        for number, result in enumerate(results):
            if result.name in programs and result.slower(about["seed"]):
                result.doubt(about["seed"])
                say(f"{result.name}: {', '.join(f'{name} {words}' for name, words in result.first.items())}")
                measuring = Measuring(programs[result.name], options.places, plan, say, confirms=False)
                one(supply, programs[result.name], measuring)
                results[number] = result.decided_by(measuring.result)
                tell(results[number], about["seed"])
    finally:
        shutil.rmtree(options.places.session, ignore_errors=True)
    record.write(options.json or options.record, about, results, about["seed"])


def one(supply, program, measuring):
    """Provides and measures a program; its result says what came of that."""
    result = measuring.result
    try:
        if time.monotonic() > measuring.plan.deadline:
            raise Overdue
        supply.provide(program)
        measuring.all()
    except Missing as missing:
        result.skipped = str(missing)
    except Overdue:
        # What differed until now is known, and that the rest does not is not.
        if not result.different():
            result.skipped = "the time that the session may take is over"
    except OSError as error:
        result.fault = f"cannot be started: {error}"


def tell(result, seed):
    """What came of a program, on standard error."""
    for line in verdicts(result, seed):
        say(f"  {line}")
    times = [f"{name} {interval.words()}" for name in result.variants
             if name != "plain" and (interval := result.interval(name, seed))]
    if times:
        say(f"  plain {table.plain_seconds(result)} s; {', '.join(times)}")


def verdicts(result, seed):
    """A line for each fault of a program, or for why it was skipped; none where all is well."""
    if result.skipped:
        return [f"SKIPPED: {result.name}: {result.skipped}"]
    found = [f"FAILED: {result.name}: {result.fault}"] if result.fault else []
    for difference, names in table.grouped(result).items():
        found.append(f"FAILED: {result.name} ({', '.join(names)}): {difference}")
    for name in result.slower(seed):
        found.append(f"FAILED: {result.name} ({name}): slower than plain, {result.interval(name, seed).words()}")
    return found


def summary(about, results):
    """Prints what came of all, and gives the exit status."""
    seed = about["seed"]
    skipped = [result for result in results if result.skipped]
    failed = [result for result in results if result.failed(seed)]
    for result in skipped + failed:
        print("\n".join(verdicts(result, seed)))
    late = [result.name for result in results if any(measured.late for measured in result.variants.values())]
    if late:
        print(f"NOT ATTACHED TO: some samples of {len(late)} programs ended before: {', '.join(late)}")
    if about.get("births_refused"):
        print(f"NOT COUNTED: the threads of all programs ({about['births_refused']})")
    unjudged = [result.name for result in results if about["rounds"] and not result.skipped and result.unjudged()]
    if unjudged:
        print(f"NOT JUDGED: the time of {len(unjudged)} programs, of which too few samples were quiet: {', '.join(unjudged)}")
    print(f"{len(results) - len(failed) - len(skipped)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed else 0


def say(words):
    print(words, file=sys.stderr, flush=True)
