// What differs between the versions of LibTorch that Cohort compiles with. Nowhere else.
#pragma once

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

}  // namespace cohort::compat
