// What differs between the versions of LibTorch that Cohort compiles with. Nowhere else.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/Allocator.h>
#include <torch/version.h>

#define COHORT_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace cohort::compat {

// c10::Allocator with the one method that all versions want: from 2.3 on allocate() is not const and allocators copy.
class Allocator : public c10::Allocator {
 public:
  virtual c10::DataPtr make(std::size_t bytes) const = 0;

#if COHORT_TORCH_AT_LEAST(2, 3)
  c10::DataPtr allocate(std::size_t bytes) final {
    return make(bytes);
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const final {
    default_copy_data(to, from, bytes);
  }
#else
  c10::DataPtr allocate(std::size_t bytes) const final {
    return make(bytes);
  }
#endif
};

// While it lives, this thread's operations that gain from it run in half precision, with casts that are remembered.
class Autocast {
 public:
  Autocast(c10::DeviceType device, c10::ScalarType half) : device_(device), enabled_(enabled()), dtype_(dtype()) {
    set(true, half);
    at::autocast::increment_nesting();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    set(enabled_, dtype_);
  }

 private:
#if COHORT_TORCH_AT_LEAST(2, 4)
  bool enabled() const {
    return at::autocast::is_autocast_enabled(device_);
  }
  c10::ScalarType dtype() const {
    return at::autocast::get_autocast_dtype(device_);
  }
  void set(bool on, c10::ScalarType dtype) const {
    at::autocast::set_autocast_enabled(device_, on);
    at::autocast::set_autocast_dtype(device_, dtype);
  }
#else
  bool on_cpu() const {
    return device_ == c10::DeviceType::CPU;
  }
  bool enabled() const {
    return on_cpu() ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
  }
  c10::ScalarType dtype() const {
    return on_cpu() ? at::autocast::get_autocast_cpu_dtype() : at::autocast::get_autocast_gpu_dtype();
  }
  void set(bool on, c10::ScalarType dtype) const {
    on_cpu() ? at::autocast::set_cpu_enabled(on) : at::autocast::set_enabled(on);
    on_cpu() ? at::autocast::set_autocast_cpu_dtype(dtype) : at::autocast::set_autocast_gpu_dtype(dtype);
  }
#endif

  c10::DeviceType device_;
  bool enabled_;
  c10::ScalarType dtype_;
};

}  // namespace cohort::compat
