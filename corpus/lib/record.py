"""The record of a session: its results as JSON."""

import json
from dataclasses import asdict

from .result import Measured, Result

SCHEMA = "trimtab.corpus/1"


def write(path, about, results, seed):
    """Writes all results; called after each program, so that an interrupted session has its record."""
    programs = []
    for result in results:
        table = asdict(result)
        for name in result.variants:
            interval = None if name == "plain" else result.interval(name, seed)
            table["variants"][name]["slowdown"] = asdict(interval) if interval else None
        programs.append(table)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps({"schema": SCHEMA, "about": about, "programs": programs}, indent=1) + "\n")
    part.replace(path)


def read(path):
    """What was written: the machine's description, and the results."""
    content = json.loads(path.read_text())
    if content.get("schema") != SCHEMA:
        raise ValueError(f"{path} is no record of the corpus ({SCHEMA})")
    results = []
    for table in content["programs"]:
        variants = {}
        for name, measured in table.pop("variants").items():
            measured.pop("slowdown")
            variants[name] = Measured(**measured)
        results.append(Result(**table, variants=variants))
    return content["about"], results
