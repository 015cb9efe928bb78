# SPDX-License-Identifier: Apache-2.0
"""The page of a profile as one HTML file, which needs no server: `pyprof page`.

The file has the page as one script, and what the viewer's own application answers to what the page asks when it is
opened, view by view. Nothing is computed here: the application is called in this process, without a socket, and its
answers are stored by request. Tables come with up to `Plan.rows` rows, which the page filters and sorts itself.
A file has at most `LARGEST` bytes; what is used least is left out first, and the page says what.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import html
import json
import os
import re
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyprof
from pyprof.core.atomic_file import named
from pyprof.core.errors import FormatError, PyProfError
from pyprof.server import static_files
from pyprof.server.anonymous import Names
from pyprof.server.library import Library, name_of
from pyprof.server.notes import Notes
from pyprof.server.page_answers import PLANS, Collected, Plan, collect
from pyprof.views import models

LARGEST = 3_000_000  # bytes of the HTML


def data_of(collected: Collected, plan: Plan) -> tuple[dict[str, Any], bytes]:
    """Return the data of a file by a plan, and its tiles."""
    ranks = collected.details
    answers = {key: value for key, value in collected.answers.items() if ranks.get(key, -1) < plan.details}
    tables = {key: _cut(table, plan.rows, collected.sorts[key]) for key, table in collected.tables.items()}
    trees = {key: _cut_tree(tree, plan.rows) for key, tree in collected.trees.items()}
    covered = {
        place: numbers
        for place, numbers in collected.covered.items()
        if numbers[0] <= plan.buckets or (plan.events and place[1] == 0 and numbers[0] > PLANS[0].buckets)
    }
    included = [one for one in collected.tiles if (one.track, one.level) in covered]
    data = {
        "program": pyprof.__version__,
        "left_out": list(_left_out(collected, plan, tables, trees, covered)),
        "answers": answers | (collected.shares if plan.shares else {}),
        "tables": tables,
        "trees": trees,
        "texts": collected.texts,
        "tiles": {f"{track} {level}": [first, last] for (track, level), (_, first, last) in covered.items()},
    }
    return data, b"".join(one.data for one in included)


def _cut(table: dict[str, Any], most: int, sort: str) -> dict[str, Any]:
    """Return a table of at most so many rows, those that are first by `sort`, which says what it lacks."""
    total, rows = table["answer"]["total"], table["rows"]
    if len(rows) == total and total <= most:
        return table
    columns = table["answer"]["columns"]
    key = sort.split(",")[0]
    at = next((place for place, column in enumerate(columns) if column["key"] == key.lstrip("-")), None)
    places = list(range(len(rows)))
    if at is not None:
        sign = -1 if key.startswith("-") else 1

        def rank(place: int) -> tuple[bool, Any]:
            cell = rows[place][at]
            return cell is None, 0 if cell is None else cell if isinstance(cell, str) else sign * cell

        places.sort(key=rank)
    first = sorted(places[:most])
    heading = "" if at is None else re.sub(r" \(\w+\)$", "", columns[at]["heading"])
    order = f", those first by {heading}" if heading else ""
    note = f"{len(first):,} of {total:,} rows{order}; the others are not in this file."
    return {
        "answer": table["answer"] | {"note": note, "complete": False, "totals": {}},
        "rows": [rows[place] for place in first],
        "ids": [table["ids"][place] for place in first],
        "texts": {column: [values[place] for place in first] for column, values in table["texts"].items()},
    }


def _cut_tree(tree: dict[str, Any], most: int) -> dict[str, Any]:
    """Return a tree of at most so many nodes, which says what it lacks."""
    total, first_rows = tree["answer"]["total"], tree["nodes"][:most]
    if len(first_rows) == total:
        return tree
    note = f"The first {len(first_rows):,} of {total:,} nodes; the others are not in this file."
    answer = tree["answer"] | {"note": note, "complete": False}
    return {"answer": answer, "nodes": first_rows, "rows": tree["rows"][:most]}


def _left_out(collected: Collected, plan: Plan, tables: Any, trees: Any, covered: Any) -> Iterator[str]:
    """Return what a file lacks, in sentences."""
    yield "Sums over other times than the whole recording and the median step, searches for events, other iterations."
    yield "Details of single launches, calls and gaps, with their arrows. Text of source files."
    operators = sum(rank < plan.details for rank in collected.details.values())
    if len(collected.details) > operators or len(collected.details) >= PLANS[0].details:
        yield f"Details of other operators and kernels than the {operators:,} of the longest time."
    cut = sum(one["answer"].get("total", 0) > len(one["rows"]) for one in [*tables.values(), *trees.values()])
    if cut:
        yield f"Rows of long tables: {cut} have only the first {plan.rows:,}."
    tracks = [track["id"] for track in collected.answers.get("timeline", {}).get("tracks", ())]
    partial = [track for track in tracks if covered.get((track, 0), (plan.buckets + 1,))[0] > plan.buckets]
    if partial:
        where = "in the median step only" if plan.events and collected.window else "nowhere"
        yield f"Each event of {len(partial)} tracks of the timeline: {where}; elsewhere a coarser picture is shown."
    if collected.late:
        yield f"Answers that took too long on this machine: {', '.join(sorted(collected.late))}."
    if collected.shares and not plan.shares:
        yield "The share of the roofline of each event in the timeline."
    yield "All of it: open the recording with pyprof view."


def packed(data: bytes) -> str:
    """Return bytes as text of a script, which cannot end the script."""
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()


def html_of(data: dict[str, Any], tile_data: bytes, static: Path) -> str:
    """Return the file. Raises PyProfError if the page is not built."""
    try:
        script, style, icon, notices = (
            (static / name).read_text(encoding="utf-8")
            for name in ("report/report.js", "report/report.css", "icon.svg", "third-party.txt")
        )
    except OSError as error:
        raise PyProfError("the page is not built: pip install '.[viewer]' in the source tree builds it.") from error
    # In a script of HTML these would begin a comment or end the script; in strings of JavaScript \x3c is the same.
    script = re.sub(r"<(?=/?script|!--)", r"\\x3c", script, flags=re.I)
    style = style.replace("</", "<\\/")
    name = str(data["answers"]["profile"]["name"])
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    icon_url = "data:image/svg+xml;base64," + base64.b64encode(icon.encode()).decode()
    content = body.encode("utf-8", "replace")  # a lone half of a pair is no text
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{html.escape(name)} · PyProf</title>\n"
        f'<link rel="icon" href="{icon_url}" type="image/svg+xml">\n<style>{style}</style>\n</head>\n<body>\n'
        '<div id="app"></div>\n<noscript>This page needs JavaScript. The same figures are in files: '
        "<code>pyprof report</code>.</noscript>\n"
        f'<script type="text/plain" id="notices">\n{html.escape(notices)}</script>\n'
        f'<script type="application/gzip" id="data">{packed(content)}</script>\n'
        f'<script type="application/gzip" id="tiles">{packed(tile_data)}</script>\n'
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def page(collected: Collected, names: Names | None, static: Path = static_files.STATIC) -> str:
    """Return the most complete file of at most `LARGEST` bytes; `names`: replaced in it. Raises PyProfError."""
    for plan in PLANS:
        data, tile_data = data_of(collected, plan)
        if names is not None:
            data = names.anonymous(data)
        text = html_of(data, tile_data, static)
        if len(text.encode()) <= LARGEST:
            break
    return text


async def _collected(path: str, aggregation: int, progress: Callable[[float], None]) -> Collected:
    from pyprof.server.app import build
    from pyprof.server.request_context import Server

    library = Library(path)
    server = Server(library, None)
    try:
        library.check()
        await library.wait(next(iter(library.runs())), lambda share, what: None)
        return await collect(build(server), aggregation, progress)
    finally:
        await server.jobs.close()
        await library.close()


def _run(work: Coroutine[Any, Any, Collected]) -> Collected:
    """Run a coroutine to its end, in another thread where one runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _annotate(answers: dict[str, Any], recording: Path) -> None:
    """Put the annotations of a recording, which are beside it, in place of those of the database."""
    name = name_of(recording)
    profile = models.AnnotatedProfile(**{**answers["annotations"]["profile"], "name": name})
    answers["annotations"] = Notes(recording, name).read(profile).model_dump(mode="json")


def write(
    database: str,
    output: str | os.PathLike[str],
    aggregation: int,
    recording: Path,
    anonymous: bool = False,
    progress: Callable[[float], None] = lambda share: None,
) -> int:
    """Write the page of a profile database with a timeline, completely or not at all; return its size in bytes.
    `recording`: what the database was made of, which the page names. Raises PyProfError."""
    html_of({"answers": {"profile": {"name": ""}}}, b"", static_files.STATIC)  # raises before the work is done
    collected = _run(_collected(database, aggregation, progress))
    if collected.damage:
        raise FormatError(collected.damage.replace(database, str(recording)))
    profile = collected.answers["profile"]
    profile |= {"name": name_of(recording), "path": str(recording), "source": str(recording)}
    _annotate(collected.answers, recording)
    names = Names.of(database, collected) if anonymous else None
    content = page(collected, names).encode()
    target = os.fspath(output)
    try:
        with named(target) as scratch, open(scratch, "wb") as file:
            file.write(content)
    except OSError as error:
        raise PyProfError(
            f"{target}: the page could not be written ({error.strerror or error}). Name another file."
        ) from error
    return len(content)
