// Constrained: modules whose parameters are made to keep to conditions after each update.
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "cohort/mirrored.h"

namespace cohort {

// Base of such modules, beside torch::nn::Module.
class Constrained {
 public:
  using View = std::function<torch::Tensor(const torch::Tensor& parameter)>;

  virtual ~Constrained() = default;

  bool constrained() const { return !list_.empty(); }
  // Gives the parameters that learn their values. A boolean number of their device says whether; undefined: they get
  // them in any case.
  void constrain(const torch::Tensor& whether) const;

 protected:
  // After each update a view of the parameter gets the value that a function makes of it.
  void add_constraint(const torch::Tensor& parameter, View view, View value) {
    list_.push_back({parameter, std::move(view), std::move(value)});
  }

  // Takes over the conditions of a module that this one goes around.
  void constrain_as(const Constrained& inner) { list_ = inner.list_; }

 private:
  struct Entry {
    torch::Tensor parameter;
    View view, value;
  };
  std::vector<Entry> list_;
};

// The constrained modules of each local replica's copy, [replica]; empty: there are none.
using ConstrainedModules = std::vector<std::vector<const Constrained*>>;

// Finds them. Unimplemented or InvalidArgument, by `speaker`: the strategy cannot keep to constraints.
ConstrainedModules constrained_modules(const MirroredModule& module, const std::string& speaker);

}  // namespace cohort
