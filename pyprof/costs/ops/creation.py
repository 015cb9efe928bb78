# SPDX-License-Identifier: Apache-2.0
"""Tensors created or overwritten: constants, ranges, random numbers. No FLOPs, generating random numbers is not
counted; bytes: the result.

>>> zeros((4, 8)), zeros(4, 8, dtype="torch.int64"), ones_like(Tensor((4, 8), "float16"))
(Cost(flops=0, bytes=128), Cost(flops=0, bytes=256), Cost(flops=0, bytes=64))
"""

from __future__ import annotations

from pyprof.core.model import Cost, Other, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import (
    DEFAULT,
    as_int,
    as_tensor,
    broadcast,
    chosen_dtype,
    dtype_of,
    require,
    scalar_dtype,
    sizes,
)


def _written(shape: tuple[int, ...], dtype: str | None) -> Cost:
    require(all(n >= 0 for n in shape), f"no shape {shape}")
    return Cost(0, bytes_of(Tensor(shape, dtype)))


@cost("zeros", "ones", "rand", "randn")
def zeros(*sizes_: Value, size: Value = None, dtype: Value = None) -> Cost:
    """The size is one sequence or several numbers. The dispatcher's dtype follows a sequence. Source: torch.zeros.

    >>> zeros((4, 8), 4, None, None, False)  # aten::zeros, int64
    Cost(flops=0, bytes=256)
    """
    arguments = sizes_ if size is None else (size,)
    require(bool(arguments), "a size is expected")
    if len(arguments) > 1 and isinstance(arguments[0], tuple):
        dtype = arguments[1]
    return _written(sizes(arguments), chosen_dtype(dtype, DEFAULT))


@cost("full")
def full(size: Value, fill_value: Value, dtype: Value = None, *parameters: Value) -> Cost:
    """Without a dtype, that of the number: an integer gives int64. Source: torch.full.

    >>> full((4, 8), 1), full((4, 8), 1.0)
    (Cost(flops=0, bytes=256), Cost(flops=0, bytes=128))
    """
    own = fill_value.dtype if isinstance(fill_value, Tensor) else scalar_dtype(fill_value)
    return _written(sizes((size,)), chosen_dtype(dtype, own))


@cost("scalar_tensor")
def scalar_tensor(s: Value, dtype: Value = None, *parameters: Value) -> Cost:
    """One element. Source: aten::scalar_tensor.

    >>> scalar_tensor(1.0)
    Cost(flops=0, bytes=4)
    """
    return _written((), chosen_dtype(dtype, DEFAULT))


@cost("zeros_like", "ones_like", "rand_like", "randn_like")
def ones_like(input: Tensor, dtype: Value = None, *parameters: Value) -> Cost:
    """Source: torch.ones_like.

    >>> ones_like(Tensor((4, 8), "float16"), "torch.float32")
    Cost(flops=0, bytes=128)
    """
    return _written(as_tensor(input).shape, chosen_dtype(dtype, input.dtype))


@cost("full_like")
def full_like(input: Tensor, fill_value: Value, dtype: Value = None, *parameters: Value) -> Cost:
    """Source: torch.full_like.

    >>> full_like(Tensor((4, 8), "float16"), 1.0)
    Cost(flops=0, bytes=64)
    """
    return ones_like(input, dtype)


@cost("randint_like")
def randint_like(input: Tensor, high: Value, *parameters: Value, dtype: Value = None) -> Cost:
    """Source: torch.randint_like.

    >>> randint_like(Tensor((4, 8), "float16"), 10)
    Cost(flops=0, bytes=64)
    """
    return ones_like(input, dtype)


@cost("new_zeros", "new_ones")
def new_zeros(input: Tensor, *sizes_: Value, size: Value = None, dtype: Value = None) -> Cost:
    """The dtype of a tensor, with another size. Source: torch.Tensor.new_zeros.

    >>> new_zeros(Tensor((1,), "float16"), 4, 8), new_zeros(Tensor((1,), "float16"), (4, 8), 6, None, None, None)
    (Cost(flops=0, bytes=64), Cost(flops=0, bytes=128))
    """
    arguments = sizes_ if size is None else (size,)
    require(bool(arguments), "a size is expected")
    if len(arguments) > 1 and isinstance(arguments[0], tuple):
        dtype = arguments[1]
    return _written(sizes(arguments), chosen_dtype(dtype, as_tensor(input).dtype))


@cost("new_full")
def new_full(input: Tensor, size: Value, fill_value: Value, dtype: Value = None, *parameters: Value) -> Cost:
    """Source: torch.Tensor.new_full.

    >>> new_full(Tensor((1,), "float16"), (4, 8), 1)
    Cost(flops=0, bytes=64)
    """
    return _written(sizes((size,)), chosen_dtype(dtype, as_tensor(input).dtype))


@cost(
    "fill",
    "zero",
    "uniform",
    "bernoulli",
    "random",
    "exponential",
    "log_normal",
    "cauchy",
    "geometric",
)
def fill(input: Tensor, *parameters: Value, inplace: bool = False) -> Cost:
    """fill_, zero_, uniform_ ...: a destination that is overwritten, not read; the forms without underscore
    read a tensor of parameters and write another. Source: torch.Tensor.fill_.

    >>> fill(Tensor((4, 8), "float32"), 0.5, inplace=True), fill(Tensor((4, 8), "float32"))
    (Cost(flops=0, bytes=128), Cost(flops=0, bytes=256))
    """
    as_tensor(input)
    read = [] if inplace else [input]
    tensors = [t for t in parameters if isinstance(t, Tensor)]
    return Cost(0, bytes_of(*read, *tensors, Tensor(input.shape, input.dtype)))


@cost("normal")
def normal(
    mean: Value, std: Value = 1.0, size: Value = None, dtype: Value = None, *parameters: Value, inplace: bool = False
) -> Cost:
    """normal_ overwrites; with tensors of parameters a result as large as both broadcast; numbers and a size.

    Source: torch.normal.

    >>> normal(Tensor((2, 1), "float32"), Tensor((3,), "float32")), normal(0.0, 1.0, (2, 3))  # 8 + 12 + 24; 24
    (Cost(flops=0, bytes=44), Cost(flops=0, bytes=24))
    """
    if inplace:
        return fill(as_tensor(mean), inplace=True)
    read = [t for t in (mean, std) if isinstance(t, Tensor)]
    if not read:
        return _written(sizes((size,)), chosen_dtype(dtype, DEFAULT))
    return Cost(0, bytes_of(*read, Tensor(broadcast(*(t.shape for t in read)), read[0].dtype)))


def _count(start: Value, end: Value, step: Value) -> int:
    numbers = [n for n in (start, end, step) if isinstance(n, (int, float)) and not isinstance(n, bool)]
    require(len(numbers) == 3, "numbers are expected")
    first, last, by = numbers
    return max(0, int(-((first - last) // by)))


@cost("arange")
def arange(*args: Value, start: Value = 0, end: Value = None, step: Value = 1, dtype: Value = None) -> Cost:
    """(end), (start, end), (start, end, step). The dispatcher's dtype and three more follow. Source: torch.arange.

    >>> arange(10), arange(0, 1, 0.25), arange(2, 10, 4, None, None, False)  # int64; 4 floats; aten, 8 numbers
    (Cost(flops=0, bytes=80), Cost(flops=0, bytes=16), Cost(flops=0, bytes=64))
    """
    if args and isinstance(args[-1], Tensor):  # out=
        dtype, args = args[-1].dtype, args[:-1]
    if len(args) > 4:
        dtype, args = args[-4], args[:-4]
    if len(args) > 3:
        raise ValueError("too many numbers")
    bounds = list(args) if end is None else [*args, end]
    numbers: list[Value] = [start, *bounds, step] if len(bounds) == 1 else [*bounds, step][:3]
    if dtype_of(dtype) == "int64":  # cut before they are counted
        numbers = [int(n) if isinstance(n, float) else n for n in numbers]
    whole = all(isinstance(n, int) for n in numbers)
    return _written((_count(*numbers),), chosen_dtype(dtype, "int64" if whole else DEFAULT))


@cost("linspace", "logspace")
def linspace(start: Value, end: Value, steps: Value, *parameters: Value, dtype: Value = None) -> Cost:
    """Source: torch.linspace.

    >>> linspace(0, 1, 5)
    Cost(flops=0, bytes=20)
    """
    if parameters and len(parameters) == 4:
        dtype = parameters[0]
    return _written((as_int(steps),), chosen_dtype(dtype, DEFAULT))


@cost("eye")
def eye(n: Value, m: Value = None, *parameters: Value, dtype: Value = None) -> Cost:
    """Source: torch.eye. The dispatcher's form without m has as many arguments as one with it: unknown.

    >>> eye(3), eye(3, 4, dtype="float64")
    (Cost(flops=0, bytes=36), Cost(flops=0, bytes=96))
    """
    require(not parameters, "n and m cannot be told apart from a dtype")
    return _written((as_int(n), as_int(n if m is None else m)), chosen_dtype(dtype, DEFAULT))


@cost("randperm")
def randperm(n: Value, *parameters: Value, dtype: Value = None) -> Cost:
    """Writes n int64. The sort behind it is not counted. Source: torch.randperm.

    >>> randperm(10)
    Cost(flops=0, bytes=80)
    """
    if parameters and not isinstance(parameters[-1], Tensor):
        dtype = parameters[0]
    return _written((as_int(n),), chosen_dtype(dtype, "int64"))


@cost("randint")
def randint(*args: Value, size: Value = None, high: Value = None, low: Value = 0, dtype: Value = None) -> Cost:
    """(high, size) or (low, high, size). Source: torch.randint.

    >>> randint(10, (4, 8)), randint(0, 10, (4, 8), 3, None, None, False)
    (Cost(flops=0, bytes=256), Cost(flops=0, bytes=128))
    """
    shapes = [i for i, v in enumerate(args) if isinstance(v, tuple)]
    shape = args[shapes[0]] if shapes else size
    require(isinstance(shape, tuple), "a size is expected")
    if shapes and len(args) > shapes[0] + 1:
        dtype = args[shapes[0] + 1]
    return _written(sizes((shape,)), chosen_dtype(dtype, "int64"))


@cost("poisson", "binomial", "_standard_gamma", "_sample_dirichlet", "_standard_gamma_grad", "_dirichlet_grad")
def drawn(input: Tensor, *parameters: Value) -> Cost:
    """One random number per parameter; generating it is not counted. Source: torch.poisson.

    >>> drawn(Tensor((4, 8), "float32"))
    Cost(flops=0, bytes=256)
    """
    tensors = [t for t in (input, *parameters) if isinstance(t, Tensor)]
    return Cost(0, bytes_of(*tensors, Tensor(as_tensor(input).shape, input.dtype)))


@cost("multinomial")
def multinomial(input: Tensor, num_samples: Value, *parameters: Value, **options: Value) -> Cost:
    """Weights are read, int64 samples written; sampling is not counted. Source: torch.multinomial.

    >>> multinomial(Tensor((4, 8), "float32"), 2)
    Cost(flops=0, bytes=192)
    """
    samples = Tensor((*input.shape[:-1], as_int(num_samples)), "int64")
    return Cost(0, bytes_of(input, samples))


@cost("_philox_normal", "_philox_uniform", "normal_functional")
def drawn_over(input: Tensor, *parameters: Value, inplace: bool = False) -> Cost:
    """A tensor overwritten with random numbers. Source: aten::_philox_normal_.

    >>> drawn_over(Tensor((4, 8), "float32"), Tensor((2,), "uint64"))
    Cost(flops=0, bytes=144)
    """
    keys = [t for t in parameters if isinstance(t, Tensor)]
    return Cost(0, bytes_of(*keys, Tensor(as_tensor(input).shape, input.dtype)))


@cost("_no_grad_fill", "_no_grad_zero", "_no_grad_normal", "_no_grad_uniform")
def no_grad_fill(input: Tensor, *parameters: Value, inplace: bool = True) -> Cost:
    """Scripted fill_, zero_, normal_, uniform_ of torch.nn.init. Source: aten::_no_grad_fill_.

    >>> no_grad_fill(Tensor((4, 8), "float32"), 1.0)
    Cost(flops=0, bytes=128)
    """
    return fill(input, *parameters, inplace=True)


@cost("tensor", "as_tensor", "asarray")
def from_data(data: Value, dtype: Value = None, *parameters: Value) -> Cost:
    """Python numbers written; a tensor is taken unchanged, or cast. Source: torch.tensor.

    >>> from_data((1.0, 2.0)), from_data(3), from_data(((1, 2), (3, 4)), "torch.float16")
    (Cost(flops=0, bytes=8), Cost(flops=0, bytes=8), Cost(flops=0, bytes=8))
    """
    if isinstance(data, Tensor):
        target = chosen_dtype(dtype, data.dtype)
        if target == data.dtype:
            return Cost(0, 0, basis="view")
        return Cost(0, bytes_of(data, Tensor(data.shape, target)))
    numbers = _numbers(data)
    kinds = [scalar_dtype(n) for n in numbers]
    require(None not in kinds, "numbers are expected")
    own = next((k for k in ("complex64", DEFAULT, "int64", "bool") if k in kinds), DEFAULT)
    return _written((len(numbers),), chosen_dtype(dtype, own))


def _numbers(data: Value) -> list[Value]:
    if isinstance(data, tuple) and not isinstance(data, (Tensor, Other)):
        return [n for item in data for n in _numbers(item)]
    return [data]
