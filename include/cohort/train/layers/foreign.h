// Layers around functions and modules of the user's.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cohort/train/layers/layer.h"

namespace cohort {

// Makes a layer of a function without parameters. The output's shape is found by calling it on zeros.
Layer Lambda(std::function<torch::Tensor(const torch::Tensor&)> function, std::string name = {});

namespace detail {
struct ForeignModule {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor&)> forward;
};
Layer foreign_layer(std::function<ForeignModule(const Shape&)> build, std::string name);

// The code that module holders and shared pointers have in common.
template <typename M>
ForeignModule foreign_module(M module) {
  std::shared_ptr<torch::nn::Module> base;
  if constexpr (requires { module.ptr(); }) {
    base = module.ptr();
  } else {
    base = module;
  }
  return {std::move(base), [module](const torch::Tensor& x) mutable -> torch::Tensor { return module->forward(x); }};
}
}  // namespace detail

// Makes a layer of any torch::nn::Module. build(input shape) returns a module holder or a shared_ptr, a new one at each
// call; its forward takes a tensor. The output's shape is found by calling it on zeros.
template <typename Build>
Layer Wrap(Build build, std::string name = {}) {
  return detail::foreign_layer([build](const Shape& input) { return detail::foreign_module(build(input)); },
                               std::move(name));
}

}  // namespace cohort
