# SPDX-License-Identifier: Apache-2.0
"""A page in one file: what it contains is what the server answers, nothing in it can break out, and it stays small."""

from __future__ import annotations

import asyncio
import base64
import copy
import gzip
import hashlib
import html.parser
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from pyprof.commands.main import main
from pyprof.core.errors import PyProfError
from pyprof.profiles import Profile, Selection
from pyprof.server import engine, one_file, static_files
from pyprof.server.anonymous import Names
from pyprof.server.page_answers import Collected
from tests import kineto
from tests.build import call, recording, write_capture
from tests.one_file import contents, script
from tests.server.conftest import HOSTILE, STEPS, Asking

pytestmark = pytest.mark.skipif(
    not (static_files.STATIC / "report" / "report.js").is_file(), reason="the page is not built: make page"
)
TRACES = Path(__file__).parents[1] / "traces" / "gpu"
HOME = "/home"
SECRET = call(
    "torch.mm", (64, 32), (32, 16), module="zebranet.quokka.ocelot",
    trace=(f"{HOME}/annegret/thesis/tapir_train.py:88", "/vault/deep/lemur.py:9"),
)  # fmt: skip
SECRETS = (
    "zebranet",
    "quokka",
    "ocelot",
    "annegret",
    "thesis",
    "tapir_train",
    "/vault/deep",
    "lemur",
    "walrus",
)


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    """What a file has is worked out once for each recording: writing it is the smaller part of the work."""
    kept: dict[tuple[bytes, int], Collected] = {}
    work_out = one_file._collected

    async def collected(path: str, aggregation: int, progress: Callable[[float], None]) -> Collected:
        key = hashlib.sha256(Path(path).read_bytes()).digest(), aggregation
        if key not in kept:
            kept[key] = await work_out(path, aggregation, progress)
            del kept[key]._app, kept[key]._free  # cannot be copied
        return copy.deepcopy(kept[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_file, "_collected", collected)
        patch.setattr(engine.Engine.__init__, "__defaults__", (1,))
        yield


@pytest.fixture(scope="module")
def written(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of `made`."""
    path = tmp_path_factory.mktemp("page") / "net.html"
    assert main(["page", str(made), "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def inside(written: Path) -> dict[str, Any]:
    return contents(written)


@pytest.mark.parametrize(
    "path", ["overview", "insights", "ledger", "step_time", "iterations/bars", "roofline", "memory", "reports",
             "annotations"]
)  # fmt: skip
def test_answers_are_those_of_the_server(inside: dict[str, Any], client: Asking, path: str):
    assert inside["answers"][path] == client.json(f"/api/{path}")


@pytest.mark.parametrize("by", ["type", "module", "kernel"])
def test_colors_are_those_of_the_server(inside: dict[str, Any], client: Asking, by: str):
    assert inside["answers"][f"timeline/colors\nby={by}"] == client.json("/api/timeline/colors", by=by)


def test_every_report_is_there_with_each_option(inside: dict[str, Any], client: Asking):
    for report in client.json("/api/reports"):
        table = inside["tables"][f"reports/{report['name']}"]
        page = client.json(f"/api/reports/{report['name']}", limit=1000)
        assert table["rows"] == page["rows"]
        assert table["ids"] == page["ids"]
        for option in report["options"]:
            for value in set(option["choices"]) - {option["default"]}:
                assert any(
                    key.startswith(f"reports/{report['name']}\n") and f"{option['name']}={value}" in key
                    for key in inside["tables"]
                )


def test_trees_are_whole(inside: dict[str, Any], client: Asking):
    for name in ("groups", "modules"):
        page = client.json(f"/api/trees/{name}", limit=1000, open="all")
        assert inside["trees"][f"trees/{name}"]["nodes"] == page["nodes"]
        assert inside["trees"][f"trees/{name}"]["rows"] == page["rows"]


def test_details_of_operators_and_kernels_are_there(inside: dict[str, Any], client: Asking):
    for row in client.table("/api/reports/detail", limit=1000):
        found = inside["answers"][f"details/op/{row['op_id']}"]
        assert found == client.json(f"/api/details/op/{row['op_id']}")
    assert sum(key.startswith("details/kernel/") for key in inside["answers"]) == 4
    assert sum(key.startswith("details/iteration/") for key in inside["answers"]) == STEPS


def test_tiles_are_those_of_the_server(written: Path, inside: dict[str, Any], client: Asking):
    timeline = client.json("/api/timeline")
    parts = [
        f"{level}:{track['start'] >> shift}-{track['end'] >> shift}:{track['id']}"
        for track in timeline["tracks"]
        for level, shift in track["levels"]
    ]
    assert len(inside["tiles"]) == len(parts)
    whole = client.http.get("/api/timeline/tiles", params={"q": ";".join(parts)}, headers={"accept-encoding": ""})
    assert script(written.read_text(encoding="utf-8"), "tiles") == whole.content
    names = {number for table in inside["texts"].values() for number in table}
    assert names
    assert HOSTILE in str(inside["texts"])


class Scripts(html.parser.HTMLParser):
    """Elements of a page, and the text of its scripts and styles."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and data.strip():
            self.texts.append((self.tags[-1][0], data))


def test_nothing_in_a_profile_becomes_a_part_of_the_page(written: Path):
    text = written.read_text(encoding="utf-8")
    assert "onerror=alert" not in text
    page = Scripts()
    page.feed(text)
    tags = [tag for tag, _ in page.tags]
    assert sorted(set(tags)) == [
        "body",
        "code",
        "div",
        "head",
        "html",
        "link",
        "meta",
        "noscript",
        "script",
        "style",
        "title",
    ]
    assert tags.count("script") == 4
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "src"]
    assert all(attributes["href"].startswith("data:") for tag, attributes in page.tags if tag == "link")


def test_the_policy_allows_the_script_and_the_style_only(written: Path):
    text = written.read_text(encoding="utf-8")
    page = Scripts()
    page.feed(text)
    policy = next(one["content"] for tag, one in page.tags if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    code = text[text.index('<script type="module">') + 22 : text.rindex("</script>")]
    style = text[text.index("<style>") + 7 : text.index("</style>")]
    for kind, content in (("script", code), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'; " in policy
    assert "unsafe" not in policy
    assert not re.search(r"\beval\(|new Function", code)


def test_a_title_cannot_leave_its_element(made: Path, tmp_path: Path):
    hostile = tmp_path / "<script>x.sqlite"
    hostile.write_bytes(made.read_bytes())
    profiles.load(hostile).page(tmp_path / "net.html")
    assert "<title>&lt;script&gt;x · PyProf</title>" in (tmp_path / "net.html").read_text(encoding="utf-8")


def test_a_file_is_replaced_only_when_that_is_asked_for(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "net.html"
    path.write_text("mine", encoding="utf-8")
    assert main(["page", str(made), "-o", str(path)]) == 2
    assert "use --force" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "mine"
    assert main(["page", str(made), "-o", str(path), "-f"]) == 0
    assert path.stat().st_size > 500_000
    assert [one.name for one in tmp_path.iterdir()] == ["net.html"]


def test_a_page_that_cannot_be_written_is_one_sentence(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["page", str(made), "-o", str(tmp_path / "nowhere" / "net.html")]) == 2
    assert "net.html cannot be written (the folder does not exist)" in capsys.readouterr().err


def test_without_the_page_of_the_viewer_there_is_no_file(
    prof: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(static_files, "STATIC", tmp_path)
    with pytest.raises(PyProfError, match="the page is not built"):
        prof.page(tmp_path / "net.html")
    assert not (tmp_path / "net.html").exists()


def test_iterations_are_those_that_were_chosen(made: Path, tmp_path: Path):
    path = tmp_path / "net.html"
    assert main(["page", str(made), "-o", str(path), "--iter-start", "1", "--iter-stop", "2"]) == 0
    data = contents(path)
    (aggregation,) = data["answers"]["profile"]["aggregations"]
    assert (aggregation["first"], aggregation["last"]) == (1, 2)
    prof = profiles.load(made)
    prof.select(Selection(1, 2))
    report = prof.report("op_type")
    table = data["tables"]["reports/op_type"]
    at = [column["key"] for column in table["answer"]["columns"]].index("gpu")
    assert [row[at] for row in table["rows"]] == report["gpu"].tolist()


def test_a_page_is_written_while_a_loop_runs(prof: Profile, tmp_path: Path):
    async def in_a_notebook() -> None:
        prof.page(tmp_path / "net.html")

    asyncio.run(in_a_notebook())
    assert contents(tmp_path / "net.html")["answers"]["profile"]["name"] == "net"


def test_what_is_too_much_is_left_out_and_the_page_says_so(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    small = one_file.Plan(2, 1, 3, False, False)
    monkeypatch.setattr(one_file, "PLANS", (*one_file.PLANS, small))
    monkeypatch.setattr(one_file, "LARGEST", 1)
    profiles.load(made).page(tmp_path / "net.html")
    data = contents(tmp_path / "net.html")
    table = data["tables"]["reports/detail"]
    assert len(table["rows"]) == len(table["ids"]) == 2
    assert table["answer"]["note"] == "2 of 5 rows, those first by Total GPU Time; the others are not in this file."
    assert table["answer"]["totals"] == {}
    assert sum(key.startswith("details/op/") for key in data["answers"]) == 1
    notes = " ".join(data["left_out"])
    assert "have only the first 2" in notes
    assert "than the 2 of the longest time" in notes  # an operator and a kernel
    assert "a coarser picture" in notes
    assert "roofline" in notes


def test_names_do_not_occur_in_an_anonymous_file(tmp_path: Path):
    text = f"{SECRET}\n    > 70 volta_sgemm_128x64_nn\nzebranet range\n"
    source = recording(text * 2)
    path = write_capture(tmp_path / "walrus.sqlite", source)
    profiles.load(path).page(tmp_path / "open.html")
    profiles.load(path).page(tmp_path / "closed.html", anonymous=True)
    whole = script((tmp_path / "open.html").read_text(encoding="utf-8"), "data").decode()
    assert all(name in whole for name in SECRETS)
    hidden = (tmp_path / "closed.html").read_text(encoding="utf-8")
    inflated = script(hidden, "data").decode() + hidden
    assert [name for name in SECRETS if name in inflated] == []
    data = contents(tmp_path / "closed.html")
    assert "file1:88" in inflated
    assert "volta_sgemm_128x64_nn" in inflated
    assert len(data["tables"]["reports/detail"]["rows"]) == len(
        contents(tmp_path / "open.html")["tables"]["reports/detail"]["rows"]
    )


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transformer on an H100 (tests/traces/gpu), as pyprof recorded it."""
    path = tmp_path_factory.mktemp("gpu") / "transformer.sqlite"
    with gzip.open(TRACES / "transformer_bf16.sqlite.gz") as packed:
        path.write_bytes(packed.read())
    return path


@pytest.mark.long
def test_a_recording_of_a_gpu_is_small_and_has_no_names_if_that_is_asked_for(transformer: Path, tmp_path: Path):
    prof = profiles.load(transformer)
    prof.page(tmp_path / "open.html")
    prof.page(tmp_path / "closed.html", anonymous=True)
    assert (tmp_path / "open.html").stat().st_size < 1_500_000
    with closing(sqlite3.connect(prof.database.path)) as database:
        modules = {name for (name,) in database.execute("select distinct module from operator") if name and "." in name}
        stacks = "\n".join(text for (text,) in database.execute("select frames from stack") if text)
    files = {line.rpartition(":")[0] for line in stacks.splitlines()}
    assert len(modules) > 20
    assert files
    whole = script((tmp_path / "open.html").read_text(encoding="utf-8"), "data").decode()
    closed = script((tmp_path / "closed.html").read_text(encoding="utf-8"), "data").decode()
    names = {
        *modules,
        *(name.replace(".", "/") for name in modules),
        *files,
        "record.py",
        "/src/pyprof",
        "Language",
    }
    assert [name for name in names if name in closed] == []
    assert sum(name in whole for name in names) > 40
    # Nothing else has changed: as many texts, and the same numbers.
    assert closed.count('"rows":') == whole.count('"rows":')
    kernel = "reports/kernel_summary"
    times = [
        [[cell for cell in row if isinstance(cell, (int, float))] for row in contents(path)["tables"][kernel]["rows"]]
        for path in (tmp_path / "open.html", tmp_path / "closed.html")
    ]
    assert times[0] == times[1]


@pytest.mark.long
def test_a_long_recording_has_less_and_is_small(recorded: Callable[[str], Profile], tmp_path: Path):
    recorded("kineto/v100_216k_events.json.gz").page(tmp_path / "net.html")
    assert 1_000_000 < (tmp_path / "net.html").stat().st_size <= one_file.LARGEST
    inside = contents(tmp_path / "net.html")
    assert any("a coarser picture" in note for note in inside["left_out"])
    timeline = inside["answers"]["timeline"]
    coarse = {key for key in inside["tiles"] if not key.endswith(" 0")}
    for track in timeline["tracks"]:  # the whole time can be drawn
        assert any(f"{track['id']} {level}" in coarse for level, _ in track["levels"]) or track["events"] <= 8000
    assert [key for key, (first, last) in inside["tiles"].items() if key.endswith(" 0") and first <= last]


START = 4_800_000_000_000_000  # ns: 55 days after the clock's zero


@pytest.mark.parametrize(
    ("far", "count"), [(1, 1), (4 * 10**12, 6000), pytest.param(10**6, 6000, marks=pytest.mark.long)]
)
def test_events_that_are_far_apart_are_a_page(
    far: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a function at a time in us, the others far after it: a million tiles have none."""

    async def nothing(*more: object) -> None:
        pass

    for name in ("reports", "tree", "some_details", "table"):  # all but the timeline
        monkeypatch.setattr(Collected, name, nothing)
    functions = [kineto.function("a.py(1): f", START + 100 * i, START + 100 * i + 100) for i in range(count)]
    other = kineto.function("a.py(1): f", 1000 * far, 1000 * far + 1000)
    work = kineto.op("aten::mm", START + 1000, START + 10_000)
    path = kineto.write(tmp_path / "net.json", [*functions, other, work])
    assert main(["page", str(path), "-o", str(tmp_path / "net.html")]) == 0
    data = contents(tmp_path / "net.html")
    (track,) = (one for one in data["answers"]["timeline"]["tracks"] if one["events"] == count + 1)
    assert f"{track['id']} 0" in data["tiles"]


def test_a_name_has_one_number_everywhere():
    names = Names(
        ["/a/b/net.py", "/a/c/net.py"], ["model.layers.0.mlp", "model.layers.1.mm"], ["box"], ["anna"], ["mm"]
    )
    assert names.text("/a/b/net.py:1\n/a/c/net.py:2") == "file1:1\nfile2:2"
    assert names.text("model/layers/0/mlp/linear") == "module1/module2/0/module3/linear"
    assert names.text("model.layers.1.mm") == "module1.module2.1.module4"
    assert names.text("aten::mm of mm") == "aten::mm of mm"  # an operator
    assert names.text("box_12 and anna") == "host1_12 and user1"
    assert names.text("3.5 GFLOP/s, 2 of /x/y/z") == "3.5 GFLOP/s, 2 of path1"
