# SPDX-License-Identifier: Apache-2.0
"""Operators nobody knows, types from the future, sizes that no tensor has: `na` with a reason, and exit code 0."""

from __future__ import annotations

import csv
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import pyprof
from pyprof.core.marker import decode, encode
from pyprof.core.model import Arg, Call, Cost, Other, Tensor, Value
from pyprof.costs.cost import LARGEST, UNKNOWN, VIEW, default, formulas, lookup, lookup_or_default
from pyprof.costs.params import params
from pyprof.costs.unknown_costs import why
from tests import build, cli
from tests.build import LONG, recording

ROUNDS = 12 if LONG else 4  # calls of every formula

# What a recording may hold in the place of a size, a flag or a dimension.
ODD: list[Value] = [
    -1, 0, 2**40, 2**62, 2**63, 10**30, -(2**63), True, False, None, "x", "", "mean", "same", "ij,jk->ik", "...", 1.5,
    float("inf"), float("nan"), (), (2**62,), (None,), ("a", 1), Other("dtype", "torch.float3_e1m1"),
    Other("Generator"), Other("slice", "::0"),
]  # fmt: skip
PLAIN: list[Value] = [0, 1, 1, 2, 2, 3, 4, (1, 1), (2, 2), True, False, None]
DTYPES = ["float32"] * 10 + ["int64"] * 3 + ["bool", "float16", "complex64", "uint4", "float3_e1m1", "", None]


class Calls:
    """Random calls: tensors that mostly fit one another, among arguments that mostly do not."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def shapes(self) -> list[tuple[int, ...]]:
        r, rank = self.random, self.random.choice([0, 1, 2, 2, 3, 3, 4, 4, 5])
        found = [tuple(r.choice([1, 2, 4, 4, 4, 8]) for _ in range(rank)) for _ in range(2)]
        odd: list[tuple[int, ...]] = [
            (0,) * rank, (-1,) * rank, (2**62,) * rank, (2**31,) * rank, (2**62, *(4,) * rank), (1,) * 500, (2,) * 70,
        ]  # fmt: skip
        return [*found, found[0], *(r.sample(odd, 1) if r.random() < 0.3 else [])]

    def tensor(self, shapes: list[tuple[int, ...]]) -> Tensor:
        r, shape = self.random, self.random.choice(shapes)
        stride = None
        if r.random() < 0.1:
            stride = tuple(r.choice([0, 1, 4, -1, 2**62]) for _ in shape)
        return Tensor(shape, r.choice(DTYPES), stride)

    def value(self, shapes: list[tuple[int, ...]], depth: int = 0) -> Value:
        r = self.random
        kind = r.random()
        if kind < 0.55:
            return self.tensor(shapes)
        if kind < 0.72:
            return r.choice(PLAIN)
        if kind < 0.9 or depth == 2:
            return r.choice(ODD)
        return tuple(self.value(shapes, depth + 1) for _ in range(r.randrange(4)))

    def call(self, name: str) -> Call:
        r, shapes = self.random, self.shapes()
        args = [Arg("", self.value(shapes)) for _ in range(r.randrange(7))]
        named = sorted(formulas()[name].parameters)
        args += [Arg(p, self.value(shapes)) for p in named if r.random() < 0.15]
        mod, _, op = name.rpartition(".") if "::" not in name else ("aten", "", name)
        return Call(mod or r.choice(["torch", "Tensor", "aten"]), op, tuple(args))


def figures(cost: Cost | None) -> Iterator[int]:
    if cost is not None:
        yield from (n for n in (cost.flops, cost.bytes, cost.dense) if n is not None)
        for part in (cost.dgrad, cost.wgrad, cost.bgrad):
            yield from figures(part)


@pytest.mark.counts
def test_no_formula_fails_or_gives_what_is_no_count() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    calls, known = Calls(seed), 0
    for name in formulas():
        for _ in range(ROUNDS):
            call = calls.call(name)
            cost = lookup(call)
            known += cost.flops is not None
            for found in (cost, lookup_or_default(call), default(call)):
                assert all(type(n) is int and 0 <= n <= LARGEST for n in figures(found)), call
            assert (cost.flops is None or cost.bytes is None) <= bool(why(call)), call
            for backward in (True, False):
                assert why(call, backward) != ""
            assert params(call)
    assert known > ROUNDS * len(formulas()) / 12  # many of the calls make sense


IMPOSSIBLE = [
    Tensor((-1, 4), "float32"), Tensor((2**62, 4), "float32"), Tensor((2**63,), "float32"),
    Tensor((2,) * 2000, "float32"), Tensor((4, 4), "float32", (-1, 1)), Tensor((0, 2**64), "float32"),
]  # fmt: skip


@pytest.mark.parametrize("name", ["relu", "mm", "view", "cat", "sum", "my::op"])
@pytest.mark.parametrize("tensor", IMPOSSIBLE, ids=str)
def test_a_tensor_that_cannot_exist_costs_an_unknown_amount(tensor: Tensor, name: str) -> None:
    arg = Arg("", (tensor,) if name == "cat" else tensor)
    call = Call("torch", name, (arg, arg))
    assert lookup(call) is UNKNOWN
    assert default(call) is UNKNOWN
    assert why(call) == ("no formula" if name == "my::op" else "the recorded sizes are impossible")


def test_a_figure_that_does_not_fit_in_64_bits_is_unknown() -> None:
    side = 2**31
    square = Arg("", Tensor((side, side), "float32"))  # 2**64 bytes, and 2 * 2**93 FLOPs in a product
    assert lookup(Call("torch", "mm", (square, square))) is UNKNOWN
    assert default(Call("mine", "mine::op", (square,))).bytes is None
    small = Arg("", Tensor((2**20, 2**20), "float32"))
    assert lookup(Call("torch", "mm", (small, small))).flops == 2 * 2**60


def test_an_estimate_of_sums_beyond_64_bits_is_missing() -> None:
    def run() -> None:
        half = torch.empty(2**30, 2**30, device="meta")  # 2**62 bytes
        half + half.clone()

    found = pyprof.estimate(run).set_index("op")
    assert found["bytes"].isna()["__add__"]
    assert found.loc["clone", "flops"] == 0


def test_a_type_from_the_future_has_flops_but_no_bytes() -> None:
    call = Call("torch", "mm", (Arg("", Tensor((2, 3), "float3_e1m1")), Arg("", Tensor((3, 4), "float3_e1m1"))))
    assert (lookup(call).flops, lookup(call).bytes) == (2 * 2 * 3 * 4, None)
    assert why(call) == "the width of float3_e1m1 is unknown"


def test_names_of_others_are_not_torchs() -> None:
    """`update` and `count` are methods of Python's own types in the dispatcher's list: of no cost there."""
    arg = Arg("", Tensor((4,), "float32"))
    assert default(Call("aten", "aten::count", (arg,))) == VIEW
    assert default(Call("mine", "mine::count", (arg,))).basis == "default"
    assert why(Call("mine", "mine::update", (arg,))) == "no formula"


# Texts as a recording could hold them; each is one range around one kernel, and its backward around another.
TEXTS = [
    "{'mod': 'torch', 'op': 'relu', 'args': [{'name': '', 'type': 'tensor', 'shape': (2, 3), 'dtype': 'float3_e1m1'}]}",
    "{'mod': 'torch', 'op': 'mm', 'args': [{'name': '', 'type': 'tensor', 'shape': (-2, 3), 'dtype': 'float32'}, "
    "{'name': '', 'type': 'tensor', 'shape': (3, -4), 'dtype': 'float32'}]}",
    "{'mod': 'torch', 'op': 'relu', 'args': [{'name': '', 'type': 'tensor', 'shape': (True, None, 'x'), 'dtype': 3}]}",
    "{'mod': 'torch', 'op': 'relu', 'args': [{'name': '', 'type': 'tensor', 'dtype': 'float32'}]}",
    "{'mod': 'torch', 'op': 'relu', 'args': [{'name': 7, 'type': 'tensor', 'shape': 5, 'dtype': 'float32', "
    "'stride': 'wide'}]}",
    "{'mod': 'quantum', 'op': 'entangle', 'args': [{'name': '', 'type': 'tensor', 'shape': (2,), 'dtype': 'qubit'}]}",
    "{'mod': 'torch', 'op': 'mm', 'args': [{'name': '', 'type': 'str', 'value': 'a'}, {'type': 'int', 'value': 3}]}",
    "{'mod': 'torch', 'op': 'conv2d', 'args': [{'name': '', 'type': 'NoneType', 'value': None}]}",
    "{'mod': 'torch', 'op': 'tensordot', 'args': [{'name': '', 'type': 'tensor', 'shape': (2, 3), 'dtype': 'float32'}, "
    "{'name': '', 'type': 'tensor', 'shape': (2, 3), 'dtype': 'float32'}, {'name': '', 'type': 'int', 'value': "
    + f"{2**62}" + "}]}",
    encode(Call("torch", "mm", (Arg("", Tensor((2**31, 2**31), "float32")),) * 2)),
    encode(Call("torch", "bmm", (Arg("", Tensor((2**62, 2, 2), "float64")),) * 2)),
    encode(Call("torch", "relu", (Arg("", Tensor((2,) * 3000, "float32")),))),
    encode(Call("torch.nn.functional", "linear", (Arg("", Tensor((2**20, 2**20), "float16")),) * 2)),
    encode(Call("aten", "aten::no_such_operator", (Arg("", Tensor((2, 2), "float32")),))),
    encode(Call("aten", "other::library", (Arg("", Tensor((2**62, 2), "float32")),))),
    "{'mod': 'torch', 'op': 'relu', 'args': 'none'}",
    "{'mod': 'torch', 'op': 'relu', 'args': [3, {}, {'type': 'tensor'}]}",
    "aten::mystery, seq = 77, sizes = [[-1, 99999999999999999999], [], [[2]]]",
]  # fmt: skip
CERTAIN = {12: (2 * 2**60, 3 * 2**41)}  # the one that is large and possible: 2·M·N·K and three operands of 2 bytes
COLUMNS = "op,kernel,dir,params,sil,flops,bytes,tc,ai,bound,roof,eff,tcwhy,gbs"


def strange(events: bool) -> build.Recording:
    lines = []
    for i, text in enumerate(TEXTS):
        if events:
            known = decode(text)
            lines += [f"op seq={i} {text if hasattr(known, 'call') else 'aten::mystery'}", "    wait 9"]
        else:
            lines += [
                text,
                f"    aten::x, seq = {i}",
                f"        > 9 volta_sgemm_{i}",
                f"        > 5 reduce_kernel_{i}",
            ]
            lines += [
                "thread 2",
                f"XBackward0, seq = {i}",
                f"    > 7 volta_sgemm_nt_{i}",
                f"    > 7 sgemm_nn_{i}",
            ]
            lines += [f"    > 3 reduce_kernel_b{i}", "thread 1"]
    return recording("\n".join(lines))


@pytest.mark.parametrize("how", ["nsys", "nvprof", "capture", "operators", "net.dict"])
def test_a_profile_of_strange_calls_is_a_table_with_na(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    what = strange(how == "operators")
    writers = {"nsys": build.write_nsys, "nvprof": build.write_nvprof}
    path = writers.get(how, build.write_capture)(tmp_path / "net.sqlite", what)
    if how == "net.dict":
        path = tmp_path / "net.dict"
        path.write_text("".join(f"{row}\n" for row in build.read(tmp_path / "net.sqlite")), encoding="utf-8")
    assert cli.prof(["--csv", "-c", COLUMNS, "--gpu", "V100 SXM2", str(path)]) == 0
    printed = capsys.readouterr()
    _, *table = list(csv.reader(printed.out.splitlines()))
    rows = [dict(zip(COLUMNS.split(","), line, strict=True)) for line in table]
    assert len(rows) >= len(TEXTS)
    for row in rows:
        for key in ("flops", "bytes", "sil"):
            assert row[key] == "na" or int(row[key]) >= 0, row
        for key in ("ai", "roof", "eff", "gbs"):
            assert row[key] in ("na", "-") or float(row[key]) >= 0, row
    if how != "operators":
        unknown: defaultdict[int, set[str]] = defaultdict(set)
        for row in rows:
            if "na" in (row["flops"], row["bytes"]):
                unknown[int(re.sub(r"\D", "", row["kernel"]))].add(row["dir"])
        assert {i for i, directions in unknown.items() if "fprop" in directions} == set(range(len(TEXTS))) - set(
            CERTAIN
        )
        for i, (flops, size) in CERTAIN.items():
            (row,) = [row for row in rows if row["kernel"] == f"volta_sgemm_{i}"]
            assert (int(row["flops"]), int(row["bytes"])) == (flops, size)
    assert "without exact figures:" in printed.err
    assert "Traceback" not in printed.err
