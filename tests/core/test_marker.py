# SPDX-License-Identifier: Apache-2.0
"""What a range says survives the way into a text and back, whatever the text holds."""

from __future__ import annotations

import ast
import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.core.marker import (
    CallMarker,
    LayerMarker,
    ModuleMarker,
    OperatorMarker,
    TraceMarker,
    UserMarker,
    decode,
    encode,
    encode_classic,
    split,
    with_call_id,
)
from pyprof.core.model import Arg, Call, Other, Strings, Tensor
from pyprof.parse import range_texts

# Text that looks like parts of a marker, beside what hypothesis thinks of.
HOSTILE = [
    "'", '"', "\\", "\n", "', 'op': 'x", '"}', "{", "}", "[", "]", ", seq = 3", "'callid': 7, ", "'args': [", "layer:a",
    "inf", "nan", "None", "\x00", "é漢😀", "\u2028", "%s", "@callid@", "'traceMarker': [",
]  # fmt: skip
words = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=5), max_size=4).map("".join)
sizes = st.integers(0, 2**40)
tensors = st.lists(st.tuples(sizes, sizes), max_size=4).flatmap(
    lambda axes: st.builds(
        Tensor,
        st.just(tuple(size for size, _ in axes)),
        st.sampled_from(["float32", "bfloat16", "int64", None]),
        st.none() | st.just(tuple(step for _, step in axes)),
    )
)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | words
others = st.builds(Other, st.sampled_from(["dtype", "device", "Generator", "MyConfig"]), words)
values = st.recursive(scalars | tensors | others, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8)
calls = st.builds(Call, words, words, st.lists(st.builds(Arg, words, values), max_size=4).map(tuple))


def comparable(value: object) -> object:
    """nan is not equal to itself, and True is equal to 1: compare what is printed."""
    return repr(value)


@given(
    calls,
    st.lists(words.filter(lambda w: ":" not in w and w), max_size=3),
    st.lists(words, max_size=3),
    words,
)
def test_a_call_reads_as_it_was_written(call, layer, trace, module):
    marker = decode(encode(call, ":".join(layer), trace, module))
    assert isinstance(marker, CallMarker)
    assert comparable(marker.call) == comparable(call)
    assert (marker.layer, marker.trace, marker.module) == (tuple(layer), tuple(trace), module or None)


@given(calls)
def test_what_is_written_is_a_python_literal(call):
    assert ast.literal_eval(encode(call))["pyprof"] == 1


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (1, x), lambda x: ((x,), Tensor((2,), "int8"))])
def test_infinity_and_nan_stay_numbers_at_any_depth(number, wrap):
    call = Call("torch", "clamp", (Arg("", wrap(number)),))
    assert comparable(decode(encode(call)).call) == comparable(call)


@given(calls, st.lists(words, max_size=3), words)
def test_the_three_texts_of_the_original(call, trace, text):
    stack, module, arguments = map(decode, encode_classic(call, trace, ("LSTM", text)))
    assert stack == TraceMarker(tuple(trace))
    assert module == ModuleMarker("LSTM", text)
    assert isinstance(arguments, CallMarker)
    assert arguments.classic
    assert (arguments.call.mod, arguments.call.op) == (call.mod, call.op)


@given(words)
def test_text_of_a_stranger_is_never_an_error(text):
    for candidate in (
        text,
        "{" + text,
        f"{{'mod': {text}, 'op': 'x', 'args': []}}",
        f"aten::mm, sizes = {text}",
    ):
        decode(candidate)
        decode(split(candidate)[0], operator=True)


@given(calls, st.integers(0, 400))
def test_a_marker_cut_off_is_somebody_elses_text(call, length):
    text = encode(call)[:-1][: length + 1]
    assert decode(text) == UserMarker(text)


def test_nothing_in_a_marker_is_evaluated(tmp_path):
    victim = tmp_path / "victim"
    code = f"__import__('pathlib').Path({str(victim)!r}).touch()"
    text = f"{{'mod': 'torch', 'op': 'x', 'args': [{code}]}}"
    assert decode(text) == UserMarker(text)
    assert not victim.exists()


@pytest.mark.parametrize(
    ("text", "marker"),
    [
        ("layer:encoder:0", LayerMarker("encoder:0")),
        ("layer:", LayerMarker("")),
        ("aten::mm", OperatorMarker("aten::mm")),
        ("AddmmBackward0", OperatorMarker("AddmmBackward0")),
        ("forward pass", UserMarker("forward pass")),
        ("iteration, 3", UserMarker("iteration, 3")),
        ("{'mod': 'torch'}", UserMarker("{'mod': 'torch'}")),
        ("{}", UserMarker("{}")),
        ("{'traceMarker': ['a.py:1'], 'funcStack': '/t/Net::forward'}", TraceMarker(("a.py:1",), "/t/Net::forward")),
        ("aten::mm, sizes = [[2, 3], [], [3]]", OperatorMarker("aten::mm", ((2, 3), (), (3,)))),
        ("aten::mm, sizes = [[2, 3", OperatorMarker("aten::mm, sizes = [[2, 3")),
        ("aten::cat, sizes = [[[2], [3]], []]", OperatorMarker("aten::cat", None)),
    ],
)  # fmt: skip
def test_marker(text, marker):
    assert decode(text, operator=text.startswith("aten")) == marker


@given(st.integers(0, 2**40), st.lists(st.integers(), max_size=3))
def test_numbers_of_dlprof_are_cut_off(number, inputs):
    classic = "{'mod': 'torch', 'op': 'mm', 'args': []}"
    marked = classic.replace("'args'", f"'callid': {number}, 'input_callids': {inputs}, 'args'")
    assert split(marked) == split(with_call_id(classic, str(number))) == (classic, None, False)
    assert decode(marked) == decode(classic)


suffixes = st.sampled_from(
    [", seq = 3", ", seq = 0", ", seq = -1", ", seq = 12345678901234567890", ", op_id = 17", ", sizes = [[2, 3], []]",
     ", sizes = []", ", sizes = [[2], [=]]", ", input_op_ids = [[1,0],[]]", ", seq = x", ", seq =3", ",",
     "seq = 4", "\n"]
)  # fmt: skip
ranges = st.builds(
    lambda head, tail, end: head + "".join(tail) + end,
    st.sampled_from(["aten::mm", "MulBackward0", "", "{", "{'mod': 'a', 'callid': 3, 'op': 'b'", "x, y", "é"]) | words,
    st.lists(suffixes, max_size=4),
    st.sampled_from(["", "", " ", "x"]),
)


@given(st.lists(ranges, max_size=12))
def test_columns_of_texts_are_split_as_single_texts_are(column):
    strings = Strings()
    parts = range_texts.split(pa.array(column, pa.string()), strings)
    present = parts.seq.mask()
    found = [
        (strings[code], int(seq) if has else None, bool(operator))
        for code, seq, has, operator in zip(parts.code, parts.seq.values, present, parts.operator)
    ]
    assert found == [split(text) for text in column]


@given(st.permutations([", seq = 12", ", op_id = 40", ", sizes = [[2, 3], []]", ", input_op_ids = [[7,0],[]]"]))
def test_suffixes_of_torch_come_in_any_order(tail):
    text, seq, operator = split("aten::mm" + "".join(tail))
    assert (text, seq, operator) == ("aten::mm, sizes = [[2, 3], []]", 12, True)
    assert decode(text, operator) == OperatorMarker("aten::mm", ((2, 3), ()))
