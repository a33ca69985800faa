// Made by `python -m tests.shims header` from shims.toml and torch's headers.
// clang-format off
#pragma once
#include "common/shim_types.h"
// One body defines a function for each target; MENAGERIE_DEVICE is cpu or mps.
#define MENAGERIE_JOINED(device, name) aoti_torch_##device##_##name
#define MENAGERIE_SPELT(device, name) MENAGERIE_JOINED(device, name)
#define MENAGERIE_SHIM(name) MENAGERIE_SPELT(MENAGERIE_DEVICE, name)
#pragma GCC visibility push(default)
extern "C" {
AOTITorchError MENAGERIE_SHIM(convolution)(AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle* bias, const int64_t* stride, int64_t stride_len_, const int64_t* padding, int64_t padding_len_, const int64_t* dilation, int64_t dilation_len_, int32_t transposed, const int64_t* output_padding, int64_t output_padding_len_, int64_t groups, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(mm_out)(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2);
AOTITorchError MENAGERIE_SHIM(addmm_out)(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat1, AtenTensorHandle mat2, double beta, double alpha);
AOTITorchError MENAGERIE_SHIM(bmm_out)(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2);
AOTITorchError MENAGERIE_SHIM(baddbmm_out)(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle batch1, AtenTensorHandle batch2, double beta, double alpha);
AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise(AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle* B, const int64_t* padding, int64_t padding_len_, const int64_t* stride, int64_t stride_len_, const int64_t* dilation, int64_t dilation_len_, int64_t groups, const char* attr, const double** scalars, int64_t scalars_len_, const char** algorithm, AtenTensorHandle* ret0);
AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise_binary(AtenTensorHandle X, AtenTensorHandle other, AtenTensorHandle W, AtenTensorHandle* B, const int64_t* padding, int64_t padding_len_, const int64_t* stride, int64_t stride_len_, const int64_t* dilation, int64_t dilation_len_, int64_t groups, const char* binary_attr, double* alpha, const char** unary_attr, const double** unary_scalars, int64_t unary_scalars_len_, const char** unary_algorithm, AtenTensorHandle* ret0);
AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise_binary_(AtenTensorHandle other, AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle* B, const int64_t* padding, int64_t padding_len_, const int64_t* stride, int64_t stride_len_, const int64_t* dilation, int64_t dilation_len_, int64_t groups, const char* binary_attr, double* alpha, const char** unary_attr, const double** unary_scalars, int64_t unary_scalars_len_, const char** unary_algorithm, AtenTensorHandle* ret0);
AOTITorchError aoti_torch_cpu_expanded_depthwise(  AtenTensorHandle input, AtenTensorHandle expansion, AtenTensorHandle* expansion_bias,
  const int64_t* expansion_stride, int64_t expansion_stride_len_,
  const int64_t* expansion_padding, int64_t expansion_padding_len_,
  const int64_t* expansion_dilation, int64_t expansion_dilation_len_, AtenTensorHandle* rows,
  const char* expansion_activation, const double* expansion_scalars,
  int64_t expansion_scalars_len_, AtenTensorHandle weight, AtenTensorHandle* bias,
  const int64_t* stride, int64_t stride_len_, const int64_t* padding, int64_t padding_len_,
  const int64_t* dilation, int64_t dilation_len_, const char* activation,
  const double* scalars, int64_t scalars_len_, AtenTensorHandle* ret0);
AOTITorchError aoti_torch_cpu_mkldnn_rnn_layer(AtenTensorHandle input, AtenTensorHandle weight0, AtenTensorHandle weight1, AtenTensorHandle weight2, AtenTensorHandle weight3, AtenTensorHandle hx_, AtenTensorHandle cx_, int32_t reverse, const int64_t* batch_sizes, int64_t batch_sizes_len_, int64_t mode, int64_t hidden_size, int64_t num_layers, int32_t has_biases, int32_t bidirectional, int32_t batch_first, int32_t train, AtenTensorHandle* ret0, AtenTensorHandle* ret1, AtenTensorHandle* ret2, AtenTensorHandle* ret3);
AOTITorchError aoti_torch_cpu__linear_pointwise(AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle* B, const char* attr, const double** scalars, int64_t scalars_len_, const char** algorithm, AtenTensorHandle* ret0);
AOTITorchError aoti_torch_cpu__linear_pointwise_binary(AtenTensorHandle X, AtenTensorHandle other, AtenTensorHandle W, AtenTensorHandle* B, const char* attr, AtenTensorHandle* ret0);
AOTITorchError aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value, double dropout_p, int32_t is_causal, AtenTensorHandle* attn_mask, double* scale, AtenTensorHandle* ret0, AtenTensorHandle* ret1);
AOTITorchError MENAGERIE_SHIM(sort)(AtenTensorHandle self, int64_t dim, int32_t descending, AtenTensorHandle* ret0, AtenTensorHandle* ret1);
AOTITorchError MENAGERIE_SHIM(sort_stable)(AtenTensorHandle self, int32_t* stable, int64_t dim, int32_t descending, AtenTensorHandle* ret0, AtenTensorHandle* ret1);
AOTITorchError MENAGERIE_SHIM(topk)(AtenTensorHandle self, int64_t k, int64_t dim, int32_t largest, int32_t sorted, AtenTensorHandle* ret0, AtenTensorHandle* ret1);
AOTITorchError MENAGERIE_SHIM(cumsum)(AtenTensorHandle self, int64_t dim, int32_t* dtype, AtenTensorHandle* ret0), MENAGERIE_SHIM(cumprod)(AtenTensorHandle self, int64_t dim, int32_t* dtype, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(logcumsumexp)(AtenTensorHandle self, int64_t dim, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(cummax)(AtenTensorHandle self, int64_t dim, AtenTensorHandle* ret0, AtenTensorHandle* ret1), MENAGERIE_SHIM(cummin)(AtenTensorHandle self, int64_t dim, AtenTensorHandle* ret0, AtenTensorHandle* ret1);
AOTITorchError MENAGERIE_SHIM(avg_pool2d)(AtenTensorHandle self, const int64_t* kernel_size, int64_t kernel_size_len_, const int64_t* stride, int64_t stride_len_, const int64_t* padding, int64_t padding_len_, int32_t ceil_mode, int32_t count_include_pad, int64_t* divisor_override, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(_adaptive_avg_pool2d)(AtenTensorHandle self, const int64_t* output_size, int64_t output_size_len_, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(max_pool2d_with_indices)(AtenTensorHandle self, const int64_t* kernel_size, int64_t kernel_size_len_, const int64_t* stride, int64_t stride_len_, const int64_t* padding, int64_t padding_len_, const int64_t* dilation, int64_t dilation_len_, int32_t ceil_mode, AtenTensorHandle* ret0, AtenTensorHandle* ret1);
AOTITorchError MENAGERIE_SHIM(adaptive_max_pool2d)(AtenTensorHandle self, const int64_t* output_size, int64_t output_size_len_, AtenTensorHandle* ret0, AtenTensorHandle* ret1);
AOTITorchError MENAGERIE_SHIM(avg_pool3d)(AtenTensorHandle self, const int64_t* kernel_size, int64_t kernel_size_len_, const int64_t* stride, int64_t stride_len_, const int64_t* padding, int64_t padding_len_, int32_t ceil_mode, int32_t count_include_pad, int64_t* divisor_override, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(max_pool3d_with_indices)(AtenTensorHandle self, const int64_t* kernel_size, int64_t kernel_size_len_, const int64_t* stride, int64_t stride_len_, const int64_t* padding, int64_t padding_len_, const int64_t* dilation, int64_t dilation_len_, int32_t ceil_mode, AtenTensorHandle* ret0, AtenTensorHandle* ret1);
AOTITorchError MENAGERIE_SHIM(index_Tensor)(AtenTensorHandle self, const AtenTensorHandle** indices, int64_t indices_len_, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(index_put)(AtenTensorHandle self, const AtenTensorHandle** indices, int64_t indices_len_, AtenTensorHandle values, int32_t accumulate, AtenTensorHandle* ret0);
AOTITorchError aoti_torch_index_put_out(AtenTensorHandle out, AtenTensorHandle self, const AtenTensorHandle* indices, const uint32_t num_indices, const AtenTensorHandle values, bool accumulate);
AOTITorchError MENAGERIE_SHIM(scatter_src_out)(AtenTensorHandle out, AtenTensorHandle self, int64_t dim, AtenTensorHandle index, AtenTensorHandle src);
AOTITorchError MENAGERIE_SHIM(scatter_value_out)(AtenTensorHandle out, AtenTensorHandle self, int64_t dim, AtenTensorHandle index, double value);
AOTITorchError MENAGERIE_SHIM(scatter_reduce_two_out)(AtenTensorHandle out, AtenTensorHandle self, int64_t dim, AtenTensorHandle index, AtenTensorHandle src, const char* reduce, int32_t include_self);
AOTITorchError MENAGERIE_SHIM(cat)(const AtenTensorHandle* tensors, int64_t tensors_len_, int64_t dim, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(nonzero)(AtenTensorHandle self, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(masked_select)(AtenTensorHandle self, AtenTensorHandle mask, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(masked_scatter)(AtenTensorHandle self, AtenTensorHandle mask, AtenTensorHandle source, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(bucketize_Tensor)(AtenTensorHandle self, AtenTensorHandle boundaries, int32_t out_int32, int32_t right, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(searchsorted_Tensor)(AtenTensorHandle sorted_sequence, AtenTensorHandle self, int32_t out_int32, int32_t right, const char** side, AtenTensorHandle* sorter, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(kthvalue)(AtenTensorHandle self, int64_t k, int64_t dim, int32_t keepdim, AtenTensorHandle* ret0, AtenTensorHandle* ret1);
AOTITorchError MENAGERIE_SHIM(median)(AtenTensorHandle self, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(gcd)(AtenTensorHandle self, AtenTensorHandle other, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(pow_Tensor_Tensor)(AtenTensorHandle self, AtenTensorHandle exponent, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(pow_Scalar)(double self, AtenTensorHandle exponent, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(repeat_interleave_Tensor)(AtenTensorHandle repeats, int64_t* output_size, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(_cdist_forward)(AtenTensorHandle x1, AtenTensorHandle x2, double p, int64_t* compute_mode, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(cholesky_factor)(AtenTensorHandle self, int32_t check, AtenTensorHandle* ret0, AtenTensorHandle* ret1);
AOTITorchError MENAGERIE_SHIM(lu_factor)(AtenTensorHandle self, int32_t check, AtenTensorHandle* ret0, AtenTensorHandle* ret1, AtenTensorHandle* ret2);
AOTITorchError MENAGERIE_SHIM(lu_permutation)(AtenTensorHandle pivots, int64_t rows, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(triangle_solved)(AtenTensorHandle self, AtenTensorHandle other, int32_t upper, int32_t unit, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(qr_factor)(AtenTensorHandle self, AtenTensorHandle* ret0, AtenTensorHandle* ret1);
AOTITorchError MENAGERIE_SHIM(reflectors_product)(AtenTensorHandle self, AtenTensorHandle factors, AtenTensorHandle* ret0);
AOTITorchError MENAGERIE_SHIM(symmetric_eigen)(AtenTensorHandle self, AtenTensorHandle* ret0, AtenTensorHandle* ret1);
AOTITorchError MENAGERIE_SHIM(singular_values)(AtenTensorHandle self, AtenTensorHandle* ret0, AtenTensorHandle* ret1, AtenTensorHandle* ret2);
AOTITorchError aoti_torch_mps_attention(  AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value, AtenTensorHandle* mask,
  int32_t is_causal, double* scale, AtenTensorHandle* ret0);
AOTITorchError aoti_torch_mps__linear_fp_act_4bit_weight(  AtenTensorHandle A, AtenTensorHandle B, int64_t group_size, AtenTensorHandle S,
  AtenTensorHandle Z, AtenTensorHandle* ret0);
AOTITorchError aoti_torch_mps_finished_product(  AtenTensorHandle a, AtenTensorHandle b, AtenTensorHandle* bias, const int64_t* steps,
  int64_t steps_len_, const double* low, int64_t low_len_, const double* high, int64_t high_len_,
  AtenTensorHandle* other, AtenTensorHandle* ret0);
AOTITorchError aoti_torch_mps_finished_convolution(  AtenTensorHandle input, AtenTensorHandle* factor, AtenTensorHandle weight,
  AtenTensorHandle* bias, const int64_t* stride, int64_t stride_len_, const int64_t* padding,
  int64_t padding_len_, const int64_t* dilation, int64_t dilation_len_, int64_t groups,
  const int64_t* steps, int64_t steps_len_, const double* low, int64_t low_len_,
  const double* high, int64_t high_len_, AtenTensorHandle* other, AtenTensorHandle* ret0);
AOTITorchError aoti_torch_empty_strided(int64_t ndim, const int64_t* sizes_ptr, const int64_t* strides_ptr, int32_t dtype, int32_t device_type, int32_t device_index, AtenTensorHandle* ret_new_tensor);
AOTITorchError aoti_torch_create_tensor_from_blob(void* data, int64_t ndim, const int64_t* sizes_ptr, const int64_t* strides_ptr, int64_t storage_offset, int32_t dtype, int32_t device_type, int32_t device_index, AtenTensorHandle* ret);
AOTITorchError aoti_torch_create_tensor_from_blob_v2(void* data, int64_t ndim, const int64_t* sizes_ptr, const int64_t* strides_ptr, int64_t storage_offset, int32_t dtype, int32_t device_type, int32_t device_index, AtenTensorHandle* ret, int32_t layout, const uint8_t* opaque_metadata, int64_t opaque_metadata_size);
AOTITorchError aoti_torch__reinterpret_tensor(AtenTensorHandle self, int64_t ndim, const int64_t* sizes_ptr, const int64_t* strides_ptr, int64_t storage_offset, AtenTensorHandle* ret_new_tensor);
AOTITorchError aoti_torch__alloc_from_pool(AtenTensorHandle self, int64_t offset_bytes, int32_t dtype, int64_t ndim, const int64_t* sizes_ptr, const int64_t* strides_ptr, AtenTensorHandle* ret_new_tensor);
AOTITorchError aoti_torch_as_strided(AtenTensorHandle self, const int64_t* sizes_ptr, const int64_t* strides_ptr, AtenTensorHandle* ret);
AOTITorchError aoti_torch_new_tensor_handle(AtenTensorHandle orig_handle, AtenTensorHandle* new_handle);
AOTITorchError aoti_torch_new_uninitialized_tensor(AtenTensorHandle* ret);
AOTITorchError aoti_torch_assign_tensors(AtenTensorHandle src, AtenTensorHandle dst);
AOTITorchError aoti_torch_assign_tensors_out(AtenTensorHandle src, AtenTensorHandle* ret_dst);
AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle tensor);
AOTITorchError aoti_torch_clone(AtenTensorHandle self, AtenTensorHandle* ret), aoti_torch_clone_preserve_strides(AtenTensorHandle self, AtenTensorHandle* ret);
AOTITorchError aoti_torch_copy_(AtenTensorHandle self, AtenTensorHandle src, int32_t non_blocking);
AOTITorchError aoti_torch_zero_(AtenTensorHandle self);
AOTITorchError aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** ret_data_ptr);
AOTITorchError aoti_torch_get_storage_size(AtenTensorHandle tensor, int64_t* ret_size);
AOTITorchError aoti_torch_get_storage_numel(AtenTensorHandle tensor, int64_t* ret_numel);
AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* ret_dim);
AOTITorchError aoti_torch_get_numel(AtenTensorHandle tensor, int64_t* ret_numel);
AOTITorchError aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t** ret_sizes);
AOTITorchError aoti_torch_get_size(AtenTensorHandle tensor, int64_t d, int64_t* ret_size);
AOTITorchError aoti_torch_get_strides(AtenTensorHandle tensor, int64_t** ret_strides);
AOTITorchError aoti_torch_get_stride(AtenTensorHandle tensor, int64_t d, int64_t* ret_stride);
AOTITorchError aoti_torch_get_dtype(AtenTensorHandle tensor, int32_t* ret_dtype);
AOTITorchError aoti_torch_get_device_type(AtenTensorHandle tensor, int32_t* ret_device_type);
AOTITorchError aoti_torch_get_device_index(AtenTensorHandle tensor, int32_t* ret_device_index);
AOTITorchError aoti_torch_get_layout(AtenTensorHandle tensor, int32_t* ret_layout);
AOTITorchError aoti_torch_get_storage_offset(AtenTensorHandle tensor, int64_t* ret_storage_offset);
AOTITorchError aoti_torch_is_contiguous(AtenTensorHandle tensor, bool* ret_is_contiguous);
AOTITorchError aoti_torch_is_defined(AtenTensorHandle tensor, bool* ret_is_defined);
size_t aoti_torch_dtype_element_size(int32_t dtype);
bool aoti_torch_grad_mode_is_enabled();
void aoti_torch_grad_mode_set_enabled(bool enabled);
void aoti_torch_check(bool cond, const char* func, const char* file, uint32_t line, const char* msg);
void aoti_torch_warn(const char* func, const char* file, uint32_t line, const char* msg);
AOTITorchError aoti_torch_proxy_executor_call_function(AOTIProxyExecutorHandle proxy_executor, int extern_node_index, int num_ints, int64_t* flatten_int_args, int num_tensors, AtenTensorHandle* flatten_tensor_args);
AOTITorchError aoti_torch_item_float32(AtenTensorHandle tensor, float* ret_value);
AOTITorchError aoti_torch_item_float64(AtenTensorHandle tensor, double* ret_value);
AOTITorchError aoti_torch_item_uint8(AtenTensorHandle tensor, uint8_t* ret_value);
AOTITorchError aoti_torch_item_int8(AtenTensorHandle tensor, int8_t* ret_value);
AOTITorchError aoti_torch_item_int16(AtenTensorHandle tensor, int16_t* ret_value);
AOTITorchError aoti_torch_item_int32(AtenTensorHandle tensor, int32_t* ret_value);
AOTITorchError aoti_torch_item_int64(AtenTensorHandle tensor, int64_t* ret_value);
AOTITorchError aoti_torch_item_bool(AtenTensorHandle tensor, bool* ret_value);
AOTITorchError aoti_torch_scalar_to_tensor_float32(float value, AtenTensorHandle* ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_float64(double value, AtenTensorHandle* ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_uint8(uint8_t value, AtenTensorHandle* ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_int8(int8_t value, AtenTensorHandle* ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_int16(int16_t value, AtenTensorHandle* ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_int32(int32_t value, AtenTensorHandle* ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_int64(int64_t value, AtenTensorHandle* ret_new_tensor);
AOTITorchError aoti_torch_scalar_to_tensor_bool(bool value, AtenTensorHandle* ret_new_tensor);
int32_t aoti_torch_device_type_cpu(), aoti_torch_device_type_cuda(), aoti_torch_device_type_meta(), aoti_torch_device_type_xpu(), aoti_torch_device_type_mps(), aoti_torch_device_type_privateuse1(), aoti_torch_dtype_float8_e5m2(), aoti_torch_dtype_float8_e4m3fn(), aoti_torch_dtype_float8_e5m2fnuz(), aoti_torch_dtype_float8_e4m3fnuz(), aoti_torch_dtype_bfloat16(), aoti_torch_dtype_float16(), aoti_torch_dtype_float32(), aoti_torch_dtype_float64(), aoti_torch_dtype_uint8(), aoti_torch_dtype_uint16(), aoti_torch_dtype_uint32(), aoti_torch_dtype_uint64(), aoti_torch_dtype_int8(), aoti_torch_dtype_int16(), aoti_torch_dtype_int32(), aoti_torch_dtype_int64(), aoti_torch_dtype_bool(), aoti_torch_dtype_complex32(), aoti_torch_dtype_complex64(), aoti_torch_dtype_complex128(), aoti_torch_layout_strided(), aoti_torch_layout_sparse_coo(), aoti_torch_layout_sparse_csr(), aoti_torch_layout_sparse_csc(), aoti_torch_layout_sparse_bsr(), aoti_torch_layout_sparse_bsc(), aoti_torch_layout__mkldnn(), aoti_torch_layout_jagged(), aoti_torch_memory_format_contiguous_format(), aoti_torch_memory_format_channels_last(), aoti_torch_memory_format_channels_last_3d(), aoti_torch_memory_format_preserve_format();
Float8 Sleef_erfcf8_u15(Float8 x);
Float8 Sleef_hypotf8_u05(Float8 x, Float8 y);
Double4 Sleef_erfcd4_u15(Double4 x);
Double4 Sleef_hypotd4_u05(Double4 x, Double4 y);
AOTITorchError menagerie_kernel_begin(const char* name, int64_t bytes);
AOTITorchError menagerie_kernel_end();
Float8 Sleef_acosf8_u10(Float8 x), Sleef_acoshf8_u10(Float8 x), Sleef_asinf8_u10(Float8 x), Sleef_asinhf8_u10(Float8 x), Sleef_atanf8_u10(Float8 x), Sleef_atanhf8_u10(Float8 x), Sleef_cosf8_u10(Float8 x), Sleef_coshf8_u10(Float8 x), Sleef_expf8_u10(Float8 x), Sleef_exp2f8_u10(Float8 x), Sleef_expm1f8_u10(Float8 x), Sleef_lgammaf8_u10(Float8 x), Sleef_logf8_u10(Float8 x), Sleef_log10f8_u10(Float8 x), Sleef_log1pf8_u10(Float8 x), Sleef_log2f8_u10(Float8 x), Sleef_sinf8_u10(Float8 x), Sleef_sinhf8_u10(Float8 x), Sleef_tanf8_u10(Float8 x), Sleef_tanhf8_u10(Float8 x), Sleef_erff8_u10(Float8 x), Sleef_cosf8_u35(Float8 x), Sleef_sinf8_u35(Float8 x);
Float8 Sleef_atan2f8_u10(Float8 x, Float8 y), Sleef_powf8_u10(Float8 x, Float8 y), Sleef_fmodf8(Float8 x, Float8 y), Sleef_copysignf8(Float8 x, Float8 y), Sleef_nextafterf8(Float8 x, Float8 y);
Double4 Sleef_acosd4_u10(Double4 x), Sleef_acoshd4_u10(Double4 x), Sleef_asind4_u10(Double4 x), Sleef_asinhd4_u10(Double4 x), Sleef_atand4_u10(Double4 x), Sleef_atanhd4_u10(Double4 x), Sleef_cosd4_u10(Double4 x), Sleef_coshd4_u10(Double4 x), Sleef_expd4_u10(Double4 x), Sleef_exp2d4_u10(Double4 x), Sleef_expm1d4_u10(Double4 x), Sleef_lgammad4_u10(Double4 x), Sleef_logd4_u10(Double4 x), Sleef_log10d4_u10(Double4 x), Sleef_log1pd4_u10(Double4 x), Sleef_log2d4_u10(Double4 x), Sleef_sind4_u10(Double4 x), Sleef_sinhd4_u10(Double4 x), Sleef_tand4_u10(Double4 x), Sleef_tanhd4_u10(Double4 x), Sleef_erfd4_u10(Double4 x);
Double4 Sleef_atan2d4_u10(Double4 x, Double4 y), Sleef_powd4_u10(Double4 x, Double4 y), Sleef_fmodd4(Double4 x, Double4 y), Sleef_copysignd4(Double4 x, Double4 y), Sleef_nextafterd4(Double4 x, Double4 y);
AOTITorchError aoti_torch_mps_create_shader_library(const char* metal_shader_source, AOTIMetalShaderLibraryHandle* library_handle);
AOTITorchError aoti_torch_mps_delete_shader_library(AOTIMetalShaderLibraryHandle library_handle);
AOTITorchError aoti_torch_mps_get_kernel_function(AOTIMetalShaderLibraryHandle library_handle, const char* kernel_name, AOTIMetalKernelFunctionHandle* function_handle);
AOTITorchError aoti_torch_mps_start_encoding(AOTIMetalKernelFunctionHandle func);
AOTITorchError aoti_torch_mps_set_arg_tensor(AOTIMetalKernelFunctionHandle func, unsigned idx, AtenTensorHandle tensor);
AOTITorchError aoti_torch_mps_set_arg_int(AOTIMetalKernelFunctionHandle func, unsigned idx, int64_t val);
AOTITorchError aoti_torch_mps_dispatch_single(AOTIMetalKernelFunctionHandle func, uint64_t length);
AOTITorchError aoti_torch_mps_dispatch_single_with_group_size(AOTIMetalKernelFunctionHandle func, uint64_t length, uint64_t group_size);
AOTITorchError aoti_torch_mps_dispatch_array(AOTIMetalKernelFunctionHandle func, const uint64_t* length, size_t length_size);
AOTITorchError aoti_torch_mps_dispatch_array_with_group_size(AOTIMetalKernelFunctionHandle func, const uint64_t* length, size_t length_size, const uint64_t* group_size, size_t group_size_size);
void aoti_torch_mps_shared_callback(AOTIMetalKernelFunctionHandle func, void* user_data);
AOTITorchError aoti_torch_mps_run_command_block(AOTIMetalKernelFunctionHandle func, aoti_torch_mps_command_block_callback_t callback, void* user_data);
AOTITorchError menagerie_mps_fault(const char* const* messages, int64_t count, AtenTensorHandle* ret);
AOTITorchError aoti_torch_mps_malloc(void** buffer, size_t num_bytes);
AOTITorchError aoti_torch_mps_free(void* ptr);
AOTITorchError aoti_torch_mps_memcpy(void* buffer, size_t constant_offset, size_t bytes_read, size_t data_size, uint8_t* constants_start);
AOTITorchError aoti_torch_mps_copy_buffer(void* src_buffer, void* dst_buffer, size_t data_size, size_t src_offset, size_t dst_offset);
}  // extern "C"
#pragma GCC visibility pop
