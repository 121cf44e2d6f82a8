"""The runner's options."""

import argparse
from pathlib import Path

from .places import REPOSITORY, Places
from .program import ON_REQUEST, STANDARD, VARIANTS

ROUNDS = 7  # of all programs; five quiet pairs are needed for a verdict
PART_SECONDS = 285.0  # of the part for CI; the sample that runs then is the last, and five minutes are kept


def parse(words=None):
    parser = argparse.ArgumentParser(
        prog="corpus/run", description="Runs programs of others plainly and by trimtab, in turns, and compares status, output, threads, "
        "masks, environment and time.", epilog="Exit status: 0 when all that ran behave the same and none is slower beyond noise, "
        "1 when not, 2 for wrong options.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs (default: all); a pattern as open* takes several")
    parser.add_argument("--list", action="store_true", help="name the programs and stop")
    parser.add_argument("--provide", action="store_true", help="get the programs (with --install), run nothing")
    parser.add_argument("--part", choices=["all", "ci"], default="all",
                        help="ci: what fits in five minutes; behaviour only, times are not judged")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"timed rounds (default {ROUNDS}; 0 with --part ci: behaviour only)")
    parser.add_argument("--variant", type=variants, default=STANDARD, metavar="LIST",
                        help=f"of {','.join(VARIANTS)} (default: all but {','.join(ON_REQUEST)})")
    parser.add_argument("--seed", type=int, default=18, help="of the order and the intervals (default 18)")
    parser.add_argument("--trimtab", type=Path, default=REPOSITORY / "target/release/trimtab", metavar="PROGRAM")
    parser.add_argument("--install", action=argparse.BooleanOptionalAction, default=False,
                        help="install packages (root on Debian or Ubuntu) and fetch wheels")
    parser.add_argument("--survey", choices=["auto", "full", "none"], default="auto",
                        help="how runs measure the load of others (default auto); with none, for a machine under load, they are "
                        "given the CPUs that plain runs have")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the record goes (default target/corpus/record.json)")
    parser.add_argument("--table", action="store_true", help="put the table into docs/corpus.md")
    parser.add_argument("--from", dest="record", type=Path, metavar="FILE", help="run nothing: take the results of a record")
    parser.add_argument("--confirm", action="store_true",
                        help="with --from: measure the programs again that seem slower in the record, by three times its rounds")
    parser.add_argument("--quiet-check", action="store_true", help="say with every sample what others took of a CPU meanwhile")
    options = parser.parse_args(words)
    if options.rounds is None:
        options.rounds = 0 if options.part == "ci" else ROUNDS
    if options.rounds < 0:
        parser.error("--rounds is to be 0 or more")
    if options.confirm and not options.record:
        parser.error("--confirm needs a record (--from): a session confirms by itself")
    options.places = Places.default()
    options.seconds = PART_SECONDS if options.part == "ci" else float("inf")
    return options


def variants(words):
    """The variants of a list; plain always, since the others are compared with it."""
    names = words.split(",")
    for name in names:
        if name not in VARIANTS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(VARIANTS)}")
    return tuple(name for name in VARIANTS if name in names or name == "plain")
