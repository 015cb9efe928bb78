# SPDX-License-Identifier: Apache-2.0
"""Reports: tables of an aggregation, one file each. Open folder: a module here with a function decorated by `report`.

A function takes a `Source` and returns the rows as a data frame with the report's columns, or yields them in parts
if there may be millions. Files, commands, pages and the documentation all use this registry. Integers are nullable;
unknown values are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyprof.core.arguments import nearest
from pyprof.core.errors import UsageError
from pyprof.core.registry import Registry, load_folder
from pyprof.facts.steps.source import Source
from pyprof.measures.columns import Column as Column
from pyprof.metrics import FIGURES

if TYPE_CHECKING:
    import pandas as pd


def figure(key: str, of: str | None = None, heading: str | None = None, extra: bool = False) -> Column:
    """Return a column for a figure of the metrics; `of` names the figure if it differs from the key."""
    definition = FIGURES[of or key]
    unit = f" ({definition.unit})" if definition.unit == "ns" else ""
    return Column(key, heading or definition.heading + unit, definition.unit, definition.text, int, extra)


def spread(key: str, of: str | None = None, dot: str = ".", items: str = "executions") -> tuple[Column, ...]:
    """Return columns for the total, average, minimum and maximum of a figure, as in DLProf's reports."""
    definition = FIGURES[of or key]
    name = f"{definition.heading} ({definition.unit})"
    return (
        Column(key, f"Total {name}", definition.unit, definition.text),
        Column(f"{key}_avg", f"Avg{dot} {name}", definition.unit, f"Mean over {items}.", float),
        Column(f"{key}_min", f"Min {name}", definition.unit, f"Minimum over {items}."),
        Column(f"{key}_max", f"Max {name}", definition.unit, f"Maximum over {items}."),
    )


class Section(NamedTuple):
    """Part of a report in DLProf's layout: a title, headings of the columns after the first (none if there is only
    one), and rows."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


class Option(NamedTuple):
    """Option of a report: `choices` maps each value, the default first, to the columns that it leaves out. The report's
    function takes the value as an argument of the option's name."""

    name: str
    text: str
    choices: Mapping[str, tuple[str, ...]]

    @property
    def default(self) -> str:
        return next(iter(self.choices))


def _flag(option: str) -> str:
    """Return an option as typed on the command line.

    >>> _flag("by")
    '--by'
    """
    return "--" + option.replace("_", "-")


class View(NamedTuple):
    """Presentation of a report on the page. `category`: menu section; `sort`: initial sort column, with a minus for
    descending order; `show`: initially visible columns, empty for all; `sums`: columns whose rows add up to a whole,
    which get a total and shares of it, separated by spaces; `wholes`: for columns whose shares are of another column
    of the row instead, as of the step in rows of steps, the key of that column, which has no shares; `nested`: for
    columns with what is inside of a row, the key of the column without it: where nothing nests, one is shown."""

    category: str = "More"
    sort: str = ""
    show: tuple[str, ...] = ()
    sums: str = ""
    wholes: Mapping[str, str] = {}
    nested: Mapping[str, str] = {}


_PLAIN = View()
_Producer = Callable[..., "pd.DataFrame | Iterator[pd.DataFrame]"]
_Sections = Callable[[Source], "list[Section]"]


class Report(NamedTuple):
    """Report: `suffix` is part of its file names; `title` heads it in DLProf's layout, which `sections` builds if it is
    not a plain table. `columns` are those of `all_columns` that the `selection` of its `options` leaves."""

    name: str
    title: str
    suffix: str
    text: str
    columns: tuple[Column, ...]
    make: _Producer
    sections: _Sections | None = None
    options: tuple[Option, ...] = ()
    all_columns: tuple[Column, ...] = ()
    selection: Mapping[str, str] = {}
    needs: str = ""  # what a recording must have for any rows; empty if every recording has rows
    view: View = _PLAIN
    of_summary: bool = False  # whether the summary of a fleet has what it needs

    @property
    def nothing(self) -> str:
        """The sentence for a report without rows."""
        needs = f": it needs {self.needs}" if self.needs else ", the recording has nothing for it"
        return f"{self.name} has no rows{needs}."

    def choose(self, **values: str) -> Report:
        """Return the report with other values of its options. Raises UsageError for an unknown option or value."""
        options = {option.name: option for option in self.options}
        for name, value in values.items():
            if name not in options:
                if not options:
                    raise UsageError(f"report {self.name!r} takes no options.")
                offer = ", ".join(map(_flag, options))
                raise UsageError(f"report {self.name!r} has no option {_flag(name)}; it has {offer}.")
            if value not in options[name].choices:
                raise UsageError(f"{_flag(name)}={value}: choose from {', '.join(options[name].choices)}.")
        selection = {option.name: option.default for option in self.options} | dict(self.selection) | values
        excluded = {key for name, value in selection.items() for key in options[name].choices[value]}
        return self._replace(selection=selection, columns=tuple(c for c in self.all_columns if c.key not in excluded))

    def chunks(self, source: Source) -> Iterator[pd.DataFrame]:
        """Yield the rows in parts of bounded size, at least one part. Raises UsageError for the summary of a fleet, if
        it does not have them."""
        import pandas as pd

        if source.store.is_summary and not self.of_summary:
            known = ", ".join(one.name for one in every() if one.of_summary)
            raise UsageError(
                f"report {self.name!r} needs the events of the ranks, which the summary of a fleet does not have: open "
                f"the database of a rank. The summary has {known}."
            )
        with source.store.translate_errors():
            result = self.make(source, **self.selection)
            for part in [result] if isinstance(result, pd.DataFrame) else result:
                yield _cast(part, self.columns)

    def table(self, source: Source) -> pd.DataFrame:
        """Return the rows as one frame with columns named by key."""
        import pandas as pd

        parts = list(self.chunks(source))
        return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


REPORTS: Registry[Report] = Registry("report")


def report(
    name: str,
    title: str,
    columns: Sequence[Column],
    suffix: str = "",
    sections: _Sections | None = None,
    options: Sequence[Option] = (),
    needs: str = "",
    view: View = _PLAIN,
    of_summary: bool = False,
) -> Callable[[_Producer], _Producer]:
    """Return a decorator that registers the function as a report; its docstring describes the report."""

    def add(make: _Producer) -> _Producer:
        text, all_columns = " ".join((make.__doc__ or "").split()), tuple(columns)
        entry = Report(name, title, suffix or name, text, all_columns, make, sections, tuple(options), all_columns)
        REPORTS.register(name)(entry.choose()._replace(needs=needs, view=view, of_summary=of_summary))
        return make

    return add


def find(name: str, **selection: str) -> Report:
    """Return a report by its name, with values of its options. Raises UsageError for an unknown name."""
    load_folder(__name__, "pyprof.reports")
    if name not in REPORTS:
        raise UsageError(f"unknown report {name!r}.{nearest(name, REPORTS)} Choose from {', '.join(sorted(REPORTS))}.")
    return REPORTS[name].choose(**selection)


def every() -> tuple[Report, ...]:
    """Return all reports, sorted by name, independently of the order of imports."""
    load_folder(__name__, "pyprof.reports")
    return tuple(REPORTS[name] for name in sorted(REPORTS))


_DTYPES: dict[type, Any] = {int: "Int64", float: "float64", bool: "boolean", str: "string", object: "object"}


def _cast(frame: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    """Return the columns in order, with their declared types; categorical texts stay categorical."""
    import pandas as pd

    out = {}
    for column in columns:
        cells = frame[column.key]
        is_category = column.kind is str and isinstance(cells.dtype, pd.CategoricalDtype)
        out[column.key] = cells if is_category else cells.astype(_DTYPES[column.kind])
    return pd.DataFrame(out)
