# SPDX-License-Identifier: Apache-2.0
"""Steps of language model servers: parsing of the ranges that describe the requests of a step.

    execute_context_2(812)_generation_30(30)            vLLM: requests and new tokens, in prefill and generating
    execute_842_context_2(sq812sk812sqsq..sqsk..)_generation_30(sq30sk9000..)    the same with sums of lengths
    step[EXTEND bs=2 toks=107], step[DECODE bs=32]      SGLang: the mode, requests, and new tokens of a prefill

`sq` is the sum of new tokens, `sk` that of all tokens, which the new ones attend to. A request of SGLang's mode
DECODE has one new token. Sources: annotate_profile of vLLM's gpu_worker.py; profiles of vLLM and SGLang published
with AMD-AGI/TraceLens; ForwardMode of SGLang.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SUMS = r"\((?:sq)?(\d{1,12})(?:sk(\d{1,12}))?(?:sqsq\d{1,18}sqsk\d{1,18})?\)"
_VLLM = re.compile(rf"execute_(?:\d{{1,12}}_)?context_(\d{{1,9}}){_SUMS}_generation_(\d{{1,9}}){_SUMS}")
_SGLANG = re.compile(r"step\[([A-Z_]{1,40}) bs=(\d{1,9})(?: toks=(\d{1,12}))?\]")
_MODES = {"EXTEND": "prefill", "DECODE": "decode", "MIXED": "mixed"}


class Step(NamedTuple):
    """A step's phase, requests in prefill and requests that generate, their new tokens, and all tokens of all requests.
    None: unknown."""

    phase: str
    requests: int
    prefills: int | None
    decodes: int | None
    prefill_tokens: int | None
    decode_tokens: int | None
    context: int | None

    @property
    def tokens(self) -> int | None:
        """New tokens of all requests."""
        counts = self.prefill_tokens, self.decode_tokens
        return None if counts[0] is None or counts[1] is None else counts[0] + counts[1]


def step_of(text: str) -> Step | None:
    """Parse the text of a range; None if it is not a step of a server.

    >>> step_of("execute_context_2(812)_generation_30(30)")
    Step(phase='mixed', requests=32, prefills=2, decodes=30, prefill_tokens=812, decode_tokens=30, context=None)
    >>> step_of("step[EXTEND bs=2 toks=107]").tokens, step_of("step[DECODE bs=32]").tokens, step_of("step 3")
    (107, 32, None)
    """
    if match := _VLLM.fullmatch(text):
        prefills, new, prefill_context, decodes, decode_new, decode_context = (
            None if n is None else int(n) for n in match.groups()
        )
        if prefills is None or decodes is None:
            return None
        phase = "mixed" if prefills and decodes else "prefill" if prefills else "decode" if decodes else "idle"
        context = None if prefill_context is None or decode_context is None else prefill_context + decode_context
        return Step(phase, prefills + decodes, prefills, decodes, new, decode_new, context)
    if match := _SGLANG.fullmatch(text):
        mode, count, new = match[1], int(match[2]), None if match[3] is None else int(match[3])
        if mode == "EXTEND":
            return Step("prefill", count, count, 0, new, 0, None)
        if mode == "DECODE":
            return Step("decode", count, 0, count, 0, count, None)
        return Step(_MODES.get(mode, mode.lower()), count, None, None, None, None, None)
    return None
