# SPDX-License-Identifier: Apache-2.0
"""A step in two recordings: what takes longer is what was planted, to the ns, and everything adds up."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from pyprof.facts.steps.aggregation import aggregate, aggregations
from pyprof.facts.steps.source import Source
from pyprof.reports import diff
from pyprof.store.files import Store
from pyprof.views.step_difference import difference
from tests.build import Recording, call, recording, write_capture
from tests.server import planted_ranks
from tests.server.browser import traces
from tests.server.conftest import MM, RELU, Asking, serving

DATA = Path(os.environ.get("PYPROF_TEST_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
SOFT = call("torch.softmax", (64, 16), module="net.last", trace=("net.py:5",))
MOVED = call("torch.softmax", (64, 16), module="net.head", trace=("net.py:5",))
EXTRA = call("torch.exp", (64, 16), module="net.last", trace=("net.py:7",))
SYNC = "api 40 cudaStreamSynchronize_v3020"


def step(*parts: str) -> str:
    return "\n".join((*parts, SYNC, ""))


def kernel(operator: str, *lengths: int, name: str = "volta_sgemm_128x64_nn") -> str:
    return "\n".join((operator, *(f"    > {length} {name}" for length in lengths)))


def marked(*steps_: str, first: int = 0) -> Recording:
    """A recording of steps that each begin with an MM."""
    out = recording("".join(steps_))
    starts = [r.start for r in out.ranges if r.text == MM]
    ends = [*starts[1:], max(k.end for k in out.kernels)]
    out.steps = [(first + number, start, end) for number, (start, end) in enumerate(zip(starts, ends))]
    return out


def save(path: Path, of: Recording) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    capture = path.with_name("capture.sqlite")
    profiles.load(write_capture(capture, of)).save(path)
    capture.unlink()
    return path


def plain(relu: int = 12, soft: tuple[int, ...] = (50, 60), operator: str = SOFT) -> str:
    """A step: two kernels of MM, one of RELU, an execution of softmax for each length."""
    return step(kernel(MM, 70, 30), kernel(RELU, relu), *(kernel(operator, length) for length in soft))


@contextmanager
def sides(*paths: Path, aggregation: int = 0) -> Iterator[list[Source]]:
    with ExitStack() as opened:
        stores = [opened.enter_context(Store(path)) for path in paths]
        yield [Source(store, aggregations(store)[aggregation]) for store in stores]


def of_files(base: Path, other: Path, number: int, other_number: int, **how: Any) -> dict[str, Any]:
    with sides(base, other) as both:
        answer = difference(both[0], both[1], number, other_number, **how)
    check(answer)
    return answer


Compare = Callable[..., dict[str, Any]]


@pytest.fixture
def compared(tmp_path: Path) -> Compare:
    def compare(
        base: Recording, other: Recording, number: int, other_number: int, **how: Any
    ) -> dict[str, Any]:
        files = [save(tmp_path / f"{name}_dldb.sqlite", of) for name, of in (("a", base), ("b", other))]
        return of_files(*files, number, other_number, **how)

    return compare


def delta(row: dict[str, Any]) -> int:
    return int((row["other"] or 0) - (row["base"] or 0))


def lane(answer: dict[str, Any], key: str) -> list[dict[str, Any]]:
    one = next(each for each in answer["lanes"] if each["key"] == key)
    table = answer["modules" if key == "module" else "operators"]
    names = ("start", "end", "base", "other", "base_event", "other_event")
    return [
        dict(zip(names, values)) | {"name": table[row]["name"]}
        for *values, row in zip(*(one[name] for name in names), one["row"])
    ]


def check(answer: dict[str, Any]) -> None:
    """The tables, and the lanes, add up to the difference of the step."""
    total = answer["other"]["time"] - answer["base"]["time"]
    assert answer["delta"] == total
    for table in ("operators", "modules"):
        assert sum(map(delta, answer[table])) == total
        for side in ("base", "other"):
            assert sum(row[side] or 0 for row in answer[table]) == answer[side]["time"]
    only = sum(map(delta, lane(answer, "only")))
    for key in ("module", "operator"):
        pieces = lane(answer, key)
        assert sum(map(delta, pieces)) + only == total
        assert [one["start"] for one in pieces] == sorted(one["start"] for one in pieces)
        assert all(one["start"] <= one["end"] <= after["start"] for one, after in itertools.pairwise(pieces))


def test_a_recording_and_itself_do_not_differ(compared: Compare) -> None:
    answer = compared(marked(plain(), plain()), marked(plain(), plain()), 1, 1)
    assert answer["delta"] == 0
    assert {delta(row) for row in (*answer["operators"], *answer["modules"])} == {0}
    assert {delta(one) for key in ("module", "operator") for one in lane(answer, key)} == {0}
    assert lane(answer, "only") == []
    assert {row["matched_by"] for row in answer["operators"]} == {diff.PLACE}


@pytest.mark.parametrize("planted", [7, -5, 100_000])
def test_a_planted_difference_is_found_and_no_other(compared: Compare, planted: int) -> None:
    """RELU takes longer by so much in the second step of the other, and the step after."""
    other = marked(plain(), plain(12 + planted), plain(12 + planted))
    answer = compared(marked(plain(), plain(), plain()), other, 1, 1)
    assert answer["delta"] == planted
    for key in ("operator", "module"):
        assert {one["name"]: delta(one) for one in lane(answer, key) if delta(one)} == {
            "relu" if key == "operator" else "net.first.act fprop": planted
        }
    assert [(row["name"], delta(row)) for row in answer["operators"] if delta(row)] == [("relu", planted)]
    assert [(row["name"], delta(row)) for row in answer["modules"] if delta(row)] == [
        ("net.first.act fprop", planted)
    ]
    assert answer["operators"][0]["name"] == "relu"  # the largest first


def test_a_piece_is_where_the_base_runs_it(compared: Compare, tmp_path: Path) -> None:
    """From the first to the last of its events; its event is the longest, in both."""
    answer = compared(marked(plain(), plain()), marked(plain(), plain(19)), 1, 1)
    query = """select e.id, e.start_ns, e.start_ns + e.duration_ns from event e join operator o on o.id = e.operator
               where o.type = 'relu' order by e.id"""
    with sides(tmp_path / "a_dldb.sqlite", tmp_path / "b_dldb.sqlite") as both:
        relu, of_other = (one.store.rows(query)[1] for one in both)
        longest = both[0].store.rows("select id from event where duration_ns = 70 order by id")[1]
    piece = next(one for one in lane(answer, "operator") if one["name"] == "relu")
    assert (piece["base_event"], piece["start"], piece["end"]) == relu
    assert piece["other_event"] == of_other[0]
    mm = next(one for one in lane(answer, "operator") if one["name"] == "mm")
    assert mm["base_event"] == longest[0]
    run = next(one for one in lane(answer, "module") if one["name"] == "net.last fprop")
    assert (run["base"], run["other"]) == (110, 110)  # two executions in a row


def test_the_nth_execution_meets_the_nth(compared: Compare) -> None:
    answer = compared(marked(plain(soft=(50, 60))), marked(plain(soft=(60, 50))), 0, 0)
    assert [delta(one) for one in lane(answer, "operator") if one["name"] == "softmax"] == [10, -10]
    assert answer["delta"] == 0


def test_what_only_one_has_is_named_and_counts(compared: Compare) -> None:
    base = marked(
        step(kernel(MM, 70), kernel(RELU, 12, name="relu_kernel"), kernel(SOFT, 50), kernel(SOFT, 60))
    )
    other = marked(step(kernel(MM, 70), kernel(EXTRA, 9, name="exp_kernel"), kernel(SOFT, 50)))
    answer = compared(base, other, 0, 0)
    rows = {row["name"]: row for row in answer["operators"]}
    assert (rows["relu"]["base"], rows["relu"]["other"], rows["relu"]["matched_by"]) == (12, None, None)
    assert (rows["exp"]["base"], rows["exp"]["other"], rows["exp"]["matched_by"]) == (None, 9, None)
    assert (rows["softmax"]["base_calls"], rows["softmax"]["other_calls"]) == (2, 1)
    assert [(one["name"], one["base"], one["other"]) for one in lane(answer, "only")] == [("exp", None, 9)]
    assert [(one["base"], one["other"]) for one in lane(answer, "operator") if one["name"] == "softmax"] == [
        (50, 50),
        (60, None),
    ]
    assert answer["delta"] == 9 - 12 - 60


def test_what_ran_nothing_on_the_device_of_the_base_is_where_the_other_runs_it(compared: Compare) -> None:
    """A piece has no place in the base without an event there."""
    base = marked(step(kernel(MM, 70), RELU + "\n    wait 5"))
    other = marked(step(kernel(MM, 70), kernel(RELU, 9)))
    answer = compared(base, other, 0, 0)
    (piece,) = lane(answer, "only")
    assert (piece["name"], piece["base"], piece["other"], piece["base_event"]) == ("relu", 0, 9, None)
    assert "relu" not in {one["name"] for one in lane(answer, "operator")}


def test_operators_are_matched_by_name_as_in_the_report(compared: Compare) -> None:
    """One that moved to another module keeps its place in the module of the base."""
    answer = compared(marked(plain()), marked(plain(soft=(51, 62), operator=MOVED)), 0, 0)
    row = next(one for one in answer["operators"] if one["name"] == "softmax")
    assert (row["matched_by"], delta(row)) == (diff.NAME, 3)
    assert {one["name"]: delta(one) for one in answer["modules"] if delta(one)} == {"net.last fprop": 3}


def test_other_numbers_of_steps_can_be_compared(compared: Compare) -> None:
    answer = compared(marked(plain(), plain()), marked(plain(20), first=30), 1, 30)
    assert (answer["base"]["number"], answer["other"]["number"], answer["delta"]) == (1, 30, 8)


def test_rows_are_those_of_the_report_of_one_iteration(tmp_path: Path) -> None:
    """The report of the same iterations alone has the same sums."""
    base, other = marked(plain(), plain(13), plain()), marked(plain(), plain(40, (5, 6, 7)), plain())
    files = [save(tmp_path / f"{name}_dldb.sqlite", of) for name, of in (("a", base), ("b", other))]
    for file in files:
        with Store(file) as store:
            aggregate(store, 1, 1, None)
    with sides(*files, aggregation=-1) as (first, second):
        table = diff.diff(first, "operator", "run").table(second)
    expected = sorted(
        (row["name"], row["base_device_ns"] or 0, row["other_device_ns"] or 0, row["matched_by"])
        for row in table.to_dict("records")
        if row["base_device_ns"] or row["other_device_ns"]
    )
    answer = of_files(*files, 1, 1)
    found = [
        (row["name"], row["base"] or 0, row["other"] or 0, row["matched_by"]) for row in answer["operators"]
    ]
    assert sorted(found) == expected


def test_without_a_gpu_operators_own_time_is_compared(compared: Compare) -> None:
    def cpu(wait: int) -> Recording:
        out = recording(
            f"op seq=1 {MM}\n    op seq=1 aten::mm\n        wait {wait}\nop seq=2 {RELU}\n    wait 5\n"
        )
        out.steps = [(0, 0, max(op.end for op in out.ops) + 1)]
        return out

    answer = compared(cpu(50), cpu(58), 0, 0)
    assert answer["base"]["kind"] == "range"
    assert {one["name"]: delta(one) for one in lane(answer, "operator") if delta(one)} == {"mm": 8}
    assert all(one["base_event"] is not None for one in lane(answer, "operator"))


def test_one_without_a_gpu_is_said(compared: Compare) -> None:
    cpu = recording(f"op seq=1 {MM}\n    wait 50\n")
    cpu.steps = [(0, 0, max(op.end for op in cpu.ops) + 1)]
    answer = compared(marked(plain()), cpu, 0, 0)
    assert "The other has no GPU events: its times are those of operators on the CPU." in answer["notes"]


def test_of_several_ranks_those_of_one_rank(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    profiles.load(planted_ranks.write(folder / "run")).save(folder / "r_dldb.sqlite")
    one = save(folder / "one_dldb.sqlite", marked(plain(), first=planted_ranks.FIRST))
    ranks, number = folder / "r_dldb.sqlite", planted_ranks.FIRST
    for worker in (None, 0, 2):
        answer = of_files(ranks, ranks, number, number, worker=worker)
        assert answer["base"]["worker"] == answer["other"]["worker"] == (worker or 0)
        assert answer["notes"][0] == f"Differences are of rank {worker or 0} in both."
        assert answer["delta"] == 0
    answer = of_files(ranks, one, number, number)
    assert answer["notes"][0] == "The base has 4 ranks, the other 1. Differences are of rank 0 in both."


def test_many_pieces_and_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The largest stay, and the last row has the rest."""
    monkeypatch.setattr("pyprof.views.step_difference._PIECES", 2)
    monkeypatch.setattr("pyprof.views.step_difference._ROWS", 1)
    files = [
        save(tmp_path / f"{name}_dldb.sqlite", marked(plain(relu, soft)))
        for name, relu, soft in (("a", 12, (50, 60)), ("b", 20, (51, 57)))
    ]
    with sides(*files) as both:
        answer = difference(both[0], both[1], 0, 0)
    operators = next(one for one in answer["lanes"] if one["key"] == "operator")
    assert operators["left_out"] == 2
    assert [delta(one) for one in lane(answer, "operator")] == [8, -3]
    assert [(row["name"], delta(row)) for row in answer["operators"]] == [("relu", 8), ("2 more", -2)]
    assert sum(map(delta, answer["operators"])) == answer["delta"] == 6


# --- over the API


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """The runs alpha and beta: in each step relu takes 20 us in one, 40 us in the other."""
    with serving(traces.write(tmp_path_factory.mktemp("two") / "runs")) as asking:
        for run in ("alpha", "beta"):
            while asking.http.get("/api/profile", params={"run": run}).status_code == 503:
                time.sleep(0.1)
        yield asking


def ask(two: Asking, status: int = 200, **how: Any) -> Any:
    parameters = {"run": "alpha", "other": "beta", "number": 1, "other_number": 1} | how
    return two.json("/api/timeline/step_difference", status=status, **parameters)


def test_the_route_answers_for_two_runs(two: Asking) -> None:
    answer = ask(two)
    check(answer)
    assert answer["delta"] == 20_000
    assert [(row["name"], delta(row)) for row in answer["operators"] if delta(row)] == [("relu", 20_000)]
    assert ask(two, run="beta", other="alpha")["delta"] == -20_000
    assert ask(two, other="alpha")["delta"] == 0


@pytest.mark.parametrize(
    ("how", "status", "sentence"),
    [
        ({"number": 9}, 404, "The base has no step 9."),
        ({"other_number": 9}, 404, "The other has no step 9."),
        ({"other": "gamma"}, 404, "gamma"),
        ({"worker": 5}, 404, "Worker 5"),
        ({"number": "x"}, 422, "number"),
    ],
)
def test_what_is_not_there_is_a_sentence(
    two: Asking, how: dict[str, Any], status: int, sentence: str
) -> None:
    assert sentence in ask(two, status, **how)["detail"]


def test_the_other_goes_while_it_is_open(tmp_path: Path) -> None:
    """The base still answers."""
    for name, relu in (("a", 12), ("b", 20)):
        save(tmp_path / "runs" / f"{name}_dldb.sqlite", marked(plain(relu)))
    with serving(tmp_path / "runs") as asking:
        how: dict[str, Any] = {
            "run": "a_dldb.sqlite",
            "other": "b_dldb.sqlite",
            "number": 0,
            "other_number": 0,
        }
        assert asking.json("/api/timeline/step_difference", **how)["delta"] == 8
        (tmp_path / "runs" / "b_dldb.sqlite").write_bytes(b"no database")
        while (answer := asking.http.get("/api/timeline/step_difference", params=how)).status_code == 503:
            time.sleep(0.1)  # it may be a recording that has to be read
        assert 400 <= answer.status_code < 500, answer.text
        assert "b_dldb.sqlite" in answer.json()["detail"]
        assert asking.json("/api/timeline", run="a_dldb.sqlite")["tracks"]


def test_labels_of_one_name_have_the_number_of_the_base(two: Asking) -> None:
    """Modules and causes, wherever each recording has them in its list."""
    texts = {}
    for run in ("alpha", "beta"):
        wanted = ",".join(map(str, range(50)))
        found = two.json("/api/timeline/texts", run=run, of=f"label,{wanted}")["label"]
        texts[run] = {int(number): text for number, text in found.items()}
    numbers = two.json("/api/timeline/labels", run="alpha", other="beta")
    assert len(numbers) == len(texts["beta"])
    own = {text: number for number, text in texts["alpha"].items()}
    assert numbers == [own.get(text, -1) for _, text in sorted(texts["beta"].items())]
    assert max(numbers) >= 0


@pytest.mark.skipif(not DATA.is_dir(), reason="PYPROF_TEST_DATA: the recordings are not there")
def test_two_steps_of_a_real_recording_add_up(tmp_path: Path) -> None:
    file = DATA / "kineto" / "resnet50_v100_6steps.pt.trace.json.gz"
    if not file.is_file():
        pytest.skip(f"PYPROF_TEST_DATA: {file} is not there")
    profiles.load(file).save(tmp_path / "r_dldb.sqlite")
    saved = tmp_path / "r_dldb.sqlite"
    same, after = (of_files(saved, saved, 7, number) for number in (7, 8))
    assert {delta(row) for row in same["operators"]} == {0}
    assert after["delta"] == 32_000
