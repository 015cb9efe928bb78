# SPDX-License-Identifier: Apache-2.0
"""What an estimate calls eligible for tensor cores is what the verdict on a kernel does not exclude by type."""

from __future__ import annotations

import pytest

from pyprof.core.model import DTYPE_BITS, Arg, Call, Tensor
from pyprof.costs.attribution.attribute import NOT_USED
from pyprof.costs.cost import VIEW, lookup
from pyprof.costs.eligible import eligible
from pyprof.costs.hardware import gpus
from pyprof.costs.hardware.machine import Hardware
from pyprof.costs.hardware.roofline import Case
from pyprof.costs.tensor_core_reasons import verdict

BLACKWELL = gpus.find("B200")  # has every type


def product(name: str, dtype: str | None) -> Call:
    vector = Arg("", Tensor((64,), dtype))
    matrix = Arg("", Tensor((64, 64), dtype))
    return Call("torch", name, (vector if name == "dot" else matrix, vector if name in ("mv", "dot") else matrix))


def said(call: Call) -> str:
    return verdict(Case("mystery", call, NOT_USED, BLACKWELL), Hardware(facts={"matmul.tf32": "yes"})) or ""


@pytest.mark.parametrize("dtype", DTYPE_BITS)
def test_a_type_that_is_not_eligible_is_the_verdicts_reason_and_no_other(dtype: str) -> None:
    assert BLACKWELL is not None
    call = product("mm", dtype)
    excluded = said(call).endswith(": tensor cores do not multiply it")
    assert excluded == (eligible(call) == "no")


# CUDA C++ Programming Guide, "Element Types and Matrix Sizes"; of complex numbers, cublasGemmEx.
TYPES = {
    "float16": "yes", "bfloat16": "yes", "float8_e5m2": "yes", "float4_e2m1fn_x2": "yes", "int8": "yes", "uint8": "yes",
    "float32": "tf32", "complex64": "tf32", "float64": "fp64tc", "complex128": "fp64tc", "int32": "no", "bool": "no",
}  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
def test_types_are_what_nvidia_documents(dtype: str) -> None:
    assert eligible(product("mm", dtype)) == TYPES[dtype]


def test_tf32_switched_off_is_the_verdict_on_what_is_eligible_with_tf32() -> None:
    for dtype in DTYPE_BITS:
        call = product("mm", dtype)
        off = verdict(Case("mystery", call, NOT_USED, BLACKWELL), Hardware(facts={"matmul.tf32": "no"})) or ""
        assert ("TF32 is off" in off) == (eligible(call) == "tf32"), dtype


@pytest.mark.parametrize("name", ["mv", "dot"])
def test_a_product_with_a_vector_is_not_eligible_and_the_verdict_says_why(name: str) -> None:
    call = product(name, "float16")
    assert eligible(call) == "no"
    assert said(call) == "a product with a vector"
    assert eligible(product("mm", "float16")) == "yes"


def test_an_unknown_type_is_unknown() -> None:
    assert eligible(product("mm", "float3_e1m1")) is None
    assert eligible(product("mm", None)) is None
    assert eligible(Call("mine", "mine::op")) is None


@pytest.mark.parametrize(
    ("equation", "operands", "expected"),
    [
        ("ij->ji", 1, "no"),  # a view
        ("ii->i", 1, "no"),
        ("ij->i", 1, "no"),  # a sum
        ("ij,jk->ik", 2, "tf32"),
    ],
)
def test_an_einsum_of_one_operand_is_no_product(equation: str, operands: int, expected: str) -> None:
    square = Arg("", Tensor((4, 4), "float32"))
    made = Call("torch", "einsum", (Arg("", equation), *[square] * operands))
    assert eligible(made) == expected
    if "->" in equation and operands == 1 and equation != "ij->i":
        assert lookup(made) == VIEW._replace(dgrad=VIEW)


def test_inner_is_a_product_of_matrices() -> None:
    matrix, vector = Arg("", Tensor((2, 8), "float32")), Arg("", Tensor((8,), "float32"))
    assert eligible(Call("torch", "inner", (matrix, matrix))) == "tf32"
    assert eligible(Call("torch", "inner", (matrix, vector))) == "no"
