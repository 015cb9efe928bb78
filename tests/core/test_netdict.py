# SPDX-License-Identifier: Apache-2.0
"""net.dict: what is written reads back the same, old and hand-edited files are understood, nothing is evaluated."""

from __future__ import annotations

import ast
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.core.errors import FormatError
from pyprof.core.marker import decode, encode, encode_classic, split
from pyprof.core.model import BPROP, KERNEL, OPERATOR, Arg, Call, Column, Rows, Site, Tensor
from pyprof.core.netdict import KEYS, ORIGINAL_KEYS, OUR_KEYS, lines, read
from pyprof.costs.attribution.attribute import attribute
from pyprof.costs.columns import View
from tests import build
from tests.build import call, classic, examples, recording

# Texts that look like the rest of a line.
HOSTILE = [
    "', 'dir': 'bprop", '", "dir": "bprop',
    "'", '"', "\\", "\\'", "\n", "\r\n", "\t", "}", "{", ", seq = 5", "%s", "%", "%%d",
    "@callid@", "None", "]", "[", "\x00", "\u2028", "é漢😀", "'kDuration': 7, ", "\ud800",
]  # fmt: skip
words = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=4), max_size=3).map("".join)
names = words.map(lambda text: text or "kernel")
numbers = st.integers(0, 2**40)
optional = st.none() | numbers
offsets = st.lists(st.integers(-3, 3), max_size=3, unique=True).map(tuple)
operators = names.filter(lambda text: split(f"{text}, seq = 3") == (text, 3, True))
calls = st.builds(Call, names, names, st.just((Arg("", Tensor((2, 3), "float32")),)))


@st.composite
def sites(draw: st.DrawFn) -> Site:
    chain = tuple(draw(st.lists(calls, max_size=3)))
    write = draw(st.sampled_from([encode, lambda call: encode_classic(call, ())[-1]]))
    return Site(
        layer=tuple(draw(st.lists(words, max_size=2))), trace=tuple(draw(st.lists(words, max_size=2))),
        reprs=tuple(draw(st.lists(words, max_size=1))), markers=tuple(map(write, chain)), calls=chain,
        seq_names=tuple(draw(st.lists(st.tuples(operators, st.integers(-3, 3)), max_size=2))), seq_ids=draw(offsets),
        alt_seq_ids=draw(offsets), direction=draw(st.integers(0, 2)), phase=draw(st.integers(0, 4)),
        mods=tuple(c.mod for c in chain), ops=tuple(c.op for c in chain), module=draw(st.none() | names),
    )  # fmt: skip


def column(draw: st.DrawFn, n: int) -> Column:
    values = draw(st.lists(optional, min_size=n, max_size=n))
    return Column(np.array([v or 0 for v in values], np.int64), np.array([v is not None for v in values], bool))


def triples(draw: st.DrawFn, n: int) -> np.ndarray:
    """Grids: up to 2**31 - 1 blocks in x, 2**16 - 1 in y and z."""
    axis = st.sampled_from([0, 1, 2, 2**15, 2**16 - 1])
    grid = st.tuples(axis | st.sampled_from([2**22, 2**22 + 1, 2**31 - 1]), axis, axis)
    return np.array(draw(st.lists(grid, min_size=n, max_size=n)), np.int64)


@st.composite
def tables(draw: st.DrawFn) -> Rows:
    """Rows as parse makes them, with any text and any number missing."""
    n = draw(st.integers(1, 4))
    kernels = draw(st.lists(st.tuples(names, names), min_size=1, max_size=2))
    all_sites = draw(st.lists(sites(), min_size=1, max_size=2))

    def integers(low: int, high: int) -> np.ndarray:
        return np.array(draw(st.lists(st.integers(low, high), min_size=n, max_size=n)), np.int64)

    present = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    seq = integers(3, 2**40)
    start = integers(0, 2**62)
    return Rows(
        names=[long for long, _ in kernels], short_names=[short for _, short in kernels], sites=all_sites,
        name=integers(0, len(kernels) - 1), site=integers(0, len(all_sites) - 1), start=start,
        end=start + integers(0, 2**61), duration=integers(0, 2**56),
        launch_start=column(draw, n), launch_end=column(draw, n),
        correlation=column(draw, n), pid=column(draw, n), tid=column(draw, n), context=column(draw, n),
        device=column(draw, n), stream=column(draw, n),
        grid=Column(triples(draw, n), present), block=Column(triples(draw, n), ~present),
        registers=column(draw, n),
        shared_memory=column(draw, n), graph=column(draw, n), kind=np.full(n, KERNEL), seq=Column(seq),
        sub=integers(0, 9), call=Column(integers(0, 9)), inner_calls=[], launcher=column(draw, n),
        forward_thread=column(draw, n), process=np.zeros(n, np.int64),
    )  # fmt: skip


def test_a_name_that_looks_like_the_end_of_a_text_keeps_its_number(tmp_path):
    """Two lines of one operator: the second is read through the cache."""
    path = build.write_nsys(tmp_path / "f", recording("""
        , seq = 5', 'dir': 'bprop, seq = 3
          > 5 sgemm
          > 5 sgemm"""))  # fmt: skip
    text = [str(row) for row in build.read(path)]
    assert [ast.literal_eval(line)["seqMarker"] for line in text] == [[", seq = 5', 'dir': 'bprop, seq = 3"]] * 2
    assert list(lines(read(text))) == text


@examples(40)
@given(tables())
def test_what_is_written_reads_and_writes_the_same(rows):
    text = list(lines(rows))
    assert [list(ast.literal_eval(line)) for line in text] == [list(KEYS)] * len(rows)
    assert all("\n" not in line and "\r" not in line for line in text)
    assert list(lines(read(text))) == text


@examples(20)
@given(tables())
def test_a_reader_that_knows_no_pattern_finds_the_same(rows):
    """Keys in another order and other blanks: such lines are read in full, not through the pattern of our own."""
    text = list(lines(rows))
    shuffled = [str(dict(reversed(ast.literal_eval(line).items()))) + "  \r\n" for line in text]
    assert list(lines(read(shuffled))) == text


@examples(20)
@given(tables())
def test_json_holds_the_same_values(rows):
    for literal, text in zip(lines(rows), lines(rows, "jsonl")):
        expected = {k: list(v) if isinstance(v, tuple) else v for k, v in ast.literal_eval(literal).items()}
        assert json.loads(text) == expected


def test_the_keys_of_a_line_are_the_originals_and_then_ours(tmp_path):
    """The order is part of the format: scripts of 2020 index it."""
    path = build.write_nsys(tmp_path / "f", recording("aten::mm, seq = 3\n  > 5 sgemm"))
    (row,) = build.read(path)
    assert tuple(row) == ORIGINAL_KEYS + OUR_KEYS
    assert " ".join(OUR_KEYS) == (
        "start end launchStart launchEnd correlation pid context registers sharedMemory module fwdThread graph phase "
        "kind call caller launcher"
    )


def test_unknown_is_none(tmp_path):
    path = build.write_nsys(tmp_path / "f", recording("> 5 correlation=none kernel"))
    (row,) = build.read(path)
    missing = {key for key, value in row.items() if value is None}
    assert missing == {
        "dir", "tid", "launchStart", "launchEnd", "correlation", "module", "fwdThread", "graph", "call", "caller",
            "launcher",
    }  # fmt: skip


INNER = f"""
    {classic("torch.nn.functional.multi_head_attention_forward", (8, 4))}
        {classic("torch.nn.functional.linear", (8, 4), (4, 4))}
            > 9 sgemm
        {classic("torch.nn.functional.linear", (8, 4), (4, 4))}
            > 8 sgemm
"""


def test_two_calls_inside_one_keep_their_own_cost_through_the_file(tmp_path):
    path = build.write_nsys(tmp_path / "f", recording(INNER))
    text = [str(row) for row in build.read(path)]
    assert attribute(read(text)).flops.values.tolist() == [2 * 8 * 4 * 4] * 2
    assert list(lines(read(text))) == text


@pytest.mark.parametrize(
    "line",
    [
        "{'kShortName': 'relu', 'kDuration': 5, 'kLongName': __import__('os').system('touch VICTIM')}",
        "{'kShortName': 'relu', 'kDuration': [x for x in ()]}",
        "{'kShortName': 'relu', 'kDuration': 5",
        "{'kShortName': 'relu', 'kDura",
        "['kShortName']",
        "17",
        "relu 5",
        "no such table: CUPTI_ACTIVITY_KIND_KERNEL",
        "{'kShortName': 'relu'} {'kShortName': 'relu'}",
        "(" * 5000,
        "{'kShortName': 'relu', 'kDuration': {1, [2]}}",
        "\x00",
    ],
)
def test_a_line_that_is_no_dictionary_is_named(line, tmp_path):
    victim = tmp_path / "victim"
    good = "{'kShortName': 'relu', 'kDuration': 5}"
    with pytest.raises(FormatError, match=r"^mine\.dict: line 3 is not a kernel") as error:
        read([good, "\n", line.replace("VICTIM", str(victim))], "mine.dict")
    assert not victim.exists()
    assert len(str(error.value)) < 250


def test_a_line_edited_by_hand(tmp_path):
    """Blanks, another order, missing and unknown keys, double quotes, empty lines: whatever a person leaves behind."""
    rows = read(
        [
            "",
            '  { "op" : ["relu"],"kDuration":7 , "dir": "fprop", "mine": {"a": [1, None]}, "kShortName": "relu" }  \n',
            "{'kShortName': ''}",
            "{'kShortName': 'x', 'kDuration': 'long', 'grid': (1, 2), 'seqId': ['a', 3], 'op': None, 'start': 1.5}",
        ]
    )
    assert rows.short_names == ["relu", "", "x"]
    assert rows.duration.tolist() == [7, 0, 0]
    assert [row["seqId"] for row in map(ast.literal_eval, lines(rows))] == [[], [], [3]]
    assert not rows.grid.mask().any()
    assert not rows.block.mask().any()


@pytest.mark.parametrize("line", ["{}", "{'a': 1}", '{"traceEvents": []}'])
def test_a_dictionary_without_a_kernel_is_refused(line):
    with pytest.raises(FormatError, match=r"line 1 is not a kernel of net\.dict \(it has no kShortName"):
        read([line])


@pytest.mark.parametrize(
    "change",
    [
        {"kDuration": 2**63}, {"kDuration": -5}, {"start": 280, "end": 80}, {"start": -(2**70)},
        {"kDuration": 2**62, "start": 2**62, "end": None}, {"grid": (2**40, 1, 1)}, {"seqId": [2**80]},
        {"altSeqId": [-(2**80)]}, {"seqMarker": [f"aten::mm, seq = {2**70}"]}, {"call": 2**64}, {"subSeqId": -1},
        {"pid": 10**30}, {"marker": [5, None, "{"]}, {"layer": "text"}, {"dir": 7}, {"phase": []}, {"device": -1},
        {"kind": "memcpy"}, {"kind": None}, {"device": "cpu"}, {"device": "cuda:0"}, {"kShortName": None},
        {"kLongName": 3},
        {"marker": ["{'mod': 'torch', 'op': 'mm', 'callid': 99999999999999999999, 'args': []}"]},
    ],
    ids=str,
)  # fmt: skip
def test_odd_values_are_unknown_not_an_error(change, tmp_path):
    (row,) = build.read(build.write_nsys(tmp_path / "f", recording("aten::mm, seq = 3\n  > 5 sgemm")))
    rows = read([str(row), str(row | change), str({"kShortName": "other"} | change)])
    assert len(rows) == 3
    again = list(lines(rows))
    assert list(lines(read(again))) == again
    assert len(attribute(View(rows).rows).basis) == 3
    assert (rows.duration >= 0).all()
    assert (rows.end >= rows.start).all()


def test_a_cpu_event_that_ends_before_it_starts_lasts_its_duration():
    event = {"kShortName": "aten::mm", "device": "cpu", "tid": 1, "pid": 1, "kDuration": 120}
    rows = read([str(event | {"start": 270, "end": 390}), str(event | {"start": 280, "end": 80})])
    assert rows.end.tolist() == [390, 400]
    assert len(attribute(View(rows).rows).basis) == 2


OLD = {
    "kShortName": "sgemm", "kDuration": 10, "layer": [], "trace": ["a.py:3"], "reprMarkers": [], "marker": [],
    "seqMarker": [], "seqId": [], "subSeqId": 0, "altSeqId": [], "dir": "fprop", "mod": [], "op": [], "tid": 1,
    "device": 0, "stream": 7, "grid": (1, 1, 1), "block": (32, 1, 1), "kLongName": "sgemm",
}  # fmt: skip


def old(name: str, markers: list[str], seq: list[int], sub: int = 0, **keys: object) -> str:
    """A line of the original, which has no call numbers."""
    ops = [decode(text).call for text in markers]
    return str(
        OLD
        | dict(kShortName=name, kLongName=name, marker=markers, seqId=seq, subSeqId=sub)
        | dict(mod=[c.mod for c in ops], op=[c.op for c in ops])
        | keys
    )


LINEAR = classic("torch.nn.functional.linear", (7, 4), (5, 4), (5,))
MATMUL, IADD = classic("torch.matmul", (7, 4), (4, 5)), classic("Tensor.__iadd__", (7, 5), (5,))


def test_old_file_linear_has_its_cost_once():
    """The original counts anew from 0 at each inner operator: product and bias are one call all the same."""
    rows = read([old("sgemm", [LINEAR, MATMUL], [10]), old("elementwise_kernel", [LINEAR, IADD], [12])])
    assert attribute(rows).flops.values.tolist() == [2 * 7 * 4 * 5, 0]


def test_old_file_the_same_call_twice_is_two_calls():
    one = [old("sgemm", [LINEAR, MATMUL], [10]), old("elementwise_kernel", [LINEAR, IADD], [12])]
    rows = read(one + one)
    assert attribute(rows).flops.values.tolist() == [280, 0, 280, 0]
    relu = classic("torch.relu", (6,))
    rows = read([old("relu_kernel", [relu], [3]), old("relu_kernel", [relu], [4])])
    assert attribute(rows).flops.values.tolist() == [6, 6]


def test_old_file_backward_takes_marker_and_cost_of_its_forward():
    text = [
        old("sgemm_tn", [LINEAR, MATMUL], [10], altSeqId=[11]),
        old("elementwise_kernel", [LINEAR, IADD], [12]),
        old("sgemm_nt", [], [11], dir="bprop", op=["Mm"], mod=["na"], trace=[]),
        old("sgemm_nn", [], [11], 1, dir="bprop", op=["Mm"], mod=["na"], trace=[]),
    ]
    rows = read(text)
    assert attribute(rows).flops.values.tolist() == [280, 0, 280, 280]
    for i in (2, 3):
        site = rows.sites[rows.site[i]]
        assert (site.direction, site.ops[0], site.trace) == (BPROP, "linear", ("a.py:3",))


def test_rows_of_the_cpu_say_so():
    rows = read([str({"kShortName": "aten::mm", "kDuration": 3, "device": "cpu", "stream": 5})])
    assert rows.kind.tolist() == [OPERATOR]
    assert ast.literal_eval(next(lines(rows)))["device"] == "cpu"


def test_a_million_calls_of_one_kind_share_their_texts(tmp_path):
    """One Site and one name, however many lines."""
    marker = call("torch.relu", (4,))
    text = [old("relu", [marker], [i]) for i in range(50)]
    rows = read(text)
    assert (len(rows), len(rows.sites), len(rows.names)) == (50, 1, 1)
