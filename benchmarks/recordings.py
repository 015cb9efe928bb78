#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is known of recordings, and what is found in them: docs/recordings.md.

    python benchmarks/recordings.py FOLDER > docs/recordings.md

FOLDER holds recordings that others have published, as PYPROF_TEST_DATA of the tests does; without it the table has the
generated ones alone.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pyprof  # noqa: E402
from pyprof.costs.kernels import PRODUCTS, describe  # noqa: E402
from pyprof.profiles import Profile  # noqa: E402
from tests import kineto  # noqa: E402
from tests.costs.kernel_names import NAMES  # noqa: E402

# Libraries: how their kernels' names look, and an operator that launches such kernels.
LIBRARIES = {
    "DeepEP": (r"deep_ep::|dpsk::ep", "deep_ep::dispatch"),
    "DeepGEMM": (r"deep_gemm::", "deep_gemm::fp8_gemm"),
    "FlashInfer": (r"flashinfer", "flashinfer::run"),
    "FlashMLA": (r"mla", "flash_mla::fwd_kvcache_mla"),
    "FlashAttention": (r"flash_fwd|flash_bwd|flash::", "flash_attn::_flash_attn_forward"),
    "TransformerEngine": (r"transformer_engine|userbuffers", "tex::generic_gemm"),
    "vLLM": (r"vllm::|reshape_and_cache|wvSplitK", "vllm::unified_attention"),
    "SGLang": (r"sglang|sgl_|moe_align", "sglang::forward"),
    "TensorRT-LLM": (r"tensorrt_llm|trtllm|^bmm_|gemm_Bfloat16", "trtllm::fp4_gemm"),
    "Marlin": (r"[mM]arlin", "_C::gptq_marlin_gemm"),
    "AITER": (r"aiter", "aiter::fused_moe_"),
    "composable kernels": (r"ck::|ck_tile|kentry", "aiter::ck_moe_stage1"),
    "hipBLASLt, Tensile": (r"Cijk_", "aten::mm"),
    "MIOpen": (r"miopen|igemm_|Im2d2Col|Im3d2Col", "aten::miopen_convolution"),
    "xformers": (r"fmha|cutlassF|cutlassB", "xformers::efficient_attention_forward_cutlass"),
    "Liger": (r"liger|geglu|swiglu", "LigerRMSNormFunction"),
    "Mamba": (r"selective_scan|chunk_|causal_conv1d|state_passing", "mamba_ssm::selective_scan_fwd"),
    "Inductor": (r"^triton_", "triton_poi_fused_add_0"),
    "CuTe DSL": (r"kernel_cutlass_kernel", "cute::gemm"),
    "CUTLASS 3": (r"cutlass::device_kernel|cutlass3x", "cutlass::gemm"),
    "cuBLAS and cuDNN 9": (r"nvjet|cudnn|xmma", "aten::mm"),
    "NVSHMEM": (r"nvshmem", "symm_mem::all_to_all_vdev"),
    "NCCL, symmetric kernels": (r"nccl", "c10d::allreduce_"),
    "MSCCL++": (r"msccl", "mscclpp::allreduce"),
    "symmetric memory of torch": (r"multimem|one_shot|two_shot|symm", "symm_mem::one_shot_all_reduce"),
    "Apex": (r"apex|multi_tensor|cuCompute|cuApply", "apex::layer_norm"),
    "bitsandbytes": (r"kQuantize|kDequantize|kgemm|kOptimizer|bnb", "bitsandbytes::gemv_4bit"),
    "llama.cpp": (r"mul_mat|ggml|dequantize_", "ggml::mul_mat"),
    "PyTorch": (r"at::native", "aten::add"),
}
# Verdicts by hand, from the events of the recording: why a finding is true, or what is wrong with it.
JUDGED = {
    ("dlrm_v100_8ranks", "R21"): "Adagrad launches 64 kernels, 1.4 ms of the CPU for 0.2 of the GPU",
    ("mi300_resnet_act_checkpoint", "R17"): "batched_transpose around convolutions: 1.3 of 22 ms of kernels a step",
    ("mi300_resnet_act_checkpoint", "R53"): "torch.utils.checkpoint: blocks of the forward run again in the backward",
    **{
        (f"resnet50_v100_{which}", rule): why
        for which in ("6steps", "num_workers_4")
        for rule, why in (
            ("R21", "SGD without foreach: 3 kernels for each of 161 tensors"),
            ("R22", "161 fills a step: set_to_none=False"),
        )
    },
    ("v100_216k_events", "R21"): "SGD without foreach: 404 kernels, 12.5 ms of the CPU for 5.2 of the GPU",
    ("v100_216k_events", "R22"): "404 fills a step: set_to_none=False",
    ("h100_2gpu_1s", "R38"): "2,268 of 4,372 launches have no work in the file",
    ("H100 counters", "R01"): "one pass over single operators",
    ("H100 counters", "R03"): "8.4 ms of kernels in 18.5 ms, 2 of them before the first",
    ("H100 graph_replay_cold", "R05"): "the first step loads the kernels: 208 ms until their launches",
    ("H100 products", "R50"): "one dgemm of 2048 cubed a step, 280 us",
    ("h100_bert_small", "R05"): "60 kernels of 5 us in 4.4 ms",
    ("h100_bert_small", "R26"): "16 blocks on 132 multiprocessors",
    ("h100_bert_small", "R31"): "0.1 of 85 GB, and R05",
    ("h100_owlv2_large", "R09"): "_SingleProcessDataLoaderIter: 619 ms a step",
    ("h100_owlv2_large", "R24"): "softmax of 16 x 5185 x 5185 between two bmm",
    ("h100_owlv2_large", "R15"): "rows of 5185 elements of 2 bytes: 10,370 is not a multiple of 16",
    ("h100_owlv2_large", "R10"): "Memcpy DtoH (Device -> Pageable)",
    ("mi210_gpu_only", "R01"): "it has GPU events alone",
    ("mi210_gpu_only", "R05"): "0.6 of 6.0 ms before launches that return after the kernel before",
    ("mi300_resnet_act_checkpoint", "R28"): "32.2 ms of RCCL without another kernel",
    ("mtia_inference", "R01"): "no marks of steps, and no regular operator",
    ("nccl_a100_rank0of2", "R33"): "aten::unflatten_dense_tensors without a GPU event at the time",
    ("nccl_a100_rank0of2", "R17"): "nchwToNhwcKernel and back: 15.1 ms",
    ("nccl_a100_rank0of2", "R05"): "the CPU runs operators for 435 ms",
    ("resnet50_v100_6steps", "R09"): "_SingleProcessDataLoaderIter",
    ("resnet50_v100_6steps", "R12"): "sgemm, scudnn, winograd: 393 ms in float32",
    ("resnet50_v100_6steps", "R04"): "a machine of four GPUs, one used",
    ("resnet50_v100_6steps", "R05"): "1,462 kernels a step, the median 2 us, a launch 9.7",
    ("resnet50_v100_6steps", "R10"): "Memcpy HtoD (Pageable -> Device)",
    ("resnet50_v100_num_workers_4", "R12"): "as with no workers",
    ("resnet50_v100_num_workers_4", "R05"): "1,478 kernels a step, the median 2 us, a launch 10.5",
    ("resnet50_v100_num_workers_4", "R06"): "zero_grad and accumulate_grad, tensor by tensor",
    ("resnet50_v100_num_workers_4", "R02"): "125 ms, and one of 207",
    ("resnet50_v100_num_workers_4", "R04"): "a machine of four GPUs, one used",
    ("resnet50_v100_num_workers_4", "R10"): "Memcpy HtoD (Pageable -> Device)",
    ("v100_216k_events", "R05"): "3,874 kernels a step, a launch as long as a kernel",
    ("v100_216k_events", "R28"): "357 ms of NCCL, none of it beside a kernel",
    ("v100_216k_events", "R12"): "volta_sgemm: 401 ms",
    ("v100_216k_events", "R31"): "6.6 of 34 GB, and R05",
    ("mi300_sglang_decode", "R03"): "463 ms in hipMemcpyWithStream before the replay",
    ("mi300_flux_compiled", "R36"): "bfloat16 products of 768 rows at 420 of 1,307 TFLOP/s",
    ("h100_2gpu_1s", "R11"): "30 GB from the host in one second, 23 ms of kernels",
    ("h100_2gpu_1s", "R01"): "a second cut out of a training",
    ("cifar_rtx2070_pyprof_markers", "R01"): "one forward pass",
    ("cifar_rtx2070_pyprof_markers", "R03"): "2.2 s of initialization",
    ("cifar_rtx2070_pyprof_markers", "R20"): "five algorithms in one convolution",
    ("net", "R01"): "one step of training",
    ("net", "R03"): "2.3 s of initialization",
    ("dlrm_v100_8ranks", "R05"): "263 kernels of 3 us, a launch takes 5.7",
    ("dlrm_v100_8ranks", "R28"): "all_to_all and all_reduce without a kernel beside",
    ("dlrm_v100_8ranks", "R09"): "_SingleProcessDataLoaderIter on each rank",
    ("dlrm_v100_8ranks", "R06"): "70 % of the kernels under 5 us",
    ("dlrm_v100_8ranks", "R26"): "reductions of one block on 80 multiprocessors",
    ("H100 attention", "R36"): "softmax, copies and float32 products of the MATH backend",
    ("H100 attention", "R16"): "to(float32) and back around the MATH backend",
    ("H100 attention", "R05"): "128 kernels a step, 2.8 of 11 ms until the next launch",
    ("H100 attention", "R31"): "1.2 of 79 GiB, and R05",
    ("H100 counters", "R05"): "one operator of each kind: 5.4 of 13.1 ms until the next launch",
    ("H100 counters", "R31"): "2.1 of 79 GiB, and R05",
    ("H100 counters", "R12"): "one sgemm of 4096 cubed, 2.65 ms",
    ("H100 counters", "R13"): "the same, TF32 is off",
    ("H100 generation", "R05"): "368 kernels of 2.6 us, 0.9 of 19.2 ms busy",
    ("H100 generation", "R31"): "48 MiB of 79 GiB, and R05",
    ("H100 graph_replay", "R03"): "0.19 of 3.4 ms busy",
    ("H100 graph_replay_cold", "R31"): "105 MiB of 79 GiB, and R05",
    ("H100 lenet", "R01"): "one step recorded",
    ("H100 lenet", "R03"): "0.2 of 4.1 ms busy",
    ("H100 lenet", "R05"): "54 kernels of 2 us",
    ("H100 lenet", "R31"): "68 MiB of 79 GiB, and R05",
    ("H100 operators", "R05"): "960 kernels, the median 3.3 us, a launch 5.8",
    ("H100 operators", "R06"): "63 % of the kernels under 5 us",
    ("H100 operators", "R26"): "LSTM, cholesky, sort: few blocks",
    ("H100 operators", "R31"): "400 MiB of 79 GiB, R05 and R26",
    ("H100 products", "R05"): "1.7 of 2.6 ms until the next launch",
    ("H100 products", "R31"): "213 MiB of 79 GiB, and R05",
    ("H100 products", "R12"): "one sgemm of 2048 cubed a step, 350 us",
    ("H100 products", "R13"): "the same, TF32 is off",
    ("H100 products", "R36"): "int8 of a row-major right side: 122 of 1,979 TOP/s",
    ("H100 resnet_channels_last", "R05"): "280 kernels of 5.3 us, a launch 7.3",
    ("H100 resnet_channels_last", "R26"): "reductions and weights of few blocks",
    ("H100 resnet_channels_last", "R31"): "365 MiB of 79 GiB, and R05",
    ("H100 transformer_bf16", "R05"): "532 kernels of 5 us, a launch 7.0",
    ("H100 transformer_bf16", "R16"): "bfloat16_copy and direct_copy: 720 us of autocast",
    ("H100 transformer_bf16", "R31"): "689 MiB of 79 GiB, and R05",
    ("H100 compiled_bf16", "R05"): "262 kernels of 4.2 us, a launch 8.8",
    ("H100 compiled_bf16", "R33"): "guards and wrappers of the region, 4.5 ms a step",
    **{
        (f"H100 loader_workers{how}", rule): why
        for how in ("", "_memory")
        for rule, why in (
            ("R05", "46 kernels of 7.3 us"),
            ("R26", "batches of 64, few blocks"),
            ("R21", "Adam with foreach: 7 kernels for 4 tensors"), ("R31", "91 MiB of 79 GiB, R05 and R26"),
        )
    },
    **{
        (f"H100 two_streams{how}", rule): why
        for how in ("", "_memory")
        for rule, why in (
            ("R07", "item and float of a result, five times"),
            ("R11", "16 MiB to and from the host in each step"), ("R12", "one sgemm of 2048 cubed a step"),
            ("R13", "the same, TF32 is off"),
            ("R03", "1.6 of 2.8 ms until the next launch, most of it in the first of two steps"),
        )
    },
    **{(library, "R28"): "one kernel after another, collectives among them" for library in LIBRARIES},
    **{(library, "R23"): "elementwise kernels of one size in a row" for library in ("Liger", "TransformerEngine")},
}  # fmt: skip


ABOUT = """
Generated by `python benchmarks/recordings.py FOLDER`: recordings that others have published, PyProf's own of an H100
(`tests/traces/gpu`), and one for each library whose kernels PyProf knows by their names. In the last, three steps long,
an operator of the library launches each of its kernels of `tests/costs/kernel_names.py` for 100 us. They say whether a
program of that library would be understood, not how fast it is.

Shares are of the kernels' time, in percent: of which the kind is known, the operator, FLOPs, bytes, and that of
communication. Tensor cores: how much of the time of products says whether they were used.

Findings are the rules that spoke. Whether each is true was judged by hand from the events of the recording; one that is
not has `(false)` behind it.
"""
STEP, GAP = 104_000, 5_000  # ns from kernel to kernel, and from a launch to its kernel


def generated(folder: Path) -> Iterator[tuple[str, Path]]:
    """A recording for each library."""
    for library, (pattern, operator) in LIBRARIES.items():
        names = [name for name, *_ in NAMES if re.search(pattern, name)]
        shapes = {"Input Dims": [[512, 1024], [1024, 1024]], "Input type": ["c10::BFloat16"] * 2}
        events = []
        for place, name in enumerate(names * 3):
            start = STEP * (place + 1)
            events.append(kineto.op(operator, start, start + GAP, **shapes))
            events.append(kineto.launch(start + 1_000, start + 4_000, place + 1))
            kernel = kineto.kernel(name, start + GAP, start + GAP + 100_000, place + 1)
            kernel["args"] |= {"grid": [1056, 1, 1], "block": [256, 1, 1]}
            events.append(kernel)
        for step in range(3):
            begin = STEP * (1 + step * len(names))
            events.append(kineto.annotation(f"ProfilerStep#{step}", begin, begin + STEP * len(names)))
        yield library, kineto.write(folder / (re.sub(r"\W+", "_", library) + ".json"), events)


def published(folder: Path, scratch: Path) -> Iterator[tuple[str, Path]]:
    """The recordings of a folder; one that has captures of graphs beside it is read as a folder."""
    for path in sorted((folder / "kineto").iterdir()):
        if path.name.endswith(".tar.gz"):
            with tarfile.open(path) as archive:
                archive.extractall(scratch / path.name, filter="data")
            yield path.name.removesuffix(".tar.gz"), scratch / path.name
        elif path.is_dir() or path.name.endswith(".json.gz"):
            yield path.name.split(".")[0], path
    for path in (*sorted((folder / "nsys").glob("*.sqlite")), *sorted((folder / "nvprof").rglob("*.sql"))):
        yield path.stem, path


def recorded(scratch: Path) -> Iterator[tuple[str, Path]]:
    """The recordings of tests/traces/gpu: PyProf's own, and torch's trace of a compiled program."""
    for path in sorted((ROOT / "tests/traces/gpu").glob("*.gz")):
        name = path.name.partition(".")[0]
        if path.name.endswith(".sqlite.gz") or name == "compiled_bf16":
            target = scratch / path.name.removesuffix(".gz")
            target.write_bytes(gzip.decompress(path.read_bytes()))
            yield f"H100 {name}", target


def row(name: str, profile: Profile) -> list[str]:
    """Cells of the first table, but for the findings."""
    kernels = profile.kernels
    kernels = kernels[kernels["kind"].astype(str) == "kernel"]
    total = float(kernels["duration_ns"].sum()) or 1.0
    told = {text: describe(text) for text in kernels["full_name"].astype(str).unique()}
    kinds = kernels["full_name"].astype(str).map({text: one.kind for text, one in told.items()})
    known = kernels["full_name"].astype(str).map({text: one.tensor_core is not None for text, one in told.items()})
    products = kinds.isin(PRODUCTS)
    ledger = profile.report("coverage")
    operator = ledger.loc[(ledger["line"] == "operator") & (ledger["part"] == "known"), "time"].sum()

    def part(rows: object) -> str:
        return f"{100 * float(kernels['duration_ns'][rows].sum()) / total:.1f}"

    of_products = float(kernels["duration_ns"][products].sum())
    cores = f"{100 * float(kernels['duration_ns'][products & known].sum()) / of_products:.1f}" if of_products else "-"
    return [
        name, f"{len(kernels)}", f"{total / 1e6:.1f}", part(kinds != "other"), cores, f"{100 * operator / total:.1f}",
        part(kernels["flops"].notna()), part(kernels["bytes"].notna()), part(kinds == "communication"),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="of published recordings")
    folder = parser.parse_args().folder
    print("# Recordings")
    print(ABOUT)
    print("| recording | kernels | ms | kind | tensor cores | operator | FLOPs | bytes | communication | findings |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    verdicts: dict[str, Counter[str]] = {}
    reasons = []
    with tempfile.TemporaryDirectory() as scratch:
        sources = [] if folder is None else list(published(folder, Path(scratch)))
        for name, path in [*sources, *recorded(Path(scratch)), *generated(Path(scratch))]:
            profile = pyprof.load(path)
            cells = row(name, profile)
            spoken = []
            for outcome in profile.outcomes:
                verdict = "needs" if outcome.needs else "silent"
                if outcome.finding is not None:
                    why = JUDGED.get((name, outcome.rule.id), "unjudged")
                    verdict = "unjudged" if why == "unjudged" else "false" if why.startswith("false") else "true"
                    spoken.append(outcome.rule.id + ("" if verdict == "true" else f" ({verdict})"))
                    reasons.append((name, outcome.rule.id, outcome.rule.name, why))
                verdicts.setdefault(outcome.rule.id, Counter())[verdict] += 1
            print(f"| {' | '.join(cells)} | {', '.join(sorted(spoken)) or '-'} |")
    print("\n## Rules on these recordings\n")
    print("| rule | true | false | unjudged | silent | needs facts |\n|---|---|---|---|---|---|")
    for rule, counts in sorted(verdicts.items()):
        told = [counts[verdict] for verdict in ("true", "false", "unjudged", "silent", "needs")]
        print(f"| {rule} | {' | '.join(map(str, told))} |")
    print("\n## Why a finding is true\n\n| recording | rule | name | judged by |\n|---|---|---|---|")
    for reason in sorted(reasons):
        print(f"| {' | '.join(reason)} |")


if __name__ == "__main__":
    main()
