// Kernels of XLA's foreign function interface, for test_ffi.py.

#include <atomic>
#include <cstdint>
#include <string_view>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using Array = ffi::Buffer<ffi::F32>;
using Result = ffi::ResultBuffer<ffi::F32>;

static ffi::Error Affine(float scale, int64_t shift, Array x, Result y) {
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = scale * x.typed_data()[i] + shift;
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    affine, Affine, ffi::Ffi::Bind().Attr<float>("scale").Attr<int64_t>("shift").Arg<Array>().Ret<Array>());

// The sums of the rows of a matrix as it lies in memory, and the product of each element with the second operand,
// whose first axis has size 1 or that of the first operand.
static ffi::Error Rows(Array x, Array y, Result sums, Result products) {
  auto sizes = x.dimensions();
  int64_t columns = sizes.back();
  for (size_t i = 0; i < sums->element_count(); ++i) sums->typed_data()[i] = 0;
  for (size_t i = 0; i < x.element_count(); ++i) {
    sums->typed_data()[i / columns] += x.typed_data()[i];
    products->typed_data()[i] = x.typed_data()[i] * y.typed_data()[i % y.element_count()];
  }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(rows, Rows, ffi::Ffi::Bind().Arg<Array>().Arg<Array>().Ret<Array>().Ret<Array>());

// The elements in the order of the memory.
static ffi::Error Memory(Array x, Result y) {
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = x.typed_data()[i];
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(memory, Memory, ffi::Ffi::Bind().Arg<Array>().Ret<Array>());

static ffi::Error Attributes(bool flag, int32_t word, uint8_t byte, double number, std::string_view text,
                             ffi::Span<const float> array, ffi::Dictionary options, Result y) {
  auto inner = options.get<int64_t>("inner");
  if (inner.has_error()) return inner.error();
  float* out = y->typed_data();
  out[0] = flag, out[1] = word, out[2] = byte, out[3] = number, out[4] = text.size(), out[5] = text[0];
  out[6] = array[0] + array[1], out[7] = *inner;
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(attributes, Attributes,
                              ffi::Ffi::Bind()
                                  .Attr<bool>("flag")
                                  .Attr<int32_t>("word")
                                  .Attr<uint8_t>("byte")
                                  .Attr<double>("number")
                                  .Attr<std::string_view>("text")
                                  .Attr<ffi::Span<const float>>("array")
                                  .Attr<ffi::Dictionary>("options")
                                  .Ret<Array>());

static std::atomic<int> calls = 0;

static ffi::Error Count(Array x, Result y) {
  y->typed_data()[0] = ++calls;
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(count, Count, ffi::Ffi::Bind().Arg<Array>().Ret<Array>());

static ffi::Error Fail(Array x, Result y) { return ffi::Error::InvalidArgument("the kernel refuses"); }

XLA_FFI_DEFINE_HANDLER_SYMBOL(fail, Fail, ffi::Ffi::Bind().Arg<Array>().Ret<Array>());
