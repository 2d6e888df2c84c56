// Takes the pointer of a storage, whose context says which unit it is.
//
// A parameter carries a dispatch key in front of all others. The kernel behind it, one for all operations, fills the
// memory of the units among the arguments and calls the operation again without the key. Views inherit the key from
// their tensor, also those that autograd saves, so that backward goes the same way.
#include "wings/sharding/strategy/shared_storage.h"

#include <c10/core/StorageImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/fail.h"

namespace cohort {

namespace {

// The units among the arguments of one operation, pinned while it lives.
class Used {
 public:
  Used(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    const auto& arguments = op.schema().arguments();
    const auto first = stack.end() - static_cast<std::ptrdiff_t>(arguments.size());
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const bool writes = arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
      add(*(first + static_cast<std::ptrdiff_t>(i)), op, writes);
    }
    try {
      for (const auto& [where, units] : units_) {
        where.first->pin(units, where.second);
        ++pinned_;
      }
    } catch (...) {
      unpin();
      throw;
    }
  }
  Used(const Used&) = delete;
  Used& operator=(const Used&) = delete;
  ~Used() { unpin(); }

 private:
  void unpin() {
    for (const auto& [where, units] : units_) {
      if (pinned_ == 0) return;
      --pinned_;
      where.first->unpin(units, where.second);
    }
  }
  void add(const c10::IValue& value, const c10::OperatorHandle& op, bool writes) {
    if (value.isTensor()) return add(value.toTensor(), op, writes);
    if (!value.isList()) return;
    for (const c10::IValue& each : value.toListRef()) {
      if (!each.isTensor()) continue;
      add(each.toTensor(), op, writes);
    }
  }
  void add(const torch::Tensor& tensor, const c10::OperatorHandle& op, bool writes) {
    const SharedParameters::Place* place = SharedParameters::Place::of(tensor);
    if (place == nullptr) return;
    if (writes) {
      fail<FailedPrecondition>("[sharding] ", op.schema().name(), " was to change a parameter of the unit of \"",
                               place->shared->units()[place->unit].parts.front().name,
                               "\" in place, but in stage 3 each replica keeps a part of it and gathers the rest; ",
                               "change parameters by the optimizer or by load_state()");
    }
    std::vector<std::size_t>& units =
        units_[{std::static_pointer_cast<ParameterShards>(place->shared), place->local_id}];
    if (std::find(units.begin(), units.end(), place->unit) == units.end()) units.push_back(place->unit);
  }

  std::map<std::pair<std::shared_ptr<ParameterShards>, int>, std::vector<std::size_t>> units_;
  std::size_t pinned_ = 0;
};

// Operations that look at a tensor without its elements.
bool only_looks(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return name == "aten::detach" || name == "aten::alias" || name == "aten::_has_compatible_shallow_copy_type";
}

void call_with_units(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::optional<Used> used;
  if (!only_looks(op)) used.emplace(op, *stack);
  const c10::impl::ExcludeDispatchKeyGuard once(kSharedKey);
  op.callBoxed(stack);
}

}  // namespace

void point(c10::StorageImpl& storage, void* data) {
  const c10::DataPtr& now = storage.data_ptr();
  at::DataPtr pointer(data, now.get_context(), &SharedParameters::Place::release, now.device());
  at::DataPtr before = storage.set_data_ptr(std::move(pointer));
  static_cast<void>(before.release_context());
}

// LibTorch's table of kernels is one for the process, and parameters may outlive everything else.
void install_shared_kernel() {
  // Kept although nobody reads it: it says that the library is no leak.
  [[gnu::used]] static const torch::Library* const library = [] {
    auto made = std::make_unique<torch::Library>(torch::Library::IMPL, "_", c10::make_optional(kSharedKey), __FILE__,
                                                 static_cast<uint32_t>(__LINE__));
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&call_with_units>());
    return made.release();
  }();
}

}  // namespace cohort
