"""Argument parsing and error reporting: one sentence on stderr, and an exit code."""

import contextlib
import io
import itertools
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Union

import tyro

from merlin import __version__
from merlin.cli.bench import Bench
from merlin.cli.collect import Collect
from merlin.cli.convert import Convert
from merlin.cli.eval import Eval
from merlin.cli.expert import Expert
from merlin.cli.export import Export
from merlin.cli.flags import with_flags
from merlin.cli.help import describe, paragraphs
from merlin.cli.info import Info
from merlin.cli.play import Play
from merlin.cli.report import Report
from merlin.cli.tasks import Tasks
from merlin.cli.terminal import safe_output
from merlin.cli.toy import Toy
from merlin.cli.train import Train
from merlin.cli.trust import Trust
from merlin.errors import Incomplete, MerlinError, in_words
from merlin.io.interruption import Interrupted, never_lost
from merlin.io.settings import instead

COMMANDS: dict[str, type] = {
    "tasks": Tasks,
    "collect": Collect,
    "info": Info,
    "convert": Convert,
    "train": Train,
    "eval": Eval,
    "trust": Trust,
    "expert": Expert,
    "bench": Bench,
    "report": Report,
    "toy": Toy,
    "play": Play,
    "export": Export,
}

DESCRIPTION = """Offline goal-conditioned reinforcement learning.

Bring recorded trajectories (or collect some), train a policy that reaches goals, and evaluate it:
  merlin collect PointRooms --variant random --out data/rooms
  merlin train data/rooms --out runs/rooms
  merlin eval runs/rooms --episodes 1000

With --json, every command prints one JSON object as the last line of stdout. `merlin --version`
prints the version."""
_HELP = ("-h", "--help")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command.

    Exit codes: 0 success, 1 partial failure or an operating system error, 2 bad input, 130 stopped
    by Ctrl-C.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    with safe_output(), never_lost():
        _main(arguments)


def _main(arguments: list[str]) -> None:
    if arguments == ["--version"]:
        print(f"merlin {__version__}")
        return
    command: Any = None
    if sys.stdout is None:
        _stop(
            "stdout is closed, so no result can be printed; open it, or redirect it to a file.", 1
        )
    try:
        command = parse(arguments)
        _tell(command(), arguments)
    except Incomplete as part:
        _tell(part.result, arguments)
        _stop(str(part), 1)
    except MerlinError as error:
        _stop(with_flags(str(error), command), 2)
    except Interrupted as stop:
        print(f"merlin: {stop}", file=sys.stderr, flush=True)
        os._exit(130)  # everything is saved; an orderly exit would take seconds
    except KeyboardInterrupt as stop:
        _stop(str(stop) or "stopped.", 130)
    except BrokenPipeError:
        # The reader has closed the pipe (`merlin tasks | head`), which is not an error.
        _silence()
        sys.exit(0)
    except OSError as error:
        _silence()
        _stop(in_words(error), 1)
    except MemoryError:
        _stop("there is not enough memory; use less data or a smaller batch.", 1)


def _tell(result: Any, arguments: Sequence[str]) -> None:
    if "--json" in arguments:
        print(json.dumps(result))
    sys.stdout.flush()


def _silence() -> None:
    """Redirect stdout to /dev/null: it cannot be written, but Python flushes it on exit."""
    with contextlib.suppress(OSError):  # stdout may have no file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parse(arguments: Sequence[str]) -> Any:
    """Parse the arguments into a command; errors of tyro become one sentence."""
    if list(arguments).count("--set") > 1:  # tyro would keep only the last one
        raise MerlinError(
            "--set: is given more than once; pass all settings to one: --set a=1 b=2."
        )
    complaint = io.StringIO()
    named = bool(arguments) and arguments[0] in COMMANDS
    if not arguments:
        known = ", ".join(COMMANDS)
        raise MerlinError(f"no command given; choose from {known}; see `merlin --help`.")
    if not named and arguments[0] not in _HELP and not arguments[0].startswith("--tyro-"):
        hint = instead(arguments[0], COMMANDS)
        raise MerlinError(f"unknown command {arguments[0]!r}; {hint}")
    if named and set(_HELP) & set(arguments):
        describe(COMMANDS[arguments[0]])
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                _union(short=not named),
                prog="merlin",
                description=DESCRIPTION,
                args=list(arguments),
                # INT in the help, not {None}|INT; --json without --no-json.
                config=(tyro.conf.DisallowNone, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        command = f"{arguments[0]} " if named else ""
        raise MerlinError(
            f"{_sentence(complaint.getvalue())}see `merlin {command}--help`."
        ) from None


def _union(short: bool) -> Any:
    """All commands as one type; `short` keeps only the first line of each description."""
    options = []
    for name, command in COMMANDS.items():
        about = paragraphs(command)
        line = about.splitlines()[0] if short else about
        options.append(Annotated[command, tyro.conf.subcommand(name, description=line)])
    return Union[tuple(options)]  # noqa: UP007


def _sentence(box: str) -> str:
    """The first paragraph of a boxed error of tyro, with the closest suggestion."""
    lines = [re.sub(r"^[│|]\s*|\s*[│|]$", "", line).strip() for line in box.splitlines()[1:]]
    # If stdout is not UTF-8, there is a rule under the title instead of a box.
    rest_of_box = itertools.dropwhile(_is_rule, lines)
    paragraph = itertools.takewhile(lambda line: not _is_rule(line), rest_of_box)
    what = " ".join(paragraph).rstrip(".") or "the arguments cannot be read"
    if empty := re.match(r"Missing value for argument '([^']*)'", what):
        what = f"{empty.group(1)}: needs a value"
    if unknown := re.fullmatch(r"Unrecognized (?:or misplaced )?options: (.*)", what):
        # An option that another command has is said to be misplaced, and names the command.
        words = re.sub(r" \(applied to [^)]*\)", ",", unknown.group(1)).strip(",").split(", ")
        options = [word for word in words if word.startswith("-")]
        what = f"unknown option {options[0]}" if options else f"unknown argument {words[0]!r}"
    unread = re.fullmatch(r"Error parsing (\S+): (?:no type matching (\w+) )?.*\[(.*)\]", what)
    if unread:
        option, kind, value = unread.groups()
        number = {"INT": "an integer", "FLOAT": "a number"}.get(kind)
        what = f"{option}: " + (f"{value} is not {number}" if number else f"cannot read {value}")
    if choice := re.fullmatch(r"invalid choice '(.*)' for argument .*\((.*)\)", what):
        hint = instead(choice.group(1), re.findall(r"'([^']*)'", choice.group(2)))
        return f"unknown argument {choice.group(1)!r}; {hint.rstrip('.')}; ".replace("?; ", "? ")
    if either := re.fullmatch(r"Expected one of \{(.*)\}", what):
        what = f"the subcommand is missing; choose from {either.group(1)}"
    if missing := re.fullmatch(r"Missing from merlin ([\w ]+): (.*)", what):
        needed = re.findall(r"(?:^|\(required\) )(\S+)", missing.group(2))
        what = f"{missing.group(1)} needs {' and '.join(needed)}"
    rest = "\n".join(lines)
    hint = ""
    close = re.search(r"Perhaps you meant:\n\s*(--[\w-]+)", rest)
    if close and not what.endswith(f" {close.group(1)}"):
        hint = f"did you mean {close.group(1)}? "
    elif choices := re.search(r"Available subcommands: (.*)", rest):
        hint = f"commands are {choices.group(1)}; "
    return f"{what}; {hint}"


def _is_rule(line: str) -> bool:
    return set(line) <= set("─-╰╯")


def _stop(message: str, code: int) -> None:
    print(f"merlin: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
