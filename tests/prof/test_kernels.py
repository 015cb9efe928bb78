# SPDX-License-Identifier: Apache-2.0
"""Kernel names: what they are, whether they use tensor cores, which gradient they compute."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.prof.kernels import KINDS, PRODUCTS, kind, part, tensor_core

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
    # cuDNN.
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
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", NO),
    ("Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0", "gemm", YES),
    ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32", "conv", YES),
    ("Memcpy HtoD (Pageable -> Device)", "memory", NO),
    ("my_kernel(float*)", "other", UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize(("name", "what", "tensor"), NAMES, ids=lambda value: str(value)[:40])
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


@given(st.text())
def test_any_text_is_a_name(name: str) -> None:
    kinds = {value for _, value in KINDS} | {"other"}
    assert kind(name) in kinds
    assert tensor_core(name) in (True, False, None)
    assert tensor_core(name) is not True or kind(name) in PRODUCTS


@pytest.mark.parametrize("file", ["cifar_rtx2070_pyprof_markers.sqlite", "h100_2gpu_1s.sqlite"])
def test_recorded_names_have_a_kind(data: Path, file: str) -> None:
    """Two recordings that ran in fp32 on plain lanes: every name known, no tensor core."""
    with sqlite3.connect(f"file:{data / 'nsys' / file}?mode=ro", uri=True) as db:
        query = (
            "select distinct value from StringIds "
            "where id in (select demangledName from CUPTI_ACTIVITY_KIND_KERNEL)"
        )
        names = [row[0] for row in db.execute(query)]
    helpers = ("computeOffsetsKernel", "compute_gemm_pointers", "generateWinogradTiles")
    assert names
    assert not [name for name in names if kind(name) == "other" and not any(h in name for h in helpers)]
    assert not [name for name in names if tensor_core(name) is not False]
