"""A variant: one way to start a program."""

from dataclasses import dataclass

from .program import PLACE

JUDGED_BY_TIME = ("run", "balance", "report", "attach", "budget")  # nest and limit change the teams, profile observes
OTHER_TEAMS = ("nest", "budget", "limit", "hand")  # variants in which other numbers of threads are the purpose


@dataclass(frozen=True)
class Start:
    """The command of a sample."""

    command: tuple
    attach: tuple = ()  # the command that is started beside it, without the process id
    confine: object = None  # a function that its process calls before it becomes the program
    environment: tuple = ()  # pairs of names and values, besides those of all samples


def start(program, variant, trimtab, out, survey="auto"):
    """How a variant starts the program.

    `out` is the file that a report or profile goes to, `survey` how a run measures the load of others.
    """
    options = (*(("--survey", survey) if survey != "auto" else ()), *program.options)
    run = (str(trimtab), "run", *options)
    under = {
        "plain": program.plain,
        "attach": program.plain,
        "run": (*run, "--"),
        "balance": (*run, "--balance", "--"),
        "report": (*run, f"--report={out}", "--"),
        "nest": (*run, "--nest", program.nest, "--"),
        "budget": (*run, "--fit", "budget", "--"),
        "limit": (*run, "--fit", "limit", "--"),
        "hand": program.plain,
        "profile": (str(trimtab), "profile", *options, "-o", str(out), "--"),
    }[variant]
    attach = (str(trimtab), "attach") if variant == "attach" else ()
    environment = tuple(program.hand.items()) if variant == "hand" else ()
    return Start(placed(program.command, under), attach, environment=environment)


def placed(command, under):
    """The command with `under` where its mark stands, and before it where it has none."""
    if PLACE not in command:
        return (*under, *command)
    position = command.index(PLACE)
    return (*command[:position], *under, *command[position + 1:])
