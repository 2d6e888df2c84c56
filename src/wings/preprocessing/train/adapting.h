// Gathering: what a layer learns from data, batch by batch, before a model is made of it.
#pragma once

#include <torch/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/fail.h"
#include "cohort/train/layers/layer.h"

namespace cohort {

class Gathering {
 public:
  virtual ~Gathering() = default;
  // Takes a batch of one example or more into account. InvalidArgument: it does not fit.
  virtual void add(const torch::Tensor& batch) = 0;
  // Returns the kind of layer that knows what was learned. InvalidArgument: there was nothing to learn.
  virtual std::shared_ptr<const LayerKind> learned() const = 0;
};

// A sort of layer that learns from data.
class AdaptedKind : public LayerKind {
 public:
  // Begins to learn. FailedPrecondition: it was given what it would learn. `who` is the layer's name, for messages.
  virtual std::unique_ptr<Gathering> gather(const std::string& who) const = 0;
};

// Fails for data that a layer cannot learn from.
template <typename... Parts>
[[noreturn]] void fail_adapt(const std::string& who, std::string_view type, const Parts&... parts) {
  fail<InvalidArgument>("[layers] ", who, " (", type, "): adapt: ", parts...);
}
// Fails for a layer that was given what it would learn.
[[noreturn]] void fail_given(const std::string& who, std::string_view type, std::string_view option);
// Fails for a layer that has learned nothing and was given nothing.
[[noreturn]] void fail_unadapted(const std::string& who, std::string_view type, std::string_view option);

// A constant of a layer, which is no weight: a copy for each device and dtype that it was asked for. Thread-safe.
class LayerConstant {
 public:
  explicit LayerConstant(torch::Tensor value) : value_(std::move(value)) {}
  // Returns it on the device of `like`.
  torch::Tensor beside(const torch::Tensor& like) const;

 private:
  torch::Tensor value_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, torch::Tensor> copies_;
};

}  // namespace cohort
