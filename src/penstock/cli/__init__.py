"""The command line: one file per command, each a thin layer over the library.

In: arguments. Out: a result on standard output, progress on standard error, an exit code: 0 done, 1 failed, 2 bad usage or bad input,
130 interrupted, by Ctrl-C, SIGTERM or SIGHUP. Invariants: an error is one line that says what to do; with `--json`, standard output is
exactly one JSON object, also when the command fails; a command does not fail because standard error cannot be written. Nothing heavy is
imported before a command runs, so that `--help` is instant.
"""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer

from penstock.cli import aggregate, check, doctor, generate, hold_out, infer, info, ingest, layout, partition, plan, study, train
from penstock.cli.console import as_typed
from penstock.errors import DivergedError, InputError, PenstockError, StateError, StoreError, UsageError, line_of
from penstock.report import words

COMMANDS = {
    "ingest": ingest.ingest, "generate": generate.app, "info": info.info, "check": check.check, "layout": layout.layout,
    "aggregate": aggregate.aggregate, "hold-out": hold_out.hold_out,
    "partition": partition.partition, "plan": plan.plan, "study": study.app, "train": train.train, "infer": infer.infer,
    "doctor": doctor.doctor,
}  # fmt: skip
DONE = 0
FAILED = 1
REFUSED = 2
INTERRUPTED = 130
_REFUSALS = (UsageError, InputError, StoreError, StateError, DivergedError)
_CLICK_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""Base of the argument parser's errors, for which typer has no public name before 0.28."""


def make_app() -> typer.Typer:
    """Put the commands together."""
    app = typer.Typer(
        name="penstock",
        help="Train graph neural networks on graphs bigger than the GPU or bigger than memory.",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_version)
    for name, command in COMMANDS.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _version(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from penstock import __version__

        typer.echo(f"penstock {__version__}")
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Run a command and leave the process with its exit code."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch is not loaded yet; why: "beside other programs" in docs/tuning.md
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # unless nohup ignores it
            signal.signal(number, signal.default_int_handler)  # as Ctrl-C does, so that unfinished work is cleaned up
    warnings.filterwarnings("ignore", message=".torch.jit", category=FutureWarning)  # torch 2.14 says it of PyG, as PyG is imported
    _open_streams()
    code = run(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # reported already, or impossible to report: Python would flush again, and exit with 120
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def _open_streams() -> None:
    """Open those of the three standard streams that a service manager closed: else the next opened file would become one of them."""
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:  # open returns the lowest free number
        pass
    os.close(number)
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a path or the name of a class: no reason to lose the result


def run(arguments: list[str]) -> int:
    """Run a command; returns the exit code."""
    try:
        _refuse_empty(arguments)
        _refuse_lost_folder()
        with _warnings_said():
            code = make_app()(arguments, prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort) as error:
        if _is_said(error) or _is_said(error.__cause__):
            return INTERRUPTED
        code = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        return _report(error, arguments)
    if code == INTERRUPTED:
        return _say("interrupted: nothing was left half done", "Interrupted", INTERRUPTED, arguments)
    return code if isinstance(code, int) else DONE


@contextmanager
def _warnings_said() -> Iterator[None]:
    """Print each warning of the library as one line, with arguments spelled as options."""

    def say(record: logging.LogRecord) -> None:
        message = record.msg.spelled(as_typed) if isinstance(record.msg, PenstockError) else record.getMessage()
        with suppress(OSError):  # a warning that cannot be written is no failure
            words.say(f"warning: {' '.join(message.split())}")

    logger, handler = logging.getLogger("penstock"), logging.Handler(logging.WARNING)
    handler.emit = say
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _refuse_empty(arguments: list[str]) -> None:
    """Refuse an empty argument, as from an unset shell variable: as a path it would mean the current folder."""
    for before, one in zip(["", *arguments], arguments, strict=False):
        if not one or (one.startswith("--") and one.endswith("=")):
            of = one[:-1] or (before if before.startswith("-") else "")
            raise UsageError(f"an argument is empty{' (' + of + ')' if of else ''}: give it a value, or leave it out")


def _refuse_lost_folder() -> None:
    """Refuse to run if the current folder was deleted: relative paths would mean nothing, and torch cannot be loaded."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(f"the current folder cannot be used ({error.strerror}): it was deleted or unmounted; cd to another") from error


def _report(error: Exception, arguments: list[str]) -> int:
    """Print an error as one line and choose the exit code."""
    if isinstance(error, _CLICK_ERROR) and not error.format_message():  # type: ignore[attr-defined]
        return REFUSED  # no arguments at all: the parser has printed the help
    if isinstance(error, _CLICK_ERROR):
        command = getattr(getattr(error, "ctx", None), "command_path", "penstock")
        message = error.format_message().rstrip(".")  # type: ignore[attr-defined]
        message = f"{message}{'' if message.endswith('?') else '.'} See '{command} --help'"
        return _say(message, "UsageError", REFUSED, arguments)
    if os.environ.get("PENSTOCK_TRACEBACK"):
        traceback.print_exception(error)
    if isinstance(error, (PenstockError, OSError, MemoryError)):
        code = REFUSED if isinstance(error, _REFUSALS) else FAILED
        if _is_said(error):
            return code
        message = error.spelled(as_typed) if isinstance(error, PenstockError) else str(error)
        if isinstance(error, OSError) and error.errno is not None:
            message = line_of(error)
        return _say(message or type(error).__name__, type(error).__name__, code, arguments)
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("penstock"):
        message = f"{error.name} cannot be imported: `penstock doctor` says what is missing and how to install it"
        return _say(message, type(error).__name__, FAILED, arguments)
    message = f"{type(error).__name__}: {error} (unexpected; PENSTOCK_TRACEBACK=1 shows where: please report it)"
    return _say(message, type(error).__name__, FAILED, arguments)


def _is_said(error: BaseException | None) -> bool:
    """Whether another of several processes reports the same error."""
    return getattr(error, "is_said", False)


def _say(message: str, kind: str, code: int, arguments: list[str]) -> int:
    line = words.printable(" ".join(message.split()))
    with suppress(OSError):  # the exit code still tells
        words.say(f"penstock: {line}")
    if "--json" in arguments:
        with suppress(OSError):
            print(json.dumps({"error": {"type": kind, "message": line, "exit_code": code}}), flush=True)
    return code
