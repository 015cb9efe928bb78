# SPDX-License-Identifier: Apache-2.0
"""The parameters of a call as one short text without blanks.

Matrix products and convolutions use the usual letters; every other call lists its arguments.

>>> operands = Arg("", Tensor((64, 1024), "float16")), Arg("", Tensor((10, 1024), "float16"))
>>> params(Call("torch.nn.functional", "linear", operands))
'M=64,N=10,K=1024,float16'
>>> params(Call("torch", "sum", (Arg("", Tensor((2, 3), "float32")), Arg("dim", 1))))
'[2,3]float32,dim=1'
"""

from __future__ import annotations

from math import prod

from pyprof.core.model import Arg, Call, Other, Tensor, Value
from pyprof.costs.ops.shapes import ints

FIRST_OPERAND = {
    "mm": 0,
    "matmul": 0,
    "__matmul__": 0,
    "bmm": 0,
    "addmm": 1,
    "addmm_": 1,
    "baddbmm": 1,
}  # position of a product's first matrix among the tensors


def operator(call: Call) -> str:
    """Return the name of a call's operator, without namespace and overload.

    >>> operator(Call("aten", "aten::mm.out"))
    'mm'
    """
    return call.op.rpartition("::")[2].partition(".")[0]


def params(call: Call) -> str:
    """Return the parameters of a call. Calls without letters of their own list all arguments."""
    name = operator(call)
    tensors = [arg.value for arg in call.args if isinstance(arg.value, Tensor)]
    text = None
    if name == "linear" and len(tensors) >= 2:
        text = _product(tensors[0], Tensor(tensors[1].shape[::-1], tensors[1].dtype))
    elif name in FIRST_OPERAND and len(tensors) >= FIRST_OPERAND[name] + 2:
        text = _product(*tensors[FIRST_OPERAND[name] : FIRST_OPERAND[name] + 2])
    elif name.startswith("conv") and len(tensors) >= 2 and "backward" not in name:
        text = _convolution(name, call, *tensors[:2])
    return text or ",".join(_argument(arg) for arg in call.args) or "-"


def dtype(call: Call) -> str | None:
    """Return the type of the first tensor of a call.

    >>> dtype(Call("torch", "cat", (Arg("", (Tensor((2,), "bfloat16"),)),)))
    'bfloat16'
    """
    for arg in call.args:
        values = (
            arg.value if isinstance(arg.value, tuple) and not isinstance(arg.value, (Tensor, Other)) else (arg.value,)
        )
        for value in values:
            if isinstance(value, Tensor) and value.dtype:
                return value.dtype
    return None


def _product(first: Tensor, second: Tensor) -> str | None:
    """Format A (B, M, K) times B (B, K, N). Return None for shapes that do not multiply."""
    if not first.shape or not second.shape or first.shape[-1] != second.shape[max(len(second.shape) - 2, 0)]:
        return None
    n = second.shape[-1] if len(second.shape) > 1 else 1
    k, batch = first.shape[-1], second.shape[:-2]
    rows = first.shape[:-1] or (1,)
    letters = {"M": rows[-1], "N": n, "K": k} if batch else {"M": prod(rows), "N": n, "K": k}
    if batch:
        letters = {"B": prod(rows[:-1]) if len(rows) > len(batch) else prod(batch), **letters}
    return _join(letters, first)


def _convolution(name: str, call: Call, input: Tensor, weight: Tensor) -> str | None:
    """Format N, C, input H, W; K filters, output P, Q, kernel R, S; then the other recorded arguments.

    >>> x, w = Arg("", Tensor((2, 8, 19, 23), "float16")), Arg("", Tensor((12, 4, 3, 5), "float16"))
    >>> params(Call("torch.nn.functional", "conv2d", (x, w, Arg("stride", 2), Arg("padding", 1))))
    'N=2,C=8,H=19,W=23,K=12,P=10,Q=11,R=3,S=5,float16,stride=2,padding=1'
    """
    dims = len(weight.shape) - 2
    if dims not in (1, 2, 3) or len(input.shape) not in (dims + 1, dims + 2):
        return None
    general = "convolution" in name  # the dispatcher's general form: transposed, output_padding, groups come last
    transposed = "transpose" in name or (general and _argument_of(call, 6, "transposed") is True)
    shape = input.shape if len(input.shape) == dims + 2 else (1, *input.shape)
    letters = {"N": shape[0], "C": shape[1], **dict(zip("DHW"[3 - dims :], shape[2:]))}
    groups = _argument_of(call, 8 if general else 6, "groups")
    group_count = groups if isinstance(groups, int) else 1
    letters["K"] = weight.shape[1] * group_count if transposed else weight.shape[0]
    if not transposed:
        letters |= dict(zip("OPQ"[3 - dims :], _output(call, shape[2:], weight.shape[2:])))
    letters |= dict(zip("TRS"[3 - dims :], weight.shape[2:]))
    names = _TRANSPOSED if transposed else _CONVOLUTION
    candidates = [
        Arg(arg.name or names[i], arg.value) for i, arg in enumerate(call.args) if 2 < i < len(names) or arg.name
    ]
    arguments = [arg for arg in candidates if not isinstance(arg.value, Tensor) and arg.value is not None]
    return ",".join([_join(letters, input), *map(_argument, arguments)])


def _argument_of(call: Call, position: int, name: str) -> Value:
    """Return an argument by its position among those without a name, or by its name."""
    for i, arg in enumerate(call.args):
        if arg.name == name or (not arg.name and i == position):
            return arg.value
    return None


def _output(call: Call, image: tuple[int, ...], window: tuple[int, ...]) -> list[int]:
    """Return P and Q of a convolution; empty if its arguments do not determine them."""
    n, padding = len(image), _argument_of(call, 4, "padding")
    try:
        stride, dilation = (ints(_argument_of(call, i, name), n, 1) for i, name in ((3, "stride"), (5, "dilation")))
        if padding == "same":
            return list(image)
        border = ints(0 if padding == "valid" else padding, n, 0)
        sizes = zip(image, window, border, stride, dilation)
        return [(size + 2 * p - d * (r - 1) - 1) // s + 1 for size, r, p, s, d in sizes]
    except (TypeError, ValueError, ArithmeticError):
        return []


_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")


def _join(letters: dict[str, int], tensor: Tensor) -> str:
    return ",".join([*(f"{letter}={size}" for letter, size in letters.items()), tensor.dtype or "na"])


def _argument(arg: Arg) -> str:
    text = _value(arg.value)
    return f"{arg.name}={text}" if arg.name else text


def _value(value: Value) -> str:
    if isinstance(value, Tensor):
        return "[" + ",".join(map(str, value.shape)) + "]" + (value.dtype or "na")
    if isinstance(value, Other):
        return "".join((value.text or value.type).split())
    if isinstance(value, tuple):
        return "(" + ",".join(_value(item) for item in value) + ")"
    return "".join(str(value).split())
