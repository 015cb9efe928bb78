# SPDX-License-Identifier: Apache-2.0
"""Collectives: bytes per rank, as nccl-tests size them, and the factors of algorithm and bus bandwidth.

The cost of a call is that of one rank: it reads what it sends and writes what it receives; reductions add, one FLOP per
element that is combined, if the number of ranks is known (the shapes determine it for gathers and scatters of lists and
tensors), otherwise FLOPs are unknown. Data that a ring or a tree forwards is not counted.

`size` is nccl-tests' S, the larger of the data that a rank sends and receives: for an all-gather the whole result of a
rank, for a reduce-scatter its whole input. Algorithm bandwidth is S/time, bus bandwidth that times a factor; both in
1e9 bytes per second. Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md

>>> x = Tensor((4, 8), "float32")
>>> all_reduce((x,)), size(all_reduce((x,)), "all_reduce", 4), bandwidths(all_reduce((x,)), "all_reduce", 4, 64)
(Cost(flops=None, bytes=256), 128, (2.0, 3.0))
"""

from __future__ import annotations

from collections.abc import Callable

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import like, require, tensors_in

# Kind of collective: bus factor by the number of ranks n.
FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "send_recv": lambda n: 1.0,
}


def bus_factor(kind: str, ranks: int) -> float:
    """Return the factor in: bus bandwidth = factor · algorithm bandwidth.

    >>> bus_factor("all_gather", 8), bus_factor("broadcast", 8)
    (0.875, 1.0)
    """
    require(ranks > 0, "ranks are counted from 1")
    return float(FACTORS[kind](ranks))


def size(cost_of_call: Cost, kind: str, ranks: int) -> int | None:
    """Return nccl-tests' S from the bytes that a rank reads and writes: half of the sum if both are equal; n of n + 1
    parts if one side is n times the other; broadcast, reduce and send count one tensor.

    >>> part, whole = Tensor((10,), "bfloat16"), Tensor((40,), "bfloat16")
    >>> size(gathered(whole, part), "all_gather", 4), size(reduce_scattered(part, whole), "reduce_scatter", 4)
    (80, 80)
    >>> size(gathered(whole, whole), "all_to_all", 4), size(one_way(whole), "broadcast", 4)
    (80, 80)
    """
    require(kind in FACTORS and ranks > 0, f"no collective {kind!r} of {ranks} ranks")
    moved = cost_of_call.bytes
    if moved is None:
        return None
    if kind in ("all_gather", "reduce_scatter"):
        return moved * ranks // (ranks + 1)
    return moved // 2 if kind in ("all_reduce", "all_to_all") else moved


def bandwidths(cost_of_call: Cost, kind: str, ranks: int, duration_ns: int) -> tuple[float, float] | None:
    """Return algorithm and bus bandwidth in 1e9 bytes per second, which is bytes per ns.

    >>> bandwidths(Cost(0, 100), "all_gather", 4, 8)  # S = 80
    (10.0, 7.5)
    """
    moved = size(cost_of_call, kind, ranks)
    if moved is None or duration_ns <= 0:
        return None
    return moved / duration_ns, bus_factor(kind, ranks) * moved / duration_ns


def _tensors(value: Value) -> list[Tensor]:
    tensors = tensors_in((value,))
    require(bool(tensors), "tensors are expected")
    return tensors


@cost("torch.distributed.all_reduce", "torch.distributed.all_reduce_coalesced", "c10d::allreduce_",
      "c10d::allreduce_coalesced_", "_c10d_functional::all_reduce", "_c10d_functional::all_reduce_",
      "_c10d_functional::all_reduce_coalesced", "_c10d_functional::all_reduce_coalesced_",
      "symm_mem::one_shot_all_reduce", "symm_mem::two_shot_all_reduce_", "symm_mem::multimem_all_reduce_",
      "symm_mem::multimem_one_shot_all_reduce")  # fmt: skip
def all_reduce(tensor: Value, *parameters: Value) -> Cost:
    """Every rank's tensor is read and overwritten by the combination of all. Source: torch.distributed.all_reduce.

    >>> all_reduce(Tensor((10,), "bfloat16"))
    Cost(flops=None, bytes=40)
    """
    parts = _tensors(tensor)
    return Cost(None, bytes_of(*parts, *map(like, parts)))


@cost("torch.distributed.broadcast", "torch.distributed.reduce", "torch.distributed.send", "torch.distributed.recv",
      "torch.distributed.isend", "torch.distributed.irecv", "c10d::broadcast_", "c10d::reduce_", "c10d::send",
      "c10d::recv_", "c10d::recv_any_source_", "_c10d_functional::broadcast", "_c10d_functional::broadcast_",
      "_c10d_functional::isend", "_c10d_functional::irecv")  # fmt: skip
def one_way(tensor: Value, *parameters: Value) -> Cost:
    """A rank sends its tensor or receives it; for some collectives this is data. The ranks that do a reduction's
    additions do not follow from the call. Source: torch.distributed.broadcast.

    >>> one_way(Tensor((10,), "bfloat16"), 0)
    Cost(flops=0, bytes=20)
    """
    return Cost(0, bytes_of(*_tensors(tensor)))


@cost("torch.distributed.all_gather", "torch.distributed.all_gather_into_tensor", "torch.distributed.all_gather_single",
      "torch.distributed.all_gather_coalesced", "torch.distributed.all_to_all", "torch.distributed.all_to_all_single",
      "c10d::allgather_", "c10d::_allgather_base_", "c10d::allgather_coalesced_",
      "c10d::allgather_into_tensor_coalesced_", "c10d::alltoall_", "c10d::alltoall_base_")  # fmt: skip
def gathered(output: Value, input: Value, *parameters: Value) -> Cost:
    """The input is read, the outputs are written. Source: torch.distributed.all_gather.

    >>> gathered((Tensor((10,), "bfloat16"),) * 4, Tensor((10,), "bfloat16"))
    Cost(flops=0, bytes=100)
    """
    return Cost(0, bytes_of(*_tensors(output), *_tensors(input)))


@cost("torch.distributed.reduce_scatter", "torch.distributed.reduce_scatter_tensor",
      "torch.distributed.reduce_scatter_single", "c10d::reduce_scatter_", "c10d::_reduce_scatter_base_",
      "c10d::reduce_scatter_tensor_coalesced_")  # fmt: skip
def reduce_scattered(output: Value, input: Value, *parameters: Value) -> Cost:
    """Each rank combines its part of all inputs: n - 1 per element of the output, n from the sizes.

    Source: torch.distributed.reduce_scatter_tensor.

    >>> reduce_scattered(Tensor((10,), "bfloat16"), Tensor((40,), "bfloat16"))  # n = 4
    Cost(flops=30, bytes=100)
    """
    written, read = _tensors(output), _tensors(input)
    out, whole = (sum(t.numel for t in part) for part in (written, read))
    require(out > 0 and whole % out == 0, "sizes do not fit")
    return Cost(whole - out, bytes_of(*written, *read))


@cost(
    "_c10d_functional::all_gather_into_tensor",
    "_c10d_functional::all_gather_into_tensor_out",
    "_c10d_functional::all_gather_into_tensor_coalesced",
    "_c10d_functional_autograd::all_gather_into_tensor",
)
def functional_all_gather(input: Value, group_size: Value, *parameters: Value) -> Cost:
    """Source: _c10d_functional::all_gather_into_tensor.

    >>> functional_all_gather(Tensor((10,), "bfloat16"), 4, "0")
    Cost(flops=0, bytes=100)
    """
    parts = _tensors(input)
    require(type(group_size) is int and group_size > 0, "a number of ranks is expected")
    assert isinstance(group_size, int)
    results = [Tensor((group_size, *t.shape), t.dtype) for t in parts]
    return Cost(0, bytes_of(*parts, *results))


@cost(
    "_c10d_functional::reduce_scatter_tensor",
    "_c10d_functional::reduce_scatter_tensor_out",
    "_c10d_functional::reduce_scatter_tensor_coalesced",
    "_c10d_functional_autograd::reduce_scatter_tensor",
)
def functional_reduce_scatter(input: Value, reduce_op: Value, group_size: Value, *parameters: Value) -> Cost:
    """Source: _c10d_functional::reduce_scatter_tensor.

    >>> functional_reduce_scatter(Tensor((40,), "bfloat16"), "sum", 4, "0")
    Cost(flops=30, bytes=100)
    """
    parts = _tensors(input)
    require(type(group_size) is int and group_size > 0, "a number of ranks is expected")
    assert isinstance(group_size, int)
    results = [Tensor((t.numel // group_size,), t.dtype) for t in parts]
    return reduce_scattered(tuple(results), tuple(parts))


@cost("_c10d_functional::all_to_all_single", "_c10d_functional_autograd::all_to_all_single")
def functional_all_to_all(
    input: Tensor, output_split_sizes: Value, input_split_sizes: Value = None, *parameters: Value
) -> Cost:
    """Rows received are the sum of the split sizes. Source: _c10d_functional::all_to_all_single.

    >>> functional_all_to_all(Tensor((8, 2), "float32"), (3, 3), (4, 4), "0")
    Cost(flops=0, bytes=112)
    """
    rows = [n for n in output_split_sizes if isinstance(n, int)] if isinstance(output_split_sizes, tuple) else []
    output = Tensor((sum(rows), *input.shape[1:]), input.dtype) if rows else like(input)
    return Cost(0, bytes_of(input, output))


@cost("torch.distributed.gather", "torch.distributed.scatter", "c10d::gather_", "c10d::scatter_")
def gathered_to_one(tensor: Value, rank_tensors: Value = None, *parameters: Value) -> Cost:
    """One rank has the list, the others only their tensor. Source: torch.distributed.gather.

    >>> gathered_to_one(Tensor((10,), "bfloat16"), (Tensor((10,), "bfloat16"),) * 4)
    Cost(flops=0, bytes=100)
    """
    return Cost(0, bytes_of(*tensors_in((tensor, rank_tensors))))


@cost("record_param_comms")
def announced(
    collective: Value = None,
    input: Value = None,
    output: Value = None,
    ranks: Value = None,
    *parameters: Value,
) -> Cost:
    """c10d's event around the launch of a collective's kernel: elements that a rank sends and receives. Reductions of n
    ranks add n - 1 times: in an all-reduce for an nth of all elements, as each rank does in a ring.

    Source: torch/csrc/distributed/c10d/ParamCommsUtils.hpp.

    >>> x = Tensor((40,), "bfloat16")
    >>> announced("all_reduce", x, x, 4), announced("reduce_scatter", x, Tensor((10,), "bfloat16"), 4)
    (Cost(flops=30, bytes=160), Cost(flops=30, bytes=100))
    """
    require(isinstance(collective, str) and isinstance(input, Tensor), "the collective is not described")
    assert isinstance(input, Tensor)
    if collective in ("broadcast", "reduce", "send", "recv", "send_recv"):
        return one_way(input)
    require(isinstance(output, Tensor), "what a rank gets is not described")
    assert isinstance(output, Tensor)
    moved = bytes_of(input, output)
    if collective in ("all_reduce", "reduce_scatter"):
        whole, n = max(input.numel, output.numel), ranks if isinstance(ranks, int) else 0
        return Cost(whole * (n - 1) // n if n > 0 else None, moved)
    return Cost(0, moved)


@cost("torch.distributed.barrier", "torch.distributed.monitored_barrier", "c10d::barrier", "c10d::monitored_barrier_",
      "_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd",
      "torch.distributed.wait_tensor", "c10d::check_for_nan",
      "symm_mem::_rendezvous")  # fmt: skip
def waited(*parameters: Value) -> Cost:
    """A wait for other ranks moves no user data. Source: torch.distributed.barrier.

    >>> waited()
    Cost(flops=0, bytes=0)
    """
    return Cost(0, 0, basis="view")
