# SPDX-License-Identifier: Apache-2.0
"""Notebooks: `%pyprof` and `%%pyprof`, what a profile and its parts look like, and the page in a frame."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.server
import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.core.errors import FormatError, MissingPackage, UsageError
from pyprof.integrations import notebook_frame
from tests.build import write_capture
from tests.one_file import contents
from tests.server.browser.conftest import CHROMIUM, FLAGS
from tests.server.conftest import HOSTILE, steps
from tests.waiting import HANG

ROOT = Path(__file__).parents[2]
CELLS = {
    "load": "import torch, pyprof\n%load_ext pyprof\nnet = torch.nn.Linear(8, 4)\nx = torch.ones(2, 8)",
    "line": "y = net(x)\nprof = %pyprof net(x).tanh()\n_ = prof.ops",
    "places": "print(*prof.ops['caller'].unique())",
    "cell": "%%pyprof -n second -o kept.sqlite\n# two lines\ny = net(x)\ny.relu().sum()",
    "cell places": "print(*second.ops['caller'].unique())",
    "steps": (
        "%%pyprof -n third --wait=1 --warmup=1 --active=2\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for _ in range(5):\n    net(x).sum().backward()\n    optimizer.step()"
    ),
    "numbers": "print(third.trace.steps.number.tolist())",
    "error": "%%pyprof -n fourth\nz = x.exp()\n1 / 0",
    "after": "print(z is not None, *fourth.ops['type'].unique())",
    "interrupt": "%%pyprof -n fifth\nz = x.exp()\nraise KeyboardInterrupt",
    "library": "%%pyprof\npyprof.load('absent.sqlite')",
    "wrong": "%pyprof --actve=2 net(x)",
    "nothing": "%%pyprof -o kept.sqlite\npass",
    "quiet": "%%pyprof -n sixth\nnet(x).sum();",
    "overview": "pyprof.load('hostile.sqlite').overview",
    "profile": "pyprof.load('hostile.sqlite')",
    "findings": "pyprof.load('hostile.sqlite').findings",
    "some": "pyprof.load('hostile.sqlite').findings[['rule']]",
    "report": "third.report('op_type')",
    "bar": (
        "from pyprof.integrations import notebook_progress as bars\nbars._PATIENCE = bars._PAUSE = 0\n"
        "bar = bars.Progress(); bar('writing <b>', 0.0)\n"
        "import time\nwhile bar._handle is None: time.sleep(0.01)\nbar('writing <b>', 0.25)"
    ),
    "gone": "bar = bars.Progress(); bar('reading', 0.0)\nwhile bar._handle is None: time.sleep(0.01)\nbar.hide()",
    "frame": "second.show(height=321)",
}


class Run:
    """A notebook that has run: what each cell printed and displayed."""

    def __init__(self, notebook: Any, folder: Path):
        self.folder = folder
        self.outputs = {name: cell.outputs for name, cell in zip(CELLS, notebook.cells, strict=True)}

    def text(self, cell: str) -> str:
        return "".join(one.text for one in self.outputs[cell] if one.output_type == "stream" and one.name == "stdout")

    def said(self, cell: str) -> str:
        return "".join(one.text for one in self.outputs[cell] if one.output_type == "stream" and one.name == "stderr")

    def html(self, cell: str) -> list[str]:
        """HTML of what a cell displayed."""
        data = [one.data for one in self.outputs[cell] if "data" in one]
        return [one["text/html"] for one in data if "text/html" in one]

    def error(self, cell: str) -> Any:
        (out,) = (one for one in self.outputs[cell] if one.output_type == "error")
        return out


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All cells, in a real kernel."""
    nbclient = pytest.importorskip("nbclient", reason="notebooks: nbclient is not installed")
    import nbformat

    folder = tmp_path_factory.mktemp("notebook")
    write_capture(folder / "hostile.sqlite", steps())
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS.values()])
    interrupt = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch:
        for name in (
            "JUPYTER_RUNTIME_DIR",
            "JUPYTER_CONFIG_DIR",
            "JUPYTER_DATA_DIR",
            "IPYTHONDIR",
            "XDG_CACHE_HOME",
        ):
            patch.setenv(name, str(folder / name))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        try:
            nbclient.NotebookClient(
                notebook, timeout=HANG, kernel_name="python3", allow_errors=True,
                resources={"metadata": {"path": str(folder)}},
            ).execute()  # fmt: skip
        finally:
            signal.signal(signal.SIGINT, interrupt)  # the client leaves Python's own
    return Run(notebook, folder)


def number(cell: str) -> int:
    return [*CELLS].index(cell) + 1


@pytest.mark.long
def test_calls_have_the_lines_of_the_cell(run: Run) -> None:
    """Of a statement after %pyprof its own line; of a cell those below %%pyprof."""
    assert run.text("places").split(" In")[0].strip() == f"In [{number('line')}]:2"
    assert run.text("cell places").strip() == f"In [{number('cell')}]:3 In [{number('cell')}]:4"
    prof = pyprof.load(run.folder / "kept.sqlite")
    assert prof.trace.sources[f"In [{number('cell')}]"].rstrip("\n") == CELLS["cell"]


@pytest.mark.long
def test_a_cell_shows_its_value_and_the_profile(run: Run) -> None:
    value, profile = [one.data["text/plain"] for one in run.outputs["cell"] if "data" in one]
    assert value.startswith("tensor(")
    assert profile.lstrip().startswith("Whole recording")
    (html,) = run.html("cell")
    assert "kept.sqlite" in html
    assert ">relu</td>" in html
    assert len([one for one in run.outputs["quiet"] if "data" in one]) == 1
    assert not any(run.html("line"))  # the profile has a name there
    assert run.said("cell").startswith("kept.sqlite: ")
    assert re.fullmatch(r"cell2\.sqlite: \d+ operators, 2 calls\n", run.said("line"))  # no path of a temporary folder


@pytest.mark.long
def test_a_schedule_counts_the_steps_of_the_optimizer(run: Run) -> None:
    assert run.text("numbers").strip() == "[2, 3]"


@pytest.mark.long
def test_an_error_in_a_cell_is_its_own_and_the_profile_is_there(run: Run) -> None:
    assert run.error("error").ename == "ZeroDivisionError"
    assert run.text("after").strip() == "True exp"
    assert ">exp</td>" in run.html("error")[0]
    assert run.error("interrupt").ename == "KeyboardInterrupt"
    assert ">exp</td>" in run.html("interrupt")[0]


@pytest.mark.long
def test_what_is_wrong_is_one_sentence(run: Run) -> None:
    traceback = run.error("wrong").traceback
    assert len(traceback) == 1
    assert "--actve is not an option of %pyprof; it has -o, -n, --wait" in traceback[0]
    assert len(run.error("library").traceback) == 1
    assert "absent.sqlite: " in run.error("library").traceback[0]


@pytest.mark.long
def test_a_cell_that_records_nothing_shows_no_older_profile(run: Run) -> None:
    assert [one for one in run.outputs["nothing"] if "data" in one] == []
    assert "nothing was recorded" in run.said("nothing").lower() or "kept.sqlite" in run.said("nothing")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording without a kernel of a notebook."""
    return write_capture(tmp_path_factory.mktemp("hostile") / "hostile.sqlite", steps())


def test_the_summary_is_that_of_the_terminal(hostile: Path) -> None:
    prof = pyprof.load(hostile)
    assert repr(prof) == f"<Profile {hostile}>"
    figures = prof.overview.figures
    for html in (prof.overview._repr_html_(), prof._repr_html_()):
        assert "\xa0%" in html  # no line ends between a number and its unit
        text = unescape(re.sub(r"<[^>]+>", "\n", html)).replace("\xa0", " ")
        for row in figures.operators:
            assert row.name in text
            assert f"\n{row.share:.1f} %\n" in text
        assert figures.best is not None
        assert figures.best.problem in text
        assert HOSTILE in text
        assert "<img" not in html
        assert "<script" not in html


def test_findings_are_paragraphs_and_tables_stay_tables(hostile: Path) -> None:
    prof = pyprof.load(hostile)
    found = prof.findings
    findings, some, report = (table._repr_html_() for table in (found, found[["rule"]], prof.report("op_type")))
    assert "pyprof-findings" in findings
    assert "<b>R" in findings
    assert 'class="dataframe"' in some
    assert 'class="dataframe"' in report


@pytest.mark.long
def test_a_bar_is_shown_while_a_recording_is_read(run: Run) -> None:
    (html,) = run.html("bar")
    assert 'value="0.250"' in html
    assert "25 %" in html
    assert "writing &lt;b&gt;" in html
    assert run.html("gone") == [""]


@pytest.mark.long
def test_the_frame_has_the_page_and_no_access_to_the_notebook(run: Run, tmp_path: Path) -> None:
    html = run.html("frame")[-1]  # before it there may be a bar
    assert 'height="321"' in html
    assert 'sandbox="allow-scripts allow-downloads"' in html  # not allow-same-origin
    match = re.search(r'src="data:text/html;base64,([^"]+)"', html)
    assert match
    path = tmp_path / "page.html"
    path.write_bytes(base64.b64decode(match[1]))
    rows = contents(path)["tables"]["reports/op_type"]["rows"]
    assert {"linear", "relu", "sum"} <= {row[0] for row in rows}
    text = run.outputs["frame"][-1].data["text/plain"]
    assert re.fullmatch(r"<page of kept\.sqlite, 0\.\d MB>", text)


@pytest.fixture
def in_notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Cells run in this process."""
    monkeypatch.setattr(notebook_frame, "in_notebook", lambda: True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """A server of files on localhost, in place of Jupyter's."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *more: None  # type: ignore[attr-defined]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.long
def test_outputs_and_the_page_in_a_browser(run: Run, in_notebook: None, tmp_path: Path) -> None:
    """What the kernel has displayed is drawn, nothing of it runs, and the page opens in the frame."""
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium-headless-shell, or PYPROF_CHROMIUM=PATH")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    frame = pyprof.load(run.folder / "kept.sqlite").show(height=400)
    body = "".join(html for cell in ("cell", "profile", "findings") for html in run.html(cell))
    (tmp_path / "notebook.html").write_text(
        f"<!doctype html><meta charset=utf-8><body>{body}{frame._repr_html_()}", encoding="utf-8"
    )
    (tmp_path / "favicon.ico").write_bytes(b"")
    wrong: list[str] = []
    with served(tmp_path) as url, api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 900, "height": 1200})
        page.on("console", lambda one: wrong.append(one.text) if one.type == "error" else None)
        page.on("dialog", lambda dialog: pytest.fail(f"a script of the recording ran: {dialog.message}"))
        page.goto(f"{url}/notebook.html")
        assert page.locator(".pyprof-overview").count() == 2
        assert page.locator(".pyprof-overview img").count() == 0
        bar = page.locator(".pyprof-overview >> nth=1 >> span[title]")
        widths = [bar.nth(i).bounding_box()["width"] for i in range(bar.count())]
        assert all(width > 0 for width in widths)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        inside = page.frame_locator("iframe")
        inside.locator("main h1").first.wait_for(timeout=60_000)
        inside.locator("nav a:text-is('Timeline')").click()
        inside.locator("[data-surface]").wait_for(timeout=60_000)
        assert page.frames[1].evaluate("origin") == "null"  # it can read nothing of the notebook
        assert page.locator("iframe").bounding_box()["height"] >= 400
        assert wrong == []
        browser.close()


def test_a_page_that_cannot_be_shown_is_one_sentence(hostile: Path, in_notebook: None) -> None:
    with pytest.raises(UsageError, match="expected a number of pixels"):
        pyprof.load(hostile).show(height=0)


def test_outside_of_a_notebook_a_sentence_says_what_to_do(hostile: Path) -> None:
    with pytest.raises(UsageError, match=r"show\(\) is for notebooks; in a terminal run: pyprof view .*hostile.sqlite"):
        pyprof.load(hostile).show()
    assert FormatError("no kernels.")._render_traceback_() == ["FormatError: no kernels."]


def test_without_ipython_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "IPython"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "pyprof.integrations.notebook", raising=False)

    class Nothing:
        def find_spec(self, name: str, *more: object) -> None:
            if name.partition(".")[0] == "IPython":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Nothing(), *sys.meta_path])
    with pytest.raises(MissingPackage, match=r"needs IPython: pip install '\.\[notebook\]' in a clone"):
        importlib.import_module("pyprof.integrations.notebook")
