#include "wings/xla/record/kernels.h"

#include <ATen/ExpandUtils.h>

#include "base/fail.h"
#include "wings/xla/record/call.h"
#include "wings/xla/record/cell.h"

namespace cohort::record {

namespace {

using OptionalDtype = c10::optional<at::ScalarType>;
using OptionalLayout = c10::optional<at::Layout>;
using OptionalDevice = c10::optional<at::Device>;
using OptionalBool = c10::optional<bool>;
using OptionalFormat = c10::optional<at::MemoryFormat>;

Value full(const at::Scalar& number, const TensorType& type) {
  return make_node("aten::full", {lifted(number, type.dtype)}, type);
}

torch::ScalarType dtype_of(OptionalDtype dtype) {
  return dtype ? *dtype : c10::typeMetaToScalarType(c10::get_default_dtype());
}

c10::Device device_or_current(OptionalDevice device) {
  if (device && device->has_index()) return *device;
  return c10::impl::getDeviceGuardImpl(c10::DeviceType::XLA)->getDevice();
}

// What the memory has before something is written to it: zeros.
torch::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, OptionalDtype dtype,
                            OptionalLayout /*layout*/, OptionalDevice device, OptionalBool /*pin*/) {
  const TensorType type{dtype_of(dtype), sizes.vec()};
  return make_tensor(full(0, type), {sizes.vec(), strides.vec(), 0}, recording_of(device_or_current(device)));
}

torch::Tensor empty(c10::IntArrayRef sizes, OptionalDtype dtype, OptionalLayout layout, OptionalDevice device,
                    OptionalBool pin, OptionalFormat format) {
  if (format && *format != at::MemoryFormat::Contiguous && *format != at::MemoryFormat::Preserve) {
    const auto strides = at::empty(sizes, at::TensorOptions().device(c10::DeviceType::Meta), format).strides().vec();
    return empty_strided(sizes, strides, dtype, layout, device, pin);
  }
  return empty_strided(sizes, dense_strides(sizes), dtype, layout, device, pin);
}

torch::Tensor zeros(c10::IntArrayRef sizes, OptionalDtype dtype, OptionalLayout layout, OptionalDevice device,
                    OptionalBool pin) {
  return empty(sizes, dtype, layout, device, pin, c10::nullopt);
}

torch::Tensor clone(const torch::Tensor& self, OptionalFormat format) {
  const torch::Tensor meta =
      at::empty_like(meta_of(self), at::TensorOptions(), format.value_or(at::MemoryFormat::Preserve));
  return make_tensor(value_of(self), strided_of(meta), cell_of(self).recording());
}

// Returns the value with the dtype and, by broadcasting, the sizes.
Value converted(const Value& value, const TensorType& type) {
  if (value.type() == type) return value;
  return make_node("cohort::copy", {value}, type);
}

// Puts a tensor of the host on the device. The value is a copy: the caller may write to the tensor at once.
Value placed(const torch::Tensor& host, const TensorType& type, Recording& recording) {
  const torch::Tensor own = at::empty(type.sizes, at::TensorOptions().dtype(type.dtype));
  own.copy_(host);
  const std::shared_ptr<GraphRunner> to = runner();
  std::shared_ptr<DeviceData> data = std::make_shared<HostData>(own);
  if (to != nullptr) data = to->place(own, recording.device());
  return make_data(type, std::move(data));
}

torch::Tensor& copy(torch::Tensor& self, const torch::Tensor& source, bool /*non_blocking*/) {
  if (!is_recorded(self)) {
    self.copy_(fetch(source));
    return self;
  }
  Recording& recording = cell_of(self).recording();
  const TensorType type{self.scalar_type(), self.sizes().vec()};
  if (is_recorded(source) && &cell_of(source).recording() == &recording) {
    at::infer_size(self.sizes(), source.sizes());  // refuses what does not broadcast
    assign(self, converted(value_of(source), type));
  } else {
    assign(self, placed(is_recorded(source) ? fetch(source) : source, type, recording));
  }
  return self;
}

torch::Tensor copy_from(const torch::Tensor& self, const torch::Tensor& to, bool non_blocking) {
  torch::Tensor target = to;
  return copy(target, self, non_blocking);
}

// A tensor without elements gets memory of its own; any other one keeps its size.
const torch::Tensor& resize_empty(const torch::Tensor& self, c10::IntArrayRef sizes, OptionalFormat /*format*/) {
  if (self.sizes() == sizes) return self;
  if (self.numel() > 0) {
    refuse_operation("resize_", "", c10::str("of a tensor of ", self.sizes(), " to ", sizes),
                     "a recorded tensor with elements keeps its size");
  }
  const torch::Tensor made = at::empty(sizes, self.options());
  self.unsafeGetTensorImpl()->shallow_copy_from(made.getIntrusivePtr());
  return self;
}

torch::Tensor copy_from_and_resize(const torch::Tensor& self, const torch::Tensor& to) {
  torch::Tensor target = to;
  resize_empty(target, self.sizes(), c10::nullopt);
  return copy(target, self, false);
}

at::Scalar item(const torch::Tensor& self) {
  return fetch(self).item();
}

torch::Tensor& fill(torch::Tensor& self, const at::Scalar& number) {
  assign(self, full(number, {self.scalar_type(), self.sizes().vec()}));
  return self;
}

torch::Tensor& fill_by_tensor(torch::Tensor& self, const torch::Tensor& number) {
  if (is_recorded(number)) return copy(self, number, false);
  return fill(self, number.item());
}

torch::Tensor& zero(torch::Tensor& self) {
  return fill(self, 0);
}

// LibTorch makes arange() of an empty tensor that arange_out() gives its size, and above autograd the first one is what
// the caller gets: so all forms are recorded themselves.
torch::Tensor arange_by_step(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                             OptionalDtype dtype, OptionalLayout /*layout*/, OptionalDevice device,
                             OptionalBool /*pin*/) {
  const torch::Tensor host = at::arange(start, end, step, at::TensorOptions().dtype(dtype));
  const TensorType type{host.scalar_type(), host.sizes().vec()};
  return make_tensor(make_node("aten::arange", {c10::IValue(start), c10::IValue(step)}, type),
                     device_or_current(device));
}

torch::Tensor arange_between(const at::Scalar& start, const at::Scalar& end, OptionalDtype dtype, OptionalLayout layout,
                             OptionalDevice device, OptionalBool pin) {
  return arange_by_step(start, end, 1, dtype, layout, device, pin);
}

torch::Tensor arange(const at::Scalar& end, OptionalDtype dtype, OptionalLayout layout, OptionalDevice device,
                     OptionalBool pin) {
  return arange_by_step(0, end, 1, dtype, layout, device, pin);
}

torch::Tensor& arange_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, torch::Tensor& out) {
  const torch::Tensor made =
      arange_by_step(start, end, step, out.scalar_type(), c10::nullopt, out.device(), c10::nullopt);
  if (made.sizes() != out.sizes()) {
    refuse_operation("arange", "", c10::str("into a tensor of ", out.sizes(), ", wanted one of ", made.sizes()),
                     "a recorded tensor keeps its size");
  }
  assign(out, value_of(made));
  return out;
}

torch::Tensor as_strided(const torch::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         c10::optional<int64_t> offset) {
  return make_view(self, {sizes.vec(), strides.vec(), offset.value_or(self.storage_offset())});
}

torch::Tensor view(const torch::Tensor& self, c10::IntArrayRef sizes) {
  return make_view(self, [&] {
    const torch::Tensor meta = meta_of(self).view(sizes);
    return Strided{meta.sizes().vec(), meta.strides().vec(), self.storage_offset()};
  }());
}

torch::Tensor alias(const torch::Tensor& self) {
  return make_view(self, strided_of(self));
}

}  // namespace

torch::Tensor put(const torch::Tensor& host, torch::Device device) {
  Recording& recording = recording_of(device);
  const TensorType type{host.scalar_type(), host.sizes().vec()};
  const torch::Tensor meta =
      at::empty(type.sizes, at::TensorOptions().device(c10::DeviceType::Meta), host.suggest_memory_format());
  return make_tensor(placed(host.detach(), type, recording), strided_of(meta), recording);
}

void register_kernels(torch::Library& aten) {
  aten.impl("empty.memory_format", &empty);
  aten.impl("empty_strided", &empty_strided);
  aten.impl("_efficientzerotensor", &zeros);
  aten.impl("clone", &clone);
  aten.impl("copy_", &copy);
  aten.impl("_copy_from", &copy_from);
  aten.impl("_copy_from_and_resize", &copy_from_and_resize);
  aten.impl("resize_", &resize_empty);
  aten.impl("_local_scalar_dense", &item);
  aten.impl("fill_.Scalar", &fill);
  aten.impl("fill_.Tensor", &fill_by_tensor);
  aten.impl("zero_", &zero);
  aten.impl("arange", &arange);
  aten.impl("arange.start", &arange_between);
  aten.impl("arange.start_step", &arange_by_step);
  aten.impl("arange.start_out", &arange_out);
  aten.impl("as_strided", &as_strided);
  aten.impl("view", &view);
  aten.impl("detach", &alias);
  aten.impl("alias", &alias);
}

}  // namespace cohort::record
