# SPDX-License-Identifier: Apache-2.0
"""Operators whose backward needs only operands, none of their results: they save everything before they compute.

Source: `derivatives.yaml` of torch, as torchgen reads it; those with a formula. A test compares the list with the
installed torch.
"""

from __future__ import annotations

_NAMES = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _conv_depthwise2d _convolution
    _fake_quantize_learnable_per_channel_affine _fake_quantize_learnable_per_tensor_affine _fft_c2c _fft_c2r
    _fft_r2c _foreach_div _foreach_maximum _foreach_minimum _foreach_mm _grid_sampler_2d_cpu_fallback
    _grouped_mm _index_put_impl _log_softmax_backward_data _mkldnn_reshape _mps_convolution
    _mps_convolution_transpose _nnpack_spatial_convolution _prelu_kernel _reshape_alias _reshape_alias_copy
    _reshape_copy _slow_conv2d_forward _softmax_backward_data _to_copy _trilinear _unsafe_index
    _unsafe_index_put _unsafe_masked_index _unsafe_masked_index_put_accumulate _unsafe_view
    _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_lanczos2d_aa _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d abs acos acosh add addbmm addcdiv addcmul addmm addmv
    addr affine_grid_generator angle as_strided as_strided_copy as_strided_scatter asin asinh atan atan2 atanh
    avg_pool2d avg_pool3d baddbmm bernoulli binary_cross_entropy binary_cross_entropy_with_logits block_diag bmm
    cat channel_shuffle chunk clamp clamp_max clamp_min col2im complex constant_pad_nd conv_depthwise3d conv_tbc
    convolution convolution_backward_overrideable convolution_overrideable cos cosh cudnn_affine_grid_generator
    cudnn_convolution cudnn_convolution_transpose cudnn_grid_sampler cumsum diag_embed diagonal diagonal_copy
    diagonal_scatter digamma div dot embedding eq erf erfc erfinv expand expand_copy flip fmax fmin fmod gather
    ge gelu glu grid_sampler_2d grid_sampler_3d gt hardshrink hardsigmoid hardswish hardtanh huber_loss i0
    igamma igammac im2col index index_add index_copy index_fill index_put index_select le lerp lgamma
    linalg_cross linalg_matrix_exp linear log log10 log1p log2 logaddexp logaddexp2 logit lt lu_unpack
    masked_fill masked_scatter masked_select matmul max_pool2d max_unpool2d max_unpool3d maximum mean minimum
    miopen_convolution miopen_convolution_transpose miopen_depthwise_convolution mish mkldnn_adaptive_avg_pool2d
    mkldnn_convolution mkldnn_linear mm mse_loss mul multi_margin_loss mv mvlgamma nan_to_num nansum narrow_copy
    ne nextafter normal permute permute_copy pixel_shuffle pixel_unshuffle poisson polygamma put
    reflection_pad1d reflection_pad2d reflection_pad3d remainder renorm repeat replication_pad1d
    replication_pad2d replication_pad3d roll rot90 rrelu_with_noise_functional rsub scatter scatter_add select
    select_copy select_scatter silu sin sinc sinh slice slice_copy slice_inverse slice_scatter
    slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d
    smooth_l1_loss soft_margin_loss softplus softshrink special_entr special_xlog1py special_zeta split
    split_copy split_with_sizes split_with_sizes_copy squeeze squeeze_copy stack sub sum take threshold
    to_mkldnn trace transpose transpose_copy tril triu unbind unbind_copy unfold unfold_copy unsafe_split
    unsafe_split_with_sizes unsqueeze unsqueeze_copy upsample_bicubic2d upsample_bilinear2d upsample_linear1d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d values var var_mean vdot view
    view_copy where xlogy
"""
SAVES_OPERANDS = frozenset(_NAMES.split())
