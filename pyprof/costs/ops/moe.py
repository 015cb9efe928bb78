# SPDX-License-Identifier: Apache-2.0
"""Fused mixtures of experts of servers: vLLM's, SGLang's and AITER's.

Letters: T tokens of H elements, each sent to k of E experts; w1 (E, N, H) is the up projection, w2 (E, H, I) the down
projection. N = 2·I if the activation is gated. 2·T·k·(N·H + I·H) FLOPs: the two products. Activation, weighting and sum
are not counted. A weight that packs p values into an element has the last size divided by p.

Bytes: tokens, routing and result, and the weights of every expert that may get a token, min(E, T·k). The choice depends
on data: for more than one token the bytes are an upper bound, and the cost is approximate. Experts of another rank get
no token: with an expert map fewer than T·k rows are computed, and the FLOPs are unknown.

>>> half = lambda *shape: Tensor(shape, "float16")
>>> fused_experts(half(4, 8), half(3, 12, 8), half(3, 8, 6), half(4, 2), Tensor((4, 2), "int32"))
Cost(flops=2304, bytes=1040)
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost, total
from pyprof.costs.ops.shapes import as_int, as_tensor, like, require

_PACKINGS = (1, 2, 4, 8)  # values per element: 4 bits in 8, 16 or 32; 8 bits in 32


def _sides(first: Tensor, second: Tensor, hidden: int) -> tuple[int, int]:
    """Return N and I of the weights of E experts, in which either size may be last; I is N or half of it.

    >>> up, down = Tensor((32, 1536, 5888), "uint8"), Tensor((32, 1472, 3072), "uint8")  # K first, two values per byte
    >>> _sides(up, down, 3072), _sides(Tensor((8, 12, 8), None), Tensor((8, 8, 6), None), 8)
    ((5888, 2944), (12, 6))
    """
    (experts, *up), (experts_down, *down) = first.shape, second.shape
    require(experts == experts_down and len(up) == len(down) == 2, "weights of the same experts are expected")
    for pack in _PACKINGS:
        for turned in (False, True):
            n, k = up if not turned else up[::-1]
            out, inner = down if not turned else down[::-1]
            if k * pack == hidden == out and inner * pack in (n, n // 2) and n:
                return n, inner * pack
    raise ValueError(f"{first.shape} and {second.shape} do not lead from {hidden} elements and back")


def _active(weight: Tensor, rows: int) -> int | None:
    """Return the bytes of the experts that may get one of the rows."""
    size, experts = weight.bytes, weight.shape[0]
    return None if size is None else size // max(experts, 1) * min(experts, rows)


def _two(tokens: Tensor, first: Tensor, second: Tensor, k: int, *extra: Tensor) -> Cost:
    """Return the cost of both products. `extra` holds the other inputs."""
    count, hidden = tokens.shape
    n, inner = _sides(first, second, hidden)
    rows = count * k
    moved = total([bytes_of(tokens, like(tokens), *extra), _active(first, rows), _active(second, rows)])
    basis = "formula" if count <= 1 else "approximate"
    return Cost(2 * rows * hidden * (n + inner), moved, basis=basis)


@cost("vllm::inplace_fused_experts", "vllm::outplace_fused_experts", "sglang::inplace_fused_experts",
      "sglang::outplace_fused_experts", "vllm::rocm_aiter_fused_moe", "aiter::fused_moe_",
      "aiter::fused_moe")  # fmt: skip
def fused_experts(
    hidden_states: Tensor, w1: Tensor, w2: Tensor, topk_weights: Tensor, topk_ids: Tensor, *parameters: Value,
    expert_map: Value = None,
) -> Cost:  # fmt: skip
    """Source: vLLM, model_executor/layers/fused_moe/fused_moe.py; ROCm/aiter, fused_moe.py.

    >>> half = lambda *shape: Tensor(shape, "float16")
    >>> ids = Tensor((4, 2), "int32")
    >>> packed = Tensor((3, 12, 4), "uint8"), Tensor((3, 8, 3), "uint8")  # two values per element
    >>> fused_experts(half(4, 8), *packed, half(4, 2), ids)  # 2·8·8·(12 + 6); 64 + 64 + 16 + 32 + 144 + 72
    Cost(flops=2304, bytes=392)
    >>> fused_experts(half(1, 8), half(3, 12, 8), half(3, 8, 6), half(1, 2), Tensor((1, 2), "int32")).basis
    'formula'
    """
    local = [value for value in (*parameters, expert_map) if isinstance(value, Tensor) and _is_map(value)]
    products = _two(hidden_states, w1, w2, topk_ids.shape[-1], topk_weights, topk_ids)
    return products._replace(flops=None) if local else products


def _is_map(tensor: Tensor) -> bool:
    """Return whether this is an expert map: integers, one per expert of the model."""
    return len(tensor.shape) == 1 and (tensor.dtype or "") in ("int32", "int64")


@cost("aiter::fmoe", "aiter::fmoe_g1u1", "aiter::fmoe_int8_g1u0", "aiter::fmoe_fp8_blockscale_g1u1")
def fmoe(
    out: Tensor, input: Tensor, gate: Tensor, down: Tensor, sorted_token_ids: Tensor, sorted_weights: Tensor,
    sorted_expert_ids: Tensor, num_valid_ids: Tensor, topk: Value, *parameters: Value,
) -> Cost:  # fmt: skip
    """Everything in one kernel. Source: ROCm/aiter, aiter/ops/moe_op.py.

    >>> half = lambda *shape: Tensor(shape, "float16")
    >>> n = Tensor((2,), "int32")
    >>> fmoe(half(4, 8), half(4, 8), half(3, 12, 8), half(3, 8, 6), n, n, n, n, 2)  # 2·8·8·18; 64 + 64 + 576 + 288
    Cost(flops=2304, bytes=992)
    """
    return _two(input, gate, down, as_int(topk))


def _stage(tokens: Tensor, weight: Tensor, rows: int, n: int, k: int, result: Tensor) -> Cost:
    moved = total([bytes_of(tokens, result), _active(weight, rows)])
    return Cost(2 * rows * n * k, moved, basis="formula" if result.shape[0] <= 1 else "approximate")


@cost("aiter::ck_moe_stage1", "aiter::ck_moe_stage1_fwd")
def ck_moe_stage1(
    hidden_states: Tensor, w1: Tensor, w2: Tensor, sorted_token_ids: Tensor, sorted_expert_ids: Tensor,
    num_valid_ids: Tensor, out: Tensor, topk: Value, *parameters: Value,
) -> Cost:  # fmt: skip
    """The up projection. Source: ROCm/aiter, aiter/ops/moe_op.py.

    >>> half = lambda *shape: Tensor(shape, "float16")
    >>> n = Tensor((2,), "int32")
    >>> ck_moe_stage1(half(4, 8), half(3, 12, 8), half(3, 8, 6), n, n, n, half(4, 2, 6), 2)  # 2·8·12·8; 64 + 96 + 576
    Cost(flops=1536, bytes=736)
    """
    count, hidden = hidden_states.shape
    n, _ = _sides(w1, w2, hidden)
    return _stage(hidden_states, w1, count * as_int(topk), n, hidden, out)


@cost("aiter::ck_moe_stage2", "aiter::ck_moe_stage2_fwd")
def ck_moe_stage2(
    inter_states: Tensor, w1: Tensor, w2: Tensor, sorted_token_ids: Tensor, sorted_expert_ids: Tensor,
    num_valid_ids: Tensor, out: Tensor, topk: Value, *parameters: Value,
) -> Cost:  # fmt: skip
    """The down projection. Source: ROCm/aiter, aiter/ops/moe_op.py.

    >>> half = lambda *shape: Tensor(shape, "float16")
    >>> n = Tensor((2,), "int32")
    >>> ck_moe_stage2(half(4, 2, 6), half(3, 12, 8), half(3, 8, 6), n, n, n, half(4, 8), 2)  # 2·8·8·6; 96 + 64 + 288
    Cost(flops=768, bytes=448)
    """
    count, hidden = out.shape
    _, inner = _sides(w1, w2, hidden)
    return _stage(inter_states, w2, count * as_int(topk), hidden, inner, out)


@cost("vllm::moe_forward", "vllm::moe_forward_shared")
def moe_forward(
    hidden_states: Tensor,
    router_logits: Tensor,
    *parameters: Value,
    weights: Value = None,
    topk: Value = None,
) -> Cost:
    """The layer of a model: its weights and k are not arguments. If the operators inside show both (Triton's kernels of
    gpt-oss), the recording has them as `weights` and `topk`. Source: vLLM, model_executor/layers/fused_moe/layer.py.

    >>> x, logits = Tensor((4, 8), "bfloat16"), Tensor((4, 3), "bfloat16")
    >>> up, down = Tensor((3, 4, 12), "uint8"), Tensor((3, 3, 8), "uint8")
    >>> moe_forward(x, logits, None, weights=(up, down), topk=2)  # 2·8·8·18; 64 + 64 + 24 + 144 + 72
    Cost(flops=2304, bytes=368)
    """
    require(isinstance(weights, tuple) and len(weights) == 2 and topk is not None, "no weights were recorded")
    assert isinstance(weights, tuple)
    first, second = (as_tensor(weight) for weight in weights)
    require(router_logits.shape == (hidden_states.shape[0], first.shape[0]), "some experts are elsewhere")
    return _two(hidden_states, first, second, as_int(topk), router_logits)


__all__ = ["Tensor", "ck_moe_stage1", "ck_moe_stage2", "fmoe", "fused_experts", "moe_forward"]
