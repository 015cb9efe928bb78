# SPDX-License-Identifier: Apache-2.0
"""What a kernel's name tells: its kind, whether it uses tensor cores, which gradient it computes.

Every table is searched from the top, the first pattern that is found wins; case does not matter. "Tensor cores" are
the matrix units of any maker (NVIDIA's MMA, AMD's MFMA). Add a kernel: one row, with where its name was seen.

>>> name = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4"
>>> kind(name), tensor_core(name), part(name)
('gemm', False, None)
>>> kind("volta_fp16_s884cudnn_fp16_128x64_relu_interior_nn"), tensor_core("volta_h884gemm_128x64_ldg8_nn")
('conv', True)
>>> part("void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int)")
'wgrad'
"""

from __future__ import annotations

import re
from functools import cache

# Sources: [s] recordings of Nsight Systems, nvprof and torch.profiler; [t] PyTorch, aten/src/ATen/native/cuda and
# torch/_inductor; [o] PyProf's prof/tc.py and conv.py; [c] CUTLASS, tools/library and include/cutlass; [d] cuDNN and
# cuBLAS release notes and profiles quoted in issues; [n] NCCL, src/device; [r] ROCm: Tensile, MIOpen, CK; [v] vLLM.
KINDS = [
    # Communication and plain memory.
    (r"nccl(dev)?kernel|^rccl|nvshmem|_all_?reduce_kernel|cross_device_reduce", "communication"),  # [n] [v]
    (r"^mem(cpy|set)|\[cuda mem(cpy|set)|__amd_rocclr_(copy|fill)buffer", "memory"),  # [s] copies and sets by name
    (r"\bfillfunctor|\bfill_kernel", "memory"),  # [t] FillKernel.cu
    # Kernels made by Inductor say first what they are, then what they fuse.
    (r"^triton_poi_", "pointwise"),  # [t] codegen/triton.py
    (r"^triton_tem_.*(attention)", "attention"),  # [t] templates: flex attention
    (r"^triton_tem_.*(conv)", "conv"),
    (r"^triton_tem_", "gemm"),
    # Attention, before the products and the softmax inside it.
    (r"flash_?(fwd|bwd|attn)|fmha|mha_(fwd|bwd)|attention|attn_(fwd|bwd)|_sdpa_|flashinfer", "attention"),  # [t] [c]
    # Helpers of products.
    (r"split_?k_?reduce|reducesplitk|reduce_1block|reduce_wgrad|calc_bias_diff|device_reduce", "reduction"),  # [s]
    (r"nchwtonhwc|nhwctonchw|nchw2nhwc|nhwc2nchw|addpadding|flip_filter|tensortransform", "layout"),  # [s] [o] cuDNN
    (r"im2col|col2im|vol2col|col2vol|batched_transpose|transpose_\w*2\w*_|transpose_readwrite", "layout"),  # [s] [r]
    (r"compute\w*offsetskernel|compute_gemm_pointers|kern_precompute_indices|generatewinogradtiles", "other"),  # [s]
    (r"epilogue::impl|scalepackedtensor|subtensorop|op_tensor", "pointwise"),  # [s] cuBLASLt, cuDNN, MIOpen
    # Normalisation, before words like "transform" and "backward".
    (r"(batch|layer|group|instance|rms)_?norm|\bbn_(fw|bw)|norm_fwd|norm_bwd|rowwisemoments", "norm"),  # [s] [t] [d]
    (r"gammabetabackward|computeinternalgradients|computegradientfusedparams|cufloat_norm", "norm"),  # [s]
    (r"soft_?max", "softmax"),  # [s] softmax_warp_*, cunn_SoftMax*
    (r"classnll|nll_loss|cross_?entropy|ctc_loss|mse_(kernel|backward)|smooth_l1|huber|kl_div", "loss"),  # [s] [t]
    # Convolution.
    (r"convolve|[sh]\d*cudnn|winograd|fft2d_|[fdwb]grad|fprop|bprop|bwd_(weight|data)", "conv"),  # [s] [o]
    (r"conv\dd|convolution|conv_(fwd|bwd|depthwise)|depthwise|conv1x1|naive_conv|miopenconv|gcnasm", "conv"),  # [r]
    (r"implicit_gemm|implicitgemm|first_layer_(fwd|wgrad)|direct_group|igemm_(fwd|bwd|wrw)", "conv"),  # [s] [o] [r]
    # Optimizers, random numbers, tables.
    (r"lpnormfunctor", "reduction"),  # [t] ForeachReduceOp.cu
    (r"multi_tensor_apply|fused_?adam|fused_?sgd|lamb_stage|adam_kernel|adagrad|adadelta", "optimizer"),  # [s] [t] apex
    (r"distribution|curand|philox|bernoulli|random_|randperm|fused_dropout|dropout_warp", "rng"),  # [s] [t]
    (r"rotary|silu_and_mul|act_and_mul", "pointwise"),  # [v]
    (r"embedding|indexselect|krn_partial|sum_and_scatter|compute_grad_weight", "embedding"),  # [s] [t] Embedding.cu
    (r"(radix|segmented|merge)_?sort|bitonic|sort_?kernel|top_?k|unique|sortkeyvalue|thrust::.*sort", "sort"),  # [t]
    (r"max_?pool|avg_?pool|average_?pool|pooling|adaptive\w*pool", "pooling"),  # [s] [t] [r]
    # Products.
    (r"(?<!fb)gemm|gemv|\bdot_kernel|nvjet|cijk_|tensorop|cublas(lt)?::|matmul|\bbmm_|_mm_kernel", "gemm"),  # [s]
    (r"[shibcd](884|1688|16816|16832|161616)|xmma|wgmma|mma_\w*kernel|\bger_kernel|\bsyrk|\btrsm", "gemm"),  # [o] [c]
    # Copies and moves by index.
    (r"direct_copy|copy_device|catarraybatched|copy_kernel|copyfunctor|reshape_and_cache|transpose", "copy"),  # [s]
    (r"gather|scatter|index_(elementwise|put|copy|fill|add|kernel)|indexfunc|indexing_|flip_kernel|permute_", "copy"),
    # What is left says how it runs.
    (r"reduce|reduction|^triton_(red|per)_|scan|cumsum|cumprod|argm(ax|in)|segment", "reduction"),  # [s] [t] [o]
    (r"elementwise|pointwise|functor|^triton_|upsample|masked_|where|_kernel_impl|activation", "pointwise"),  # [s] [t]
]  # fmt: skip

# Kinds whose work could be done by tensor cores.
PRODUCTS = frozenset({"gemm", "conv", "attention"})

# Whether a product's name says that it uses tensor cores. Kernels of other kinds do not; the rest is unknown.
TENSOR_CORES = [
    (r"ffma|_simt_|simt_", False),  # [s] [c] any architecture: fp32 or fp64 lanes
    (r"compute\w*offsetskernel|compute_gemm_pointers|kern_precompute|generatewinogradtiles", False),  # [s] helpers
    (r"tensorop|wmma|hmma|imma|qmma|gmma|umma|tcgen05", True),  # [c] Volta and later
    (r"[shibcd](884|8816|1688|16816|16832|16864|161616|161632)", True),  # [o] [c] shape of the MMA behind its type
    (r"tensor\d+x\d+x\d+", True),  # [s] xmma, Ampere and later
    (r"nvjet", True),  # [d] cuBLASLt, Hopper and Blackwell
    (r"warpgroupsize|sm(90|100|103|120)_xmma", True),  # [s] xmma, Hopper: warp group MMA
    (r"xmma_\w*_(f16f16|bf16bf16|tf32f32|tf32tf32|e4m3|e5m2|i8i8)", True),  # [s] xmma: types that only MMA takes
    (r"mainloopsm(90|100|103|120)|sm(90|100)\w*warpspecialized", True),  # [c] CUTLASS 3
    (r"bmm_(e4m3|e2m1|bfloat16|fp16)|\bbmm_\w*e4m3", True),  # [s] TensorRT-LLM, Blackwell
    (r"flash_?(fwd|bwd)|flashattn|fmha_v2|fmhasm|flash_attn_\w*kernel|_sdpa_.*(wgmma|sm\d+)", True),  # [t] 16 bit only
    (r"fmha_cutlass\w*_(f16|bf16)", True),  # [t] memory-efficient attention
    (r"_mi\d+x\d+|_mi_|xdl|gtcx|mfma", True),  # [s] [r] CDNA: MFMA
    (r"[sh]gemm|cgemm|[sh]cudnn|convolve_|fft2d_|gemv|dot_kernel|gemmsn_|gemmk1|magma_", False),  # [s] [o] plain lanes
    (r"(volta|turing)_[dz]gemm|maxwell_|pascal_", False),  # [d] no FP64 MMA before Ampere, no MMA before Volta
    (r"winograd|(dgrad|wgrad_alg\d)_engine|depthwise|naive_conv|im2col", False),  # [s] [o] transforms and direct forms
]  # fmt: skip

# Which gradient of a product a name speaks of. A transposed convolution runs such kernels forward.
PARTS = [
    (r"calc_bias_diff|bgrad|bias_(bwd|backward)", "bgrad"),  # [o] cuDNN
    (r"wgrad|bwd_?weight|_wrw_|\bwrw", "wgrad"),  # [s] [r]
    (r"dgrad|bwd_?data|igemm_bwd|bprop", "dgrad"),  # [s] [r]
]

# Kernel kinds that can carry the cost of a family of formulas (a file of ops/); its other kernels are helpers.
FITS: dict[str, frozenset[str]] = {
    "activation": frozenset({"pointwise"}),
    "attention": frozenset({"attention", "gemm"}),
    "batchnorm": frozenset({"norm"}),
    "cast": frozenset({"copy", "layout", "memory", "pointwise"}),
    "collective": frozenset({"communication"}),
    "contraction": frozenset({"gemm"}),
    "conv": frozenset({"conv", "gemm"}),
    "counting": frozenset({"reduction", "sort", "pointwise"}),
    "distance": frozenset({"reduction", "pointwise", "gemm"}),
    "dropout": frozenset({"rng", "pointwise"}),
    "embedding": frozenset({"embedding", "copy"}),
    "fft": frozenset({"other"}),
    "fill": frozenset({"memory", "pointwise", "rng"}),
    "fusedlinear": frozenset({"gemm", "conv"}),
    "gemm": frozenset({"gemm"}),
    "grouped": frozenset({"gemm"}),
    "indexing": frozenset({"copy", "embedding", "pointwise"}),
    "joining": frozenset({"copy"}),
    "linalg": frozenset({"other", "gemm"}),
    "loss": frozenset({"loss", "softmax", "reduction", "pointwise"}),
    "lowprecision": frozenset({"gemm"}),
    "margin": frozenset({"loss", "reduction", "pointwise"}),
    "masking": frozenset({"copy", "pointwise"}),
    "norm": frozenset({"norm"}),
    "optimizer": frozenset({"optimizer", "pointwise"}),
    "padding": frozenset({"copy", "pointwise"}),
    "parts": frozenset({"copy", "pointwise"}),
    "pointwise": frozenset({"pointwise", "copy"}),
    "pooling": frozenset({"pooling"}),
    "quantize": frozenset({"pointwise", "reduction"}),
    "quantized": frozenset({"gemm", "conv", "pointwise"}),
    "reduction": frozenset({"reduction"}),
    "rnn": frozenset({"gemm"}),
    "rnnkernels": frozenset({"pointwise", "gemm"}),
    "sampling": frozenset({"pointwise", "layout"}),
    "softmax": frozenset({"softmax"}),
    "solvers": frozenset({"other", "gemm"}),
    "sorting": frozenset({"sort"}),
    "special": frozenset({"pointwise"}),
    "spectral": frozenset({"other", "gemm"}),
    "syncbatchnorm": frozenset({"norm"}),
    "transformer": frozenset({"gemm", "attention"}),
    "unpooling": frozenset({"pooling", "copy", "pointwise"}),
    "upsampling": frozenset({"pointwise"}),
    "views": frozenset({"copy"}),
    "window": frozenset({"pointwise"}),
}

_KINDS = [(re.compile(pattern, re.IGNORECASE), value) for pattern, value in KINDS]
_TENSOR_CORES = [(re.compile(pattern, re.IGNORECASE), value) for pattern, value in TENSOR_CORES]
_PARTS = [(re.compile(pattern, re.IGNORECASE), value) for pattern, value in PARTS]


@cache
def kind(name: str) -> str:
    """What a kernel does; "other" if no row knows its name.

    >>> kind("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)")
    'memory'
    """
    return next((value for pattern, value in _KINDS if pattern.search(name)), "other")


@cache
def tensor_core(name: str) -> bool | None:
    """Whether a kernel uses tensor cores; None if its name does not tell.

    >>> tensor_core("nvjet_tst_128x64_64x8_1x2_h_bz_NNT"), tensor_core("ampere_sgemm_32x128_nt"), tensor_core("mine")
    (True, False, None)
    """
    for pattern, value in _TENSOR_CORES:
        if pattern.search(name):
            return value and kind(name) in PRODUCTS
    return None if kind(name) in (*PRODUCTS, "other") else False


@cache
def part(name: str) -> str | None:
    """The gradient that a kernel's name speaks of: "dgrad", "wgrad", "bgrad" or None.

    >>> part("igemm_wrw_gtcx3_nhwc_bf16_bx0"), part("sm80_xmma_dgrad_implicit_gemm_tf32f32"), part("volta_sgemm_nn")
    ('wgrad', 'dgrad', None)
    """
    return next((value for pattern, value in _PARTS if pattern.search(name)), None)
