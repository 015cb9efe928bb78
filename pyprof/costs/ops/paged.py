# SPDX-License-Identifier: Apache-2.0
"""Attention of servers, with keys and values in pages of a cache.

The lengths of requests are data. An annotation of a server's profile may contain sums over its requests, for those in
prefill and those that generate: new tokens Σq, all tokens Σk, Σq² and Σq·k; the recording has them as `lengths`. A new
token sees all earlier ones and itself: pairs = Σq·k - (Σq² - Σq)/2. 2·pairs·Hq·(D + Dv) FLOPs; softmax is not counted.

Bytes: the new queries, the output, and the keys and values of all tokens, once per request.

A sliding window is not recorded. With one, these figures are too large; they are approximate.

>>> lengths((1, 2, 1, 2, 3, 12, 3, 12))  # one new token that sees 2; three requests with one new token each
Lengths(queries=4, keys=14, pairs=14)
>>> lengths((4, 10, 16, 40, 0, 0, 0, 0)).pairs  # 7 + 8 + 9 + 10
34
"""

from __future__ import annotations

from typing import NamedTuple

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import cost, total
from pyprof.costs.ops.shapes import as_int, require


class Lengths(NamedTuple):
    """Sums over requests."""

    queries: int
    keys: int
    pairs: int


def lengths(value: Value, generating: bool = False) -> Lengths:
    """Return the sums from the eight numbers of an annotation; with `generating`, only of the requests that
    generate."""
    require(isinstance(value, tuple) and len(value) == 8, "the lengths of the requests were not recorded")
    assert isinstance(value, tuple)
    numbers = [as_int(number) for number in value]
    sums = [Lengths(0, 0, 0) if generating else _part(*numbers[:4]), _part(*numbers[4:])]
    require(any(part.queries for part in sums), "no request of this kind")
    return Lengths(*(sum(values) for values in zip(*sums)))


def _part(q: int, k: int, qq: int, qk: int) -> Lengths:
    """Return the sums of one kind of request. Each has at least one query and sees all of its queries: 1 <= q <= k."""
    require(0 <= q <= k and q <= qq <= qk and (qq - q) % 2 == 0, "no requests have such lengths")
    return Lengths(q, k, qk - (qq - q) // 2)


def _attend(query: Tensor, key: Tensor, value: Tensor, heads: int, lengths: Lengths) -> Cost:
    """Return the cost for queries (T, Hq, D), of which some may be padding; the last sizes of keys and values are D
    and Dv."""
    tokens, query_heads, d = query.shape
    dv = value.shape[-1]
    require(key.shape[-1] == d and heads > 0 and query_heads % heads == 0, "heads do not fit")
    require(lengths.queries <= tokens, "there are fewer queries than the annotation says")
    parts = [
        Tensor((lengths.queries, query_heads, d), query.dtype),
        Tensor((lengths.queries, query_heads, dv), query.dtype),
        Tensor((lengths.keys, heads, d), key.dtype),
        Tensor((lengths.keys, heads, dv), value.dtype),
    ]
    moved = total(part.bytes for part in parts)
    return Cost(2 * lengths.pairs * query_heads * (d + dv), moved, basis="approximate")


@cost("vllm::unified_attention_with_output", "vllm::unified_attention", "sglang::unified_attention_with_output")
def unified_attention(query: Tensor, key: Tensor, value: Tensor, *parameters: Value, lengths: Value = None) -> Cost:
    """A layer, prefill and generation together; queries, keys and values of the new tokens are arguments. The cache may
    have a narrower type. Source: vLLM, model_executor/layers/attention/attention.py.

    >>> q, kv = Tensor((8, 4, 16), "float16"), Tensor((8, 2, 16), "float16")
    >>> unified_attention(q, kv, kv, q, lengths=(4, 10, 16, 40, 3, 12, 3, 12))  # 2·46·4·32; 2·7·64·2 + 2·22·32·2
    Cost(flops=11776, bytes=4608)
    """
    require(len(query.shape) == len(key.shape) == 3, "(tokens, heads, size) is expected")
    return _attend(query, key, value, key.shape[1], _lengths(lengths))


@cost("sglang_profiler::attention_paged_attention_ragged")
def paged_attention_ragged(
    out: Tensor, workspace: Tensor, query: Tensor, key_cache: Tensor, value_cache: Tensor, *parameters: Value,
    lengths: Value = None,
) -> Cost:  # fmt: skip
    """Requests that generate; the caches are (pages, 1, Hkv, D), of pages of one token. Source: ROCm/aiter,
    aiter/ops/attention.py; an MI300X trace of SGLang.

    >>> q, cache = Tensor((3, 4, 16), "float16"), Tensor((100, 1, 2, 16), "float16")
    >>> paged_attention_ragged(q, q, q, cache, cache, lengths=(0, 0, 0, 0, 3, 12, 3, 12))  # 2·12·4·32; 768 + 1536
    Cost(flops=3072, bytes=2304)
    """
    require(len(key_cache.shape) == 4 and key_cache.shape[1] == 1, "pages of one token are expected")
    return _attend(query, key_cache, value_cache, key_cache.shape[2], _lengths(lengths, True))


@cost("aiter::mha_batch_prefill")
def mha_batch_prefill(query: Tensor, key: Tensor, value: Tensor, *parameters: Value, lengths: Value = None) -> Cost:
    """A batch with prefill; the caches end in (Hkv, D). Source: ROCm/aiter, aiter/ops/mha.py.

    >>> q, cache = Tensor((4, 4, 16), "float16"), Tensor((100, 2, 16), "float16")
    >>> mha_batch_prefill(q, cache, cache, lengths=(4, 10, 16, 40, 0, 0, 0, 0))  # 2·34·4·32; 1024 + 1280
    Cost(flops=8704, bytes=2304)
    """
    require(len(query.shape) == 3 and len(key.shape) in (3, 4), "(tokens, heads, size) is expected")
    require(len(key.shape) == 3 or key.shape[1] == 1, "pages of one token are expected")
    return _attend(query, key, value, key.shape[-2], _lengths(lengths))


_lengths = lengths  # operators have an argument of this name
