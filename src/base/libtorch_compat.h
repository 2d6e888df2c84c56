// The differences between the versions of LibTorch that Cohort compiles with. They are handled in no other file.
#pragma once

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/Allocator.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#define COHORT_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace cohort::compat {

// c10::Allocator with the one method that all versions want. From 2.3 on allocate() is not const and allocators copy.
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

// c10::GeneratorImpl with the methods that it has from 2.2 on: the offset within the stream, which a generator that
// derives from this one does not have.
class Generator : public c10::GeneratorImpl {
 public:
  using GeneratorImpl::GeneratorImpl;

#if COHORT_TORCH_AT_LEAST(2, 2)
  void set_offset(uint64_t offset) final {
    TORCH_CHECK(offset == 0, "this generator has no offset, got ", offset, ", wanted 0");
  }
  uint64_t get_offset() const final {
    return 0;
  }
#endif
};

// Returns the dispatch key under which autocast sees tensors of the type XLA. Before 2.1 it is CUDA's, whose rules they
// get. Since then they have a key of their own, and LibTorch leaves its rules to those who bring such devices.
template <typename Key = c10::DispatchKey>
constexpr Key xla_autocast_key() {
  if constexpr (requires { Key::AutocastXLA; }) {
    return Key::AutocastXLA;
  } else {
    return Key::AutocastCUDA;
  }
}

// While it lives, this thread's operations that gain from it run in half precision, with casts that are remembered.
// Tensors of the type XLA go by CUDA's rules and dtype.
class Autocast {
 public:
  Autocast(c10::DeviceType device, c10::ScalarType half)
      : device_(device), enabled_(enabled(device)), dtype_(dtype(device)) {
    set(true, half);
    at::autocast::increment_nesting();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    set(enabled_, dtype_);
  }
  // Returns the half precision in which this thread's operations run now; nothing without autocast.
  static std::optional<c10::ScalarType> in_force(c10::DeviceType device) {
    return enabled(device) ? std::optional(dtype(device)) : std::nullopt;
  }

 private:
  static bool on_cpu(c10::DeviceType device) { return device == c10::DeviceType::CPU; }
  static c10::DispatchKey key(c10::DeviceType device) {
    if (device == c10::DeviceType::XLA) return xla_autocast_key();
    return on_cpu(device) ? c10::DispatchKey::AutocastCPU : c10::DispatchKey::AutocastCUDA;
  }
  static bool enabled(c10::DeviceType device) { return !c10::impl::tls_is_dispatch_key_excluded(key(device)); }
  void set(bool on, c10::ScalarType dtype) const {
    c10::impl::tls_set_dispatch_key_excluded(key(device_), !on);
    set_dtype(dtype);
  }
#if COHORT_TORCH_AT_LEAST(2, 4)
  static c10::DeviceType rules(c10::DeviceType device) {
    return on_cpu(device) ? c10::DeviceType::CPU : c10::DeviceType::CUDA;
  }
  static c10::ScalarType dtype(c10::DeviceType device) {
    return at::autocast::get_autocast_dtype(rules(device));
  }
  void set_dtype(c10::ScalarType dtype) const {
    at::autocast::set_autocast_dtype(rules(device_), dtype);
  }
#else
  static c10::ScalarType dtype(c10::DeviceType device) {
    return on_cpu(device) ? at::autocast::get_autocast_cpu_dtype() : at::autocast::get_autocast_gpu_dtype();
  }
  void set_dtype(c10::ScalarType dtype) const {
    on_cpu(device_) ? at::autocast::set_autocast_cpu_dtype(dtype) : at::autocast::set_autocast_gpu_dtype(dtype);
  }
#endif

  c10::DeviceType device_;
  bool enabled_;
  c10::ScalarType dtype_;
};

// Whether LibTorch has attention in one kernel.
inline constexpr bool kFusesAttention = COHORT_TORCH_AT_LEAST(2, 1);

// Returns softmax(query key^T / sqrt(size) + added) value, computed by one kernel; undefined without kFusesAttention.
// `added` has numbers for the scores, to be broadcast to them, or is undefined; with `causal`, each step sees itself
// and those before, and `added` is undefined. All others are [examples, heads, steps, size].
inline at::Tensor fused_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const at::Tensor& added, bool causal) {
#if COHORT_TORCH_AT_LEAST(2, 1)
  if (!added.defined()) return at::scaled_dot_product_attention(query, key, value, {}, /*dropout_p=*/0.0, causal);
  return at::scaled_dot_product_attention(query, key, value, added);
#else
  static_cast<void>(query), static_cast<void>(key), static_cast<void>(value);
  static_cast<void>(added), static_cast<void>(causal);
  return {};
#endif
}

// Returns whether new tensors are filled where operations have to be deterministic, as they are from 2.2 on unless it
// is turned off. Nothing that the library reads depends on it.
inline bool fills_uninitialized() {
#if COHORT_TORCH_AT_LEAST(2, 2)
  return at::globalContext().deterministicFillUninitializedMemory();
#else
  return false;
#endif
}
inline void set_fills_uninitialized(bool on) {
#if COHORT_TORCH_AT_LEAST(2, 2)
  at::globalContext().setDeterministicFillUninitializedMemory(on);
#else
  static_cast<void>(on);
#endif
}

// The pointer to the node at which a leaf's gradient is complete: std::shared_ptr, from 2.14 on c10::intrusive_ptr.
using GradAccumulator =
    std::invoke_result_t<decltype(&torch::autograd::impl::grad_accumulator), const torch::autograd::Variable&>;

// Returns whether a node of autograd's graph has hooks. From 2.0 on those of tensors are apart from those of nodes.
template <typename Node>
bool node_has_hooks(Node& node) {
  bool any = !node.pre_hooks().empty() || !node.post_hooks().empty();
  if constexpr (requires { node.retains_grad_hooks(); }) {
    any = any || !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty();
  }
  return any;
}

// Returns whether a leaf has hooks for its gradient (register_hook).
inline bool has_hooks(const at::Tensor& leaf) {
  return !torch::autograd::impl::hooks(leaf).empty();
}
// Returns whether a leaf has hooks for when its gradient has been added to grad(), which are Python's from 2.1 on.
inline bool has_hooks_of_sum(const at::Tensor& leaf) {
#if COHORT_TORCH_AT_LEAST(2, 1)
  return torch::autograd::impl::post_acc_grad_hooks(leaf) != nullptr;
#else
  static_cast<void>(leaf);
  return false;
#endif
}
// Returns what a leaf's hooks make of a gradient that the engine was asked for. From 2.0 on it has called them.
inline at::Tensor through_hooks(const at::Tensor& leaf, at::Tensor gradient) {
#if !COHORT_TORCH_AT_LEAST(2, 0)
  for (const auto& hook : torch::autograd::impl::hooks(leaf)) gradient = (*hook)({gradient})[0];
#else
  static_cast<void>(leaf);
#endif
  return gradient;
}

// Makes a node of autograd's graph, of a class that derives from torch::autograd::Node, behind the pointer that the
// version has.
template <typename Node, typename... Args>
auto make_grad_fn(Args&&... args) {
  if constexpr (std::is_same_v<GradAccumulator, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<Node>(std::forward<Args>(args)...);
  } else {
    return c10::make_intrusive<Node>(std::forward<Args>(args)...);
  }
}

// Returns an edge to a node that somebody owns.
template <typename Node>
torch::autograd::Edge edge_to(Node& node, uint32_t input) {
  if constexpr (requires { node.shared_from_this(); }) {
    return torch::autograd::Edge(node.shared_from_this(), input);
  } else {
    return torch::autograd::Edge(c10::intrusive_ptr<Node>::reclaim_copy(&node), input);
  }
}

// c10d::Store with the additional method that it has from 2.7 on, which returns Derived::copy().
template <typename Store, typename Derived>
class Cloneable : public Store {
 public:
  using Store::Store;
  virtual c10::intrusive_ptr<Store> clone() { return static_cast<Derived&>(*this).copy(); }
};

// Ends the pending operations of a c10d group. Groups of versions before 2.6 do so when they are destroyed.
template <typename Group>
void abort(Group& group) {
  if constexpr (requires { group.abort(); }) group.abort();
}

// Shuts a c10d group down, so that LibTorch does not warn that nobody did.
template <typename Group>
void shut_down(Group& group) {
  if constexpr (requires { group.shutdown(); }) group.shutdown();
}

// The environment variables, with their values, that keep c10d's NCCL from ending the process: by default its watchdog
// ends it when a collective takes too long, and its monitor when the watchdog does.
#if COHORT_TORCH_AT_LEAST(2, 2)
constexpr std::pair<const char*, const char*> kNcclLeavesErrorsToUs[] = {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
                                                                         {"TORCH_NCCL_ENABLE_MONITORING", "0"},
                                                                         {"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"}};
#else
constexpr std::pair<const char*, const char*> kNcclLeavesErrorsToUs[] = {{"NCCL_ASYNC_ERROR_HANDLING", "0"}};
#endif

// Gloo's connectFullMesh takes the store by reference; the one that comes with LibTorch 2.14 takes a shared_ptr.
template <typename Context, typename Store, typename Device>
void connect_full_mesh(Context& context, std::shared_ptr<Store> store, std::shared_ptr<Device>& device) {
  if constexpr (requires { context.connectFullMesh(store, device); }) {
    context.connectFullMesh(std::move(store), device);
  } else {
    context.connectFullMesh(*store, device);
  }
}

}  // namespace cohort::compat
