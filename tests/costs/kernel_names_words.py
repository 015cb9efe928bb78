# SPDX-License-Identifier: Apache-2.0
"""Names whose kind follows from the words of their function, most of them of kernels for one task: what ONNX Runtime,
TransformerEngine, vLLM, FBGEMM, DALI, lmdeploy, NVSHMEM and PyTorch have compiled in, and functions of Triton and CUDA
of libraries that compile when they run. Above each group is the library; behind a function its file."""

from __future__ import annotations

YES, NO, UNKNOWN = True, False, None
# fmt: off
# ruff: noqa: E501  (one name per line)
NAMES = [
    # onnxruntime-gpu 1.31.1, onnxruntime/{core/providers,contrib_ops}/cuda.
    ("void onnxruntime::contrib::cuda::(anonymous namespace)::MatMulBlockQuantizedFp4WeightMmaGemvKernel<__nv_bfloat16, 16, 1, 1>(P)", "gemm", YES),
    ("void onnxruntime::contrib::cuda::Dequantize4BitsKernelReOrder<__nv_bfloat16>(P)", "pointwise", NO),
    ("void onnxruntime::contrib::attention_softmax_cuda::SoftmaxLargeKernel<__half, 256u, false>(P)", "softmax", NO),
    ("void onnxruntime::cuda::ReverseSequenceImplKernel<signed char, false>(P)", "copy", NO),
    ("void onnxruntime::cuda::(anonymous namespace)::DeformConvAddBiasKernel<__half, int>(P)", "pointwise", NO),
    ("void onnxruntime::contrib::cuda::gated_delta_net::(anonymous namespace)::GatedDeltaNetScanKernel<__half, 128, 128, 64, 32>(P)", "reduction", NO),
    ("void onnxruntime::contrib::cuda::(anonymous namespace)::PostMixKernel<__nv_bfloat16>(P)", "pointwise", NO),
    ("void onnxruntime::cuda::tinygemm2::TinyGemm2Kernel<__nv_bfloat16>(P)", "gemm", YES),
    ("void onnxruntime::contrib::cuda::(anonymous namespace)::AddBiasKernel<__nv_bfloat16>(P)", "pointwise", NO),
    ("void onnxruntime::cuda::_UpsampleBilinear4DInputKernel<__half>(P)", "pointwise", NO),
    ("void onnxruntime::contrib::cuda::SkipLayerNormKernel<__nv_bfloat16, 256u, false>(P)", "norm", NO),
    ("void onnxruntime::contrib::cuda::FloatConvertAndCopyKernel<__half>(P)", "copy", NO),
    ("void onnxruntime::contrib::cuda::(anonymous namespace)::VarlenCausalConvKernel<__nv_bfloat16>(P)", "conv", NO),
    ("void onnxruntime::contrib::attention_softmax_cuda::SoftmaxKernelWithCumSeqLen<__half, 1024u, false>(P)", "softmax", NO),
    ("void onnxruntime::contrib::cuda::(anonymous namespace)::CsaCopyPastCompressedKernel<__nv_bfloat16>(P)", "copy", NO),
    ("void onnxruntime::cuda::_ResizeTrilinearKernel<__half>(P)", "pointwise", NO),
    ("void onnxruntime::contrib::cuda::DequantizeKVPairKernel<__nv_bfloat16, __nv_fp8_e4m3, float, 8, 128>(P)", "pointwise", NO),
    ("void onnxruntime::contrib::cuda::GroupNormNHWCSumKernel<__half, 128, 2>(P)", "norm", NO),
    ("void onnxruntime::contrib::cuda::MatMulFloat8bKernelM1<__nv_bfloat16, 128, false>(P)", "gemm", NO),
    ("void onnxruntime::cuda::_ShrinkKernel<__half>(P)", "pointwise", NO),
    ("void onnxruntime::contrib::cuda::BiasAddKernel<__half, 1280, 320>(P)", "pointwise", NO),
    ("void onnxruntime::contrib::attention_softmax_cuda::SoftmaxKernel<__half, 1024u, false>(P)", "softmax", NO),
    ("void onnxruntime::cuda::_CumSumKernel<__half>(P)", "reduction", NO),
    ("void onnxruntime::contrib::cuda::UnfoldTensorKernel<float4>(P)", "copy", NO),
    ("void onnxruntime::cuda::QuantizeLinearKernelAxisStd<256, 4, signed char, __half>(P)", "pointwise", NO),
    ("void onnxruntime::contrib::cuda::(anonymous namespace)::VarlenCausalConvDecodeKernel<__nv_bfloat16>(P)", "conv", NO),
    ("void onnxruntime::cuda::_ResizeNearestMappingKernel3D<__half, onnxruntime::cuda::TransformCoordinate_ASYMMETRIC, onnxruntime::cuda::NearestPixel_CEIL>(P)", "pointwise", NO),
    ("void onnxruntime::contrib::cuda::SoftmaxTopKWarpMergeKernel<__nv_bfloat16, 64>(P)", "sort", NO),
    ("void onnxruntime::contrib::cuda::(anonymous namespace)::CausalConvDecodeKernelFixedK<__nv_bfloat16, 2>(P)", "conv", NO),
    ("void onnxruntime::contrib::cuda::QOrderQuantizeHalfStrictKernel<4u>(P)", "pointwise", NO),
    ("void onnxruntime::cuda::_PadNCHWInputWithPaddingAlongHAndWKernel<__half, 0>(P)", "copy", NO),
    ("void onnxruntime::contrib::cuda::gated_delta_net::(anonymous namespace)::GatedDeltaNetChunkedKernel<__half, 128, 128, 32>(P)", "reduction", NO),
    ("void onnxruntime::contrib::cuda::MatMulNBitsBiasAddKernel<__nv_bfloat16>(P)", "pointwise", NO),
    ("void onnxruntime::cuda::QuantizeLinearKernelAxisStdInt4<256, 4, signed char, __half>(P)", "pointwise", NO),
    ("void onnxruntime::contrib::cuda::MatMulFloatInt4RouterKernel<__nv_bfloat16, 32>(P)", "gemm", NO),
    ("void onnxruntime::contrib::cuda::GroupNormNHWCScaleKernel<__half, 2>(P)", "norm", NO),
    ("void onnxruntime::cuda::detail::arg_min_max_last_axis_kernel<__half, false>(P)", "reduction", NO),
    ("void onnxruntime::cuda::_UpsampleBilinear2DInputKernel<__half>(P)", "pointwise", NO),
    ("void onnxruntime::cuda::DequantizeLinearKernelAxisStd<signed char, __half, 256, 4>(P)", "pointwise", NO),
    ("void onnxruntime::cuda::TransposeKernel<signed char>(P)", "copy", NO),
    ("void onnxruntime::cuda::_DiagonalKernel<__half>(P)", "copy", NO),
    ("void onnxruntime::contrib::cuda::SoftmaxTopKWarpTopKKernel<__nv_bfloat16, 4, 4>(P)", "sort", NO),
    ("void onnxruntime::cuda::NonZeroOutputPositionsKernel<__half, 256>(P)", "copy", NO),
    ("void onnxruntime::cuda::_EyeLikeKernel<double>(P)", "memory", NO),
    ("void onnxruntime::contrib::cuda::DequantizeLinearKernel<__half, 256, 4>(P)", "pointwise", NO),
    ("void onnxruntime::cuda::ZeroOutputForFullyMaskedBatchesKernel<__nv_bfloat16>(P)", "memory", NO),
    ("void onnxruntime::cuda::cast_helper_impl::CudaCastPairwiseKernel<256, 4, false, float2, onnxruntime::Float4E2M1x2, float, onnxruntime::Float4E2M1x2>(P)", "pointwise", NO),
    ("void onnxruntime::cuda::_ConcatKernelInputMajor<signed char>(P)", "copy", NO),
    ("void onnxruntime::cuda::_SliceKernel<false, 1, signed char>(P)", "copy", NO),
    ("void onnxruntime::cuda::_ReverseBySequenceKernel<__half>(P)", "copy", NO),
    ("void onnxruntime::cuda::_ResizeNearestKernel2D<__half, false>(P)", "pointwise", NO),
    ("void onnxruntime::contrib::cuda::VectorizedBiasGeluKernel<__half>(P)", "pointwise", NO),
    ("void onnxruntime::cuda::_InstanceNormKernel<__half, float>(P)", "norm", NO),
    ("void onnxruntime::contrib::cuda::(anonymous namespace)::CausalConvDecodeKernel<__nv_bfloat16>(P)", "conv", NO),
    ("void onnxruntime::contrib::cuda::QOrderMaskedSoftmaxKernel<128>(P)", "softmax", NO),
    ("void onnxruntime::cuda::_ScatterNDKernelReduction<__half, onnxruntime::cuda::FuncAdd<__half> >(P)", "copy", NO),
    ("void onnxruntime::cuda::ReduceColSumOnMatrixBKernel<256>(P)", "reduction", NO),
    ("void onnxruntime::contrib::cuda::MatMulFloatInt4KernelSmallM<__nv_bfloat16, 128, false, 2>(P)", "gemm", NO),
    ("void onnxruntime::contrib::cuda::UpdateGptInputsKernel<int>(P)", "copy", NO),
    ("void onnxruntime::contrib::cuda::(anonymous namespace)::DequantizeNvFp4Vec8Kernel<__nv_bfloat16>(P)", "pointwise", NO),
    ("void onnxruntime::contrib::cuda::(anonymous namespace)::CausalConvPrefillKernel<__nv_bfloat16>(P)", "conv", NO),
    # TransformerEngine 2.20.2, transformer_engine/common.
    ("void transformer_engine::(anonymous namespace)::GroupHadamardAmaxTmaKernel<__nv_bfloat16, 16, 64, 256, 64, 64, 128, 1, false, false, false>(P)", "reduction", NO),
    ("void transformer_engine::multi_tensor_transpose_to_bhsd::transpose_to_bhsd_fallback_not_vec_aligned_kernel<__nv_bfloat16, false>(P)", "copy", NO),
    ("void transformer_engine::(anonymous namespace)::grouped_unswizzle_scaling_uniform_shape_kernel<int2, 128, 4>(P)", "layout", NO),
    ("void transformer_engine::(anonymous namespace)::multi_tensor_swizzle_row_scaling_narrow_k_kernel<128, 4>(P)", "layout", NO),
    ("void transformer_engine::(anonymous namespace)::scaled_gated_forward_kernel<16, __nv_bfloat16, __half, __nv_bfloat16, transformer_engine::SiTUGLUParam, &(float transforme", "pointwise", NO),
    ("void transformer_engine::(anonymous namespace)::dropout_kernel_fwd_fp8<__nv_fp8_e4m3, __nv_bfloat16>(P)", "rng", NO),
    ("void transformer_engine::fused_qkv_rope_forward_kernel<__nv_bfloat16>(P)", "pointwise", NO),
    ("void transformer_engine::fp8_block_scaling_recipe::fp8_block_scaling_compute_partial_amax_kernel<__nv_bfloat16>(P)", "reduction", NO),
    ("void transformer_engine::(anonymous namespace)::block_scaled_cast_transpose_kernel_notaligned<false, float, __nv_bfloat16, __nv_fp8_e4m3>(P)", "copy", NO),
    ("void transformer_engine::fused_router::fused_moe_aux_loss_backward_kernel<__nv_bfloat16, __nv_bfloat16>(P)", "loss", NO),
    ("void transformer_engine::transpose_dbias_kernel<8, 8, transformer_engine::(anonymous namespace)::TDBiasParam<__nv_fp8_e4m3, __nv_fp8_e4m3, float> >(P)", "copy", NO),
    ("void transformer_engine::nvfp4_recipe::nvfp4_2d_compute_partial_amax_kernel<__nv_bfloat16>(P)", "reduction", NO),
    ("void transformer_engine::kv_cache::convert_bshd_to_thd_kernel<__nv_bfloat16>(P)", "copy", NO),
    ("void transformer_engine::fused_router::fused_score_for_moe_aux_loss_forward_simple_kernel<__nv_bfloat16, (NVTERoutingMapFormat)0, (transformer_engine::fused_router::TopkF", "loss", NO),
    ("void transformer_engine::nvfp4_recipe::nvfp4_2d_partial_cast_kernel<__nv_bfloat16, false>(P)", "pointwise", NO),
    ("void transformer_engine::detail::dgated_act_cast_transpose_kernel<1, 1, float, float, float, transformer_engine::Empty, &(float transformer_engine::dgelu<float, float>(P)", "pointwise", NO),
    ("void transformer_engine::(anonymous namespace)::unswizzle_scaling_kernel<int2, 128, 4>(P)", "layout", NO),
    ("void transformer_engine::(anonymous namespace)::swizzle_row_scaling_narrow_k_kernel<128, 4>(P)", "layout", NO),
    ("void nccl_ep::ht::pack_topk_and_count_row_kernel<int>(P)", "communication", NO),
    ("void transformer_engine::flash_attention::prepare_kernel_bwd<__nv_bfloat16>(P)", "copy", NO),
    ("void nccl_ep::ht::compute_layout_info_kernel<int>(P)", "communication", NO),
    ("void transformer_engine::(anonymous namespace)::multi_tensor_unswizzle_col_scaling_kernel<int2, 128, 4>(P)", "layout", NO),
    ("void transformer_engine::grouped_swizzle_scaling_variable_shape_kernel<128, 4>(P)", "layout", NO),
    ("void transformer_engine::(anonymous namespace)::memset_kernel<float2>(P)", "memory", NO),
    ("void transformer_engine::detail::(anonymous namespace)::transpose_general_kernel<4ul, 4ul, __nv_bfloat16>(P)", "copy", NO),
    ("void transformer_engine::transpose_dbias_kernel_notaligned<8, 8, transformer_engine::(anonymous namespace)::TDBiasParam<__nv_fp8_e4m3, __nv_fp8_e4m3, float> >(P)", "copy", NO),
    ("void transformer_engine::(anonymous namespace)::scaled_gated_backward_kernel<16, false, __nv_bfloat16, __half, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, transformer_en", "pointwise", NO),
    ("void transformer_engine::unary_grad_kernel<16, false, float, transformer_engine::Empty, &(float transformer_engine::gelu<float, float>(P)", "pointwise", NO),
    ("void transformer_engine::(anonymous namespace)::grouped_swizzle_row_scaling_uniform_shape_kernel<int2, 128, 4>(P)", "layout", NO),
    ("void transformer_engine::(anonymous namespace)::swizzle_row_scaling_kernel<int2, 128, 4>(P)", "layout", NO),
    ("void transformer_engine::fused_router::fused_topk_with_score_function_backward_kernel<__nv_bfloat16, (NVTERoutingMapFormat)0, 0>(P)", "sort", NO),
    ("void transformer_engine::kv_cache::reindex_kv_cache_kernel<__nv_bfloat16>(P)", "copy", NO),
    ("void transformer_engine::mxfp8_scaling_recipe::mxfp8_scaling_compute_partial_amax_kernel<__nv_bfloat16>(P)", "reduction", NO),
    ("void transformer_engine::(anonymous namespace)::swizzle_col_scaling_narrow_m_kernel<128, 4>(P)", "layout", NO),
    ("void transformer_engine::(anonymous namespace)::multi_tensor_swizzle_col_scaling_narrow_m_kernel<128, 4>(P)", "layout", NO),
    ("void nccl_ep::ht::convert_topk_to_routing_map_kernel<int>(P)", "communication", NO),
    ("void transformer_engine::(anonymous namespace)::scaled_unary_forward_kernel<16, __nv_bfloat16, __half, __nv_bfloat16, transformer_engine::Empty, &(float transformer_engin", "pointwise", NO),
    ("void transformer_engine::fused_rope_thd_linear_grid_forward_kernel<__nv_bfloat16>(P)", "pointwise", NO),
    ("void transformer_engine::(anonymous namespace)::grouped_swizzle_col_scaling_uniform_shape_kernel<int2, 128, 4>(P)", "layout", NO),
    ("void nv::topk::radix_kernel<__nv_bfloat16, int, 11, 256, false, false>(P)", "sort", NO),
    ("void transformer_engine::requantize::(anonymous namespace)::fused_group_requantize_kernel<__nv_fp8_e4m3, __nv_fp8_e4m3, false, false>(P)", "pointwise", NO),
    ("void transformer_engine::(anonymous namespace)::swap_first_dims_untuned_kernel<unsigned char>(P)", "copy", NO),
    ("void nv::topk::last_filter_kernel<__nv_bfloat16, int, 11, false>(P)", "sort", NO),
    ("void transformer_engine::multi_tensor_transpose_to_bhsd::transpose_to_bhsd_fallback_vec_aligned_kernel<__nv_bfloat16, false>(P)", "copy", NO),
    ("void transformer_engine::(anonymous namespace)::GraphSafeGroupHadamardAmaxTmaKernel<__nv_bfloat16, 16, 64, 256, 64, 64, 128, 1, false, false, false>(P)", "reduction", NO),
    ("void transformer_engine::(anonymous namespace)::multi_unpadding_kernel<1, long>(P)", "copy", NO),
    ("void transformer_engine::fused_router::fused_topk_backward_selected_indices_kernel<__nv_bfloat16, int, 0>(P)", "sort", NO),
    ("void transformer_engine::detail::dgated_act_cast_transpose_kernel_notaligned<1, 1, float, float, float, transformer_engine::Empty, &(float transformer_engine::dgelu<float", "pointwise", NO),
    ("void transformer_engine::(anonymous namespace)::HadamardTransformKernel<__nv_bfloat16, 16, false, false, false, false, false, false, true>(P)", "other", NO),
    ("void transformer_engine::fused_router::fused_topk_forward_simple_kernel<__nv_bfloat16, __half, (NVTERoutingMapFormat)0, (transformer_engine::fused_router::TopkFuncType)0,", "sort", NO),
    ("void nccl_ep::ht::dense_to_sparse_prob_combine_kernel<int>(P)", "communication", NO),
    ("void nccl_ep::ht::sparse_to_dense_prob_kernel<int>(P)", "communication", NO),
    ("void transformer_engine::(anonymous namespace)::HadamardAmaxTmaKernel<__nv_bfloat16, 16, 128, 128, 64, 64, 128, 1, false, false, false>(P)", "reduction", NO),
    ("void transformer_engine::mxfp8_scaling_recipe::mxfp8_scaling_partial_cast_kernel<__nv_bfloat16, __nv_fp8_e4m3>(P)", "pointwise", NO),
    # vLLM 0.33.0, csrc.
    ("void vllm::moe::single_group_topk::detail::single_group_topk_block_kernel<__nv_bfloat16, __half, int, (vllm::moe::ScoringFunc)0, 1024, 16>(P)", "sort", NO),
    ("void vllm::situ_and_mul_quant_group_scalar_kernel<c10::Half, c10::Float8_e4m3fn, 128>(P)", "pointwise", NO),
    ("void vllm::dynamic_scaled_int8_azp_quant_kernel<c10::Half, float, int>(P)", "pointwise", NO),
    ("void vllm::muse_spark_fused_ops::fusedMuseSparkQKNormRopeKVInsertKernel<c10::Half, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0, c10::Half, 128, 1, false, false>(P)", "norm", NO),
    ("void sm100::prefill::sparse_fwd_for_small_topk::head128::sparse_attn_fwd_for_small_topk_kernel<sm100::prefill::sparse_fwd_for_small_topk::head128::KernelTemplate<(SparseA", "attention", YES),
    ("void vllm::moe::moe_sum_vec_dynamic_kernel<c10::Half, int, false>(P)", "reduction", NO),
    ("void vllm::masked_situ_and_mul_kernel<c10::Half, false>(P)", "pointwise", NO),
    ("void (anonymous namespace)::kda_decode_fusion_many_heads_kernel<false, true, 12, 12, true, false, false, false, false, false, true, true, true, false, false, false, 1, 46", "reduction", NO),
    ("void vllm::act_and_mul_kernel_with_param<c10::Half, __half2, &(c10::Half vllm::fatrelu_kernel<c10::Half>(P)", "pointwise", NO),
    ("void vllm::mnnvl::twoshotAllreduceKernel<(unsigned char)2, __nv_bfloat16, false, float4>(P)", "communication", NO),
    ("void vllm::(anonymous namespace)::qknorm_rope_cache_kernel<c10::Half, c10::BFloat16, c10::Half, 128, false, false>(P)", "norm", NO),
    ("void vllm::moe::moe_sum_vec_kernel<c10::Half, int, 1, false>(P)", "reduction", NO),
    ("void vllm::rms_norm_per_block_quant_kernel<c10::Half, c10::Float8_e4m3fn, false, false, 128>(P)", "norm", NO),
    ("void vllm::dynamic_per_token_scaled_fp8_quant_kernel_strided<c10::Half, c10::Float8_e4m3fn>(P)", "pointwise", NO),
    ("void marlin::gptq_marlin_repack_kernel<256, 4, false>(P)", "layout", NO),
    ("void vllm::activation_kernel<c10::Half, &(c10::Half vllm::gelu_new_kernel<c10::Half>(P)", "pointwise", NO),
    ("void vllm::kimi_k3_fused_ops::fusedKimiK3MLAKVConcatPackKernel<c10::Half, false, false>(P)", "copy", NO),
    ("void vllm::gptq::reconstruct_gptq_kernel<vllm::gptq::MatrixView_q2_row, 2>(P)", "pointwise", NO),
    ("void vllm::deepseek_v4_fused_ops::fusedDeepseekV4QNormRopeKVRopeQuantInsertKernel<c10::Half, 0, false, false>(P)", "norm", NO),
    ("void vllm::gptq::gemm_half_q_half_gptq_2bit_kernel<true, 1>(__half const*, unsigned int const*, unsigned int const*, __half const*, __half*, int, int, int, int, bool)", "gemm", NO),
    ("void per_token_group_quant_8bit_packed_register_kernel<c10::Half, c10::Float8_e4m3fn, 128, 16, 1>(P)", "pointwise", NO),
    ("void vllm::moe::grouped_topk_fused_kernel<__nv_bfloat16, __half, int, (vllm::moe::ScoringFunc)0>(P)", "sort", NO),
    ("void fp32_router_gemm_kernel<__nv_bfloat16, 128, 10, 1, 128, 6144, 1>(P)", "gemm", NO),
    ("void vllm::scaled_fp8_quant_kernel_strided_dynamic<c10::Half, c10::Float8_e4m3fn>(P)", "pointwise", NO),
    ("void vllm::kimi_k3_fused_ops::fusedKimiK3MLADecodeQConcatKVCacheKernel<c10::Half, false, false, false, 1>(P)", "copy", NO),
    ("void vllm::silu_and_mul_per_block_quant_kernel<c10::Half, c10::Float8_e4m3fn, false, 128>(P)", "pointwise", NO),
    ("void vllm::masked_swigluoai_and_mul_kernel<c10::Half, false>(P)", "pointwise", NO),
    ("void vllm::static_scaled_int8_quant_kernel<c10::Half, float>(P)", "pointwise", NO),
    ("void vllm::masked_swiglustep_and_mul_kernel<c10::Half, false>(P)", "pointwise", NO),
    ("void legacy::sm90::prefill::sparse_fwd::sparse_attn_fwd_small_heads_kernel<512, false, 16>(P)", "attention", YES),
    ("void (anonymous namespace)::wait_lse_combine_kernel<__nv_bfloat16>(P)", "communication", NO),
    ("void vllm::kimi_k3_fused_ops::fusedKimiK3MLAKeyConcatDsMlaInsertKernel<c10::Half, false>(P)", "copy", NO),
    ("void vllm::concat_and_cache_mla_grouped_kernel<__nv_bfloat16, unsigned char, (vllm::Fp8KVCacheDataType)1>(P)", "copy", NO),
    ("void (anonymous namespace)::materialize_kv_gather_kernel<uint4>(P)", "copy", NO),
    ("void vllm::filtered_topk::FilteredTopKUnifiedKernel<float, int, 1, 1024u, true, false>(P)", "sort", NO),
    ("void vllm::gptq::gemm_half_q_half_gptq_3bit_kernel<true, 1>(__half const*, unsigned int const*, unsigned int const*, __half const*, __half*, int, int, int, int, bool)", "gemm", NO),
    ("void vllm::situ_and_mul_quant_group_pipelined_kernel<c10::Half, c10::Float8_e4m3fn, 256, 4, 128, 1056, 3072>(P)", "pointwise", NO),
    ("void per_token_group_quant_8bit_register_kernel<c10::Half, c10::Float8_e4m3fn, false, false, 128>(P)", "pointwise", NO),
    ("void vllm::kimi_k3_fused_ops::fusedKimiK3MLAKeyConcatKVCacheInsertKernel<c10::Half, false>(P)", "copy", NO),
    ("void vllm::persistent::persistent_topk_kernel<1024, 1u>(P)", "sort", NO),
    ("void flash::flash_fwd_sparse_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, false, false, cutlass::bfloat16_t, Flash_kernel_traits<128, 64, 64, 4, cutlass::bfloat16_t> >,", "attention", YES),
    ("void vllm::sampled_topk::sampled_topk_kernel<1024>(P)", "sort", NO),
    ("void vllm::tensorrt_llm::minimax_reduce_qk_rms_kernel_lamport_float4<__nv_bfloat16, 16, 6144, 1024>(P)", "allreduce_norm", NO),
    ("void vllm::mnnvl_multimem_reduce_scatter_kernel<__nv_bfloat16, 2>(P)", "communication", NO),
    ("void vllm::static_scaled_int8_azp_quant_kernel<c10::Half, float, int>(P)", "pointwise", NO),
    ("void vllm::muse_spark_mul_tanh_soft_cap_kernel<c10::Half>(P)", "pointwise", NO),
    ("void vllm::deepseek_v4_fused_ops::fusedDeepseekV4QNormRopeKVRopeQuantInsertKernelReducedGrid<c10::Half, 0, false, false>(P)", "norm", NO),
    ("void vllm::moe::single_group_topk::detail::single_group_topk_warp_kernel<__nv_bfloat16, __half, int, (vllm::moe::ScoringFunc)0, 1024, 16>(P)", "sort", NO),
    # fbgemm-gpu 1.9.0, fbgemm_gpu/{src,codegen}.
    ("void dense_embedding_codegen_grad_indice_weights_vec_blocking_kernel<c10::Float8_e4m3fn, c10::Half, c10::Half, int, 6>(P)", "embedding", NO),
    ("void fbgemm_gpu::pack_segments_cuda_kernel<int, c10::Half>(P)", "copy", NO),
    ("void split_embedding_backward_codegen_rowwise_adagrad_with_counter_weighted_vbe_kernel_warp_per_row_1<c10::Float8_e4m3fn, c10::Half, c10::Half, int, 1, 16, false>(P)", "embedding", NO),
    ("void (anonymous namespace)::linearize_cache_indices_kernel<int, int>(P)", "embedding", NO),
    ("void fbgemm_gpu::(anonymous namespace)::_FP8rowwise_to_float_cuda_kernel<c10::Half>(P)", "pointwise", NO),
    ("void (anonymous namespace)::lfu_update_counts_kernel<int>(P)", "embedding", NO),
    ("void nbit::FP8_split_embedding_codegen_forward_unweighted_kernel_small_L<int, c10::Half, 1ul, 4ul, 2ul, 16ul, 32ul, false, false>(P)", "embedding", NO),
    ("void fbgemm_gpu::remap_indices_update_utils_per_table_sorted_kernel<int>(P)", "copy", NO),
    ("void fbgemm_gpu::_block_bucketize_sequence_sparse_features_cuda_kernel2<false, false, false, int, int, decltype(nullptr)>(P)", "sort", NO),
    ("void split_embedding_codegen_forward_weighted_vbe_gwd_kernel<c10::Float8_e4m3fn, c10::Half, c10::BFloat16, false, int, 10ul, 32ul>(P)", "embedding", NO),
    ("void fbgemm_gpu::(anonymous namespace)::_get_8bit_qparam_cuda_kernel<c10::Half>(P)", "pointwise", NO),
    ("void batch_index_select_dim0_codegen_backward_kernel_cta_per_row<c10::Float8_e4m3fn, c10::Half, c10::Half, int, 1, 16, false>(P)", "embedding", NO),
    ("void split_embedding_nobag_backward_codegen_adagrad_unweighted_kernel_cta_per_row_1<c10::Float8_e4m3fn, c10::Half, c10::Half, int, 1, 16, false>(P)", "embedding", NO),
    ("void fbgemm_gpu::remap_indices_per_table_kernel<int>(P)", "copy", NO),
    ("void bounds_check_indices_kernel_v2<int, false, (fbgemm_gpu::BoundsCheckMode)0>(P)", "embedding", NO),
    ("void fbgemm_gpu::(anonymous namespace)::_fusednbitrowwise_to_float_cuda_kernel<c10::Half, false>(P)", "pointwise", NO),
    ("void recat_copy_async_kernel<c10::Half>(P)", "copy", NO),
    ("void fbgemm_gpu::batched_unary_embeddings_forward_kernel<c10::Half, int>(P)", "embedding", NO),
    ("void fbgemm_gpu::index_add_2d_with_unique_indices_kernel<int, c10::Half, 2>(P)", "copy", NO),
    ("void fbgemm_gpu::_bucketize_sparse_features_cuda_kernel2<false, false, int, decltype(nullptr)>(P)", "sort", NO),
    ("void ssd_embedding_codegen_grad_indice_weights_vbe_vec_blocking_kernel<c10::Float8_e4m3fn, c10::Half, c10::Half, int, 6>(P)", "embedding", NO),
    ("void nbit::INT2_split_embedding_codegen_forward_unweighted_kernel_small_L<int, c10::Half, 2ul, 4ul, 16ul, 0ul, 1ul, false, false>(P)", "embedding", NO),
    ("void (anonymous namespace)::lxu_cache_flush_kernel<c10::Float8_e4m3fn, c10::Half>(P)", "embedding", NO),
    ("void fbgemm_gpu::reorder_batched_sequence_embeddings_kernel<c10::Half, int>(P)", "copy", NO),
    ("void (anonymous namespace)::reset_weight_momentum_kernel<c10::Float8_e4m3fn, c10::Half>(P)", "memory", NO),
    ("void fbgemm_gpu::permute_2D_lengths_kernel<int, false>(P)", "copy", NO),
    ("void split_rowwise_adagrad_update_kernel<c10::Float8_e4m3fn, c10::Half, 1ul, 16, 4>(P)", "optimizer", NO),
    ("void fbgemm_gpu::permute_multi_embs_kernel<c10::Half, false>(P)", "copy", NO),
    ("void fbgemm_gpu::(anonymous namespace)::_fused8bitrowwise_to_float_cuda_kernel<c10::Half, false, false>(P)", "pointwise", NO),
    ("void ssd_embedding_backward_codegen_rowwise_adagrad_weighted_kernel_warp_per_row_1<c10::Float8_e4m3fn, c10::Half, c10::Half, int, 1, 16, false>(P)", "embedding", NO),
    ("void ssd_embedding_nobag_codegen_forward_unweighted_small_kernel<c10::Float8_e4m3fn, c10::Half, c10::BFloat16, int, 1ul>(P)", "embedding", NO),
    ("void fbgemm_gpu::generic_histogram_binning_calibration_by_feature_kernel<c10::Half, int>(P)", "pointwise", NO),
    ("void fbgemm_gpu::jagged_dense_bmm_kernel<32, 8, 8, 2, 2, int, c10::Half>(P)", "gemm", NO),
    ("void fbgemm_gpu::pruned_array_lookup_from_row_idx_kernel<int, int>(P)", "embedding", NO),
    ("void fbgemm_gpu::(anonymous namespace)::jagged_dense_dense_elementwise_jagged_output_kernel_<1, int, c10::Half, fbgemm_gpu::jagged_dense_elementwise_jagged_output_opt_<c1", "pointwise", NO),
    ("void (anonymous namespace)::lfu_cache_insert_kernel<c10::Float8_e4m3fn, c10::Half>(P)", "embedding", NO),
    ("void nbit::INT2_split_embedding_codegen_forward_weighted_kernel_small_L<int, c10::Half, 2ul, 4ul, 16ul, 0ul, 1ul, false, false>(P)", "embedding", NO),
    ("void fbgemm_gpu::histogram_binning_calibration_kernel<c10::Half>(P)", "pointwise", NO),
    ("void split_embedding_nobag_backward_codegen_dense_unweighted_kernel_warp_per_row_1<c10::Float8_e4m3fn, c10::Half, c10::Half, int, 1, 16, false>(P)", "embedding", NO),
    ("void dense_embedding_nobag_codegen_forward_unweighted_small_kernel<c10::Float8_e4m3fn, c10::Half, c10::BFloat16, int, 1ul>(P)", "embedding", NO),
    ("void split_embedding_backward_codegen_adam_weighted_kernel_cta_per_row_1<c10::Float8_e4m3fn, c10::Half, c10::Half, int, c10::BFloat16, c10::BFloat16, 2, 32, true>(P)", "embedding", NO),
    ("void fbgemm_gpu::reorder_batched_ad_lengths_kernel<c10::Half>(P)", "copy", NO),
    ("void fbgemm_gpu::permute_indices_weights_kernel<false, int, decltype(nullptr)>(P)", "copy", NO),
    ("void dense_embedding_codegen_forward_unweighted_vbe_kernel<c10::Float8_e4m3fn, c10::Half, c10::BFloat16, int, 10ul, 32ul>(P)", "embedding", NO),
    ("void batch_index_select_dim0_codegen_forward_kernel<c10::Float8_e4m3fn, c10::Half, c10::BFloat16, int, 16ul>(P)", "embedding", NO),
    ("void nbit::FP16_split_embedding_codegen_forward_unweighted_kernel_small_L<int, c10::Half, 1ul, 4ul, 1ul, 32ul, 64ul, false, false>(P)", "embedding", NO),
    ("void dequantize_mx4_to_float_kernel<c10::BFloat16>(P)", "pointwise", NO),
    ("void (anonymous namespace)::lfu_cache_insert_byte_kernel<int>(P)", "embedding", NO),
    ("void fbgemm_gpu::batched_unary_embeddings_backward_kernel<c10::Half, int>(P)", "embedding", NO),
    ("void fbgemm_gpu::embedding_inplace_update_kernel_2<int>(P)", "embedding", NO),
    ("void fbgemm_gpu::(anonymous namespace)::_PaddedFP8rowwise_to_float_1d_cuda_kernel<c10::Half>(P)", "pointwise", NO),
    ("void fbgemm_gpu::_block_bucketize_pooled_sparse_features_cuda_kernel2<false, false, int, int, decltype(nullptr)>(P)", "sort", NO),
    ("void fbgemm_gpu::_batched_complete_cumsum_kernel<signed char, 1024u, void>(P)", "reduction", NO),
    ("void permute_pooled_embs_kernel<c10::Half>(P)", "copy", NO),
    ("void fbgemm_gpu::keyed_jagged_index_add_dim1_kernel<c10::Half, int, int, int>(P)", "copy", NO),
    ("void (anonymous namespace)::direct_mapped_lxu_cache_lookup_kernel<int>(P)", "embedding", NO),
    ("void (anonymous namespace)::lru_cache_insert_kernel<c10::Float8_e4m3fn, c10::Half>(P)", "embedding", NO),
    ("void fbgemm_gpu::(anonymous namespace)::_get_FP8_qparam_cuda_kernel<c10::Half>(P)", "pointwise", NO),
    ("void fbgemm_gpu::invert_permute_kernel<int>(P)", "copy", NO),
    ("void fbgemm_gpu::(anonymous namespace)::_float_to_fusednbitrowwise_cuda_kernel<c10::Half>(P)", "pointwise", NO),
    # nvidia-dali 2.4.0, dali/{kernels,operators}.
    ("void dali::kernels::ReduceMiddleLargeInnerMediumKernel<dali::vec<2, long>, dali::vec<2, long>, dali::vec<2, long>, dali::kernels::reductions::min, dali::kernels::reduce_i", "reduction", NO),
    ("void dali::kernels::signal::resampling::ResampleGPUKernel<signed char, signed char, false>(P)", "pointwise", NO),
    ("void dali::kernels::TransformPointsKernel<float, float, 1, 1>(P)", "pointwise", NO),
    ("void dali::kernels::tensor_join::JoinTensorsKernel<int4>(P)", "copy", NO),
    ("void dali::kernels::ReduceInnerLargeKernel<dali::vec<2, long>, dali::vec<2, long>, dali::vec<2, long>, dali::kernels::reductions::min, dali::kernels::reduce_impl::Identit", "reduction", NO),
    ("void dali::kernels::ReduceMiddleSmallKernel<dali::vec<2, long>, dali::vec<2, long>, dali::vec<2, long>, dali::kernels::reductions::min, dali::kernels::reduce_impl::Identi", "reduction", NO),
    ("void dali::kernels::ReduceInnerMediumKernel<dali::vec<2, long>, dali::vec<2, long>, dali::vec<2, long>, dali::kernels::reductions::min, dali::kernels::reduce_impl::Identi", "reduction", NO),
    ("void dali::kernels::ReduceSamplesKernel<dali::vec<2, long>, dali::vec<2, long>, dali::vec<2, long>, dali::kernels::reductions::min, dali::kernels::reduce_impl::IdentityPr", "reduction", NO),
    ("void dali::kernels::detail::gpu::FlipKernel<0ul, false, signed char>(P)", "copy", NO),
    ("void dali::kernels::signal::window::ExtractHorizontalWindowsBatchedKernel<float, signed char>(P)", "copy", NO),
    ("void dali::rng::(anonymous namespace)::RNGKernel<signed char, dali::ShotNoiseImpl<signed char>, false, true, false>(P)", "rng", NO),
    ("void dali::kernels::ReduceMiddleNoneKernel<dali::vec<2, long>, dali::vec<2, long>, dali::vec<2, long>, dali::kernels::reductions::min, dali::kernels::reduce_impl::Identit", "reduction", NO),
    ("void dali::kernels::ReduceMiddleDegenerateKernel<dali::vec<2, long>, dali::vec<2, long>, dali::vec<2, long>, dali::kernels::reductions::min, dali::kernels::FindRegionPost", "reduction", NO),
    ("void dali::kernels::signal::window::ExtractVerticalWindowsBatchedKernel<float, signed char>(P)", "copy", NO),
    ("void dali::DisplacementKernel_aligned32bit<float, 1, false, 256, dali::WaterAugment, (dali::DALIInterpType)0>(P)", "pointwise", NO),
    ("void dali::kernels::ReduceAllBatchedKernel<dali::vec<2, long>, dali::vec<2, long>, dali::vec<2, long>, dali::kernels::reductions::min, dali::identity, dali::kernels::Find", "reduction", NO),
    ("void dali::kernels::signal::ToDecibelsKernel<double>(P)", "pointwise", NO),
    ("void dali::VideoColorSpaceConversionKernel<float, (dali::VideoColorSpaceConversionType)0, false>(P)", "pointwise", NO),
    ("void dali::kernels::slice_impl::SliceKernel<dali::float16, dali::float16, 0, false>(P)", "copy", NO),
    ("void dali::(anonymous namespace)::PreemphasisFilterKernel<signed char, signed char>(P)", "pointwise", NO),
    ("void dali::DisplacementKernel<float, false, dali::WaterAugment, (dali::DALIInterpType)0>(P)", "pointwise", NO),
    ("void dali::kernels::signal::window::PadHorizontalWindowsKernel<float>(P)", "copy", NO),
    ("void dali::kernels::slice_flip_normalize::SliceNormalizeKernel_2D_NoPad<dali::float16, dali::float16>(P)", "pointwise", NO),
    ("void dali::kernels::multiply_add::MultiplyAddKernel<float, float, 2>(P)", "pointwise", NO),
    ("void dali::kernels::normalize_impl::NormalizeKernel<dali::kernels::normalize_impl::NormalizeScalar<signed char, signed char> >(P)", "pointwise", NO),
    ("void dali::kernels::GridMaskKernel<float, 0u>(P)", "pointwise", NO),
    ("void dali::kernels::ReduceAllBlockwiseKernel<dali::vec<2, long>, dali::vec<2, long>, dali::vec<2, long>, dali::kernels::reductions::min, dali::identity, dali::kernels::Fi", "reduction", NO),
    ("void dali::(anonymous namespace)::CopyTransformsKernel<2>(P)", "copy", NO),
    ("void dali::kernels::ReduceInnerSmallKernel<dali::vec<2, long>, dali::vec<2, long>, dali::vec<2, long>, dali::kernels::reductions::min, dali::kernels::reduce_impl::Identit", "reduction", NO),
    ("void dali::kernels::normalize_impl::NormalizeInvStdDevKernel<dali::kernels::normalize_impl::NormalizeInvStdDevNonScalar<4, signed char, signed char, float, float> >(P)", "pointwise", NO),
    ("void dali::kernels::paste::PasteKernel<float, float, 2>(P)", "copy", NO),
    # lmdeploy 0.18.0, src/turbomind.
    ("void turbomind::SigmoidGateMultiplyKernel<__nv_bfloat16>(P)", "pointwise", NO),
    ("void turbomind::gemm::gemm_kernel_sm90_bf16<turbomind::gemm::GemmUniversalSm90_Bf16<turbomind::gemm::config::Config<turbomind::gemm::config::Shape<128, 128, 64>, turbomin", "gemm", YES),
    ("void turbomind::mla_copy_qkv_kernel<unsigned short, 8>(P)", "copy", NO),
    ("void LogitsBitmaskKernel<float, float4, 16>(P)", "pointwise", NO),
    ("void turbomind::BlockscaleToGroupscale_Kernel<__nv_bfloat16, __half>(P)", "pointwise", NO),
    ("void turbomind::(anonymous namespace)::preRMSNormKernel<__nv_bfloat16, 8, 64>(P)", "norm", NO),
    ("void turbomind::AddBiasActivationKernel<1, __nv_bfloat16, turbomind::GeluActivation>(P)", "pointwise", NO),
    ("void turbomind::ActivationKernel<false, 4, turbomind::SiluGptOss<__nv_bfloat16>, __nv_bfloat16>(P)", "pointwise", NO),
    ("void turbomind::(anonymous namespace)::residualScaleKernel<__nv_bfloat16, 8>(P)", "pointwise", NO),
    ("void turbomind::(anonymous namespace)::patchIm2ColKernel<__nv_bfloat16>(P)", "layout", NO),
    ("void turbomind::linear_attn::delta_rule::(anonymous namespace)::Sm90GdrRecurrentKernel<128, __nv_bfloat16>(P)", "reduction", NO),
    ("void turbomind::linear_attn::delta_rule::(anonymous namespace)::Sm90GdrPrepareAndCumsumKernel<64>(P)", "reduction", NO),
    ("void turbomind::RepetitionPenaltyKernel<float>(P)", "pointwise", NO),
    ("void turbomind::gemm::gemm_kernel<turbomind::gemm::GemmUniversal<turbomind::gemm::Sm70, turbomind::gemm::MainloopSm70<turbomind::gemm::Tiled_MMA_v2<turbomind::gemm::SM70_", "gemm", YES),
    ("void turbomind::MoeGateNoAuxTCKernel_V2<160, 8, 10, 256, 2, true, false, int>(P)", "sort", NO),
    ("void turbomind::(anonymous namespace)::fastRotaryPosEmbKernel<__nv_bfloat16>(P)", "pointwise", NO),
    ("void turbomind::MoeScanKernel_v2_classic<128, signed char>(P)", "sort", NO),
    ("void turbomind::Compact1D_Kernel<0, 4, unsigned int, unsigned short>(P)", "copy", NO),
    ("void turbomind::linear_attn::delta_rule::(anonymous namespace)::Sm120FusedGdrFwdKernel<__nv_bfloat16, __nv_bfloat16, 32, false>(P)", "reduction", NO),
    ("void turbomind::core::kernel::TransposeCopyKernel<32, 2, cute::ViewEngine<cute::gmem_ptr<unsigned long const*> >, cute::Layout<cute::tuple<int, int>, cute::tuple<cute::C<", "copy", NO),
    ("void turbomind::gemm::(anonymous namespace)::pack_sm90_qparams_kernel<0, unsigned char, unsigned char>(P)", "pointwise", NO),
    ("void turbomind::dtype_cast_kernel<__nv_bfloat16, __half>(P)", "pointwise", NO),
    ("void turbomind::fuse_scales_and_zeros_kernel<4, __half>(P)", "pointwise", NO),
    ("void turbomind::QuantizeGroupwise_Kernel<8, turbomind::NvFp4Quantizer<__nv_bfloat16, unsigned short>, __nv_bfloat16, unsigned short, __nv_fp8_e4m3, void>(P)", "pointwise", NO),
    ("void turbomind::embeddingLookupKernel<unsigned short, 8>(P)", "embedding", NO),
    ("void turbomind::(anonymous namespace)::residualScaleLayerNormKernel<__nv_bfloat16, 8, 512>(P)", "norm", NO),
    ("void turbomind::biasKernel<__nv_bfloat16, 8>(P)", "pointwise", NO),
    ("void turbomind::(anonymous namespace)::prepareQKVKernel<__nv_bfloat16, 128>(P)", "copy", NO),
    ("void turbomind::(anonymous namespace)::residualScaleRMSNormKernel<__nv_bfloat16, 8, 512>(P)", "norm", NO),
    ("void turbomind::CrossEntropyLossKernel<__nv_bfloat16>(P)", "loss", NO),
    ("void turbomind::(anonymous namespace)::reverseWindowKernel<1, __nv_bfloat16>(P)", "copy", NO),
    ("void turbomind::gemm::gemm_kernel_sm90_mixed<turbomind::gemm::GemmUniversalSm90Mixed<turbomind::gemm::Sm90U4Format<32, (turbomind::DataType)66826>, turbomind::gemm::confi", "gemm", YES),
    # nvshmem 3.8.0, src/host/comm.
    ("void rdxn_on_stream_kernel<__nv_bfloat16, (rdxn_ops)3>(P)", "communication", NO),
    ("void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(P)", "communication", NO),
    ("void nvshmemi_team_mapping_kernel<(threadgroup_t)1>(P)", "communication", NO),
    ("void nvshmemi_team_index_kernel<(threadgroup_t)0>(P)", "communication", NO),
    ("void fcollect_on_stream_kernel<__nv_bfloat16>(P)", "communication", NO),
    ("void broadcast_on_stream_kernel<__nv_bfloat16>(P)", "communication", NO),
    ("void sync_on_stream_kernel_threadgroup<(threadgroup_t)1>(P)", "communication", NO),
    ("void nvshmemi_reduce_kernel<unsigned char, (rdxn_ops)0>(P)", "communication", NO),
    ("void alltoall_on_stream_kernel<__nv_bfloat16>(P)", "communication", NO),
    # xformers 0.0.35, csrc.
    ("void (anonymous namespace)::sparseNM_dense_kernel<2, 4, cutlass::bfloat16_t, __nv_dl_wrapper_t<__nv_dl_tag<torch::stable::Tensor (*)(torch::stable::Tensor, std::__cxx11::", "copy", NO),
    ("void (anonymous namespace)::sparse24_sparsify_both_ways_kernel<xformers::sp24::KernelTypes<cutlass::bfloat16_t>, xformers::sp24::MetadataCutlassSm80, xformers::sp24::Line", "copy", NO),
    # bitsandbytes 0.50.2, csrc/kernels.cu.
    ("void kPreconditionOptimizer32bit1State<__hip_bfloat16, 1, 4096, 8>(P)", "optimizer", NO),
    ("void kOptimizer32bit1State<__hip_bfloat16, 1>(P)", "optimizer", NO),
    ("void kOptimizerStatic8bit2StateBlockwise<__hip_bfloat16, 0, 256, 1>(P)", "optimizer", NO),
    ("void kPreconditionOptimizer32bit2State<__hip_bfloat16, 0, 4096, 8>(P)", "optimizer", NO),
    # cuRAND 10.3.10.
    ("void MT19937_kernel<512, false, double, &(send_double(unsigned int, double*, int))>(P)", "rng", NO),
    # PyTorch 2.9.1, aten/src/ATen/native; MAGMA 2.9 magmablas.
    ("void at::native::(anonymous namespace)::upsample_nearest2d_backward_nhwc_out_frame<c10::Half, float, &at::native::nearest_neighbor_bw_compute_source_index>(P)", "pointwise", NO),
    ("void at_cuda_detail::cub::DeviceScanByKeyInitKernel<at_cuda_detail::cub::ReduceByKeyScanTileState<int, int, true>, thrust::THRUST_200700_700_750_800_860_900_1000_1200_NS::reverse_iterator<int const*> >(P)", "reduction", NO),
    ("void at_cuda_detail::cub::RadixSortScanBinsKernel<at_cuda_detail::cub::DeviceRadixSortPolicy<__nv_bfloat16, at::cuda::cub::detail::OpaqueType<8>, unsigned long long>::Policy900, unsigned long long>(P)", "sort", NO),
    ("void dtrsv_trans_kernel_outplace_batched<32, 16, 8, 1000000, 0, (magma_uplo_t)121, (magma_trans_t)112, (magma_diag_t)131>(P)", "gemm", NO),
    ("void at::native::(anonymous namespace)::LayerNormForwardCUDAKernel<c10::Half, float, false>(P)", "norm", NO),
    ("void at::native::_sparse_sum_backward_cuda_kernel<c10::Half>(P)", "reduction", NO),
    ("void at::native::(anonymous namespace)::avg_pool2d_backward_out_cuda_frame<c10::Half, float, int>(P)", "pooling", NO),
    ("void at::native::(anonymous namespace)::EmbeddingBag_updateOutputKernel_sum_mean<c10::Half, int>(P)", "embedding", NO),
    ("void at::native::(anonymous namespace)::nll_loss_backward_no_reduce_cuda_kernel<c10::Half, unsigned char>(P)", "loss", NO),
    ("void trsm_template_batched_rTL_kernel<float2, 16, 32, 0>(P)", "gemm", NO),
    ("void at::native::(anonymous namespace)::upsample_nearest1d_out_frame<c10::Half, &at::native::nearest_neighbor_compute_source_index>(P)", "pointwise", NO),
    ("void sgemm_batched_smallsq_kernel<10>(P)", "gemm", NO),
    ("void cgetrf_batched_smallsq_shfl_kernel<10, 16>(P)", "other", NO),
    ("void dgetf2_nopiv_batched_kernel<10, 16>(P)", "other", NO),
    ("void strsv_notrans_kernel_outplace_batched<128, 128, 1, 1000000, 0, (magma_uplo_t)121, (magma_trans_t)111, (magma_diag_t)131>(P)", "gemm", NO),
    ("void magma_max_nan_kernel<double>(P)", "reduction", NO),
    ("void at::native::glu_backward_kernel<c10::Half, OffsetCalculator<3, unsigned int, false> >(P)", "pointwise", NO),
    ("void at::native::_embedding_bag_per_sample_weights_backward_kernel<c10::Half, int>(P)", "embedding", NO),
    ("void dscal_dger_1d_kernel_batched<1>(P)", "other", NO),
    ("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel1<c10::Half>(P)", "norm", NO),
    ("void at::native::(anonymous namespace)::reduce_sparse_csr_dim1_cuda_kernel<c10::Half, int, at::native::(anonymous namespace)::ReductionAddOp<float>, float>(P)", "reduction", NO),
    ("void herk_template_batched_nt_kernel<float2, 16, 16, 48, 32, 16, 16, 16, 16, 16, 0, 0>(magma_uplo_t, int, int, float2, float2 const* const*, int, float2 const* const*, int, float2, float2**, int, int, int, int, int, int, int)", "gemm", NO),
    ("void zgetf2_fused_batched_kernel<10>(P)", "other", NO),
    ("void at::native::jagged_dense_dense_elementwise_jagged_output_opt_search_kernel_<int>(P)", "pointwise", NO),
    ("void at::native::(anonymous namespace)::cuda_sparse_coo_softmax_backward_kernel<double, false>(P)", "softmax", NO),
    ("void at::native::(anonymous namespace)::max_pool3d_with_indices_backward_single_out_frame<c10::Half>(P)", "pooling", NO),
    ("void at::native::tensor_kernel_scan_innermost_dim_with_indices<c10::Half, std::less_equal<c10::Half> >(P)", "reduction", NO),
    ("void at::native::(anonymous namespace)::distribution_binary_kernel<__nv_hdl_wrapper_t<false, true, false, __nv_dl_tag<void (*)(at::TensorIteratorBase&, at::PhiloxCudaState), &(void (anonymous namespace)::binomial_cuda_kernel<c10::Half>(P)", "rng", NO),
    ("void at::native::(anonymous namespace)::apply_kernel<128, 8, __nv_hdl_wrapper_t<false, false, false, __nv_dl_tag<void (*)(at::TensorIterator&, long, long, at::Tensor const&, bool), &(void at::native::(anonymous namespace)::binary_op_intersection_kernel<at::native::(anonymous namespace)::MulOp, c10::Half, long>(P)", "pointwise", NO),
    ("void dgetf2trsm_2d_kernel<16>(P)", "other", NO),
    ("void zscal_zgeru_1d_kernel_batched<1>(P)", "other", NO),
    ("void at::native::(anonymous namespace)::_unfold_backward_elementwise_kernel<128, 8, __nv_dl_wrapper_t<__nv_dl_tag<void (*)(at::TensorIterator&, long, long, long, long, long, long), &(void at::native::(anonymous namespace)::_unfold_backward_internal_kernel<c10::Half>(P)", "copy", NO),
    ("void at::native::max_unpooling2d_backward_kernel<c10::Half>(P)", "pooling", NO),
    ("void at::native::(anonymous namespace)::convert_indices_from_coo_to_csr_cuda_kernel<signed char, int>(P)", "copy", NO),
    ("void at::native::batch_norm_transform_input_channels_last_kernel<c10::Half, float, c10::Half, 4>(P)", "norm", NO),
    ("void gemvc_kernel_batched<float2, 16, 8, 8, (magma_trans_t)112>(P)", "gemm", NO),
    ("void at::native::(anonymous namespace)::rand_uniform_kernel<float>(P)", "rng", NO),
    ("void at::native::(anonymous namespace)::fractional_max_pool3d_out_frame<c10::Half>(P)", "pooling", NO),
    ("void sgetrf_batched_smallsq_noshfl_kernel<10, 16>(P)", "other", NO),
    ("void at::native::(anonymous namespace)::nll_loss_backward_reduce_cuda_kernel_1d<c10::Half, unsigned char>(P)", "loss", NO),
    ("void at::native::(anonymous namespace)::nll_loss2d_forward_no_reduce_kernel<c10::Half>(P)", "loss", NO),
    ("void cgetf2_fused_batched_kernel<10>(P)", "other", NO),
    ("void at::native::(anonymous namespace)::nll_loss2d_forward_size_average_kernel<c10::Half>(P)", "loss", NO),
    ("void at::native::(anonymous namespace)::reflection_pad2d_backward_out_kernel<c10::Half>(P)", "copy", NO),
    ("void gemm_template_batched_nt_kernel<float2, 16, 16, 48, 32, 16, 16, 16, 16, 16, 0, 0>(P)", "gemm", NO),
    ("void at::native::(anonymous namespace)::GammaBeta1dBackwardCUDAKernel1<c10::Half>(P)", "norm", NO),
    ("void zgetf2_native_kernel<512, 10>(P)", "other", NO),
    ("void dgemm_batched_smallsq_kernel<10>(P)", "gemm", NO),
    ("void at::native::(anonymous namespace)::renorm_kernel<c10::Half, float, int const>(P)", "norm", NO),
    ("void at::native::(anonymous namespace)::replication_pad_forward_kernel1d<c10::Half>(P)", "copy", NO),
    ("void cgemm_batched_smallsq_kernel<10>(P)", "gemm", NO),
    ("void at::native::(anonymous namespace)::upsample_linear1d_out_frame_backward<c10::Half, float>(P)", "pointwise", NO),
    ("void at::native::(anonymous namespace)::avg_pool3d_single_backward_out_frame_stride1<c10::Half, float>(P)", "pooling", NO),
    ("void at::native::(anonymous namespace)::upsample_trilinear3d_out_frame<c10::Half, float>(P)", "pointwise", NO),
    # FlashInfer 0.7.2.
    ("kernel_sm110_gqa_decode_n64_kvlast_s10", "attention", YES),  # flashinfer/experimental/sm110_gqa_decode/csrc/prepared/sm110_gqa_decode_n64_kvlast_s10.cu
    ("kernel_gdn_decode_pretranspose_mtp_t4_splitv8", "reduction", NO),  # flashinfer/data/csrc/gdn/cake/cuda/cake_gdn_decode_pretranspose_mtp_t4_splitv8.cu
    ("kernel_cake_sage_block_sparse_attention_6a1fcc34a68d31545b23", "attention", YES),  # flashinfer/data/csrc/cake_sage_block_sparse_attention/sm_120a/cake_sage_block_sparse_attention_6a1fcc34a68d31545b23_kernel.cu
    ("_e8m0_scale_to_grid_kernel", "pointwise", NO),  # flashinfer/experimental/b12x/moe/fused_moe/_impl.py
    ("kernel_cake_grouped_fp8_gemm_28b94ccb85e6d2d50961", "gemm", YES),  # flashinfer/data/csrc/cake_grouped_fp8_gemm/cake_grouped_fp8_gemm_28b94ccb85e6d2d50961_kernel.cu
    ("kernel_gated_act_mxfp8_bwd_both_direct_64x64", "pointwise", NO),  # flashinfer/data/csrc/gated_act_mxfp8/gated_act_mxfp8_bwd_both.cu
    ("kernel_cake_deepgemm_mega_gate_443ee7219ad7504a35a0", "gemm", YES),  # flashinfer/data/csrc/experimental/deepgemm_mega_gate/generated/cake_deepgemm_mega_gate_443ee7219ad7504a35a0_kernel.cu
    ("kernel_cake_fused_qk_rope_append_97bef5f0cc2815a74f0f", "pointwise", NO),  # flashinfer/data/csrc/cake_fused_qk_rope_append/sm_100a/cake_fused_qk_rope_append_97bef5f0cc2815a74f0f_binding.cu
    ("kernel_cake_bf16_bmm_beecb1dd16619150e5dc", "gemm", YES),  # flashinfer/data/csrc/cake_bf16_bmm/cake_bf16_bmm_beecb1dd16619150e5dc_kernel.cu
    ("kernel_cake_vsa_sm90_f2127f961acc174f20a6", "attention", YES),  # flashinfer/data/csrc/cake_vsa_sm90/cake_vsa_sm90_f2127f961acc174f20a6_kernel.cu
    ("kernel_cake_blackwell_msa_1dee0d606e54cde476fa", "attention", YES),  # flashinfer/data/csrc/blackwell_msa/cake_blackwell_msa_1dee0d606e54cde476fa_kernel.cu
    ("void sparse_mla_decode_dsv3_2_kernel<P>", "attention", YES),  # flashinfer/data/include/flashinfer/attention/sparse_mla_sm120/kernels/dsv32_fp8/decode.cuh
    ("kernel_cake_lm_head_loss_271a70acf82f0a2501aa", "loss", NO),  # flashinfer/experimental/cake_lm_head_loss/csrc/cake_lm_head_loss/cake_lm_head_loss_271a70acf82f0a2501aa_kernel.cu
    ("kernel_flashinfer_blackwell_softmax_cached_c2_t4", "softmax", NO),  # flashinfer/data/csrc/cake_blackwell_softmax_cached_cluster.cu
    ("void flashinfer::comm::pcie_ipc::ipc_rsag_push_param_kernel<P>", "communication", NO),  # flashinfer/data/include/flashinfer/comm/pcie_ipc_all_reduce.cuh
    ("kernel_cake_selective_state_update_ae6bcb235d195b6ef079", "reduction", NO),  # flashinfer/data/csrc/cake_selective_state_update/cake_selective_state_update_ae6bcb235d195b6ef079_binding.cu
    ("kernel_sm120_dsv4_nvfp4_sparse_mla_merge_h16", "reduction", NO),  # flashinfer/data/csrc/cake_dsv4/sm_120a/cake_sparse_mla_dsv4_nvfp4_h16.cu
    ("kernel_flashinfer_sm120_dsv4_nvfp4_rope_insert_qkv_p32_noqrope_s32", "pointwise", NO),  # flashinfer/data/csrc/cake_dsv4/sm_120a/cake_dsv4_nvfp4_rope_insert_kernel.cu
    ("kernel_cake_fmha_decode_balanced_fp8", "attention", YES),  # flashinfer/data/csrc/cake_fmha/cuda/decode_balanced_fp8/default.cu
    ("kernel_flashinfer_bgmv_moe_group_scan_f16_r16", "reduction", NO),  # flashinfer/data/csrc/cake_bgmv_moe/cake_bgmv_moe_generic_f16_r16.cu
    ("kernel_cake_ulysses_a2a_2862f9aa8f469dc4a895", "communication", NO),  # flashinfer/data/csrc/cake_ulysses_dispatch.cu
    ("kernel_flashinfer_mnnvl_moe_alltoall_quantize_combine", "communication", NO),  # flashinfer/data/csrc/generated/mnnvl_moe_alltoall_sm100.cu
    ("nvfp4_quant_kernel", "pointwise", NO),  # flashinfer/data/csrc/fp4_kv_quantization.cu
    # FlagGems 5.0.2.
    ("max_kernel_small", "reduction", NO),  # flag_gems/runtime/backend/_mthreads/ops/max.py
    ("min_kernel_float_once", "reduction", NO),  # flag_gems/runtime/backend/_cambricon/ops/min.py
    ("replication_pad1d_kernel", "copy", NO),  # flag_gems/ops/replication_pad1d.py
    ("repeat_kernel_1d", "copy", NO),  # flag_gems/runtime/backend/_mthreads/ops/repeat.py
    ("all_kernel_2", "reduction", NO),  # flag_gems/runtime/backend/_hygon/ops/all.py
    ("scatter_kernel", "copy", NO),  # flag_gems/runtime/backend/_hygon/ops/sort.py
    ("rand_kernel", "rng", NO),  # flag_gems/runtime/backend/_mthreads/ops/rand.py
    ("cumsum_kernel_dim_low", "reduction", NO),  # flag_gems/runtime/backend/_enflame/gcu300/ops/cumsum.py
    ("rms_norm_grad_dx_kernel", "norm", NO),  # flag_gems/runtime/backend/_cambricon/ops/rms_norm.py
    ("kron_kernel", "pointwise", NO),  # flag_gems/runtime/backend/_cambricon/ops/kron.py
    # DeepSpeed 0.19.8.
    ("_swiglu_packed_fwd_kernel", "pointwise", NO),  # deepspeed/ops/triton_ops/swiglu_triton.py
    ("_swiglu_bwd_kernel", "pointwise", NO),  # deepspeed/ops/triton_ops/swiglu_triton.py
    ("void rms_norm<__half, 8, 16, 512>(P)", "norm", NO),  # deepspeed/ops/csrc/transformer/inference/csrc/rms_norm.cu
    ("_group_gemm_dw_kernel", "gemm", YES),  # deepspeed/ops/triton_ops/group_gemm_triton.py
    ("_weighted_restore_forward_kernel", "copy", NO),  # deepspeed/ops/triton_ops/autoep_fused_token_ops.py
    ("_flash_packed_kernel", "attention", YES),  # deepspeed/ops/transformer/inference/triton/attention.py
    ("void dequantize_int8_to_half<P>", "pointwise", NO),  # deepspeed/ops/csrc/quantization/quantize_intX.cu
    ("void gated_act::gated_activation_kernel<P>", "pointwise", NO),  # deepspeed/inference/v2/kernels/core_ops/gated_activations/gated_activation_kernels_cuda.cu
    ("void logits_gather::logits_gather_kernel<P>", "copy", NO),  # deepspeed/inference/v2/kernels/ragged_ops/logits_gather/logits_gather_cuda.cu
    ("void DeepSpeed::apply_rotary_pos_half", "pointwise", NO),  # deepspeed/ops/csrc/transformer/inference/csrc/apply_rotary_pos_emb.cu
    ("void fused_bias_gelu<__half>", "pointwise", NO),  # deepspeed/ops/csrc/transformer/gelu_kernels.cu
    ("void attn_softmax_v2<float>", "softmax", NO),  # deepspeed/ops/csrc/transformer/inference/csrc/softmax.cu
    ("moe_gather_kernel", "copy", NO),  # deepspeed/inference/v2/kernels/ragged_ops/moe_gather/moe_gather_cuda.cu
    ("top_k_gating_kernel", "sort", NO),  # deepspeed/inference/v2/kernels/ragged_ops/top_k_gating/top_k_gating_cuda.cu
    ("moe_scatter_kernel", "copy", NO),  # deepspeed/inference/v2/kernels/ragged_ops/moe_scatter/moe_scatter_cuda.cu
    ("void fused_residual_ln", "norm", NO),  # deepspeed/ops/csrc/transformer/inference/csrc/layer_norm.cu
    ("swizzled_quant_kernel", "pointwise", NO),  # deepspeed/ops/csrc/quantization/swizzled_quantize.cu
    ("void dequant_reduce<P>", "reduction", NO),  # deepspeed/ops/csrc/quantization/quant_reduce.cu
    ("pad_head_seq_kernel", "copy", NO),  # deepspeed/ops/csrc/transformer/inference/csrc/gelu.cu
    # attn_gym 0.0.17.
    ("chunk_kda_bwd_wy_direct_triton_kernel", "gemm", YES),  # attn_gym/linear/kda/bwd/triton/chunk_kda_bwd_wy_triton.py
    ("compose_work_items_kernel", "other", NO),  # attn_gym/linear/_delta_rule/triton/work_items.py
    ("chunk_kda_fwd_k4b_triton_kernel", "gemm", YES),  # attn_gym/linear/kda/fwd/triton/chunk_kda_fwd_k4_triton.py
    ("_recurrent_delta_rule_decode_kernel", "reduction", NO),  # attn_gym/linear/_delta_rule/decode.py
    ("chunk_gla_fwd_kernel_o_tma", "gemm", YES),  # attn_gym/linear/kda/fwd/triton/chunk_gla_fwd_o.py
    ("_gather_summary_rows", "copy", NO),  # attn_gym/linear/_delta_rule/cudnn_fe/summary.py
    ("softplus_gate_bwd_kernel", "pointwise", NO),  # attn_gym/linear/_delta_rule/triton/softplus_gate.py
    ("chunk_gdn_recompute_aqk_kernel", "gemm", YES),  # attn_gym/linear/gdn/bwd/triton/chunk_gdn_bwd_recompute.py
    ("chunk_gdn_bwd_dv_local_kernel", "gemm", YES),  # attn_gym/linear/gdn/bwd/triton/chunk_gdn_bwd_delta_h.py
    ("chunk_gla_fwd_kernel_o_ragged_tma", "gemm", YES),  # attn_gym/linear/kda/fwd/triton/chunk_gla_fwd_o.py
    # torchao 0.18.0.
    ("_to_fp8_row_major", "pointwise", NO),  # torchao/prototype/float8nocompile/kernels/fp8_dynamic_tensorwise.py
    ("fused_pad_token_groups_kernel", "copy", NO),  # torchao/csrc/cuda/mx_kernels/fused_pad_token_groups.cu
    ("_mxfp8_all_to_all_v_kernel", "communication", NO),  # torchao/prototype/moe_training/kernels/mxfp8/comms.py
    ("_to_fp8_row_and_col_major", "pointwise", NO),  # torchao/prototype/float8nocompile/kernels/fp8_dynamic_tensorwise.py
    # Unsloth 2026.10.9.
    ("_exact_backward_kernel", "pointwise", NO),  # unsloth/kernels/geglu.py
    ("_e4m3fn_bytes_dequant_kernel", "pointwise", NO),  # unsloth/kernels/fp8.py
    ("_split_sum_kernel", "reduction", NO),  # unsloth/kernels/nvfp4.py
    ("act_quant_kernel", "pointwise", NO),  # unsloth/kernels/fp8.py
    ("_bias_add_kernel", "pointwise", NO),  # studio/backend/core/inference/diffusion_nvfp4_bias.py
    ("i8mm_dq", "gemm", YES),  # studio/backend/core/inference/diffusion_int8_gemm.py
    ("_dequant_repacked_kernel", "pointwise", NO),  # unsloth/kernels/int4_packed.py
    ("_nvfp4_dequant_kernel", "pointwise", NO),  # unsloth/kernels/nvfp4.py
    ("_lh_bwd_dq", "attention", YES),  # unsloth/kernels/large_head_attention.py
    # xformers 0.0.35.
    ("scaled_index_add_fwd_kernel", "copy", NO),  # xformers/ops/_triton/k_scaled_index_add.py
    ("index_select_cat_bwd_kernel", "copy", NO),  # xformers/ops/_triton/k_index_select_cat.py
    ("scaled_index_add_bwd_kernel", "copy", NO),  # xformers/ops/_triton/k_scaled_index_add.py
    ("_rms_norm_kernel", "norm", NO),  # xformers/ops/_triton/rmsnorm_kernels.py
    ("_xformers_tiled_matmul_kernel", "gemm", YES),  # xformers/ops/_triton/tiled_matmul_kernels.py
    ("void sparse24_apply_kernel<P>", "copy", NO),  # xformers/csrc/sparse24/sparse24_apply.cu
    ("_rms_norm_add_kernel", "norm", NO),  # xformers/ops/_triton/rmsnorm_kernels.py
    # Liger 0.8.5.
    ("_softmax_multi_block_backward_kernel", "softmax", NO),  # liger_kernel/ops/softmax.py
    ("_group_norm_forward_kernel", "norm", NO),  # liger_kernel/ops/group_norm.py
    ("_relu_squared_backward_kernel", "pointwise", NO),  # liger_kernel/ops/relu_squared.py
    ("_llama4_rope_kernel", "pointwise", NO),  # liger_kernel/ops/llama4_rope.py
    ("_swiglu_kernel_backward_dGU", "pointwise", NO),  # liger_kernel/ops/mlp.py
    ("_poly_norm_backward_kernel", "norm", NO),  # liger_kernel/ops/poly_norm.py
    ("_grpo_loss_bwd_kernel", "loss", NO),  # liger_kernel/ops/grpo_loss.py
    # lmdeploy 0.18.0.
    ("_sorted_idx_phase1_kernel", "sort", NO),  # lmdeploy/pytorch/kernels/cuda/moe/fused_moe.py
    ("_bitonic_topk_kernel1", "sort", NO),  # lmdeploy/pytorch/kernels/cuda/bitonic_topk.py
    ("void deep_ep::elastic::combine_impl<P>", "communication", NO),  # lmdeploy/turbomind/include/deep_ep/impls/combine.cuh
    ("fused_moe_v4_fp4_kernel", "gemm", YES),  # lmdeploy/pytorch/kernels/cuda/moe/v4_fp4.py
    ("_fp8_index_kernel", "gemm", YES),  # lmdeploy/pytorch/kernels/cuda/ds_index.py
    ("_build_decode_prefix_compressed_sparse_indices_kernel", "copy", NO),  # lmdeploy/pytorch/kernels/cuda/v4_sparse_indices.py
    ("_flatten_kv_cache", "copy", NO),  # lmdeploy/pytorch/kernels/cuda/flatten_kv_cache.py
    ("_linear", "gemm", YES),  # lmdeploy/pytorch/kernels/cuda/w8a8_triton_kernels.py
    ("_one_block_barrier_kernel", "communication", NO),  # lmdeploy/pytorch/kernels/cuda/symm_mem_allgather.py
    ("_state_select_kernel", "copy", NO),  # lmdeploy/pytorch/backends/cuda/gated_delta_rule.py
    ("_fill_graph_common_inputs_kernel", "copy", NO),  # lmdeploy/pytorch/kernels/cuda/step_metadata/fill_graph_common_inputs.py
    ("_fwd_kernel_ep_scatter_step1", "copy", NO),  # lmdeploy/pytorch/kernels/cuda/moe/ep.py
    # SGLang 0.5.10.
    ("_chunked_lora_expand_kernel", "gemm", YES),  # sglang/srt/lora/triton_ops/chunked_sgmv_expand.py
    ("_chunked_lora_shrink_kernel", "gemm", YES),  # sglang/srt/lora/triton_ops/chunked_sgmv_shrink.py
    ("layer_norm_gated_fwd_kernel1", "norm", NO),  # sglang/srt/layers/attention/fla/fused_norm_gate.py
    ("_silu_and_mul_post_per_tensor_quant_kernel", "pointwise", NO),  # sglang/srt/layers/moe/ep_moe/kernels.py
    ("set_mla_kv_scale_buffer_kernel", "copy", NO),  # sglang/srt/mem_cache/utils.py
    ("void moe::moe_lora_align_block_size_kernel<P>", "sort", NO),  # sglang/jit_kernel/csrc/lora/moe_lora_align_kernel.cu
    ("__get_group_gemm_starts", "other", NO),  # sglang/jit_kernel/csrc/moe/nvfp4_blockwise_moe.cuh
    ("void dequantize_weights(int*, __half*, int*, __half*, int, int)", "pointwise", NO),  # sglang/jit_kernel/csrc/gemm/awq_dequantize.cuh
    ("_fused_residual_layernorm_scale_shift_gate_select01_kernel", "norm", NO),  # sglang/jit_kernel/diffusion/triton/scale_shift.py
    ("void rmsnorm_cta_double<P>", "norm", NO),  # sglang/jit_kernel/csrc/elementwise/rmsnorm.cuh
    ("l2norm_fwd_kernel1", "norm", NO),  # sglang/srt/layers/attention/fla/l2norm.py
    ("add_constant_kernel", "pointwise", NO),  # sglang/jit_kernel/csrc/add_constant.cuh
    ("_log_softmax_kernel", "softmax", NO),  # sglang/srt/batch_invariant_ops/batch_invariant_ops.py
    # AITER 0.1.7.
    ("void aiter::wvSplitKQ_hf_<P>", "gemm", YES),  # aiter_meta/csrc/kernels/custom_kernels.cu
    ("void aiter::kn_entry_1c_sbhd_cached_indirect2_inplace<P>", "pointwise", NO),  # aiter_meta/csrc/kernels/rope/rope_common.h
    ("void ck::kernel_normalization<P>", "norm", NO),  # aiter_meta/3rdparty/composable_kernel/include/ck/tensor_operation/gpu/grid/normalization/gridwise_normalization_selector.hpp
    ("void aiter::grouped_topk_kernel<P>", "sort", NO),  # aiter_meta/csrc/kernels/topk_softmax_kernels_group.cu
    ("void wv_splitk_small_fp16_bf16_kernel<P>", "gemm", NO),  # aiter_meta/csrc/kernels/custom_kernels.cu
    ("void aiter::paged_attention_ll4mi_reduce_kernel<P>", "reduction", NO),  # aiter_meta/csrc/cpp_itfs/pa/pa_ragged.cuh
    ("void aiter::last_filter_kernel<P>", "sort", NO),  # aiter_meta/csrc/kernels/topk_per_row_kernels.cu
    ("kn_entry_1c_sbhd_uncached", "pointwise", NO),  # aiter_meta/csrc/kernels/rope/rope_common.h
    ("void aiter::allgather_naive<P>", "communication", NO),  # aiter_meta/csrc/include/custom_all_reduce.cuh
    # flash-linear-attention 0.6.0.
    ("layer_norm_gated_bwd_kernel", "norm", NO),  # fla/modules/norm/fused_norm_gate.py
    ("chunk_rwkv6_bwd_kernel_inter", "gemm", YES),  # fla/ops/rwkv6/chunk.py
    ("chunk_comba_cumsum_scalar_bwd_kernel", "reduction", NO),  # fla/ops/comba/utils.py
    ("layer_norm_fwd_kernel_group", "norm", NO),  # fla/modules/norm/layernorm_gated.py
    ("chunk_gated_delta_rule_fwd_kkt_solve_kernel", "gemm", YES),  # fla/ops/gated_delta_rule/chunk_fwd.py
    ("fused_recurrent_rwkv7_fwd_kernel", "reduction", NO),  # fla/ops/rwkv7/fused_recurrent.py
    ("elu_p1_fwd_kernel", "pointwise", NO),  # fla/modules/activations/ops.py
    ("chunk_ttt_linear_fwd_kernel_o", "gemm", YES),  # fla/ops/ttt/chunk.py
    ("fused_recurrent_delta_rule_fwd_kernel", "reduction", NO),  # fla/ops/delta_rule/fused_recurrent.py
    ("recompute_w_u_fwd_kda_kernel", "gemm", YES),  # fla/ops/kda/wy_fast.py
    ("parallel_path_bwd_dkv_kernel", "attention", YES),  # fla/ops/path_attn/parallel_path_bwd_inter_dkv.py
    # sgl-kernel 0.3.21.
    ("_sum_bitmatrix_rows", "reduction", NO),  # triton_kernels/reduction_details/reduce_bitmatrix.py
    ("void deep_gemm::smxx_paged_mqa_logits_metadata<P>", "other", NO),  # deep_gemm/include/deep_gemm/impls/sm90_fp8_paged_mqa_logits.cuh
    ("void deep_gemm::pack_fp32_into_ue8m0<P>", "copy", NO),  # deep_gemm/include/deep_gemm/impls/smxx_layout.cuh
    ("a_fused_k_grouped_bf16_gemm_contiguous_tl_impl", "gemm", YES),  # deep_gemm/legacy/a_fused_k_grouped_gemm.py
    ("_sum_bitmatrix_memset", "memory", NO),  # triton_kernels/reduction_details/reduce_bitmatrix.py
]
# fmt: on
