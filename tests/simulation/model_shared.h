// Shared: a part of the model's state (model.h). Most steps change one part, and states share the others.
#pragma once

#include <memory>
#include <utility>

namespace cohort::simulation::model {

// A value that copies share until one of them changes it.
template <typename Value>
class Shared {
 public:
  Shared(Value value) : held_(std::make_shared<Value>(std::move(value))) {}  // NOLINT(google-explicit-constructor)

  const Value& operator*() const { return *held_; }
  const Value* operator->() const { return held_.get(); }
  Value& change() {
    if (held_.use_count() > 1) held_ = std::make_shared<Value>(*held_);
    return *held_;
  }

 private:
  std::shared_ptr<Value> held_;
};

}  // namespace cohort::simulation::model
