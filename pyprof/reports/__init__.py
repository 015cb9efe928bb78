# SPDX-License-Identifier: Apache-2.0
"""Reports: tables of an aggregation, one file each. Open folder: a module here with a function decorated by `report`.

A function takes a `Source` and returns the rows as a data frame with the report's columns, or yields them in parts if
there may be millions. Everything that shows reports (files, commands, pages, the documentation) follows. Integers are
nullable; unknown is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyprof.analysis.source import Source
from pyprof.arguments import nearest
from pyprof.errors import UsageError
from pyprof.metrics import FIGURES
from pyprof.registry import Registry, load_folder

if TYPE_CHECKING:
    import pandas as pd


class Column(NamedTuple):
    """A column of a report: its key, heading, unit and definition. `kind`: int, float, str, bool, or object for values
    of any type. `extra`: DLProf has no such column."""

    key: str
    heading: str
    unit: str
    text: str
    kind: type = int
    extra: bool = False


def figure(key: str, of: str | None = None, heading: str | None = None, extra: bool = False) -> Column:
    """A column that shows a figure of the metrics; `of` names the figure if the key is another."""
    found = FIGURES[of or key]
    unit = f" ({found.unit})" if found.unit == "ns" else ""
    return Column(key, heading or found.heading + unit, found.unit, found.text, int, extra)


def spread(key: str, of: str | None = None, dot: str = ".", each: str = "an execution") -> tuple[Column, ...]:
    """Total, average, smallest and largest of a figure, as DLProf's reports have them."""
    found = FIGURES[of or key]
    what = f"{found.heading} ({found.unit})"
    return (
        Column(key, f"Total {what}", found.unit, found.text),
        Column(f"{key}_avg", f"Avg{dot} {what}", found.unit, f"Its mean of {each}.", float),
        Column(f"{key}_min", f"Min {what}", found.unit, f"Its smallest of {each}."),
        Column(f"{key}_max", f"Max {what}", found.unit, f"Its largest of {each}."),
    )


class Section(NamedTuple):
    """A part of a report in DLProf's layout: a title, headings of the columns behind the first (none if there is only
    one), and rows."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


class Option(NamedTuple):
    """What can be chosen of a report: `choices` maps each value, the default first, to the columns that it leaves out.
    The report's function takes the value by the option's name."""

    name: str
    text: str
    choices: Mapping[str, tuple[str, ...]]

    @property
    def default(self) -> str:
        return next(iter(self.choices))


def _typed_as(option: str) -> str:
    """An option as it is typed.

    >>> _typed_as("group_by")
    '--group-by'
    """
    return "--" + option.replace("_", "-")


class View(NamedTuple):
    """How a page shows a report. `category`: where it is listed; `sort`: the column to sort by at first, with a minus
    for the largest first; `show`: the columns that are seen at first, all if there are none; `bar`: the column whose
    values are drawn as bars."""

    category: str = "More"
    sort: str = ""
    show: tuple[str, ...] = ()
    bar: str = ""


_PLAIN = View()
_Made = Callable[..., "pd.DataFrame | Iterator[pd.DataFrame]"]
_Sections = Callable[[Source], "list[Section]"]


class Report(NamedTuple):
    """A report: `suffix` is in the names of its files, `title` stands above it in DLProf's layout, which `sections`
    makes if it is not that of a table. `columns` are those of the values that are `chosen` of its `options`, out of
    `all_columns`."""

    name: str
    title: str
    suffix: str
    text: str
    columns: tuple[Column, ...]
    make: _Made
    sections: _Sections | None = None
    options: tuple[Option, ...] = ()
    all_columns: tuple[Column, ...] = ()
    chosen: Mapping[str, str] = {}
    needs: str = ""  # what a recording must have for rows; empty if there always are some
    view: View = _PLAIN

    def choose(self, **values: str) -> Report:
        """The report with other values of its options. Raises UsageError for an option or a value it does not have."""
        known = {option.name: option for option in self.options}
        for name, value in values.items():
            if name not in known:
                if not known:
                    raise UsageError(f"report {self.name!r} takes no options.")
                offer = ", ".join(map(_typed_as, known))
                raise UsageError(f"report {self.name!r} has no option {_typed_as(name)}; it has {offer}.")
            if value not in known[name].choices:
                raise UsageError(f"{_typed_as(name)}={value}: choose from {', '.join(known[name].choices)}.")
        chosen = {option.name: option.default for option in self.options} | dict(self.chosen) | values
        out = {key for name, value in chosen.items() for key in known[name].choices[value]}
        return self._replace(chosen=chosen, columns=tuple(c for c in self.all_columns if c.key not in out))

    def chunks(self, source: Source) -> Iterator[pd.DataFrame]:
        """The rows in parts of bounded size, at least one part."""
        import pandas as pd

        with source.store.translate_errors():
            made = self.make(source, **self.chosen)
            for part in [made] if isinstance(made, pd.DataFrame) else made:
                yield _typed(part, self.columns)

    def table(self, source: Source) -> pd.DataFrame:
        """The rows as one frame; its columns are named by key."""
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
) -> Callable[[_Made], _Made]:
    """Decorator: the function makes the report's table, its docstring describes it."""

    def add(make: _Made) -> _Made:
        text, shown = " ".join((make.__doc__ or "").split()), tuple(columns)
        made = Report(name, title, suffix or name, text, shown, make, sections, tuple(options), shown)
        REPORTS.register(name)(made.choose()._replace(needs=needs, view=view))
        return make

    return add


def find(name: str, **chosen: str) -> Report:
    """A report by its name, with values of its options. Raises UsageError for one that does not exist."""
    load_folder(__name__, "pyprof.reports")
    if name not in REPORTS:
        raise UsageError(
            f"unknown report {name!r}.{nearest(name, REPORTS)} Choose from {', '.join(sorted(REPORTS))}."
        )
    return REPORTS[name].choose(**chosen)


def every() -> tuple[Report, ...]:
    """All reports, by name: the order in which modules were imported says nothing."""
    load_folder(__name__, "pyprof.reports")
    return tuple(REPORTS[name] for name in sorted(REPORTS))


_DTYPES: dict[type, Any] = {int: "Int64", float: "float64", bool: "boolean", str: "string", object: "object"}


def _typed(frame: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    """The columns in order, with the types that they are said to have; texts that repeat stay categories."""
    import pandas as pd

    out = {}
    for column in columns:
        cells = frame[column.key]
        kept = column.kind is str and isinstance(cells.dtype, pd.CategoricalDtype)
        out[column.key] = cells if kept else cells.astype(_DTYPES[column.kind])
    return pd.DataFrame(out)
