# SPDX-License-Identifier: Apache-2.0
"""Kernel names: what they are, whether they use tensor cores, which gradient they compute."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tarfile
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.costs import kernel_table
from pyprof.costs.kernel_table import KINDS
from pyprof.costs.kernels import PRODUCTS, describe, kind, part, tensor_core
from tests.build import LONG
from tests.costs.kernel_names import NAMES as SERVING
from tests.costs.kernel_names_libraries import NAMES as LIBRARIES
from tests.costs.kernel_names_words import NAMES as BY_WORDS

YES, NO, UNKNOWN = True, False, None
AT = "void at::native::"
NAMES = [
    # cuBLAS, cuBLASLt: Volta, Turing, Ampere, Hopper, Blackwell.
    ("volta_sgemm_128x64_nn", "gemm", NO),
    ("volta_h884gemm_128x64_ldg8_nn", "gemm", YES),
    ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn", "gemm", YES),
    ("volta_dgemm_64x64_nn", "gemm", NO),
    ("volta_cgemm_32x32_tn", "gemm", NO),
    ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "gemm", YES),
    ("turing_h1688gemm_128x128_ldg8_tn", "gemm", YES),
    ("ampere_sgemm_32x128_nt", "gemm", NO),
    ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_nn", "gemm", YES),
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "gemm", YES),
    ("ampere_dgemm_64x64_nn", "gemm", UNKNOWN),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4", "gemm", NO),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3", "gemm", UNKNOWN),
    ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize96x64x32_stage4_warpsize2x2x1_tensor16x8x16", "gemm", YES),
    ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x16_stage6_warpsize2x2x1_tensor16x8x8", "gemm", YES),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute", "gemm", YES),
    ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", "gemm", YES),
    ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>", "gemm", YES),
    ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align2>", "gemm", YES),
    ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>", "gemm", NO),
    ("void gemmSN_NN_kernel<float, (int)128, (int)2>", "gemm", NO),
    ("void gemmk1_kernel<float, 256, 5, false, false>", "gemm", NO),
    ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>", "gemm", NO),
    ("void dot_kernel<float, 128, 0, cublasDotParams<>>", "gemm", NO),
    ("void splitKreduce_kernel<float, float, float>(cublasSplitKParams<T3>)", "reduction", NO),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float>", "reduction", NO),
    ("bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s6_et64x8_m64x8x32", "gemm", YES),
    ("sm80_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize64x128x16_stage3_warpsize2x4x1_tensor8x8x4", "gemm", YES),
    ("cutlass_80_tensorop_d884gemm_64x32_16x4_nn_align1", "gemm", YES),
    ("nvjet_sm100_tst_128x256_64x4_2x1_2cta_v_bz_TNT", "gemm", YES),
    ("cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_2x1x1_0_tnn_align8", "gemm", YES),
    ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<MainloopSm90TmaGmma>>", "gemm", YES),
    ("void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::kernel::GemmUniversal<"
     "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<5>>>>>", "gemm", YES),
    ("turing_int8_i8816gemm_int8_128x128_ldg16_nt", "gemm", YES),
    ("void gemvNSP_kernel<float, float, float, float, 1, 32, 4, 1024, cublasGemvParams<>>", "gemm", NO),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_tn_align1>", "gemm", NO),
    # cuDNN.
    ("dgrad_1x1_stride_2x2", "conv", YES),
    ("sm80_xmma_wgrad_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize128x64x8_stage3_ffma", "conv", NO),
    ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_warpgroupsize1x1x1", "conv", YES),
    ("_5x_cudnn_ampere_scudnn_128x64_relu_medium_nn_v1", "conv", NO),
    ("volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc_tn_v1", "conv", YES),
    ("volta_scudnn_128x64_relu_interior_nn_v1", "conv", NO),
    ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "conv", NO),
    ("void cudnn::detail::implicit_convolve_sgemm<float, float, (int)1024>", "conv", NO),
    ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>", "conv", NO),
    ("void fft2d_r2c_32x32<float, (bool)0, (unsigned int)0, (bool)0>", "conv", NO),
    ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32_g1_tensor16x8x8", "conv", YES),
    ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc>", "conv", YES),
    ("void nchwToNhwcKernel<float, float, float, true, false, (cudnnKernelDataType_t)0>", "layout", NO),
    ("cudnn::gemm::computeOffsetsKernel(cudnn::gemm::ComputeOffsetsParams)", "other", NO),
    # Attention.
    ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>", "attention", YES),
    ("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64>>", "attention", YES),
    ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "attention", YES),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "attention", UNKNOWN),
    ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<>>>", "attention", YES),
    ("void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<>, cutlass::half_t>>", "reduction", NO),
    ("void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64>>", "reduction", NO),
    ("void pytorch_flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<64>>", "copy", NO),
    ("void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64>>", "attention", YES),
    ("void pytorch_flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<64>>", "reduction", NO),
    ("fmha_v2_flash_attention_bf16_64_128_S_qkv_128_causal_sm90_kernel", "attention", YES),
    ("fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausal", "attention", YES),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6_128x128x128", "attention", YES),
    ("fmha_cutlassB_f16_aligned_64x64_k64_dropout_sm80(PyTorchMemEffAttention)", "attention", YES),
    ("_ZN7ck_tile6kentryILi2ENS_13FmhaFwdKernelINS_24BlockFmhaPipelineQRKSVSINS", "attention", YES),
    ("attn_fwd", "attention", YES),
    ("sage_fwd", "attention", YES),
    ("Im2d2Col_v2", "layout", NO),
    ("bwd_kernel_dk_dv", "attention", UNKNOWN),
    ("void vllm::paged_attention_v1_kernel<unsigned short, unsigned short, 128, 16, 128>", "attention", NO),
    # PyTorch.
    (f"{AT}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "pointwise", NO),
    (f"{AT}unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>", "copy", NO),
    (f"{AT}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float>>>", "reduction", NO),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>", "softmax", NO),
    (f"{AT}(anonymous namespace)::cunn_SoftMaxBackward<2, float, float, float>", "softmax", NO),
    (f"{AT}(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>", "norm", NO),
    (f"{AT}batch_norm_collect_statistics_kernel<at::native::Var, float, float, float, int>", "norm", NO),
    (f"{AT}(anonymous namespace)::embedding_backward_feature_kernel<float, float>", "embedding", NO),
    ("void indexSelectLargeIndex<float, unsigned int, 2, 2, -2, true>", "embedding", NO),
    (f"{AT}(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>", "copy", NO),
    (f"{AT}(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimizer", NO),
    (f"{AT}(anonymous namespace)::fused_dropout_kernel<float, float, unsigned int, 1>", "rng", NO),
    (f"{AT}(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>", "rng", NO),
    (f"{AT}(anonymous namespace)::max_pool_forward_nchw<float, float>", "pooling", NO),
    ("void cunn_ClassNLLCriterion_updateOutput_kernel<float, float>", "loss", NO),
    ("void kernelPointwiseApply3<TensorEQOp<float, unsigned char>>", "pointwise", NO),
    ("void kernelReduceAllPass1<unsigned char, unsigned int, long>", "reduction", NO),
    ("void at::native::radixSortKVInPlace<2, -1, 32, 4, float>", "sort", NO),
    # Triton, communication, ROCm, memory.
    ("triton_poi_fused_add_relu_0", "pointwise", NO),
    ("triton_red_fused_sum_1", "reduction", NO),
    ("triton_per_fused_native_layer_norm_2", "norm", NO),
    ("triton_tem_fused_mm_3", "gemm", UNKNOWN),
    ("triton_tem_fused_flex_attention_1", "attention", UNKNOWN),
    ("triton_tem_fused_convolution_4", "conv", UNKNOWN),
    ("triton_per_fused__softmax_2", "softmax", NO),
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "communication", NO),
    ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "communication", NO),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>", "communication", NO),
    ("Cijk_Ailk_Bljk_SB_MT64x64x8_SE_APM1_AF0EM1_AF1EM1", "gemm", NO),
    ("Cijk_Alik_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0", "gemm", YES),
    ("naive_conv_nonpacked_fwd_nchw_float_double_float", "conv", NO),
    ("MIOpenBatchNormFwdTrainSpatial", "norm", NO),
    ("void split_embedding_backward_codegen_adagrad_unweighted_kernel_cta_per_row_1<float, float>", "embedding", NO),
    ("void at::native::elementwise_kernel<512, 1, at::native::fill_kernel_cuda(at::TensorIterator&)>", "memory", NO),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::masked_fill_kernel(at::TensorIterator&)>",
     "pointwise", NO),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", NO),
    ("Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0", "gemm", YES),
    ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32", "conv", YES),
    ("Memcpy HtoD (Pageable -> Device)", "memory", NO),
    ("my_kernel(float*)", "other", UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "what", "tensor"), [*NAMES, *SERVING, *LIBRARIES, *BY_WORDS], ids=lambda value: str(value)[:40]
)
def test_a_name_tells_kind_and_tensor_cores(name: str, what: str, tensor: bool | None) -> None:
    assert (kind(name), tensor_core(name)) == (what, tensor)


@pytest.mark.parametrize(
    ("name", "gradient"),
    [
        ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>", "dgrad"),
        ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>", "wgrad"),
        ("void cutlass_cudnn::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_128x128_16x4_nhwc>", "dgrad"),
        ("void cudnn::winograd_nonfused::winogradWgradData4x4<float, float>", "wgrad"),
        ("igemm_bwd_gtcx3_nhwc_bf16_bx0", "dgrad"),
        ("igemm_wrw_gtcx3_nhwc_bf16_bx0", "wgrad"),
        ("void calc_bias_diff<2, float, float, 128, 0>", "bgrad"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32", None),
        ("volta_sgemm_128x64_nn", None),
    ],
)
def test_a_name_tells_which_gradient(name: str, gradient: str | None) -> None:
    assert part(name) == gradient


@pytest.mark.parametrize(
    "piece", ["transpose_2", "bmm_", "xmma_", "mma_", "sdpa_", "wgrad_2_", "attn_", "::", "9", "_", "x"]
)
def test_a_name_without_end_is_a_name(piece: str) -> None:
    """Repetitions in the patterns are bounded: else this would not end."""
    assert kind(piece * 20_000)
    assert kind("_ZN" + piece * 20_000)


@given(st.text())
def test_any_text_is_a_name(name: str) -> None:
    kinds = {row.value for row in KINDS} | {"other"}
    assert kind(name) in kinds
    assert tensor_core(name) in (True, False, None)
    assert tensor_core(name) is not True or kind(name) in PRODUCTS


# What was it written for, and in which type does it multiply?
WRITTEN_FOR = [
    ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn", "Volta", "float16"),
    ("volta_sgemm_128x64_nn", "Volta", "float32"),
    ("volta_gcgemm_32x32_nt", "Volta", "complex64"),
    ("turing_h1688gemm_128x128_ldg8_tn", "Turing", "float16"),
    ("turing_int8_i8816gemm_int8_128x128_ldg16_nt", "Turing", "int8"),
    ("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>", "Turing", "bfloat16"),
    ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_nn", "Ampere", "float16"),
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "Ampere", "bfloat16"),
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>", "Ampere", "tf32"),
    ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x16_stage6_warpsize2x2x1_tensor16x8x8", "Ampere", "tf32"),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_ffma", "Ampere", "float32"),
    ("sm80_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize64x128x16_tensor8x8x4", "Ampere", "float64"),
    ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, cutlass::bfloat16_t>>", "Ampere", "bfloat16"),
    ("cutlass_89_tensorop_e4m3_s16832gemm_bf16_128x128_tn", "Ada", "float8"),
    ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", "Hopper", "float16"),
    ("nvjet_tst_128x64_64x8_1x2_h_bz_NNT", "Hopper", "bfloat16"),
    ("nvjet_qqtst_128x128_128x6_1x2_h_bz_coopA_TNT", "Hopper", "float8"),
    ("nvjet_sm100_tst_128x256_64x4_2x1_2cta_v_bz_TNT", "Blackwell", "bfloat16"),
    ("bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s6_et64x8_m64x8x32_sm100a", "Blackwell", "float8"),
    ("bmm_Bfloat16_E2m1E2m1_Fp32_t128x8x512u2_s5_et64x8_m64x8x64_sm100a", "Blackwell", "float4"),
    ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1", "Hopper", "float8"),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_ISA942_IU1", "CDNA3", "bfloat16"),
    ("igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt64x64x64", "CDNA2", "bfloat16"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "architecture", "math"), WRITTEN_FOR, ids=lambda value: str(value)[:40])
def test_a_name_tells_what_it_was_written_for(name: str, architecture: str | None, math: str | None) -> None:
    assert (describe(name).architecture, describe(name).math) == (architecture, math)


@pytest.mark.parametrize(
    "table", ["FUNCTIONS", "KINDS", "WORDS", "TERMS", "TENSOR_CORES", "PARTS", "ARCHITECTURES", "MATHS"]
)
def test_every_row_says_where_it_comes_from_and_is_alone(table: str) -> None:
    rows = getattr(kernel_table, table)
    assert all(row.architecture and len(row.source) > 5 for row in rows)
    assert len({row.regex for row in rows}) == len(rows)
    assert all(row.regex == row.regex.lower() for row in rows), "names are searched in lower case"


Times = dict[str, float]


def _events(text: bytes) -> tuple[Times, dict[str, dict[str, Times]]]:
    """Time per kernel of a recording of torch.profiler, and per launching operator and kernel."""
    content = json.loads(text, strict=False)
    events = content["traceEvents"] if isinstance(content, dict) else content
    times: Times = Counter()
    launched: dict[str, dict[str, Times]] = defaultdict(Counter)
    operators = {}
    for event in events:
        if event.get("ph") == "X" and str(event.get("cat")).lower() in ("operator", "cpu_op"):
            operators[_external(event)] = event["name"]
    for event in events:
        if event.get("ph") == "X" and str(event.get("cat")).lower() == "kernel":
            times[event["name"]] += event["dur"]
            if _external(event) in operators:
                launched[operators[_external(event)]][event["name"]] += event["dur"]
    return times, launched


def _external(event: dict[str, Any]) -> Any:
    args = event.get("args") or {}
    return args.get("External id", args.get("external id", "none"))


def _database(path: Path, table: str, strings: str, key: str, name: str) -> Times:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db, db:
        query = f"select value, sum(end - start) from {table} k join {strings} s on s.{key} = k.{name} group by 1"
        return dict(db.execute(query).fetchall())


@pytest.fixture(scope="module")
def recorded(data: Path) -> dict[str, tuple[Times, dict[str, Times]]]:
    """Per recording the time of each kernel name, and of each by the operator that launched it."""
    out: dict[str, Any] = {}
    # Those of more than a megabyte, which take seconds, with PYPROF_LONG=1.
    traces = (data / "kineto").rglob("*.json.gz")
    for path in sorted(path for path in traces if LONG or path.stat().st_size < 1_000_000):
        out[path.name[:40]] = _events(gzip.decompress(path.read_bytes()))
    for path in sorted((data / "kineto").glob("*.tar.gz")):
        with tarfile.open(path) as archive:
            for member in archive.getmembers():
                if stream := archive.extractfile(member):
                    out[Path(member.name).name[:40]] = _events(stream.read())
    for path in sorted((data / "nsys").glob("*.sqlite")):
        table = "CUPTI_ACTIVITY_KIND_KERNEL"
        out[path.name] = _database(path, table, "StringIds", "id", "demangledName"), {}
    path = data / "nvprof" / "transformer_lm" / "net.sql"
    out["transformer_lm"] = (
        _database(path, "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "StringTable", "_id_", "name"),
        {},
    )
    return {name: found for name, found in out.items() if found[0]}


@pytest.mark.counts
def test_hardly_any_recorded_time_is_of_an_unknown_kind(recorded):
    """The shares per file are printed with -s."""
    for file, (times, _) in recorded.items():
        total = sum(times.values())
        shares = Counter()
        for name, ns in times.items():
            shares[kind(name)] += 100 * ns / total
        print(file, len(times), {what: round(share, 1) for what, share in shares.most_common()})
        assert shares["other"] < 3, file
    assert len({name for times, _ in recorded.values() for name in times}) > (400 if LONG else 200)


def test_what_could_use_tensor_cores_mostly_says_whether_it_does(recorded):
    for file, (times, _) in recorded.items():
        products = {name: ns for name, ns in times.items() if kind(name) in PRODUCTS}
        silent = sum(ns for name, ns in products.items() if tensor_core(name) is None)
        assert silent <= 0.05 * sum(products.values()), file


# The kernel that takes most of an operator's time, for operators of which torch's documentation tells what they are.
BY_OPERATOR = {
    "aten::mm": {"gemm"}, "aten::addmm": {"gemm"}, "aten::bmm": {"gemm"},
    "aten::cudnn_convolution": {"conv", "gemm"}, "aten::convolution_backward": {"conv", "gemm"},
    "aten::cudnn_convolution_backward_input": {"conv", "gemm"},
    "aten::cudnn_convolution_backward_weight": {"conv", "gemm"},
    "aten::_flash_attention_forward": {"attention"}, "vllm::unified_attention_with_output": {"attention"},
    "aten::native_layer_norm": {"norm"}, "aten::cudnn_batch_norm": {"norm"},
    "aten::cudnn_batch_norm_backward": {"norm"},
    "aten::miopen_batch_norm": {"norm"}, "aten::miopen_batch_norm_backward": {"norm"},
    "aten::_softmax": {"softmax"}, "aten::_log_softmax": {"softmax"}, "aten::_log_softmax_backward_data": {"softmax"},
    "aten::add": {"pointwise"}, "aten::add_": {"pointwise"}, "aten::mul": {"pointwise"}, "aten::gelu": {"pointwise"},
    "aten::div": {"pointwise"}, "aten::sigmoid": {"pointwise"}, "aten::clamp_min": {"pointwise"},
    "aten::clamp_min_": {"pointwise"}, "aten::threshold_backward": {"pointwise"}, "aten::exp": {"pointwise"},
    "aten::where": {"pointwise"}, "aten::masked_fill_": {"pointwise"}, "aten::eq": {"pointwise"},
    "aten::sum": {"reduction"}, "aten::mean": {"reduction"}, "aten::all": {"reduction"}, "aten::argmax": {"reduction"},
    "aten::linalg_vector_norm": {"reduction"}, "aten::copy_": {"copy"}, "aten::cat": {"copy"}, "aten::index": {"copy"},
    "aten::fill_": {"memory"}, "aten::index_select": {"embedding"}, "aten::nll_loss_forward": {"loss"},
    "aten::nll_loss_backward": {"loss"}, "aten::max_pool2d_with_indices": {"pooling"},
    "aten::max_pool2d_with_indices_backward": {"pooling"}, "record_param_comms": {"communication"},
    "aten::_foreach_add_": {"optimizer"}, "aten::_foreach_mul_": {"optimizer"},
}  # fmt: skip
# Kernels that run before and after the one that does the work.
HELPERS = {"layout", "reduction", "copy", "pointwise", "memory", "other"}


@pytest.mark.counts
def test_the_kinds_do_not_contradict_the_operators_that_launched_the_kernels(recorded):
    checked = set()
    for file, (_, launched) in recorded.items():
        for operator, times in launched.items():
            if operator not in BY_OPERATOR:
                continue
            checked.add(operator)
            found = Counter()
            for name, ns in times.items():
                found[kind(name)] += ns
            assert found.most_common(1)[0][0] in BY_OPERATOR[operator], (file, operator, times)
            products = BY_OPERATOR[operator] & PRODUCTS
            assert set(found) <= BY_OPERATOR[operator] | (HELPERS if products else set()), (
                file,
                operator,
                times,
            )
    assert len(checked) >= (30 if LONG else 20)


@pytest.mark.parametrize("file", ["cifar_rtx2070_pyprof_markers.sqlite", "h100_2gpu_1s.sqlite"])
def test_recorded_names_have_a_kind(data: Path, file: str) -> None:
    """Two recordings that ran in fp32 on plain lanes: every name known, no tensor core."""
    with closing(sqlite3.connect(f"file:{data / 'nsys' / file}?mode=ro", uri=True)) as db, db:
        query = (
            "select distinct value from StringIds where id in (select demangledName from CUPTI_ACTIVITY_KIND_KERNEL)"
        )
        names = [row[0] for row in db.execute(query)]
    helpers = ("computeOffsetsKernel", "compute_gemm_pointers", "generateWinogradTiles")
    assert names
    assert not [name for name in names if kind(name) == "other" and not any(h in name for h in helpers)]
    assert not [name for name in names if tensor_core(name) is not False]
