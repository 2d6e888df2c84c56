// The ways in which a Model calls a module. Its forward() may take and return one tensor, several by position, or
// several by name:
//
//   torch::Tensor forward(const torch::Tensor& x);
//   std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor image, torch::Tensor meta);
//   cohort::NamedTensors forward(const cohort::NamedTensors& inputs);
//
// A std::map<std::string, torch::Tensor> serves as well for several by name, a std::vector<torch::Tensor> for several
// by position. A forward() may take its inputs in one way and return its outputs in another.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/example.h"

namespace cohort::detail {

// A module, with its forward() in a form that does not depend on its type.
struct ModuleCall {
  std::shared_ptr<torch::nn::Module> module;
  // Calls a forward() that takes and returns one tensor; empty for all others.
  std::function<torch::Tensor(const torch::Tensor&)> one;
  // Calls any forward(). Arguments by position are given in this order, and results by position have empty names.
  std::function<NamedTensors(const NamedTensors&)> several;
};

// Throws InvalidArgument: forward() does not take so many tensors. "counts" says which numbers it takes.
[[noreturn]] void fail_inputs(const NamedTensors& inputs, const std::string& counts);

inline constexpr std::size_t kMostInputs = 8;  // the most inputs by position

using TensorMap = std::map<std::string, torch::Tensor>;

template <typename M, std::size_t... I>
constexpr bool takes_tensors(std::index_sequence<I...> /*places*/) {
  return requires(M & module, const torch::Tensor& tensor) {
    module->forward(((void)I, tensor)...);
  };
}
template <typename M, std::size_t count>
inline constexpr bool kTakesTensors = takes_tensors<M>(std::make_index_sequence<count>());
template <typename M>
inline constexpr bool kTakesList = requires(M& module, const std::vector<torch::Tensor>& list) {
  module->forward(list);
};
// A forward() of any arguments, as torch::nn::Sequential's, is called by position.
template <typename M>
inline constexpr bool kTakesNames = !kTakesTensors<M, 1> && requires(M & module, const NamedTensors& inputs) {
  module->forward(inputs);
};
template <typename M>
inline constexpr bool kTakesMap = !kTakesTensors<M, 1> && requires(M & module, const TensorMap& inputs) {
  module->forward(inputs);
};

template <typename R>
inline constexpr bool kNoOutputs = false;

// Returns what forward() returned as a list.
template <typename R>
NamedTensors outputs_of(R&& result) {
  using Plain = std::decay_t<R>;
  NamedTensors outputs;
  if constexpr (std::is_convertible_v<R&&, torch::Tensor>) {
    outputs.emplace_back(std::string(), std::forward<R>(result));
  } else if constexpr (requires { std::tuple_size<Plain>::value; }) {
    std::apply(
        [&](auto&&... each) {
          static_assert((std::is_convertible_v<decltype(each), torch::Tensor> && ...),
                        "a tuple that forward() returns has to be of tensors alone");
          (outputs.emplace_back(std::string(), std::forward<decltype(each)>(each)), ...);
        },
        std::forward<R>(result));
  } else if constexpr (requires { std::string(result.begin()->first); }) {
    for (const auto& [name, tensor] : result) outputs.emplace_back(name, tensor);
  } else if constexpr (requires { std::string(result.begin()->key()); }) {
    for (const auto& item : result) outputs.emplace_back(item.key(), item.value());
  } else if constexpr (requires { torch::Tensor(*result.begin()); }) {
    for (const auto& tensor : result) outputs.emplace_back(std::string(), tensor);
  } else {
    static_assert(kNoOutputs<Plain>,
                  "forward() has to return a tensor, a tuple or a vector of tensors, or tensors by name");
  }
  return outputs;
}

template <typename M, std::size_t... I>
NamedTensors call_with_places(M& module, const NamedTensors& inputs, std::index_sequence<I...> /*places*/) {
  return outputs_of(module->forward(inputs[I].second...));
}

// Calls forward() with "count" tensors if there are so many and it takes them. Returns whether it was called.
template <typename M, std::size_t count>
bool call_with_count(M& module, const NamedTensors& inputs, NamedTensors& outputs) {
  if constexpr (kTakesTensors<M, count>) {
    if (inputs.size() != count) return false;
    outputs = call_with_places(module, inputs, std::make_index_sequence<count>());
    return true;
  } else {
    return false;
  }
}

template <typename M, std::size_t... I>
bool call_by_position(M& module, const NamedTensors& inputs, NamedTensors& outputs,
                      std::index_sequence<I...> /*counts*/) {
  return (call_with_count<M, I + 1>(module, inputs, outputs) || ...);
}

template <typename M, std::size_t... I>
std::string counts_taken(std::index_sequence<I...> /*counts*/) {
  std::string text;
  const auto add = [&](std::size_t count) { text += (text.empty() ? "" : " or ") + std::to_string(count); };
  ((kTakesTensors<M, I + 1> ? add(I + 1) : void()), ...);
  return text;
}

template <typename M>
NamedTensors call_module(M& module, const NamedTensors& inputs) {
  constexpr auto kCounts = std::make_index_sequence<kMostInputs>();
  if constexpr (kTakesNames<M>) {
    return outputs_of(module->forward(inputs));
  } else if constexpr (kTakesMap<M>) {
    return outputs_of(module->forward(TensorMap(inputs.begin(), inputs.end())));
  } else {
    NamedTensors outputs;
    if (call_by_position(module, inputs, outputs, kCounts)) return outputs;
    if constexpr (kTakesList<M>) {
      std::vector<torch::Tensor> list;
      for (const auto& [name, tensor] : inputs) list.push_back(tensor);
      return outputs_of(module->forward(list));
    } else {
      fail_inputs(inputs, counts_taken<M>(kCounts));
    }
  }
}

// Makes the call of a module holder or a shared pointer.
template <typename M>
ModuleCall module_call(M module) {
  ModuleCall call;
  if constexpr (requires { module.ptr(); }) {
    call.module = module.ptr();
  } else {
    call.module = module;
  }
  if constexpr (kTakesTensors<M, 1>) {
    using Result = decltype(module->forward(std::declval<const torch::Tensor&>()));
    if constexpr (std::is_convertible_v<Result, torch::Tensor>) {
      call.one = [module](const torch::Tensor& x) mutable -> torch::Tensor { return module->forward(x); };
    }
  }
  call.several = [module = std::move(module)](const NamedTensors& inputs) mutable {
    return call_module(module, inputs);
  };
  return call;
}

}  // namespace cohort::detail
