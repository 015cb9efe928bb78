# SPDX-License-Identifier: Apache-2.0
"""Sizes of a product that have to fit tensor cores: those along which an operand, or the result, is contiguous.

The alignment rules are those of NVIDIA's "Matrix Multiplication Background User's Guide", table 1, and
"Convolutional Layers User's Guide": the rows of each matrix begin at multiples of 16 bytes, so that the dimension
along which its elements are contiguous is a multiple of

    fp16, bf16: 8 elements    int8, fp8: 16    TF32: 4    fp64: 2    fp4: 32

Of C (M, N) = A (M, K) · B (K, N), A is contiguous along K, or along M if it is transposed; B along N, or along K;
torch writes C along N. Gradients have the layout of their tensors, so that the backward has the same dimensions as
the forward. The number of rows M is one of them only if A is transposed. A convolution has channels in and out per
group (channels last, which its tensor-core kernels use); attention the head's size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyprof.core.model import Call, Tensor
from pyprof.costs.attribution.attribute import family
from pyprof.costs.cost import tensors_of
from pyprof.costs.params import FIRST_OPERAND, operator, params

MULTIPLE = {"float16": 8, "bfloat16": 8, "int8": 16, "float8": 16, "tf32": 4, "float64": 2, "float4": 32}
_LETTER = re.compile(r"(?:^|,)([A-Za-z]+)=(\d+)(?=,|$)")


def dimensions(call: Call | None) -> dict[str, int]:
    """Return the relevant sizes of a product by their letters: M, N, K; C/g, K/g; D of attention.

    >>> from pyprof.core.model import Arg
    >>> weight = Arg("", Tensor((8, 3, 3, 3), "float16"))
    >>> dimensions(Call("torch", "conv2d", (Arg("", Tensor((2, 6, 9, 9), "float16")), weight, Arg("groups", 2))))
    {'C/g': 3, 'K/g': 4}
    """
    kind = family(call)
    if call is None or not kind:
        return {}
    if kind == "attention":
        shapes = [arg.value.shape for arg in call.args if isinstance(arg.value, Tensor)]
        return {"D": shapes[0][-1]} if shapes and shapes[0] else {}
    return sizes(params(call))


def sizes(text: str) -> dict[str, int]:
    """Return the sizes of a product by their letters, of a convolution per group, from the text of its parameters.

    >>> sizes("M=64,N=10,K=1024,float16"), sizes("N=2,C=64,H=9,W=9,K=64,P=9,Q=9,R=3,S=3,groups=64,float16")["C/g"]
    ({'M': 64, 'N': 10, 'K': 1024}, 1)
    """
    letters = {letter: int(size) for letter, size in _LETTER.findall(text)}
    if "R" in letters or "C" in letters:
        groups = max(letters.get("groups", 1), 1)
        return {f"{letter}/g": letters[letter] // groups for letter in "CK" if letter in letters}
    return {letter: letters[letter] for letter in "MNK" if letter in letters}


def records_strides(calls: Iterable[Call | None]) -> bool:
    """Return whether a recording has strides: then tensors without them are contiguous, otherwise their layout is
    unknown.

    >>> from pyprof.core.model import Arg
    >>> plain, turned = (Arg("", Tensor((3, 4), "float16", stride)) for stride in (None, (1, 3)))
    >>> records_strides([Call("torch", "relu", (plain,))]), records_strides([Call("torch", "add", (plain, turned))])
    (False, True)
    """
    return any(
        bool(tensor.stride)
        for call in calls
        if call is not None
        for arg in call.args
        for tensor in tensors_of(arg.value)
    )


def always_contiguous(name: str) -> frozenset[str]:
    """Return the dimensions of a product, by its operator's name, along which something is contiguous in any layout.

    >>> sorted(always_contiguous("linear")), sorted(always_contiguous("mm")), sorted(always_contiguous("conv2d"))
    (['K', 'N'], ['N'], ['C/g', 'D', 'K/g'])
    """
    if name == "linear":  # its weight (N, K) is a parameter
        return frozenset("NK")
    return frozenset("N") if name in FIRST_OPERAND else frozenset({"C/g", "K/g", "D"})


def contiguous(call: Call | None, strides: bool) -> dict[str, int]:
    """Return the sizes along which an operand or the result is known to be contiguous. `strides` says that the
    recording has strides.

    >>> from pyprof.core.model import Arg
    >>> a, turned, b = (Arg("", Tensor(*t)) for t in (((5, 7), None), ((5, 7), None, (1, 5)), ((7, 9), None)))
    >>> contiguous(Call("torch", "mm", (a, b)), True), contiguous(Call("torch", "mm", (turned, b)), True)
    ({'N': 9, 'K': 7}, {'M': 5, 'N': 9})
    >>> contiguous(Call("torch", "mm", (a, b)), False)
    {'N': 9}
    """
    all_sizes = dimensions(call)
    if call is None or "N" not in all_sizes:
        return all_sizes
    name = operator(call)
    letters = set(always_contiguous(name))
    tensors = [arg.value for arg in call.args if isinstance(arg.value, Tensor)]
    if name in FIRST_OPERAND and (strides or records_strides([call])):
        first, second = tensors[FIRST_OPERAND[name] : FIRST_OPERAND[name] + 2]
        folds = len(first.shape) > 2 > len(second.shape) - 1  # all leading dimensions fold into M, none of which is M
        letters |= _contiguous_letters(first, "K" if folds else "MK") | _contiguous_letters(second, "KN")
    elif name == "linear" and len(tensors[0].shape) == 2:
        letters |= _contiguous_letters(tensors[0], "MK")
    return {letter: size for letter, size in all_sizes.items() if letter in letters}


def _contiguous_letters(tensor: Tensor, letters: str) -> frozenset[str]:
    """Return the letter, of those of a matrix's last two dimensions, along which it is contiguous."""
    stride = tensor.stride
    if not stride or stride[-1] == 1 or len(stride) < 2:
        return frozenset(letters[-1])
    return frozenset(letters[:-1]) if stride[-2] == 1 else frozenset()


def unaligned(call: Call | None, operands: str | None, strides: bool) -> list[str]:
    """Describe the sizes that are not multiples of 16 bytes; empty for a type without a rule."""
    multiple = MULTIPLE.get(operands or "")
    if multiple is None:
        return []
    sizes_ = [f"{letter}={size}" for letter, size in contiguous(call, strides).items() if size % multiple]
    return [f"{', '.join(sizes_)} not a multiple of {multiple} ({operands})"] if sizes_ else []
