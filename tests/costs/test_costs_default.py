# SPDX-License-Identifier: Apache-2.0
"""An operator without a formula: bytes of its tensors, unknown FLOPs, marked, never counted as exact."""

from __future__ import annotations

from pathlib import Path

from pyprof.core.marker import Listed
from pyprof.core.model import BASES, Arg, Call, Cost, Tensor
from pyprof.costs.attribution.attribute import attribute
from pyprof.costs.cost import UNKNOWN, VIEW, default, lookup, lookup_or_default
from pyprof.parse import loader
from pyprof.parse.rows import rows
from tests import build
from tests.build import call, recording

X, Y = Tensor((4, 8), "float32"), Tensor((8,), "float16")


def event(name: str, *values: Tensor, **named: Tensor) -> Call:
    args = [Arg("", v) for v in values] + [Arg(k, v) for k, v in named.items()]
    return Call(name.partition("::")[0], name, tuple(args))


def test_tensors_count_once_each_and_a_destination_twice() -> None:
    assert default(event("my::op", X, Y)) == Cost(None, 128 + 16, basis="default")
    assert default(event("my::op_", X, Y)).bytes == 128 + 16 + 128
    assert default(event("my::op", X, out=X)).bytes == 128 + 128
    assert default(event("my::op", X), [Y, Y]).bytes == 128 + 32
    assert default(event("my::op", Tensor((4, 8), "float32", (0, 1)))).bytes == 32  # expanded: what is stored
    assert default(event("my::op", Tensor((4,), "float99"))).bytes is None
    listed = Call("my", "my::op", (Arg("", Listed((X, Y))),))  # as a capture has a list
    assert default(listed).bytes == 128 + 16


def test_what_only_describes_moves_nothing_and_nothing_known_stays_unknown() -> None:
    assert default(event("aten::is_coalesced", X)) == VIEW
    assert default(event("my::op")) is UNKNOWN


def test_a_formula_comes_first_and_users_calls_have_no_default() -> None:
    assert lookup_or_default(event("aten::relu", X)).basis == "formula"
    assert lookup_or_default(event("my::relu", X)).basis == "default"
    assert lookup(event("my::relu", X)) is UNKNOWN
    assert lookup_or_default(Call("torch.nn.functional", "my_layer", (Arg("", X),))) is UNKNOWN


def table(path: Path, text: str) -> dict[str, tuple[str, int | None, int | None]]:
    what = recording(text)
    write = build.write_capture if what.ops else build.write_nsys
    found = rows(loader.load(write(path / "file", what)))
    costs = attribute(found)
    return {
        found.short_names[name]: (
            BASES[costs.basis[i]],
            int(costs.flops.values[i]) if costs.flops.mask()[i] else None,
            int(costs.bytes.values[i]) if costs.bytes.mask()[i] else None,
        )
        for i, name in enumerate(found.name.tolist())
    }


def test_on_the_cpu_the_innermost_unknown_event_has_its_tensors_bytes(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        f"""
        op {call("mine::outer", (4, 8))}
            op {call("mine::inner", (4, 8), (8,))}
                wait 9
        op {call("aten::relu", (4, 8))}
            op {call("mine::helper", (4, 8))}
                wait 9
        """,
    )
    assert found["mine::inner"] == ("default", None, 4 * (32 + 8))
    assert found["mine::outer"][0] == "unknown"
    assert found["aten::relu"] == ("formula", 32, 256)
    assert found["mine::helper"][0] != "default"  # its work is counted with relu


def test_the_kernel_of_an_unknown_operator_has_its_tensors_bytes(tmp_path: Path) -> None:
    found = table(tmp_path, f"{call('mine::op', (4, 8), (8,))}\n    > 9 warp_kernel\n    > 2 other_kernel")
    assert found["warp_kernel"] == ("default", None, 160)
    assert found["other_kernel"] == ("default", None, 0)  # who knows which of the two computes
