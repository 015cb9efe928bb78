# SPDX-License-Identifier: Apache-2.0
"""The options of `dlprof`: one table for the command line, `--help` and docs/dlprof.md.

The syntax is DLProf's: `--name=value` or `--name value`, `-f true`; the first word that is not an option begins the
application, whose own options are left alone. `-` and `_` in a name are the same.

>>> found = read(["--reports=op_type", "-f", "true", "--iter_start", "200", "python", "train.py", "-f"])
>>> found.reports, found.force, found.iter_start, found.application
(('op_type',), True, 200, ('python', 'train.py', '-f'))
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyprof.core.errors import UsageError
from pyprof.core.registry import load_folder

VERBOSITY = ("quiet", "minimal", "normal", "detailed", "diagnostic")
MODES = ("simple", "pytorch")
_OTHER_MODES = ("tensorflow1", "tensorflow2", "tensorrt")
FORMATS = ("csv", "json")
STYLES = ("plain", "dlprof")
USAGE = "dlprof [options] python train.py ...\n       dlprof --nsys_database=nsys_profile.sqlite [options]"


@dataclass
class Settings:
    """The parsed command line. An empty text means no value; `explicit` has the options that were used."""

    help: bool = False
    version: bool = False
    force: bool = False
    verbosity: str = "normal"
    mode: str = "pytorch"
    nsys_database: str = ""
    nsys_base_name: str = "nsys_profile"
    nsys_opts: str = ""
    delay: float = 0.0
    duration: float = 0.0
    key_node: str = ""
    iter_start: int | None = None
    iter_stop: int | None = None
    output_path: str = "."
    profile_name: str = "dlprof"
    reports: tuple[str, ...] = ()
    formats: tuple[str, ...] = ("csv",)
    csv_style: str = "plain"
    domains: tuple[str, ...] = ()
    dump_model_data: bool = False
    tb_dir: str = "event_files"
    suppress_tb_files: bool = False
    graphdef: str = ""
    application: tuple[str, ...] = ()
    explicit: set[str] = field(default_factory=set)

    @property
    def level(self) -> int:
        """Verbosity as a number; 0 is quiet."""
        return VERBOSITY.index(self.verbosity)


class Option(NamedTuple):
    """A row of the table. `read` converts a text, or raises ValueError with what was expected."""

    key: str
    names: tuple[str, ...]
    group: str
    values: str
    default: str
    text: str
    read: Callable[[str], Any] | None = None


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _one_of(*values: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in values:
            raise ValueError("one of " + ", ".join(values))
        return text

    return read


def _mode(text: str) -> str:
    if text in _OTHER_MODES:
        raise ValueError("--mode=pytorch for a PyTorch program, or --mode=simple for only its GPU work")
    return _one_of(*MODES)(text)


def _some_of(*values: str) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        items = text.split(",")
        for item in items:
            if item not in values:
                near = difflib.get_close_matches(item, values, 1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                raise ValueError(f"some of {', '.join(values)}, separated by commas only{hint}")
        return tuple(dict.fromkeys(items))

    return read


# Reports in `all`; the others are available by name.
OF_DLPROF = (
    "detail", "expert_systems", "group_node", "iteration", "kernel", "op_type", "summary", "tensor",
)  # fmt: skip


def _reports(text: str) -> tuple[str, ...]:
    from pyprof import reports

    load_folder("pyprof.reports", "pyprof.reports")
    names = _some_of("all", *reports.REPORTS)(text)
    return tuple(
        dict.fromkeys(name for requested in names for name in (OF_DLPROF if requested == "all" else (requested,)))
    )


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("the number of an iteration, 0 or more")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ValueError("seconds, 0 or more")
    return value


def _base(text: str) -> str:
    if not text or "/" in text or text in (".", "..") or "\0" in text:
        raise ValueError("a file name without a folder; --output_path sets the folder")
    return text


def _nonempty(text: str) -> str:
    if not text:
        raise ValueError("a name")
    return text


def _key(text: str) -> str:
    return "" if text == "global_step" else text  # DLProf's old default: "find the steps"


def _domains(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    if "" in names:
        raise ValueError("names of NVTX domains, separated by commas only")
    return () if "all" in names else names


_GENERAL, _RECORDING = "General", "Recording"
_AGGREGATION, _OUTPUT = "Aggregation", "Output"

OPTIONS = (
    Option("help", ("-h", "--help"), _GENERAL, "", "", "Print this help."),
    Option("version", ("-V", "--version"), _GENERAL, "", "", "Print the version."),
    Option("force", ("-f", "--force"), _GENERAL, "true|false", "false",
           "Replace files of the same name. Without it, an existing recording or report is an error before "
           "anything runs, and the database gets the next free of the names NAME_dldb_1.sqlite, NAME_dldb_2.sqlite ...",
           _truth),
    Option("verbosity", ("-v", "--verbosity"), _GENERAL, "|".join(VERBOSITY), "normal",
           "Verbosity: quiet (errors only), minimal (also the expert systems' feedback and the files), normal (also "
           "the current step), detailed (also counts and what was left out), diagnostic (also commands and "
           "versions).",
           _one_of(*VERBOSITY)),
    Option("mode", ("-m", "--mode"), _GENERAL, "simple|pytorch", "pytorch",
           "pytorch: operators, modules and directions. simple: only GPU work, as if each process were one operator.",
           _mode),
    Option("nsys_database", ("--nsys_database", "--database"), _RECORDING, "FILE", "",
           "Aggregate this file and run nothing: a recording (dlprof, pyprof, nsys, nvprof), or a profile database, a "
           "copy of which is aggregated again. The file itself is not changed.", _nonempty),
    Option("nsys_base_name", ("--nsys_base_name",), _RECORDING, "NAME", "nsys_profile",
           "Name of the recording, without folder and ending.", _base),
    Option("nsys_opts", ("--nsys_opts",), _RECORDING, '"OPTIONS"', "",
           "Record with Nsight Systems and these options, which must trace cuda and nvtx: '\"-t cuda,nvtx -s none\"'. "
           "If nsys is not installed, PyProf records, and osrt and -s cpu become its --io and --sample=cpu. Without "
           "this option, PyProf records."),
    Option("delay", ("-y", "--delay"), _RECORDING, "SECONDS", "0", "Seconds to wait before recording.", _seconds),
    Option("duration", ("-d", "--duration"), _RECORDING, "SECONDS", "0", "Seconds to record; 0: to the end.", _seconds),
    Option("key_node", ("--key_node", "--key_op"), _AGGREGATION, "NAME", "",
           "Iterations end where executions of this operator end: its name, its op id, or its type. Default: the steps "
           "that the program marks, else a repeating pattern.", _key),
    Option("iter_start", ("--iter_start",), _AGGREGATION, "N", "0", "First iteration to aggregate.", _number),
    Option("iter_stop", ("--iter_stop",), _AGGREGATION, "N", "the last",
           "Last iteration to aggregate (inclusive).", _number),
    Option("output_path", ("--output_path",), _OUTPUT, "FOLDER", ".",
           "Folder for all output; created if only its last part is missing.", _nonempty),
    Option("profile_name", ("--profile_name",), _OUTPUT, "NAME", "dlprof",
           "Prefix of the names of the database and the reports.", _base),
    Option("reports", ("--reports",), _OUTPUT, "NAME,...", "none",
           "Reports to write: all (DLProf's eight), or names from docs/reports.md, separated by commas without "
           "spaces.", _reports),
    Option("formats", ("--formats",), _OUTPUT, "csv,json", "csv", "Formats of the report files.",
           _some_of(*FORMATS)),
    Option("csv_style", ("--csv_style",), _OUTPUT, "plain|dlprof", "plain",
           "plain: one row of headings, then rows, as pandas reads it. dlprof: DLProf's layout with title lines.",
           _one_of(*STYLES)),
    Option("domains", ("--domains",), _OUTPUT, "NAME,...", "all",
           "NVTX domains: each gets its own report files, from only its ranges.", _domains),
    Option("dump_model_data", ("--dump_model_data",), _OUTPUT, "true|false", "false",
           "Write all events with their operators as NAME_model_data.json.", _truth),
    Option("tb_dir", ("--tb_dir",), _OUTPUT, "FOLDER", "event_files",
           "Folder of the event files for TensorBoard, in --output_path.", _nonempty),
    Option("suppress_tb_files", ("-b", "--suppress_tb_files"), _OUTPUT, "true|false", "false",
           "Do not write event files for TensorBoard.", _truth),
    Option("graphdef", ("--graphdef",), _OUTPUT, "FILE", "",
           "TensorFlow 1 only: accepted and ignored, with a warning."),
)  # fmt: skip

_BY_NAME = {name: option for option in OPTIONS for name in option.names}


def read(words: Sequence[str]) -> Settings:
    """Parse a command line. Raises UsageError for an unknown option or an invalid value."""
    settings = Settings()
    rest = list(words)
    while rest:
        word = rest[0]
        if word == "--":
            rest.pop(0)
            break
        if not word.startswith("-") or word == "-":
            break
        rest.pop(0)
        name, option, text = _split(word)
        settings.explicit.add(option.key)
        if option.read is None and not option.values:
            setattr(settings, option.key, True)
            continue
        if text is None:
            text = _next(rest, name, option)
        try:
            setattr(settings, option.key, option.read(text) if option.read else text)
        except ValueError as expected:
            raise UsageError(f"{name}={text}: expected {expected}.") from None
    settings.application = tuple(rest)
    start, stop = settings.iter_start, settings.iter_stop
    if start is not None and stop is not None and start > stop:
        raise UsageError(
            f"--iter_start={start} is after --iter_stop={stop}: expected the first iteration before the last."
        )
    return settings


def _split(word: str) -> tuple[str, Option, str | None]:
    """Return name, option and value of `--name=value`, `--name`, `-f`, `-ftrue` or `-f=true`."""
    if word.startswith("--"):
        name, equals, text = word.partition("=")
        name = "--" + name[2:].replace("-", "_")
        value = text if equals else None
    else:
        name, value = word[:2], word[2:].removeprefix("=") or None
    if name not in _BY_NAME or (value is not None and not _BY_NAME[name].values):
        near = difflib.get_close_matches(name, [n for n in _BY_NAME if n.startswith("--")], 1, 0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"{word}: there is no such option{hint} dlprof --help lists all."
                         if hint else f"{word}: there is no such option; dlprof --help lists all.")  # fmt: skip
    return name, _BY_NAME[name], value


def _next(rest: list[str], name: str, option: Option) -> str:
    """Return the value in the next word; `-f` and its like mean true if the next word is neither true nor false."""
    if option.read is _truth and (not rest or rest[0].lower() not in ("true", "false")):
        return "true"
    if not rest:
        raise UsageError(f"{name}: missing value, expected {option.values}.")
    return rest.pop(0)


def help_text() -> str:
    """Return the text of --help."""
    return "\n".join(_help()) + "\n"


def _help() -> Iterator[str]:
    import textwrap

    yield f"usage: {USAGE}\n"
    yield "Example: dlprof --reports=all python train.py --epochs 1\n"
    yield "Profiles an unmodified PyTorch program, or aggregates a recording. Writes a profile database and reports."
    for group in dict.fromkeys(option.group for option in OPTIONS):
        yield f"\n{group}:"
        for option in (o for o in OPTIONS if o.group == group):
            yield "  " + ", ".join(option.names) + (f"={option.values}" if option.values else "")
            default = f" Default: {option.default}" if option.default else ""
            yield textwrap.fill(option.text + default, 100, initial_indent=" " * 8, subsequent_indent=" " * 8)


def page() -> str:
    """Return the table of options of docs/dlprof.md."""
    lines = ["| option | values | default | description |", "|---|---|---|---|"]
    for option in OPTIONS:
        names = ", ".join(f"`{name}`" for name in option.names)
        values = f"`{option.values}`".replace("|", "\\|") if option.values else ""
        lines.append(f"| {names} | {values} | {option.default} | {option.text} |")
    return "\n".join(lines) + "\n"
