# SPDX-License-Identifier: Apache-2.0
"""Meaning of parts of kernel names: the tables behind `kernels.py`.

Each table is searched from the top, and the first matching pattern wins; case does not matter. FUNCTIONS is searched
only in the qualified name of the function, where no template argument and no list of fused operators can mislead;
KINDS, in the whole name, for unmatched names and for functions whose arguments define their work; WORDS, again in
the function, for the remaining ones. What is left is searched once more with the last part of the function taken
apart, an underscore between its words (SliceNormalizeKernel is _slice_normalize_kernel_), at last for TERMS, whole
words. Repetitions are bounded, so that no name takes long. A row gives the
architectures on which such names occur and the evidence: a source file, a document, or the recording that shows it
with the operator that launched it. Recordings are named by GPU and program (all by Nsight Systems, nvprof or
torch.profiler). Add a kernel: one row.
"""

from __future__ import annotations

from typing import NamedTuple


class Pattern(NamedTuple):
    """A regular expression, its meaning, the architectures where such names occur, and the source."""

    regex: str
    value: str | bool
    architecture: str
    source: str


_ANY = "any"
P = Pattern

# fmt: off
# ruff: noqa: E501  (one row per line)
FUNCTIONS = [
    # Inductor's kernels begin with the kind of loop; for a reduction the fused operators give the kind.
    P(r"^triton_(poi|for)_", "pointwise", _ANY, "torch/_inductor/codegen/triton.py: poi is pointwise, for a list of tensors"),
    P(r"^triton_(red|per)_\w{0,300}(layer|rms|group|batch|instance)_?norm", "norm", _ANY, "torch/_inductor: red and per are reductions; MI300X Flux"),
    P(r"^triton_(red|per)_\w{0,300}softmax(?!\w{0,99}(nll|cross))", "softmax", _ANY, "torch/_inductor"),
    P(r"^triton_(red|per)_\w{0,300}(nll_loss|cross_entropy|_loss)", "loss", _ANY, "torch/_inductor"),
    P(r"^triton_(red|per)_fused_sort", "sort", _ANY, "torch/_inductor: sorts of short rows"),
    P(r"^triton_(red|per|split_scan)_", "reduction", _ANY, "torch/_inductor"),
    P(r"^triton_tem_\w{0,200}attention", "attention", _ANY, "torch/_inductor/kernel/flex: templates"),
    P(r"^triton_tem_\w{0,200}conv", "conv", _ANY, "torch/_inductor/kernel/conv.py"),
    P(r"^triton_(tem|mm|bmm|addmm|baddbmm|scaled_mm)_?", "gemm", _ANY, "torch/_inductor/kernel/mm.py, bmm.py"),
    # XLA: kind of fusion, then the operation that names it; collectives run under the name of their instruction.
    P(r"^(all-(reduce|gather|to-all)|reduce-scatter|collective-(permute|broadcast))", "communication", _ANY, "XLA: instruction names; JAX on A100"),
    P(r"^gemm_fusion_", "gemm", _ANY, "XLA gemm_fusion.cc; JAX on H100"),
    P(r"^(input|loop|wrapped)_\w{0,60}reduce", "reduction", _ANY, "XLA fusions: an input fusion ends in a reduction; JAX on A100"),
    P(r"^(input|loop|wrapped)_(transpose|concatenate|slice|gather|scatter|pad|reverse|copy|dynamic_(update_)?slice)", "copy", _ANY, "XLA fusions; JAX on A100"),
    P(r"^(loop|wrapped)_\w", "pointwise", _ANY, "XLA fusions: a loop over elements; JAX on A100"),
    P(r"functor::(sparse)?apply(adam|momentum|gradientdescent|rmsprop|adagrad|adadelta|ftrl|keras)", "optimizer", _ANY, "TensorFlow training_ops_gpu.cu.cc; A100 EXARL"),
    # TensorRT's Myelin names the operations that it fused, shortened.
    P(r"^__myl_\w{0,80}(soft|smax)", "softmax", _ANY, "TensorRT: profiles of trtexec"),
    P(r"^__myl_\w{0,80}(sum|mea)\w{0,40}sqr", "norm", _ANY, "TensorRT: profiles of trtexec"),
    P(r"^__myl_\w{0,80}(sum|mea|red|max)", "reduction", _ANY, "TensorRT: profiles of trtexec"),
    P(r"^__myl_(fc|mm|matmul|gemm)", "gemm", _ANY, "TensorRT: profiles of trtexec"),
    P(r"^__myl_", "pointwise", _ANY, "TensorRT: profiles of trtexec"),
    P(r"(scudnn|hcudnn|[shi]\d{3,5}cudnn)|\$conv(forward|back)", "conv", _ANY, "cuDNN 7 and 8, before the layouts in the name (nhwc2nchw): RTX 2080; XLA's custom calls"),
    P(r"flash_(fprop|bprop)(?!_(do_o|o_do)_dot)|\bnsa_\w{0,20}(fwd|bwd)|_nsa_\w{0,20}(fwd|bwd)", "attention", _ANY, "cuDNN 9 SDPA; flash-linear-attention native sparse attention"),
    P(r"attn_softmax|topk_log_softmax", "softmax", _ANY, "DeepSpeed softmax_kernels.cu; vLLM logprob.py: of the chosen tokens"),
    P(r"xentropy|cross_?entropy", "loss", _ANY, "Apex xentropy_kernel.cu, Liger cross_entropy.py"),
    # What a longer name contains, before the shorter words in it.
    P(r"reduced_divisor|merge_path_partition|csrm[mv]\w{0,9}_partition|cu_?seqlens", "other", _ANY, "cuDNN, cuSPARSE, TransformerEngine: sizes for later kernels"),
    P(r"(de)?quant\w{0,9}_reduce(_|$)|chunk_\w{0,30}cumsum|(^|_)(l[012p]|max|min|inf|vector|frobenius|grad)_norm(_kernel|$)|mla_\w{0,20}merge|mla_\w{0,20}reduce|(flash|decode|attn|attention|split)\w{0,30}_stage_?2|fmha_bwd\w{0,20}_odo|delta_rule_(update|decode)|[cp]dist_(backward|kernel|forward)", "reduction", _ANY, "DeepSpeed quant_reduce.cu, flash-linear-attention cumsum.py, FlashInfer sparse_mla, SGLang and vLLM decode_attention.py, AITER, PyTorch DistanceKernel.cu"),
    P(r"(^|_|::)sparse_(attn|mla|attention)_(?!\w{0,60}(indices|index|merge|combine|reduce|metadata|plan))\w{0,20}(fwd|bwd|decode|prefill|forward|backward)", "attention", _ANY, "FlashMLA sm100/prefill/sparse, FlashInfer sparse_mla_sm120"),
    P(r"(^|(?<!rope)_|::)(set|store|write|insert)_\w{0,12}kv|(^|_|::)transfer_(kernel|page|kv)|(^|_)advance_step|flatten_\w{0,20}cache|fmha_bwd\w{0,20}_dq_convert|take_put|masked_select|(^|_|::)remap_|reorder_batched|(^|::|_)(mla_)?copy_(qkv?|kv|to|from)(_|$)|compute_cuda_kernel|(dense|padded|jagged)_(\w{1,4}_)?to_(\w{1,12}_)?(dense|padded|jagged)|(csr|csc|coo|bsr)2(csr|csc|coo|bsr|dense)|(k|kv)_cache_(gather|scatter|fill|write|update)", "copy", _ANY, "SGLang mem_cache, sgl-kernel kvcacheio, vLLM advance_step.cu, lmdeploy, AITER, PyTorch Repeat.cu and IndexKernel.cu, FBGEMM jagged tensors"),
    P(r"separableresampl|bias_?add(_?kernel)?$|(?<!norm_)rope_(insert|append)|histogram_binning|resampling::|slice_?flip_?normalize|slicenormalize|ban_?(bad|repeat)|apply_\w{0,20}bitmask|logits_?bitmask|(^|_|::)reconstruct_|from_amax|delayed_scaling|do_?(gated)?activation|miopen(neuron|active)|^cijk_[a-z0-9]{1,5}(_g[ab])?$", "pointwise", _ANY, "DALI, TensorRT-LLM banRepeatNgram.cu, xgrammar, exllama, TransformerEngine recipe/delayed_scaling.cu, MIOpen MIOpenNeuron.cl, Tensile KernelWriterBetaOnly.py"),
    P(r"(^|_)wrw(_|$)|miopen\w{0,10}conv|^igemm_v\dr\d|convuniversal|conv::kernel::|implicitgemmconv", "conv", _ANY, "MIOpen, CUTLASS conv"),
    P(r"wv_?splitk|(bf16|f8|i8|f4|mx\d)(bf16|f8|i4|i8|f4|mx\d)(bf16|f32)_|[bs]gmv_(\w{1,9}_)?(shrink|expand)|fp8_index(_|$)|persist_?(lstm|gru)", "gemm", _ANY, "ROCm skinny_gemms.cu, FBGEMM gen_ai/quantize: types of operands and result, Punica, DeepSeek's indexer, cuDNN"),
    P(r"fill_index_and_segment|last_filter|moe_?scan|sort_?postprocess|expert_num_tokens", "sort", _ANY, "PyTorch Sort.cu"),
    P(r"make_q_matrix|transformrowtoformat|vol2im", "layout", _ANY, "exllama q_matrix.cu, bitsandbytes kernels.cu"),
    P(r"generate_seed|seed_pseudo|threefry|rocrand|mt19937|mtgp|xorwow|sobol", "rng", _ANY, "cuRAND, rocRAND, JAX"),
    P(r"(^|::)_?k?dequantize(?!\w{0,60}(gemm|_mm|matmul|mul_mat|cache|transpose|reduce))", "pointwise", _ANY, "ONNX Runtime, DeepSpeed, bitsandbytes: the verb comes first"),
    P(r"(^|(?<!reformat)::)_?(copy(?! |peer|host|device|p2p|[hd](to|2)[hd])|pack(?!ed|bits)|unpack(?!_?int)|append(?!\w{0,10}attention)|convert)(?!\w{0,80}(quant|qparam|gemm|matmul|routing|topk|indexes|scatter|layout))", "copy", _ANY, "ONNX Runtime, FBGEMM, FlashInfer page.cuh, lmdeploy: the verb comes first"),
    P(r"attention_softmax", "softmax", _ANY, "ONNX Runtime contrib_ops/cuda/bert/attention_softmax.cu"),
    P(r"(rms|layer|group)_?norm_?(and_?)?(silu|gelu|swish)|norm_?(and_?)?rope(?!\w{0,40}(attn|attention))", "norm", _ANY, "TensorRT-LLM fusedQKNormRopeKernel.cu, vLLM fused_deepseek_v4, SGLang fused_qknorm_rope"),
    P(r"gemm_softmax_gemm|^triton_flex_|_fwd_(grouped_)?kernel_stage_?1|(attn|attention)_\w{0,30}::fwd_kernel|core_attn::", "attention", _ANY, "CK: the two products of attention; FlashMLA"),
    P(r"[sd]p(radix|vector)\d|fft_rtc|(^|_)(bluestein|fft_(fwd|back|inv|len))", "other", _ANY, "cuFFT, rocFFT"),
    # Between devices.
    P(r"\bbeam::", "communication", _ANY, "vLLM: collectives of small messages"),
    P(r"reduce_(qk_)?rms\w{0,20}lamport|all_?reduce_?(residual_?|add_?)?(rms|layer)_?norm", "allreduce_norm", "Hopper, Blackwell", "vLLM minimax_reduce_rms_kernel: from TensorRT-LLM"),
    P(r"\bnccl_ep::|\blsa_(get|put)|diagp2p|wait_for_signal|\b(consumer|producer)(_batch)?_kernel|symm_mem_sync|exchangesplit|put_signal|wait_signal_kernel|_on_stream_kernel|(^|_)a2a(_|$)|(^|_)(p2p|peer)_(send|recv|put|get|copy)|wait_lse_combine|^broadcast\d|nccl\w{0,40}kernel|(^|::)nccl|(ipc|nvl|pcie)_\w{0,20}(push|pull|ring|rsag)|rank_major_(dispatch|combine|input|partial)|(dispatch|combine)_publish|deep_?ep::(\w{1,40}::)?\w{0,20}_impl", "communication", _ANY, "NCCL EP and diagnostics, PyTorch nccl_extension.cu, TransformerEngine userbuffers.cu, MSCCL++"),
    P(r"\bdeep_ep::|\b\w{0,20}ep::(\w{1,40}::)?\w{0,40}(dispatch|combine|notify)|dpsk::ep::|deepep_\w{0,20}(dispatch|combine)|\bpplx::|\bmori::|ep(dispatch|combine)(intra|inter)node|moea2a|moe_?(comm|alltoall)", "communication", _ANY, "DeepEP csrc/kernels (DeepSeek's H800 training); pplx-kernels; MoRI; TensorRT-LLM moeAlltoAllKernels.cu"),
    P(r"nccl(sym)?k?(dev)?k?ernel|ncclsym|^rccl|msccl|nvshmem|k?userbuffers_|ubuf_|barrier_all|lamport", "communication", _ANY, "NCCL src/device (symmetric too), RCCL, MSCCL++, TransformerEngine userbuffers.cu, SGLang"),
    P(r"(all_?reduce|\bar)_?fusion|(all_?reduce|cross_device_reduce)\w{0,40}norm(?!al)|norm(?!al)\w{0,40}all_?reduce|fused_?all_?reduce", "allreduce_norm", _ANY, "FlashInfer and TensorRT-LLM allreduce_fusion (trtllm_allreduce_fusion.cuh), AITER custom_all_reduce.cuh, MoE and attention in TensorRT-LLM"),
    P(r"all_?reduce|cross_device_reduce|reduce_?scatter|all_?gather|all_?to_?all|multimem_|(one|two)_?shot", "communication", _ANY, "vLLM and SGLang custom_all_reduce, AITER, PyTorch CUDASymmetricMemoryOps.cu"),
    P(r"symmetric_memory::|\bcomm::(?!\w{0,40}(quant|norm))", "communication", _ANY, "PyTorch CUDASymmetricMemoryOps.cu, CUDASymmetricMemory.cu: barriers and signals, too; FlashInfer comm"),
    # Helpers of products and of attention: pointers, sizes, plans, tensor maps.
    P(r"problem_sizes|group_?gemm_(starts|args)|prepare_\w{0,20}gemm|(grouped|stacked)_\w{0,20}args_kernel|gemm\w{0,20}_(arrays|ptrs)|gemmptrs|fillptrarray|tensor_maps|tma_(desc|setup)|offsetskernel|paddingoffsets|blockscale_offsets|computeoffset|assert_async|spin_kernel|pointerarray|device_workspace|setscaleinternal|^nvjpeg::", "other", _ANY, "cuDNN, cuBLAS, vLLM and SGLang grouped GEMM; nvJPEG decodes"),
    P(r"(?<!pre)(?<!pre_)(?<!post)(?<!post_)reorder(?!_batched)|zigzagfilter|to_?folded|folded(nhwc|nchw)to|metadatacompress|genericreformat|ncxhw|swapdimension|shuffleintensor|compresssparse|blocked_layout|prepack|marlin\w{0,20}preprocess|make_sequential|gptq(::|_)shuffle|imagetocolumn|columntoimage|batched_?transposekernel|bint4_layout|(nchw|nhwc)to\w{0,12}(nchw|nhwc)", "layout", _ANY, "cuDNN, cuBLAS cuda_reorder_*, vLLM machete and GPTQ, PyTorch int4mm.cu"),
    P(r"^(?!.{0,400}(quant|gemm|matmul|_mm(_|$))).{0,400}swizzle", "layout", _ANY, "TransformerEngine swizzle.cu, torchao mx layouts"),
    P(r"permute_cols|bwd_?post_?process|shuffle(_?input)?_?rows|index_?(add|copy|fill)|transposeqkv|copypacked|indexing_backward|concat_?mla|mla\w{0,40}concat|split_reshape_cat|prepare_kernel_(fwd|bwd)|(join|split)heads|rnn_?(copy|handle|skip)|pack_segments|^_?append_(?!paged)|set_rows|convert_dq|permutationkernel|rnn(in|out)putrearrange|swap_kernel|(float|half)2(float|half)|convert_?tensor|withtypeconversion|^_?b?float\d*_to_b?float\d*_|sparse_semi_structured_(apply|tile)|decode_indices", "copy", _ANY, "vLLM, SGLang, PyTorch Indexing.cu, TransformerEngine, cuDNN RNN and attention, MAGMA swaps, cuDNN conversions"),
    P(r"get_mla_metadata|slash_indexes|\bnms_|tile_scheduler_metadata", "other", "Ampere and later", "FlashMLA, vLLM sparse attention's indices, torchvision nms_kernel.cu"),
    # Copies and moves of caches; parts of larger operators that are no product.
    P(r"chunk_cat|split_with_sizes_copy|gather_\w{0,40}cache|_(slot_mappings?|idx_mapping|block_tables)_kernel|(^|_)prepare_\w{0,30}(inputs|lens|positions)_\w{0,20}kernel|^_post_update_kernel|^_combine_sampled|^_get_num_sampled|^_scatter_num|^_insert_resampled|^_apply_write", "copy", _ANY, "PyTorch SplitWithSizesCopy.cu, FSDP2; vLLM v1/worker/gpu: bookkeeping of requests"),
    P(r"append_?(paged|kv)|kv_?indices|reshape_and_cache|concat_and_cache|(set|store|write)_kv|kv_?(buffer|cache)_(store|copy)|store_?kv_?cache|deep_gemm::transpose|pack_fp32_into|kv_buffer|token_pool|(^|_)ep_(gather|scatter)|(^|_|::)(cpy|convert)_(?!dq)", "copy", _ANY, "FlashInfer page.cuh, SGLang, vLLM cache_kernels.cu, DeepGEMM layout"),
    P(r"marlin_repack|unfolded\dd_|im\d?col", "layout", _ANY, "vLLM gptq_marlin_repack.cu; PyTorch UnfoldBackward, im2col.cuh"),
    P(r"clean_logits|_memset(_kernel)?$|(^|(?<!non)(?<!and)_|::)zero(?!_?point|pt)\w{0,40}(kernel|rows|amax)|zero_?(amax|scales|pages|device)", "memory", _ANY, "DeepGEMM: writes minus infinity; TransformerEngine, vLLM"),
    P(r"merge_?split_?k|reduce_segments|moe::dev::finalize|^_?merge_\w{0,20}(lse|state|split)|^_?compute_\w{0,20}stats_kernel|(\b|rocblas_)(asum|nrm2|iamax|iamin)_kernel", "reduction", _ANY, "vLLM triton_unified_attention.py, TensorRT-LLM trtllmGenKernels"),
    P(r"l2norm_(fwd|bwd)|silu_l2norm", "norm", _ANY, "flash-linear-attention l2norm.py: rows of queries and keys"),
    P(r"(gemm|matmul)\w{0,80}_reduce(_kernel|$)", "reduction", _ANY, "AITER: sums of a product split over K"),
    P(r"embedding_lora", "embedding", _ANY, "SGLang: LoRA of the embedding table"),
    P(r"deep_gemm::\w{0,40}gemm|int\dpack_mm|mfma_moe|gemm\d_a\d{1,2}w\d|(^|_)t?gmm_|moe_(fwd|bwd)_d[wx]|(^|_)(up|down|qkv|out)_proj", "gemm", _ANY, "AITER FlyDSL experts, Liger, megablocks: grouped products"),
    P(r"postgsu|lpnorm|l2norm|mla_combine|(fwd|flash|attn|mla)_?\w{0,40}combine|splitkv_?combine|merge_?(attn_)?states?|ograddot|dot_do_o|(do_o|o_do)_dot|bwd_?preprocess|_fwd_kernel_stage2|attention_\w{0,20}reduce|moe_sum|finalizemoe", "reduction", _ANY, "Tensile global split of K, Apex, FlashMLA, CK fmha, FlashAttention, SGLang decode_attention.py, vLLM, TensorRT-LLM"),
    P(r"^_(temperature|min_p|penalt\w{1,9}|bad_words|logit_bias|bitmask)_kernel|apply_token_bitmask|softcap|^_fg_kernel|^_dwf_dw_dfg|gated_kernels::|(\b|rocblas_)(scal|axpy|rot)_(\w{1,9}_)?kernel", "pointwise", _ANY, "vLLM v1/worker/gpu/sample, xgrammar"),
    P(r"grid_?sample|\bcross_kernel|(gru|lstm)_?cell|(lstm|gru|rnn)_element|elemwisernn|repetition_penalt|bias_residual(?!\w{0,30}norm)|_dyt_|rope_(forward|backward)", "pointwise", _ANY, "PyTorch GridSampler.cu, CrossKernel.cu, RNN.cu; cuDNN; vLLM sampler.cu; DeepSpeed; Liger"),
    P(r"(?<!no_)(margin|hinge|dice|focal|triplet|ranking|infonce)_?loss|kldiv|_jsd_|tv_distance|orpo|(fwd|forward|backward)_?loss", "loss", _ANY, "PyTorch MultiMarginLoss.cu, MultiLabelMarginCriterion.cu; Liger"),
    # Embedding tables with caches; products and solvers of dense and sparse linear algebra.
    P(r"ssd_embedding|embedding_?bag|embedding_nobag|batch_index_select_dim0|(lxu|lfu|lru)_(cache|update)|linearize_cache|cache_miss|grad_mean_kernel|partial_segment|ngramids", "embedding", _ANY, "FBGEMM caches of embeddings; PyTorch EmbeddingBackwardKernel.cu; vLLM ngram_embedding"),
    P(r"timestep_embedding|sinusoid", "pointwise", _ANY, "SGLang: sines and cosines of the time step"),
    P(r"(^|::)i[sdcz]amax|^(?!.{0,400}quant).{0,400}(?<!zero_)(amax|absmax)|mla_reduce|reduce_head|stream_k_fixup|(attn|attention)\w{0,60}_?(reduce|merge)(_|$)|merge_attn|merge_chunks|correct_attn|out_correction|(^|_)combine_(lse|splitk)|^_?(combine|state_merge)(_kernel)?$|shuffle_mul_sum|weighted_sum|sum_combine|contract_dbias|attentionsum|bincount|coalescevalues|reduce_tensor_index|shared_exponent|isallfinite|checkfornan|calc_block_sums", "reduction", _ANY, "TransformerEngine, MAGMA, AITER, SGLang: parts of attention and experts added up; ONNX Runtime, c10d"),
    P(r"getr[fsi]|getf2|geqr|gelq|potr[fsi]|syev|sytrd?|sytd|gesvd|gebrd|gebal|labrd|or[mg](tr|q[lr])|larf[tgb]|laed\d|lasr_|laswp|lacp|laset|lascl|steqr|bulge|svd|ilu0|ilu02|ic02?_|csrqr|pivinfo|ipiv|pivcast|set_pointer|displace_pointers|gtsv|gpsv|nvjpeg|scal_\wger|csrsv|bsrsv", "other", _ANY, "cuSOLVER, MAGMA, cuSPARSE: factorisations, eigenvalues, pivots"),
    P(r"(?<!qu)(?<!s)tr[sm][mv](?!l)|(^|_)[sdcz]tr[sm][mv]|(^|_)(he|sy)r2?k(_|$)|sy(he)?m[mv](?!e)|syhem|\b(sy|he|sp|hp)r2?_|sbhbmv|sphpmv|[gts]b[ms]v|t[pb][ms]v|\bgpmv|dgmm|bdmm|bsrx?m[mv]|(csr|coo|csc)_?m[mv]", "gemm", _ANY, "cuBLAS and cuSPARSE: products of matrices and vectors, triangular solves"),
    P(r"rnn_(blockpersist|persist)|persist_?rnn(?!_(init|add))|lstm_cta|\bmoe_(vec_)?i?q\d?_?k?\b|do_(expand|shrink)_kernel|^_router_(?!\w{0,40}(topk|gemv))|^_?bf16gemm|mxgemm|^(?!\w{0,80}attn)\w{0,80}(index|block|decode|logits?)_\w{0,20}scores?(_|$)", "gemm", _ANY, "cuDNN persistent RNN: products of the hidden state; GGUF in vLLM; LoRA; routers"),
    P(r"lrn_?(fw|bw|forward|backward)|divnorm|dual_dbn|batchnorm::|(^|_|::)(ada_?ln|gn|qk_ln)_|bn_?stats|biasstats|quant_(layer|rms)_?norm|_rms_\w{0,20}quant|poly_norm|^_rms_", "norm", _ANY, "cuDNN LRN and fused batch norm, SGLang, Unsloth"),
    P(r"fft[123]d_(r2c|c2r|c2c)|\bdse::", "conv", _ANY, "cuDNN FFT convolutions"),
    P(r"rowwise_to_|_to_\w{0,20}rowwise|qparam|kdequant|reconstruct_(gptq|exllama)|cvt_fp\d+_to|(up|down)(cast|scale)_|fp8_grid|movingaverageminmax|choosequant", "pointwise", _ANY, "FBGEMM quantize_ops, bitsandbytes, vLLM and SGLang: to and from few bits; PyTorch FusedObsFakeQuant.cu"),
    P(r"tri[lu]_indices|temperature_kernel|nearest_neighbor_|interp\d?_kernel|add_qkv_bias|biasn(hwc|chw)|\bop\w{0,8}tensor|_scaling::kernel|\brot[gm]_|\bgeam_|conjugate|bin_bcast|^kn_entry_|lstm_\w{0,9}combine|sbar(_|gen)|bilinear_sampler|arbitrary_fusion|dropout\w{0,20}residual|residual\w{0,20}dropout|bias_rescale|(^|_)m?hc_(?!mm|\w{0,30}norm)|mhc_|generate_grid|addbias(?!\w{0,60}norm)|sinkhorn|relu_squared|^_(exact|approx)_(forward|backward)|mask_indices", "pointwise", _ANY, "cuBLAS, cuDNN, PyTorch NestedTensorTransformerFunctions.cu, DeepSeek hyper-connections, Unsloth"),
    P(r"rnnt::|\bctc::|alphas_and_betas|aux_loss|(^|_)ce_(tvd|fwd|bwd|forward|backward|loss)", "loss", _ANY, "torchaudio, TransformerEngine fused_router, Liger"),
    P(r"adaptive_?(avg|average|max)", "pooling", _ANY, "PyTorch AdaptiveAveragePooling.cu, AdaptiveMaxPooling2d.cu"),
    P(r"^(?!.{0,200}(fmha|flash|attn|attention|softmax|norm)).{0,200}dropout", "rng", _ANY, "cuDNN, ONNX Runtime, Triton: draws the mask"),
    P(r"expt_data|tokens_per_expert|src2dst|count_expert|row_(id_)?map|(^|_)route[ds]?(_|$)|gather(median|kthvalue)|kth_?value|compute_mode|beam_search|searchsorted|(^|_)ranks?_kernel|moe_\w{0,20}align|moe_?gate(?!_?(up|proj|w\d))", "sort", _ANY, "triton_kernels, SGLang, TransformerEngine: tokens by expert; PyTorch Sorting.cu, TensorModeKernel.cu, Bucketization.cu"),
    P(r"verify_?tree|_greedy_|accept(ance)?_kernel|rrelu|(^|_)(re)?sampled?_|speculative_?sampl", "rng", _ANY, "SGLang and vLLM: speculative decoding accepts or draws"),
    P(r"metadata|num_kv_splits|_schedule_|schedule_prep", "other", _ANY, "SGLang, vLLM, FlashInfer: plans of later kernels"),
    P(r"histogram\d?d?(?!\w{0,20}sort)|cdist_kernel|pdist_kernel", "reduction", _ANY, "PyTorch SummaryOps.cu, DistanceKernel.cu"),
    P(r"bucketize", "sort", _ANY, "PyTorch Bucketization.cu: a search in what is sorted"),
    P(r"roi_?(align|pool)", "pooling", _ANY, "torchvision roi_align_kernel.cu, roi_pool_kernel.cu"),
    P(r"(?<!re)(?<!up)(?<!down)sampling|top_?[pk]_?renorm|multinomial|gumbel|^_(resample|rejection)_kernel", "rng", _ANY, "FlashInfer sampling.cuh, PyTorch MultinomialKernel.cu"),
    P(r"moe::dev::routing::|moe_?(align|sorting|topk|fused_gate)|expert_?prefix_?sum|moe_?routing(?!\w{0,9}finalize)|sort_?expert|expert_?(sort|histogram)|topk_?gating|_routing|routing(main|cluster|index)|(?<!ten)sort|top_?k(?!renorm)", "sort", _ANY, "vLLM moe_align_sum_kernels.cu, AITER and CK MoeSorting, TensorRT-LLM routing, SGLang moe_fused_gate"),
    P(r"(moe|token|unpad|expand)\w{0,30}_?(un)?permute|expandinputrows|pre_?reorder|post_?reorder|(replication|reflection)_pad|roll_cuda|triu_tril", "copy", _ANY, "TensorRT-LLM and SGLang MoE, PyTorch ReplicationPadding.cu, TensorTransformations.cu, TriangularOps.cu"),
    # Products in serving and quantised ones.
    P(r"\bw\d{1,2}a\d{1,2}_(?!\w{0,40}quant)|router_gemm|fused_a_gemm|\bmm_kernel|llmm1|fused_moe::run|moe_gemm|flatmm|quantized_linear|indexer\w{0,20}_logits|aiter\d*(::)?(fp?\d|a\d{1,2}w\d{1,2}|i8|bf16)\w{0,3}gemm", "gemm", _ANY, "SGLang and TensorRT-LLM dsv3 kernels, FlashInfer, FlagGems, ROCm LLMM1, CK and AITER assembler kernels"),
    P(r"(sgmv|bgmv|lora)_?(shrink|expand)|\bcsr_?mm|\bcsr_?mv|\bsp(mm|mv)_|sddmm|segment_?gemm|qserve", "gemm", _ANY, "vLLM lora/ops/triton_ops, Punica; cuSPARSE; SGLang qserve_w4a8"),
    P(r"silu\w{0,20}quant\w{0,20}deep_gemm", "pointwise", "Hopper, Blackwell", "vLLM batched_deep_gemm_moe.py: activation and quantisation for DeepGEMM"),
    P(r"fused_moe(?!\w{0,20}gate)|fmoe|marlin|gptq|awq::?_?gemm|awq_gemm|exllama|_mm(_kernel)?$|scaled_mm|scaled_gemm|_rowwise_impl|f8f8bf16|mul_mat_|wvsplitk|_bmm_|\bbmm_|mqa_logits|tinygemm|weight_only|machete|kernelmma|flashinfer\w{0,10}gemm", "gemm", _ANY, "vLLM, SGLang, AITER fmoe, Marlin, GPTQ, AWQ, DeepGEMM, FBGEMM, llama.cpp mmq.cuh, ROCm skinny_gemms.cu"),
    P(r"(rms|layer)_?norm\w{0,20}quant", "norm", _ANY, "vLLM and AITER: a norm whose result is quantised"),
    P(r"^(?!.{0,400}(gemm|matmul|_mm(_|$))).{0,400}((?<!un)(?<!no)quant(?!ile))", "pointwise", _ANY, "vLLM, SGLang per_token_group_quant, bitsandbytes kQuantizeBlockwise, AITER"),
    P(r"qk_?norm_?rope|norm_?(and_?)?rope", "norm", _ANY, "TensorRT-LLM fusedQKNormRopeKernel.cu, SGLang fused_qknorm_rope"),
    P(r"^(?!.{0,400}(gemm|matmul|_mm(_|$))).{0,400}(rotary|(?<!p)rope|qkapplyrot|silu|gelu|swiglu|geglu|(gated_?|do)act|act_?and_?mul|::activation)", "pointwise", _ANY, "vLLM, FlashInfer pos_enc.cuh and activation.cuh, Liger"),
    # Normalisation.
    P(r"^(?!.{0,400}(gemm|matmul|_mm(_|$))).{0,400}((?<!weight_)(?<!grad_)(layer|rms|group|batch|instance|qk|add|head)_?norm|::norm::|normalization::|\bln_(fwd|bwd|parallel)|cucompute(part)?grad|compute(backward)?fusedparams|\b_?norm_(fwd|bwd))", "norm", _ANY, "TransformerEngine, Apex, FlashInfer norm.cuh, PyTorch group_norm_kernel.cu, Liger"),
    P(r"(?<!top_[pk]_)renorm(?!alize)|\bwelford_(kernel|parallel|first|second)|\bcu(welford|chan)", "norm", _ANY, "PyTorch RenormKernel.cu; Apex welford.cu: batch norm over devices"),
    # State space models.
    P(r"selective_scan|chunk_?cumsum|state_passing|(gdn|kda)_decode|gated_delta_net|_recurrent_|recurrent_\w{0,30}(fwd|bwd)", "reduction", _ANY, "Mamba csrc/selective_scan, ssd_chunk_state.py: scans"),
    P(r"chunk_(scan|state|gdn|kda|gla)|chunk_(gated_)?delta|\bssd_(?!embedding)|chunk(wise)?_(\w{0,40}_)?(fwd|bwd)|(^|_)wu_(fwd|bwd)|kkt_?solve|mamba\d?_ssd|scaled_dot_kkt|recompute_w_u|solve_tril|wy_repr|merge_16x16", "gemm", _ANY, "Mamba ssd_chunk_scan.py, flash-linear-attention: tl.dot of chunks"),
    P(r"hadamard|(^|_)fht(_|\d)", "other", _ANY, "fast-hadamard-transform: sums and differences, no product"),
    P(r"causal_conv1d|miopensp3asm", "conv", _ANY, "Mamba causal-conv1d, MIOpen"),
    # Attention.
    P(r"^_?(fwd|bwd)_(grouped_)?kernel|_fwd_grouped_kernel|sage_?(fwd|attn)|qk_int_?\w{0,20}_?sv|bwd_kernel_(fuse|d[kq])|aiter(::|\d+)(mla|fmha|pa)_|^kernel_mha|(?<![a-z])mla_|flashmla|(fwd|bwd)_split_?k|fwd_kernel_splitk|unified_attention|fattn_(mma|tile|vec|wmma)|attn_(fwd|bwd|decode|prefill)|decode_attn|with(paged|ragged)?kvcache", "attention", _ANY, "Triton tutorials and SGLang, SageAttention, AITER assembler kernels, FlashMLA, FlashInfer"),
    # Triton and serving, by the words of the function.
    P(r"(^|_)(g|m)qa_\w{0,40}(fwd|bwd|decode|prefill|attn|paged)|sparse_(decode|prefill|mla|attn)|paged_decode|decode_split|bwd_d(kdv|q|k|v)(_|$)|(^|::)pa_(a\d|bf16|fp16|kernel)|flash_(c\d|kda)|(^|_)mha_|neighborhood|hstu_|(^|_)attn_|mqa_paged|_attn(_|$)", "attention", _ANY, "SGLang, vLLM, AITER and Liger: functions of Triton"),
    P(r"(^|(?<!space)_)(short_|dilated_)?conv(?!ert|_?(state|window|indices|cache|residual))(_|\dd)", "conv", _ANY, "SGLang, vLLM, FlashInfer: short and dilated convolutions"),
    P(r"(^|_)lora_", "gemm", _ANY, "SGLang LoRA kernels: tl.dot"),
    P(r"(?<!grad)(^|_)norm(_|$)|normkernel|(^|_)(rms|rmsnorm|ln)_", "norm", _ANY, "Triton kernels of SGLang, vLLM, FlashInfer"),
]
# What is left, by the words of the function: mostly Triton kernels of serving.
WORDS = [
    P(r"concat|(^|_)(un)?pack(?!_?bits)(_|$)|(^|_)copy(_|$)|(^|::)copy\w|copy_to_|(un)?pad(ding|ded|_|$)|padd?_last|page_?table|cache_locs|(^|_)slice(kernel)?(_|$)|(^|::)_?(concat|slice|pad|tile|tilememcpy|reverse|reversesequence|onehot)\w{0,20}(kernel|impl)|thd_(read|to)|joinheads|remap_|prune_|index_select|index_add|conv_(state|window|cache)|cat_jagged|_mapping_|flag_kernel|write_(indices|fill_value)|extract_|(^|_)split_(?!k|sum)|(^|_)build_|spec_info|(^|_)alloc_", "copy", _ANY, "Triton kernels of SGLang and vLLM; TransformerEngine; ONNX Runtime; FBGEMM"),
    P(r"(^|_)(set)?zero(_|$)|setzero|settensor|cublas_zero|memset_kernel|fill_?(one|value|input|output)|::fill_|(^|_|::)iota|_eye_", "memory", _ANY, "cuDNN, cuBLAS, ONNX Runtime, FlashInfer: constants"),
    P(r"block_scaled_\dd|(^|_)(gate|gating|act|relu|sigmoid|tanh|softplus|mask)(_|$)|exp_kernel|resize", "pointwise", _ANY, "Triton kernels of SGLang, vLLM, Liger; ONNX Runtime"),
    P(r"^_?(fused_)?(prepare|update|commit|fill|expand|build|store|write|set|assign|save|append|insert|record|move|track|translate|compact|stage|transform_index|get|bind|free|create)_\w{0,80}(kernel|triton|indices|locations)", "copy", _ANY, "Triton kernels of SGLang and vLLM: bookkeeping of requests, caches and pages"),
]
# What is still left, by whole words of the function: its last part, camel case taken apart, an underscore on each side.
TERMS = [
    P(r"_(metadata|seqlens?|indptr|ptrs|ptr_array|pointers?|strides|descriptors|schedule|plan|offsets?|work_items|timestamp|nms|problem_sizes|meta)_|_(assert|check|print|delay|sleep|spin|flush|profiler|fake|hash|murmur)_", "other", _ANY, "FlashInfer, SGLang, vLLM, XLA: plans, addresses and checks for other kernels"),
    P(r"_barrier_|_(publish|wait|bump)_(ack|acks|tag|signal|flag|combine|prefix|dedup)_|_signal_(wait|flag)_|_wait_signal_|_(shmem|symm)_", "communication", _ANY, "FlashInfer moe_ep and comm, TensorRT-LLM: signals between devices"),
    P(r"_(rng|rand|randn|randint|random|binomial|poisson|uniform|normal|bernoulli|exponential|geometric|cauchy|sample|sampler)_", "rng", _ANY, "FlagGems rand.py, TensorRT-LLM populateRandomBufferKernel, AITER sample_kernels.cu"),
    P(r"_\w{0,20}loss(es)?_|_(celoss|grpo|dpo|kto|ppo|lce)_", "loss", _ANY, "FlagGems, Liger grpo_loss.py, flash-linear-attention grpo.py"),
    P(r"_(adam|adamw|sgd|lion|lamb|muon|adagrad|rmsprop|ademamix|lars|adadelta|adafactor)_", "optimizer", _ANY, "DeepSpeed fused_lamb_cuda_kernel.cu"),
    P(r"_(normali[sz]ation|bn|ln|lrn|modnorm|rmsn?|layern|groupn|\w{0,20}(?<!l1)(?<!l2)(?<!lp)(?<!grad)norm)_", "norm", _ANY, "CK gridwise normalization, DeepSpeed layer_norm.cu, MIOpen LRN, Unsloth"),
    P(r"_(attn\w{0,6}|attention|flash|sdpa|mha|gqa|mqa|xqa|mla|msa|vsa|swa|nsa|moba|dsa)_|_parallel_(based|rebased|path|parallax|deltaformer|simple_gla|retention)_|_seg_la_|_lh_(fwd|bwd)_|_(gdn|kda|flashkda)_(\w{1,40}_)?prefill_|_flashkda_", "attention", _ANY, "FlashInfer xqa, lmdeploy, flash-linear-attention, SGLang seg_la.py, Unsloth"),
    P(r"_(linear(?!_(comb|ind|inter))|a\d{1,2}w\d{1,2}|matmul|mmk?|mat_?vec|addmm|baddbmm|bmm|mv|addmv|smm|vdot|contraction|einsum|matrix_multiply|matrix_mul|gemm\w{0,4}|gemv|(i|int|fp)\d{1,2}_?mm)_|_(mega|fused|situ|cutlass|alpha)_?moe_|_moe_\w{0,40}(up|down|gate|fc\d|w\d)_", "gemm", _ANY, "CK contraction, lmdeploy, Unsloth, FlagGems, FlashInfer fused_moe: a mixture of experts whole or one of its projections"),
    P(r"_(count_nonzero|arg_min_max|logsumexp|log_sum_exp|cumsum|cumprod|cummax|cummin|sumsq|moments?|stats?|statistics|quant_reduce|dequant_reduce|reduced?|merge|finalize|percentile|accumulate|row_sum|hist)_|^_(k_|b_)?(a?max|a?min|aminmax|sum|mean|all|any|prod|var|std|trace|count|argmax|argmin)_|_(sum|mean|prod)_(kernel|dim|backward|forward)_|_max_nan_|_col_row_stats_|_(partial|split|group|seq|segment)_sum_|_(selective|ssm)_(state|scan)_|_state_update_|_recurrent_|_decoding_one_step_|_kda_|_gdn_|_gdr_|_ssu_|_wkv\d?_|_experts?_combine_|_lru_kernel_", "reduction", _ANY, "FlagGems max.py and the like, DeepSpeed, bitsandbytes, FlashInfer: state space models"),
    P(r"_(sort|sorted|argsort|radix|topk|top_k|quantiles?|median|unique|dedup|isin|router|routing|bucket\w{0,4}|bitonic)_|_expert_maps_", "sort", _ANY, "FlagGems, bitsandbytes kEstimateQuantiles, FlashInfer: tokens by expert"),
    P(r"(?<!_non)(?<!_and)_(zeros?|ones|full(?=_(kernel|scalar|tensor|like|func))|range|fill|memset|eye|linspace|logspace|reset|set_value|set_buffer_value|buffer_set_value|initialize|init|clear)_", "memory", _ANY, "FlagGems full.py, CK buffer_set_value, XLA RepeatBufferKernel"),
    P(r"_(bias_add|residual_add|add_residual|bias|residual)_|_(cast|convert)_|_to_(fp|bf|f|e|i|int|float|half)\d{0,2}\w{0,6}_|_d2_?dcpy\w{1,20}_|_(un)?scales?_|_(de)?quant\w{0,6}_|_dq_|_rot\w_|_kn_entry_|_rope_|_rotary_", "pointwise", _ANY, "DeepSpeed, TensorRT-LLM cudaUtils, torchao float8nocompile, AITER rope, Unsloth"),
    P(r"_(embed|embedding|embs|embeddings|lookup)_", "embedding", _ANY, "DeepSpeed ragged_embed"),
    P(r"_(copy|cpy|expand|repeat\w{0,11}|tile|flatten|stack|[vhd]stack|cat|concat|slice|select|take|roll|flip|(pixel_)?(un)?shuffle|permute|transpose|trans|contiguous|pad|unpad|\w{0,12}pad[123]d|pack|unpack|packunpack|rearrange|reshape|split|partition|gather|scatter|insert|append|cache|kv_buffer|tril|triu|diag|diagonal|unfold|non_?zero|trilu|interleave|collect|restore|swap|move|unsqueeze|one_hot|sparse24|sparsify|d2d|transform_?\d?d?_0213|compact\w{0,3}|copy_if|paste|prepare_\w{0,20}(qkv|inputs?|ids)|update_\w{0,20}(inputs?|ids)|remap|slot_mappings?|resolve|future|transfer|packbits|join|windows?|sparse_?nm|broadcast|buffer|\w{0,10}input_ids)_", "copy", _ANY, "FlagGems, lmdeploy flatten_kv_cache.py, DeepSpeed transform.cu, ONNX Runtime, CUB and Thrust"),
    P(r"_(warp|warp_affine|points|displacement|color|colour|hsv|saturation|jitter|scaler|logits|preemphasis|decibels|(pre|post)_mix|mix|gated|bitmask|pos_embed|resample|resize|interpolate|normalize|crop|brightness|contrast|hue|grid_sample|remap|blend)_", "pointwise", _ANY, "DALI kernels of images"),
    P(r"_(abs|absolute|neg|negative|sgn|sign|ceil|floor|round|trunc|frac|sqrt|rsqrt|reciprocal|square|pow|exp|exp2|expm1|log|log2|log10|log1p|logit|erf|erfc|erfinv|(arc|a)?(sin|cos|tan)h?|sinc|i0|i0e|i1|i1e|digamma|polygamma|lgamma|xlogy|xlog1py|logaddexp2?|hypot|polar|heaviside|deg2rad|rad2deg|nan_to_num|maximum|minimum|fmin|fmax|fmod|remainder|lerp|addcmul|addcdiv|addr|outer|kron|logical|bitwise|isnan|isinf|isfinite|eq|ne|lt|le|gt|ge|add|add[234]|sub|mul|multiply|div|divide|clamp|clip|where|mask|masked|threshold|vectors?|arange|conj|grid)_|_(hard|soft|log|leaky|p|r|c|s|re|fat|d)?_?(relu\d?|elu|selu|celu|gelu|glu|reglu|swish|mish|shrink|sigmoid|logsigmoid|tanh|plus|sign)\w{0,4}_|_(re|po|sw|si|ge|dre|pow|sigmoid)w?(i|l|e)?(glu|lu)_|_(act|dact|active?|activation|penalty|penalties)_|_token_shift_|_operator_\w|_bcast\w{0,6}_|_swiglu_|_rwkv_(seq_)?mix_", "pointwise", _ANY, "FlagGems, flash-linear-attention, MIOpen MIOpenActive, AITER binary_operator.cuh"),
]
# What categories of work (facts/device/categories.py) tell apart among kernels that only move, order or add up elements.
ROUTING = [
    P(r"moe_?(align|sorting|topk|fused_gate|sum)|sort_?expert|expert_?(sort|histogram)|topk_?gating|_routing|routing(main|cluster|index)|finalizemoe|_sum_bitmatrix", "moe", _ANY, "vLLM moe_align_sum_kernels.cu, AITER and CK MoeSorting, TensorRT-LLM routing and finalizeMoe, SGLang moe_fused_gate, triton_kernels"),
    P(r"(moe|token)\w{0,30}_?(un)?permute|expandinputrows|pre_?reorder|post_?reorder|(^|_)ep_(gather|scatter)", "moe", _ANY, "TensorRT-LLM and SGLang MoE, DeepEP's layouts in SGLang ep_moe"),
    P(r"gather|scatter|index_(elementwise|put|copy|fill|add|kernel)|indexfunc|indexing_", "indexing", _ANY, "PyTorch IndexKernel.cu, Indexing.cu, ScatterGatherKernel.cu; H100 FSDP, V100 DLRM"),
]
# Words that do not tell a kind when they are the whole name: the MTIA recording has events called merge.
VAGUE = r"_(merge|update|finali[sz]e|accumulate|reduced?|partition|select|take|split|init|initiali[sz]e|reset|clear|range|sample|mix|points|stats?|moments?|plan|meta|check|delay|hash|normal|sort(ed)?|lookup|expand)_(kernel_)?"
# Functions that run what their template arguments say.
GENERIC = r"elementwise|gemm::kernel$|^kernel$|^cutlass::kernel2?$|(^|::)device_kernel|kernel_wrapper|multi_tensor_apply|\breduce_kernel|allreduce_fusion_kernel|kernelpointwiseapply|eigenmetakernel|cub::|thrust::|rocprim::|hipcub::"

KINDS = [
    # CUB, Thrust, rocPRIM: the algorithm is a name of a kernel, an agent or a configuration.
    P(r"(cub|thrust|rocprim|hipcub)::.{0,300}(radix_?sort|onesweep|merge_?sort|segmented_?sort|top_?k|nth_element)", "sort", _ANY, "CUB, Thrust, rocPRIM"),
    P(r"(cub|thrust|rocprim|hipcub)::.{0,60}adjacent_?difference", "pointwise", _ANY, "CUB, Thrust, rocPRIM"),
    P(r"(cub|thrust|rocprim|hipcub)::.{0,300}(unique|set_operation|setop|lower_bound|upper_bound|binary_search)", "sort", _ANY, "CUB, Thrust, rocPRIM: of sorted keys"),
    P(r"(cub|thrust|rocprim|hipcub)::.{0,300}(fill_functor|__fill::|__uninitialized_fill|fill_n)", "memory", _ANY, "Thrust fill.h"),
    P(r"(cub|thrust|rocprim|hipcub)::.{0,200}(runlength|run_length|\brle::|reducebykey|reduce_by_key|scan_by_key|scanbykey)", "reduction", _ANY, "CUB, Thrust, rocPRIM"),
    P(r"(cub|thrust|rocprim|hipcub)::.{0,200}(__transform|__tabulate|__generate|__replace)", "pointwise", _ANY, "Thrust: a loop over elements"),
    P(r"(cub|thrust|rocprim|hipcub)::.{0,200}(deviceselect|devicepartition|devicecompact|partition_?kernel|copy_?if|select_?if|partition::|batch_?memcpy|devicebatch|flagged|__copy)", "copy", _ANY, "CUB, Thrust, rocPRIM: what is selected moves"),
    # Communication and plain memory.
    P(r"allreduce_fusion_kernel\w{0,40}<[^,]{0,99}pattern\)0", "communication", _ANY, "FlashInfer AllReduceFusionPattern: 0 is no more than an all-reduce"),
    P(r"allreduce_fusion_kernel", "allreduce_norm", _ANY, "FlashInfer trtllm_allreduce_fusion.cuh: the sum, residual added, and its RMS norm, quantised or not"),
    P(r"nccl(dev)?kernel|^rccl|msccl|nvshmem|_all_?reduce_kernel|cross_device_reduce|multimem_|one_shot_|two_shot_", "communication", _ANY, "NCCL src/device, RCCL, PyTorch CUDASymmetricMemoryOps.cu, vLLM custom_all_reduce.cuh"),
    P(r"(memcpy|^copy) ?(ptop|p2p|peer)", "communication", _ANY, "copies between devices: CUPTI and Nsight (PtoP, Peer-to-Peer), roctracer (CopyPeerToPeer, hipMemcpyPeer)"),
    P(r"^mem(cpy|set)|\[cuda mem(cpy|set)|__amd_rocclr_(copy|fill)buffer|_routing_memset", "memory", _ANY, "copies and sets by name in every recording; ROCclr blit kernels"),
    P(r"\bfillfunctor|(?<!masked_)(?<!index_)(?<!pre)fill_kernel", "memory", _ANY, "PyTorch FillKernel.cu; V100 language model"),
    # Kernels made by Inductor say first what they are, then what they fuse.
    P(r"^triton_poi_", "pointwise", _ANY, "torch/_inductor/codegen/triton.py: poi is pointwise"),
    P(r"^triton_tem_.{0,200}attention", "attention", _ANY, "torch/_inductor/kernel/flex: templates"),
    P(r"^triton_tem_.{0,200}conv", "conv", _ANY, "torch/_inductor/kernel/conv.py"),
    P(r"^triton_tem_", "gemm", _ANY, "torch/_inductor/kernel/mm.py, bmm.py"),
    # Attention, before the products and the softmax inside it; first what runs before and after it.
    P(r"flat::kernel::|deltarule", "attention", "Hopper, Blackwell", "FlashInfer flat: linear attention by the delta rule"),
    P(r"flash_bwd_dot_do_o|flash_bprop_(do_o|o_do)_dot|flashattnbwdpreprocess|bwd_preprocess|bwdsumodo|fmha\w{0,20}reduction|splitkv_combine|flashattnfwdcombine|fmhafwdsplitkvcombine", "reduction", "Ampere, Hopper, CDNA", "FlashAttention flash_bwd_preprocess_kernel.h, flash_fwd_kernel.h, hopper/; CK ck_tile fmha"),
    P(r"flash_bwd_(convert|clear)|bwdpostprocess|fmha(kernel)?bwdconvert", "copy", "Ampere, Hopper, CDNA", "FlashAttention flash_bwd_preprocess_kernel.h, hopper/flash_bwd_postprocess_kernel.h"),
    P(r"flash::enable_sm|flash_?(fwd|bwd|attn)|fmha|mha_(fwd|bwd)|attention|attn_(fwd|bwd)|sage_fwd|_sdpa_|with(paged|ragged)?kvcache|bwd_kernel_d[kq]", "attention", _ANY, "FlashAttention 2 and 3, PyTorch mem_eff_attention, cuDNN, xFormers, FlashInfer, vLLM, AOTriton, SageAttention in AITER (MI300X Flux); H100 BERT"),
    # Helpers of products.
    P(r"split_?k_?reduce|reducesplitk|reduce_1block|reduce_wgrad|calc_bias_diff|device_reduce|finalize_matmul|_sum_bitmatrix", "reduction", _ANY, "cuBLAS, cuBLASLt, cuDNN, CUTLASS reduce_split_k.h; V100 ResNet-50, A100 DDP, MI300X vLLM (triton_kernels)"),
    P(r"nchwtonhwc|nhwctonchw|nchw2nhwc|nhwc2nchw|addpadding|flip_filter|tensortransform", "layout", "Volta to Blackwell", "cuDNN; A100 DDP, RTX 2070 CNN, H100 OWLv2"),
    P(r"im[23]?d?2?col|col2im|vol2col|col2vol|batched_transpose|transpose_\w{0,9}2\w{0,9}_|transpose_readwrite", "layout", _ANY, "cuDNN (RTX 2070 CNN), PyTorch im2col.cuh, MIOpen (MI210 and MI300X ResNet)"),
    P(r"compute\w{0,99}offsetskernel|compute_gemm_pointers|kern_precompute_indices|generatewinogradtiles|prepare_varlen", "other", "Volta to Hopper", "cuDNN, cuBLAS; RTX 2070 CNN, V100 ResNet-50; FlashAttention hopper/flash_prepare_scheduler.cu"),
    P(r"epilogue::impl|scalepackedtensor|subtensorop|op_(generic_)?tensor", "pointwise", _ANY, "cuBLASLt (V100 DDP), cuDNN (V100 ResNet-50), MIOpen (MI210 ResNet)"),
    # Normalisation, before words like "transform" and "backward".
    P(r"(batch|layer|group|instance|rms)_?norm|kernel_normali[sz]ation|\bbn_(fw|bw)|norm_fwd|norm_bwd|rowwisemoments", "norm", _ANY, "PyTorch Normalization.cuh, layer_norm_kernel.cu; cuDNN bn_* (A100 DDP); CK (MI300X vLLM)"),
    P(r"gammabeta\w{0,3}backward|computeinternalgradients|computegradientfusedparams|cufloat_norm", "norm", _ANY, "PyTorch layer_norm_kernel.cu, group_norm_kernel.cu; V100 language model"),
    P(r"(soft|sparse)_?max", "softmax", _ANY, "PyTorch SoftMax.cu, PersistentSoftmax.cuh; V100 language model, H100 OWLv2"),
    P(r"classnll|nll_loss|cross_?entropy|ctc_?loss|mse_(kernel|backward)|smooth_l1|huber|kl_div", "loss", _ANY, "PyTorch Loss.cu, NLLLoss2d.cu; V100 language model, MI210 ResNet"),
    # Convolution.
    P(r"cutlass::conv::|convuniversal|convolve|[sh]\d*cudnn|winograd|fft2d_|[fdwb]grad|fprop|bprop|bwd_(weight|data)", "conv", _ANY, "cuDNN 7 to 9 (RTX 2070 CNN, V100 ResNet-50, A100 DDP), CK, CUTLASS conv"),
    P(r"conv\dd|convolution|conv_(fwd|bwd|depthwise)|depthwise|conv1x1|naive_conv|miopenconv|gcnasm", "conv", _ANY, "PyTorch DepthwiseConv2d.cu, MIOpen src/kernels, CK; MI300X ResNet"),
    P(r"implicit_gemm|implicitgemm|first_layer_(fwd|wgrad)|direct_group|igemm_(fwd|bwd|wrw)", "conv", _ANY, "cuDNN xmma (A100 DDP), PyProf prof/conv.py, MIOpen iGEMM (MI210 ResNet)"),
    # Optimizers, random numbers, tables.
    P(r"l[p2]normfunctor|lpmaxfunctor", "reduction", _ANY, "PyTorch ForeachReduceOp.cu"),
    P(r"split_embedding|dense_embedding|linearize_index|bounds_check_indices", "embedding", _ANY, "FBGEMM table-batched embeddings, their optimizer fused; V100 DLRM"),
    P(r"multi_tensor_apply|fused_?adam|fused_?sgd|lamb_stage|\badam|adam_kernel|adagrad|adadelta", "optimizer", _ANY, "PyTorch MultiTensorApply.cuh, Apex csrc; A100 DDP, MI300X ResNet"),
    P(r"distribution|curand|philox|bernoulli|random_|randperm|fused_dropout|dropout_warp", "rng", _ANY, "PyTorch DistributionTemplates.h, Dropout.cu; V100 language model"),
    P(r"rotary|silu_and_mul|act_and_mul", "pointwise", _ANY, "vLLM csrc/pos_encoding_kernels.cu, activation_kernels.cu; MI300X vLLM"),
    P(r"embedding|indexselect|krn_partial|sum_and_scatter|compute_grad_weight", "embedding", _ANY, "PyTorch Embedding.cu, EmbeddingBackwardKernel.cu, Indexing.cu; H100 BERT"),
    P(r"(radix|segmented|merge)_?sort|bitonic|sort_?kernel|top_?k|unique|sortkeyvalue|thrust::.{0,99}sort|_routing_compute|moe_align", "sort", _ANY, "PyTorch Sort.cu, TensorTopK.cu, CUB; V100 DLRM; vLLM and triton_kernels sort tokens by expert"),
    P(r"max_?pool|av[eg]_?pool|average_?pool|pooling|adaptive\w{0,99}pool|(^|_)pool\dd_", "pooling", _ANY, "PyTorch DilatedMaxPool2d.cu, cuDNN, MIOpen; V100 ResNet-50"),
    # Products.
    P(r"cusparse::.{0,300}(csr|coo|bsr|csc)_?m[mv]|cub::.{0,60}spmv", "gemm", _ANY, "cuSPARSE: policies of load_balancing_kernel"),
    P(r"(?<!fb)gemm|gemv|(\b|rocblas_)dot_kernel|nvjet|cijk_|tensorop|cublas(lt)?::|matmul|\bbmm_|_mm_kernel", "gemm", _ANY, "cuBLAS, cuBLASLt, CUTLASS, Tensile, Triton; V100, A100, H100, MI300X recordings"),
    P(r"[shibcd](884|1688|16816|16832|161616)|xmma|wgmma|(?<!ga)mma_\w{0,99}kernel|\bger_kernel|\bsyrk|\btrsm", "gemm", _ANY, "PyProf prof/tc.py, CUTLASS tools/library"),
    # Copies and moves by index.
    P(r"direct_copy|copyop<|copy_device|catarraybatched|copy_kernel|copyfunctor|reshape_and_cache|transpose", "copy", _ANY, "PyTorch Copy.cu, Shape.cu; V100, A100, H100 recordings; vLLM cache_kernels.cu"),
    P(r"unfold_backward|gather|scatter|index_(elementwise|put|copy|fill|add|kernel)|indexfunc|indexing_|flip_kernel|permute_", "copy", _ANY, "PyTorch IndexKernel.cu, Indexing.cu, FBGEMM sparse ops; H100 FSDP, V100 DLRM"),
    # What is left says how it runs.
    P(r"regular_fft|vector_fft|way_fft|processc2c|cufft|bluestein", "other", _ANY, "names of cuFFT: no MMA"),
    P(r"lookup_kernel|get_rows", "embedding", _ANY, "TensorRT-LLM lookupKernels.cu, llama.cpp getrows.cu"),
    P(r"optimizer", "optimizer", _ANY, "bitsandbytes csrc/kernels.cu"),
    P(r"reduce(?!d_divisor)|reduction|histogram|^triton_(red|per)_|scan|cumsum|cumprod|argm(ax|in)|segment", "reduction", _ANY, "PyTorch Reduce.cuh, CUB, Inductor (red, per); all recordings"),
    P(r"elementwise|pointwise|functor|^triton_|upsample|masked_|where|_kernel_impl|activation|parallelfor|eigenmetakernel|mapplankernel|scale_?kernel|transform_kernel|static_kernel|adjacent_?difference|unscale|_func_\w{0,40}kernel|(cast|binary|unary)\w{0,20}kernel|(^|_)(mul|add|sub|div|clamp|cast|scale)_", "pointwise", _ANY, "PyTorch CUDALoops.cuh, Inductor; all recordings"),
]

# Whether a product's name says that it uses tensor cores. Kernels of other kinds do not; the rest is unknown.
TENSOR_CORES = [
    P(r"short_conv|ssm_conv|gcnasm|int8pack_mm|simt\b|mul_mat_i?q\d|\bmoe_(vec_)?i?q\d?_?k?\b|moe_vec_q|kdequant|(d|w)grad_\w{0,30}engine|convolvend_|conv2d_grouped_direct|precomputed_common_engine|\bdse::|(dgrad|wgrad)_1d|fft[123]d_|(?<![a-z])[sdcz]gemm(1x1|_largek|_kernel|_batched|ex_)|fermi|gemm_kernel[12]x[12]|gemm_template_batched|batch_gemm(nn)?_", False, _ANY, "vLLM GGUF kernels (dp4a); cuDNN 7, cuBLAS, MAGMA and cuSOLVER: CUDA C++ on plain lanes"),
    P(r"mma_?gemv|tiny_?gemm|moe_?gemm_?k|exl3_gemm|quant_gemm_kernel|wy_repr|(\b|_)xqa|turbomind::gemm::gemm_kernel|attentionkernel<cutlass::(half_t|bfloat16_t), ?cutlass::arch::sm[789]", True, "Volta and later", "ONNX Runtime, TensorRT-LLM tinygemm2, lmdeploy turbomind, PyTorch mem_eff_attention kernel_forward.h: mma of 16 bit"),
    P(r"sddmm|gemm_half_q_half|spmm_reduce|(^|_)(add)?mv_kernel|llgemm1|matrixmultiplyshared|(^|_)q4_matmul_kernel|weight_only::kernel|fbgemm_gpu::\w{0,20}jagged\w{0,20}bmm|(causal|varlen|short)\w{0,12}_?conv|cusparse::|wv_?splitk(?!q)|(vecquant|nuq)\dmatmul|mat_?vec|(^|_|:)gemv|moe_wna16_gemm|gemm_dl_|gemmnsp|miopen(group)?conv(?!\w{0,20}(xdlops|winograd))|matmulfloat\w{0,4}\db?|^igemm_v\dr\d(?!\w{0,40}xdlops)|reference::device::", False, _ANY, "cuSPARSE, ROCm skinny_gemms.cu, GPTQ, ONNX Runtime matmul_4bits.cu, CUTLASS references, exllama q_gemm.cu (half2), TensorRT-LLM weightOnlyBatchedGemv, FBGEMM jagged_tensor_ops, SqueezeLLM, AQLM, vLLM moe_wna16.cu, MIOpen kernels in OpenCL: plain lanes"),
    P(r"wv_?splitkq|(bf16|f8|i8|f4|mx\d)(bf16|f8|i4|i8|f4|mx\d)(bf16|f32)_|kernel_cutlass_\w{0,400}(attention|mla|fmha)|tgv_gemm|_tmem_|cutlass_mla|batchmlapage|kktsolve|(^|_)lh_(fwd|bwd)|mma_?(16816|1688|16832|884)|fpa_?intb_?gemm(?!v)|segment_?gemm|cutlass_?[23]x_(?!\w{0,40}simt)\w{0,40}gemm|cudnn_generated_\w{0,20}(conv|matmul)|cutlass::device_kernel<.{0,40}conv|ck_tile::\w{0,40}(gemm|conv|flatmm)|ck_tile::fmhafwd\w{0,20}kernel|xdlops|fp8_index|podwithkvcache|ck_tile::\w{0,20}moe|\bkernel_mha|sparse_mla_\w{0,40}(decode|prefill|fwd|bwd)|::sparse_attn_(fwd|bwd)|(^|_)fmha_\w{0,60}(bf16|fp16|fp8|e4m3|nvfp4)", True, "Ampere and later, CDNA", "ROCm skinny_gemms.cu (MFMA of fp8), AllSpark, TensorRT-LLM fpA_intB, FlashInfer, cuDNN 9, CUTLASS 3 conv, ck_tile ops: warp gemms on MFMA and WMMA"),
    P(r"tr[sm][mv]|sy(he)?m[mv](?!e)|syhem|\b(sy|he|sp|hp)r2?_|sbhbmv|sphpmv|[gts]b[ms]v|t[pb][ms]v|gpmv|dgmm|bdmm|bsrx?m[mv]", False, _ANY, "cuBLAS, cuSPARSE and MAGMA: vectors and triangular blocks on plain lanes"),
    P(r"sparsemma|dqmma|mmatensorop|m16n8k\d|m8n8k\d|mxgemm|moegemmmx|do_(expand|shrink)_kernel|^_?(fwd|bwd)_kernel_unified|(^|_)gqa_\w{0,40}(fwd|decode|attn)|bwd_d(kdv|q)(_|$)|mfma_moe|gemm\d_a\d{1,2}w\d|(^|_)t?gmm_|moe_(fwd|bwd)_d[wx]|(^|_)(up|down|qkv|out)_proj|lora_(a|b|qkv)_|devicegemm|^_?bwd_kernel_(split|fused|dkdvdq|one_col)|^(triton_)?gemm_(dot|fusion)|^triton_gemm_dot|_nsa_\w{0,20}(fwd|bwd)|forward_4bit_cuda_m\d|jagged_bmm|chunk_\w{1,20}_(fwd|bwd)|aiter::bf16gemm|^pa_(a\d|bf16|fp16)|aiter::pa_|_w_dot_kernel|flash_kda", True, "Ampere and later, CDNA", "CUTLASS 2 and bitsandbytes (mma.sync), CK and AITER (MFMA), functions of Triton with tl.dot"),
    P(r"router_gemm|llmm1|miopensp3asmconv|wvsplitk|mul_mat_vec|gemv|_fwd_kernel_stage1|kgemm_4bit_inference_naive|selective_scan|causal_conv1d", False, _ANY, "ROCm skinny_gemms.cu, llama.cpp mmvq.cu, SGLang decode_attention.py, bitsandbytes: dot products on plain lanes"),
    P(r"marlin|fmoe|mul_mat_q|fused_moe|w8a8_\w{0,40}_?(mm|matmul)|f8f8bf16|deep_gemm::|mqa_logits|tinygemm_m16|awq::?_?gemm_forward|mmaatom|gemm_\w{0,40}e[24]m[13]|_fwd_grouped_kernel|^_?(fwd|bwd)_kernel$|bwd_kernel_fuse|unified_attention|qk_int_?\w{0,20}_?sv|aiter::(mla|fmha)_|flashmla|mla_kernel|flash_attn_ext_f16|sm(90|100)_fmha|machete", True, "Ampere and later, CDNA3", "Marlin and AWQ (mma.sync), llama.cpp mmq.cuh, vLLM and SGLang in 16 and 8 bit (tl.dot), DeepGEMM (wgmma, tcgen05), AITER in assembler (MFMA), FlashMLA"),
    P(r"\bw\d{1,2}a\d{1,2}_|fused_a_gemm|\bmm_kernel|matmul_kernel|moe_gemm|aiter\d*(::)?(fp?\d|a\d{1,2}w\d{1,2}|i8)\w{0,3}gemm|grouped_?gemm|fused_moe::run|flatmm|quantized_linear|indexer\w{0,20}_logits|ck_tile::unifiedattention|flashattention(forward|backward)|aiter\d+(mla|fmha|pa)_|chunk(wise)?_(scan|state|fwd|bwd|gated|delta|gdn|kda|gla)|^parallel_\w{1,40}_(fwd|bwd)|scaled_dot_kkt|recompute_w_u|deltarule|^kernel_mha", True, "Ampere and later, CDNA", "sources of these kernels: mma.sync, wgmma, MFMA, tl.dot"),
    P(r"\btrsm_|\bsyrk|\bger_|csr_?m[mv]|\bspmv|flash_attn_vec|fattn_vec|(d|w)grad2d_(alg|grouped_direct)", False, _ANY, "cuBLAS, cuSPARSE, llama.cpp fattn-vec.cuh; cuDNN 7: CUDA C++ on plain lanes"),
    P(r"batchmlapaged|(sgmv|lora)_(shrink|expand)|qserve|bwd_kernel_dkd[vq]|fattn_(mma|wmma)", True, "Ampere and later, CDNA", "FlashInfer mla.cuh; vLLM lora_shrink_op.py, Triton tutorials and xFormers: tl.dot; SGLang qserve; llama.cpp fattn-mma-f16.cuh"),
    P(r"cutlass::device_kernel<.{0,40}gemm|kernel_cutlass_kernel\w{0,400}gemm", True, "Hopper, Blackwell", "CUTLASS 3 device_kernel.h; CuTe DSL: collectives on MMA"),
    P(r"^(?!.{0,400}(ge?mv|simt|naive|decode|router|reference)).{0,400}(fp8|fp4|mxfp\d|e4m3|e2m1|w\da8|a8w\d)\w{0,60}(gemm|_mm|matmul|bmm)|(gemm|_mm|bmm|matmul)\w{0,60}(fp8|fp4|e4m3|e2m1|w\da8)", True, "Ada and later, CDNA3", "8 and 4 bit floating point multiply on matrix units only"),
    P(r"ffma|_simt_|simt_", False, _ANY, "CUTLASS OpClassSimt; H100 FSDP in fp32: xmma with FFMA"),
    P(r"tensorop|wmma|hmma|imma|qmma|gmma|umma|tcgen05", True, "Volta and later", "CUTLASS OpClassTensorOp; PTX: wmma, mma, wgmma, tcgen05"),
    P(r"rnn_(blockpersist|persist)|lstm_cta", False, _ANY, "cuDNN persistent RNN: those on tensor cores say HMMA"),
    P(r"[shibcd](884|8816|1688|16816|16832|16864|161616|161632)", True, "Volta (884), Turing (1688, 8816), Ampere (16816)", "PyProf prof/tc.py, CUTLASS library: type and shape of the MMA"),
    P(r"s64x\d+x\d+(gemm|fprop|dgrad|wgrad)|tensor\d+x\d+x\d+", True, "Ampere and later", "CUTLASS 3 library names; xmma names: A100 DDP"),
    P(r"nvjet", True, "Hopper, Blackwell", "cuBLAS 12.x release notes and profiles: kernels on warp group MMA"),
    P(r"warpgroupsize|sm(90|100|103|120)_xmma", True, "Hopper and later", "H100 BERT in bf16: warp group MMA"),
    P(r"xmma_\w{0,99}_(f16f16|bf16bf16|tf32f32|tf32tf32|e4m3|e5m2|i8i8)", True, "Volta and later", "xmma names: operand types that only MMA takes; A100 DDP"),
    P(r"mainloopsm(90|100|103|120)|sm(90|100)\w{0,99}warpspecialized|collectivemma", True, "Hopper, Blackwell", "CUTLASS 3 include/cutlass/gemm/dispatch_policy.hpp"),
    P(r"bmm_(e4m3|e2m1|mxe|bfloat16|fp16)|\bbmm_\w{0,99}e4m3", True, "Blackwell", "TensorRT-LLM batched GEMM for mixture of experts"),
    P(r"flash::enable_sm|flash_?(fwd|bwd|fprop|bprop)|flashattn|fmha_v2|fmhasm|flash_attn_\w{0,99}kernel|_sdpa_.{0,99}(wgmma|sm\d+)", True, "Ampere and later", "FlashAttention takes 16 bit only, on MMA; cuDNN 9 SDPA; H100 BERT"),
    P(r"prefillwith(paged|ragged)?kvcache", True, "Ampere and later", "FlashInfer include/flashinfer/attention/prefill.cuh: mma.sync"),
    P(r"fmha_cutlass\w{0,99}_(f16|bf16)", True, "Volta and later", "PyTorch mem_eff_attention: 16 bit kernels are OpClassTensorOp"),
    P(r"_matmul_ogs_\w{0,99}(bf16|fp16|fp8|mxfp4)", True, "Ampere and later, CDNA3", "triton_kernels matmul: Triton lowers 16 bit tl.dot to MMA or MFMA; MI300X vLLM"),
    P(r"_mi\d+x\d+|_mi_|xdl|gtcx|mfma|ck_tile\w{0,40}fmha|fmhafwdkernel|fmhabwdd\w+kernel", True, "CDNA", "Tensile MatrixInstruction, CK XDL, MIOpen iGEMM gtcx: MFMA; MI210 and MI300X ResNet"),
    P(r"(?<![a-z])g?[shc]gemm|[sh]cudnn|convolve_|fft2d_|gemv|dot_kernel|gemmsn_|gemmk1|magma_", False, _ANY, "cuBLAS and cuDNN on plain lanes; V100, A100 and RTX 2070 recordings in fp32"),
    P(r"(volta|turing)_[dz]gemm|maxwell_|pascal_", False, "Maxwell to Turing", "no FP64 MMA before Ampere, no MMA before Volta: CUDA C++ Programming Guide, compute capabilities"),
    P(r"winograd|(dgrad|wgrad_alg\d)_engine|depthwise|naive_conv|im2col", False, _ANY, "transforms and direct forms: V100 ResNet-50; PyTorch DepthwiseConv2d.cu; MIOpen naive_conv"),
    P(r"conv2d_c1_k1\w*_specialized", False, "Hopper", "depthwise: sm__ops_path_tensor of H100 counts none, only HFMA2; tests/traces/gpu"),
    P(r"first_layer_(fwd|wgrad)|dgrad_1x1_stride_2x2|conv1x1|conv2d_c1_k1|direct_group", True, "Volta and later", "PyProf prof/tc.py: NVIDIA's list of cuDNN's tensor-core kernels"),
    P(r"^sage_fwd", True, "CDNA3", "AITER's Triton SageAttention: tl.dot of int8 queries and keys, of fp8 weights and values"),
    P(r"paged_attention_v\d_kernel|decodewith(paged)?kvcache|masked_multihead_attention", False, _ANY, "vLLM csrc/attention, FlashInfer decode.cuh, TensorRT-LLM: dot products on plain lanes"),
    P(r"_mt\d+x\d+x\d+_(?!mi)", False, "gfx9 and later", "Tensile: a macro tile without MatrixInstruction (MI) runs on vector lanes"),
    P(r"^_?(?!gemm_kernel$|zn?\d|triton_|(ampere|turing|volta|pascal|maxwell|sm\d+|cutlass)|\w{0,99}(conv|simt|cublas|rocblas|decode|vec))[a-z0-9_]{0,99}(attention|attn|matmul|_mm_|mm_kernel|i8mm|gemm|_bmm|flash|linear|moe|[mvn]sa_|mla|[mg][hq]a_)[a-z0-9_]{0,99}$", True, "Ampere and later, CDNA", "a function of Triton, whose tl.dot is MMA or MFMA, of float32 by TF32 unless it is told otherwise, as Inductor does: names with neither namespace nor arguments; oneDNN calls every product gemm_kernel, on the vector or the matrix engines of an XPU"),
]

# Which gradient of a product a name speaks of. A transposed convolution runs such kernels forward.
PARTS = [
    P(r"calc_bias_diff|bgrad|bias_(bwd|backward)", "bgrad", _ANY, "PyProf prof/conv.py; cuDNN"),
    P(r"wgrad|bwd_?weight|_wrw_|\bwrw", "wgrad", _ANY, "cuDNN (A100 DDP), CK and MIOpen (MI300X ResNet)"),
    P(r"dgrad|bwd_?data|igemm_bwd|bprop", "dgrad", _ANY, "cuDNN (A100 DDP), MIOpen (MI300X ResNet)"),
]

# Convolutions that compute less than the definition's multiply-adds. Of gemm kernels it is said inside a convolution.
ALGORITHMS = [
    P(r"winograd|miopensp3asmconv", "Winograd", _ANY, "A. Lavin, S. Gray, arXiv 1509.09308; V100 ResNet-50; MIOpen src/kernels/Conv_Winograd_*.s and winograd/: all kernels of that name"),
    P(r"fft2d_|cgemm|c64c64", "FFT", _ANY, "cuDNN CUDNN_CONVOLUTION_FWD_ALGO_FFT(_TILING): transforms, complex products; RTX 2070 CNN"),
]

# The architecture that a kernel was written for; it also runs on later ones (an Ampere kernel on Hopper).
ARCHITECTURES = [
    P(r"sm_?1[02]\d|cutlass3x_sm1\d\d|fmhasm1\d\d", "Blackwell", "10.x, 12.x", "CUDA C++ Programming Guide; nvjet_sm100_*"),
    P(r"sm_?90|nvjet|warpgroupsize|wgmma|flashattn(fwd|bwd)|_s64x\d+x\d+gemm", "Hopper", "9.0", "H100 BERT; CUTLASS 3; FlashAttention hopper/; cuBLAS 12: nvjet without a number"),
    P(r"sm_?89|cutlass_89", "Ada", "8.9", "CUTLASS library: OpMultiplyAdd on FP8"),
    P(r"sm_?8[067]|cutlass_80|ampere_|s16816|h16816|s1688tf32|_tf32|tf32f32|flash_?(fwd|bwd)|tensor\d+x\d+x\d+", "Ampere", "8.x", "A100 DDP; CUTLASS library; FlashAttention 2 needs 8.0"),
    P(r"sm_?7[25]|cutlass_75|turing_|[shi]1688|i8816", "Turing", "7.5", "CUTLASS library; H100 OWLv2 runs cutlass_75 kernels"),
    P(r"sm_?70|cutlass_70|volta_|[shc]884", "Volta", "7.0", "V100 ResNet-50; CUTLASS library"),
    P(r"pascal_|sm_?6[01]", "Pascal", "6.x", "cuBLAS 8 names"),
    P(r"maxwell_|sm_?5[023]", "Maxwell", "5.x", "cuBLAS 7 names"),
    P(r"isa950|gfx950", "CDNA4", "gfx950", "LLVM AMDGPU processors"),
    P(r"isa942|gfx94\d|gtcx3", "CDNA3", "gfx942", "MI300X ResNet; LLVM AMDGPU processors"),
    P(r"isa90a|gfx90a|gtcx2", "CDNA2", "gfx90a", "MI210 ResNet; LLVM AMDGPU processors"),
    P(r"isa908|gfx908|gtcx_", "CDNA1", "gfx908", "LLVM AMDGPU processors"),
    P(r"isa11\d\d|gfx11\d\d", "RDNA3", "gfx11", "LLVM AMDGPU processors"),
]

# The type in which a product multiplies, where its name says so.
MATHS = [
    P(r"tf32", "tf32", "Ampere and later", "xmma and CUTLASS names; A100 DDP"),
    P(r"bmm_\w{0,99}?_(mx)?e2m1(mx)?e2m1|e2m1_e2m1", "float4", "Blackwell", "TensorRT-LLM: the operands come second, after the result"),
    P(r"e4m3|e5m2|bmm_\w{0,99}?_(mx)?e2m1", "float8", "Ada and later", "CUTLASS, xmma and TensorRT-LLM names; a result in bf16 stands beside the operands"),
    P(r"bf16|bfloat16|_bbs_|_bss_|_bb_|nvjet_(sm\d+_)?t", "bfloat16", _ANY, "CUTLASS and Tensile names; cuBLASLt: t is bf16; H100 BERT, MI210 ResNet"),
    P(r"_f8|nvjet_(sm\d+_)?q", "float8", "Ada and later", "Tensile names; cuBLASLt: q is fp8"),
    P(r"fp16|f16|[hs]884|h1688|h16816|h161616|hgemm|hcudnn|_hhs_|_hss_|_hb_|nvjet_(sm\d+_)?h|__half", "float16", _ANY, "cuBLAS and cuDNN names, NVIDIA's DL performance guide; Tensile; cuBLASLt: h is fp16"),
    P(r"int8|i8i8|i8816|i16832|imma|igemm_int", "int8", _ANY, "CUTLASS and cuBLAS names"),
    P(r"d884|d16816|dgemm|f64f64|_db_", "float64", _ANY, "cuBLAS, CUTLASS and Tensile names"),
    P(r"tensorop_s1688|_s1688(gemm|fprop|dgrad|wgrad)", "tf32", "Ampere", "CUTLASS: s1688 without a 16 bit type; A100 DDP launches it for fp32 operands"),
    P(r"cgemm|c64c64", "complex64", _ANY, "cuBLAS names; RTX 2070 CNN: inside an FFT convolution"),
    P(r"sgemm|scudnn|ffma|f32f32|_sb_|<float,|fft2d_", "float32", _ANY, "cuBLAS, cuDNN and Tensile names; V100 ResNet-50"),
]
# fmt: on
