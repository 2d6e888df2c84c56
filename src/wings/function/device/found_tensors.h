// FoundTensors: what work that is done once, and then repeated without its operations, has found outside of what it
// made itself. It can be asked whether that is still as it was: if not, the work has to be done anew.
#pragma once

#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort {

// One thread at a time. Keeps nothing alive.
class FoundTensors {
 public:
  // Notes memory that has to stay where it is.
  void need(const c10::Storage& memory);
  // Notes a tensor that has to keep its dtype, its shape and its memory as long as it exists.
  void keep(const torch::Tensor& tensor);
  // Notes a tensor of the host whose memory has to stay, and to have the values of now.
  void need_values(const torch::Tensor& tensor);

  bool are_as_they_were() const;

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  struct Memory {
    WeakStorage storage;
    const void* begin;
  };
  struct Geometry {
    explicit Geometry(const c10::TensorImpl& tensor);
    bool is_of(const c10::TensorImpl& tensor) const;

    const c10::StorageImpl* storage;
    torch::ScalarType dtype;
    int64_t offset;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };
  struct Kept {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    Geometry geometry;
  };
  struct Values {
    WeakStorage storage;
    Geometry geometry;
    std::vector<std::byte> bytes;
  };

  static bool has_its_values(const Values& values);

  std::vector<Memory> memory_;
  std::vector<Kept> kept_;
  std::vector<Values> values_;
};

}  // namespace cohort
