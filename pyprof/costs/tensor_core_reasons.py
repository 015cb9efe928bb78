# SPDX-License-Identifier: Apache-2.0
"""Reasons why a product did not use tensor cores, or used them inefficiently.

cuBLAS before 11.0 and cuDNN before 7.6.3 need sizes that are multiples of 16 bytes (`alignment.py` has the rules);
later versions always use tensor cores, efficiently with such multiples.
"""

from __future__ import annotations

import re

from pyprof.costs import kernels
from pyprof.costs.alignment import dimensions, unaligned
from pyprof.costs.attribution.attribute import NOT_APPLICABLE, NOT_USED, USED, family
from pyprof.costs.eligible import multiplied, with_vector
from pyprof.costs.hardware.gpus import SINCE
from pyprof.costs.hardware.machine import Hardware
from pyprof.costs.hardware.roofline import Case, operands_of, tf32

_TILE = 16  # rows of the smallest tile that the libraries' tensor-core kernels have


def verdict(case: Case, hardware: Hardware) -> str | None:
    """Return the verdict on one case: "-" if tensor cores cannot help, "used", or the reasons why not, joined by "; ".
    None: unknown."""
    if case.tensor_cores == NOT_APPLICABLE:
        return "-"
    operands = operands_of(case)
    if case.tensor_cores == USED:
        texts = _unaligned(case, operands)
        return "; ".join(["used", *(f"{text}: less efficient" for text in texts)])
    reason = _type(operands, case, hardware)
    if case.tensor_cores != NOT_USED:
        return f"kernel unknown; {reason}" if reason else "kernel unknown"
    if reason:
        return reason
    return "; ".join(_shapes(case, operands, hardware)) or "the library chose a kernel without tensor cores"


def _type(operands: str | None, case: Case, hardware: Hardware) -> str | None:
    """Return why the type excludes tensor cores; None if it does not, or if that is unknown."""
    gpu = case.gpu
    if gpu is not None and not gpu.matrix:
        return f"{gpu.name} has no tensor cores"
    if operands is None:
        return None
    math = multiplied(operands)
    if math is None:
        return f"{operands}: tensor cores do not multiply it"
    if math == "tf32" and operands != "tf32":
        if gpu is not None and gpu.supports("float32"):  # AMD
            return None
        if gpu is not None and gpu.supports("tf32") is False:
            return f"{operands}: {_needs('tf32', case)}"
        allowed = tf32(case, hardware)
        if allowed is False:
            return f"{operands}: TF32 is off ({_switch(case)})"
        return None if allowed else f"{operands}: TF32 is off, or was not chosen"
    if gpu is not None and gpu.supports(math) is False:
        return f"{operands}: {_needs(math, case)}"
    return None


def _needs(operands: str, case: Case) -> str:
    has = case.gpu.architecture if case.gpu is not None else None
    if case.gpu is not None and case.gpu.capability is None:  # AMD
        return f"{case.gpu.name} has no matrix cores for it"
    needs = "TF32 needs" if operands == "tf32" else "needs"
    return f"{needs} compute capability {SINCE[operands]}, this is {has}"


def _switch(case: Case) -> str:
    convolves = (family(case.call) or kernels.kind(case.name)) in ("conv", "rnn")
    return "torch.backends.cudnn.allow_tf32" if convolves else "torch.backends.cuda.matmul.allow_tf32"


def _shapes(case: Case, operands: str | None, hardware: Hardware) -> list[str]:
    """Return the properties of the sizes, or of the algorithm, that rule out tensor cores."""
    sizes = dimensions(case.call)
    out = []
    vector = [f"{letter}=1" for letter in "MN" if sizes.get(letter) == 1]
    if vector or with_vector(case.call):
        return [": ".join([*([", ".join(vector)] if vector else []), "a product with a vector"])]
    if re.search("gemv|dot_kernel", case.name):
        return ["a matrix-vector kernel"]
    algorithm = kernels.describe(case.name).algorithm
    if algorithm is not None and (family(case.call) or kernels.kind(case.name)) == "conv":
        out.append(f"the algorithm ({algorithm}) multiplies elementwise")
    if sizes.get("C/g") == 1:
        return ["one channel per group: nothing to multiply with a matrix"]
    tiny = [f"{letter}={sizes[letter]}" for letter in "MN" if sizes.get(letter, _TILE) < _TILE]
    if tiny:
        out.append(f"{', '.join(tiny)}: less than a tile of {_TILE}")
    old = _needs_alignment(case, hardware)
    how = {
        True: "which this version needs",
        False: "the library may prefer other kernels",
        None: "needed before ",
    }
    before = "cuDNN 7.6.3" if family(case.call) in ("conv", "rnn") else "cuBLAS 11"
    for text in _unaligned(case, operands):
        out.append(f"{text}: {how[old]}{before if old is None else ''}")
    return out


def _needs_alignment(case: Case, hardware: Hardware) -> bool | None:
    """Return whether the library is from before alignment became optional; None if its version is unknown."""
    if family(case.call) in ("conv", "rnn"):
        version = hardware.facts.get("cudnn", "")
        return int(version) < 7603 if version.isdigit() else None
    major = hardware.facts.get("cuda", "").partition(".")[0]
    return int(major) < 11 if major.isdigit() else None


def _unaligned(case: Case, operands: str | None) -> list[str]:
    return unaligned(case.call, "tf32" if operands == "float32" else operands, case.strides)
