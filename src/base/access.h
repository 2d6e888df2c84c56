// Access: the way in which the library reaches the state behind a public handle. Public headers name this class as a
// friend and nothing else of it, so programs that include cohort/ have no such way. Used as Access::core(strategy).
#pragma once

#include <utility>

namespace cohort {

class Access {
 public:
  // Returns the StrategyCore of a strategy or of a mirrored module as a shared pointer, of a replica as a reference.
  template <typename Handle>
  static auto& core(const Handle& handle) {
    return handle.core_;
  }

  // Returns what the handle shares with its copies, such as the ModelState of a Model.
  template <typename Handle>
  static auto& state(const Handle& handle) {
    return handle.state_;
  }

  // Returns which parameters of a mirrored module are cut.
  template <typename Handle>
  static auto& layout(const Handle& handle) {
    return handle.layout_;
  }

  // Returns the buffers that count for all replicas of a mirrored module, as MirroredModule::state() has them.
  template <typename Handle>
  static auto mean_buffers(const Handle& handle) {
    return handle.mean_buffers();
  }

  // Returns the Step behind an optimizer's handle.
  template <typename Handle>
  static auto& step(const Handle& handle) {
    return handle.step_;
  }

  // Makes a handle by a constructor that programs do not have.
  template <typename Handle, typename... Args>
  static Handle make(Args&&... args) {
    return Handle(std::forward<Args>(args)...);
  }
};

}  // namespace cohort
