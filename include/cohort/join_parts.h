// JoinParts: puts together what a function has returned for the microbatches of a share. The library's own; see
// PipelineStrategy for what it does.
#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace cohort::detail {

struct SharePart;

// Joins tensors; see PipelineStrategy. InvalidArgument: they are neither scalars nor have a row for each example.
torch::Tensor join_tensors(const std::vector<torch::Tensor>& parts, const std::vector<SharePart>& shares);
// Returns whether the results of this thread are to be those of another process, which has them; join_tensors() then
// takes a single part, too, as it is.
bool shares_results();
// Fails with Unimplemented for a type that cannot be joined.
[[noreturn]] void fail_to_join(const char* type);
// Fails with InvalidArgument for lists of different lengths or names.
[[noreturn]] void fail_to_match();

// Whether JoinParts takes a type.
template <typename T>
inline constexpr bool kJoins = std::is_same_v<T, torch::Tensor> || std::is_same_v<T, std::string> ||
                               (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
template <typename T>
inline constexpr bool kJoins<std::vector<T>> = kJoins<T>;
template <typename A, typename B>
inline constexpr bool kJoins<std::pair<A, B>> = kJoins<A>&& kJoins<B>;
template <typename... Ts>
inline constexpr bool kJoins<std::tuple<Ts...>> = (kJoins<Ts> && ...);

template <typename T>
struct JoinParts {
  static T of(std::vector<T> parts, const std::vector<SharePart>& shares) {
    if constexpr (std::is_same_v<T, torch::Tensor>) {
      return join_tensors(parts, shares);
    } else if constexpr (std::is_same_v<T, std::string>) {
      for (const T& part : parts) {
        if (part != parts.front()) fail_to_match();
      }
      return std::move(parts.front());
    } else if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      T sum{};
      for (const T& part : parts) sum = static_cast<T>(sum + part);
      return sum;
    } else {
      fail_to_join(typeid(T).name());
    }
  }
};

// Takes one element of each part.
template <typename T, typename Parts, typename Get>
T join_elements(Parts& parts, const std::vector<SharePart>& shares, const Get& get) {
  std::vector<T> elements;
  for (auto& part : parts) elements.push_back(std::move(get(part)));
  return JoinParts<T>::of(std::move(elements), shares);
}

template <typename T>
struct JoinParts<std::vector<T>> {
  static std::vector<T> of(std::vector<std::vector<T>> parts, const std::vector<SharePart>& shares) {
    std::vector<T> all;
    for (const auto& part : parts) {
      if (part.size() != parts.front().size()) fail_to_match();
    }
    for (std::size_t i = 0; i < parts.front().size(); ++i) {
      all.push_back(join_elements<T>(parts, shares, [i](auto& part) -> decltype(auto) { return part[i]; }));
    }
    return all;
  }
};

template <typename A, typename B>
struct JoinParts<std::pair<A, B>> {
  static std::pair<A, B> of(std::vector<std::pair<A, B>> parts, const std::vector<SharePart>& shares) {
    A first = join_elements<A>(parts, shares, [](std::pair<A, B>& part) -> A& { return part.first; });
    return {std::move(first), join_elements<B>(parts, shares, [](std::pair<A, B>& part) -> B& { return part.second; })};
  }
};

template <typename... Ts>
struct JoinParts<std::tuple<Ts...>> {
  static std::tuple<Ts...> of(std::vector<std::tuple<Ts...>> parts, const std::vector<SharePart>& shares) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::tuple<Ts...>(
          join_elements<Ts>(parts, shares, [](std::tuple<Ts...>& part) -> Ts& { return std::get<I>(part); })...);
    }
    (std::index_sequence_for<Ts...>{});
  }
};

}  // namespace cohort::detail
