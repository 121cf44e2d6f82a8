"""Teams for tests: the same function on each rank, as processes or threads, and the results of each."""

import multiprocessing
import pathlib
import re
import threading
import traceback

import trimtab_team

# Longer than any test takes, so that a fault is a failure and not an endless wait.
PATIENCE = 120.0

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "teams-python.md"


def examples():
    """Returns the guide's programs, the command that starts each (None for Python alone), and the lines that it prints."""
    found = []
    for program, words in re.findall(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", GUIDE.read_text(), re.S):
        lines = [line[4:] for line in words.splitlines()]
        command = lines.pop(0)[2:].split() if lines[0].startswith("$ ") else None
        found.append((program, command, lines))
    return found


def _rank(team, number, work, arguments, results):
    try:
        with team.join(number) as rank:
            results.put((number, None, work(rank, *arguments)))
    except BaseException as error:
        results.put((number, traceback.format_exc(), error))


def _gathered(results, ranks):
    found, wrong = {}, []
    for _ in range(ranks):
        number, words, outcome = results.get(timeout=PATIENCE)
        found[number] = outcome
        if words:
            wrong.append("rank %d: %s" % (number, words))
    if wrong:
        raise AssertionError("\n".join(wrong))
    return [found[number] for number in range(ranks)]


def processes(ranks, work, *arguments, method="fork", **options):
    """Runs work(rank, *arguments) in processes; its results in the order of ranks."""
    context = multiprocessing.get_context(method)
    team = trimtab_team.Team(ranks, deadline=PATIENCE, **options)
    results = context.Queue()
    started = [
        context.Process(target=_rank, args=(team, number, work, arguments, results)) for number in range(ranks)
    ]
    for process in started:
        process.start()
    try:
        return _gathered(results, ranks)
    finally:
        for process in started:
            process.join(PATIENCE)
            process.kill()
            process.join()
        results.close()


def threads(ranks, work, *arguments, **options):
    """The same in threads of this process."""
    import queue

    team = trimtab_team.Team(ranks, deadline=PATIENCE, **options)
    results = queue.Queue()
    started = [
        threading.Thread(target=_rank, args=(team, number, work, arguments, results)) for number in range(ranks)
    ]
    for thread in started:
        thread.start()
    try:
        return _gathered(results, ranks)
    finally:
        for thread in started:
            thread.join(PATIENCE)
