// The templates of strategy.h.
#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "cohort/strategy.h"

namespace cohort {

namespace detail {

// Joins tensors; see PipelineStrategy. InvalidArgument: they are neither scalars nor have a row for each example.
torch::Tensor join_tensors(const std::vector<torch::Tensor>& parts, const std::vector<SharePart>& shares);
// Returns whether the results of this thread are to be those of another process, which has them; join_tensors() then
// takes a single part, too, as it is.
bool shares_results();
// Fails with InvalidArgument for a type that cannot be joined.
[[noreturn]] void fail_to_join(const char* type);
// Fails with InvalidArgument for lists of different lengths or names.
[[noreturn]] void fail_to_match();

// True for types that JoinParts takes.
template <typename T>
inline constexpr bool kJoins = std::is_same_v<T, torch::Tensor> || std::is_same_v<T, std::string> ||
                               (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
template <typename T>
inline constexpr bool kJoins<std::vector<T>> = kJoins<T>;
template <typename A, typename B>
inline constexpr bool kJoins<std::pair<A, B>> = kJoins<A>&& kJoins<B>;
template <typename... Ts>
inline constexpr bool kJoins<std::tuple<Ts...>> = (kJoins<Ts> && ...);

// Puts together what a function has returned for the microbatches of a share. PipelineStrategy says how.
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

// Returns a part of a batch among the arguments, and anything else as it is.
template <typename T>
decltype(auto) part_of(const T& argument, const Replica& replica, const SharePart& part) {
  if constexpr (std::is_base_of_v<PerReplica<Example>, T>) {
    return part.begin < 0 ? Example(argument[replica]) : argument[replica].rows(part.begin, part.end);
  } else {
    return (argument);
  }
}

template <typename Result, typename Fn, typename... Args>
class RunJob final : public Job {
 public:
  RunJob(int replicas, Fn fn, Args... args)
      : fn_(std::move(fn)),
        args_(std::move(args)...),
        results_(static_cast<std::size_t>(replicas)),
        parts_(static_cast<std::size_t>(replicas)) {}

  void run(Replica& replica) override {
    call(
        replica, results_[local(replica)], [](const auto& argument) -> const auto& { return argument; });
  }

  void begin_parts(const Replica& replica, std::size_t count) override {
    parts_[local(replica)].clear();
    parts_[local(replica)].resize(count);
  }

  void run_part(Replica& replica, const SharePart& part) override {
    call(replica, parts_[local(replica)][part.number],
         [&](const auto& argument) -> decltype(auto) { return part_of(argument, replica, part); });
  }

  void join_parts(const Replica& replica, const std::vector<SharePart>& parts) override {
    if constexpr (!std::is_void_v<Result>) {
      std::vector<Result> each;
      for (std::optional<Slot>& part : parts_[local(replica)]) each.push_back(std::move(*part));
      parts_[local(replica)].clear();
      const bool as_it_is = each.size() == 1 && !(kJoins<Result> && shares_results());
      results_[local(replica)].emplace(as_it_is ? std::move(each.front())
                                                : JoinParts<Result>::of(std::move(each), parts));
    }
  }

  const std::tuple<Args...>& args() const { return args_; }

  auto take_results() {
    std::vector<Result> values;
    values.reserve(results_.size());
    for (auto& result : results_) values.push_back(std::move(*result));
    return PerReplica<Result>(std::move(values));
  }

 private:
  using Slot = std::conditional_t<std::is_void_v<Result>, std::monostate, Result>;

  static std::size_t local(const Replica& replica) { return static_cast<std::size_t>(replica.local_id()); }
  // Calls the function with what `see` makes of each argument, and keeps its result.
  template <typename See>
  void call(Replica& replica, std::optional<Slot>& result, const See& see) {
    std::apply(
        [&](const Args&... args) {
          if constexpr (std::is_void_v<Result>) {
            call_on(fn_, replica, see(args)...);
          } else {
            result.emplace(call_on(fn_, replica, see(args)...));
          }
        },
        args_);
  }

  Fn fn_;
  std::tuple<Args...> args_;
  std::vector<std::optional<Slot>> results_;
  std::vector<std::vector<std::optional<Slot>>> parts_;  // [replica][part]
};

// Returns what a replica gets of a merged function's result: its component of a PerReplica, else all of it.
template <typename T>
auto component_of(const T& result, std::size_t local_replica) {
  if constexpr (kIsPerReplica<T>) {
    return result[local_replica];
  } else {
    return result;
  }
}

template <typename T>
void note_if_batch(const StrategyCore& core, Job& job, const T& argument) {
  if constexpr (std::is_base_of_v<PerReplica<Example>, T>) {
    int64_t global_size = -1;
    bool some_empty = false;
    if constexpr (requires { argument.global_size(); }) {
      global_size = argument.global_size();
      some_empty = argument.some_empty();
    }
    note_batch(core, job, argument, global_size, some_empty);
  }
}

}  // namespace detail

template <typename Fn, typename... Args>
auto Replica::merge_call(Fn&& fn, Args... args) {
  using Result = std::decay_t<std::invoke_result_t<Fn&, const Strategy&, PerReplica<Args>...>>;
  using Whole = std::conditional_t<std::is_void_v<Result>, std::monostate, Result>;
  using Slot = decltype(detail::component_of(std::declval<Whole>(), 0));
  struct Meeting {
    std::tuple<Args...> args;
    std::optional<Slot> result;
  } mine{std::tuple<Args...>(std::move(args)...), std::nullopt};

  meet("merge_call", &mine, [&](std::span<void* const> all) {
    const auto gather = [&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      std::vector<std::tuple_element_t<I, std::tuple<Args...>>> values;
      for (void* other : all) values.push_back(std::move(std::get<I>(static_cast<Meeting*>(other)->args)));
      return PerReplica<std::tuple_element_t<I, std::tuple<Args...>>>(std::move(values));
    };
    const auto call = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return fn(strategy(), gather(std::integral_constant<std::size_t, I>{})...);
    };
    if constexpr (std::is_void_v<Result>) {
      call(std::index_sequence_for<Args...>{});
    } else {
      const Result result = call(std::index_sequence_for<Args...>{});
      for (std::size_t i = 0; i < all.size(); ++i) {
        static_cast<Meeting*>(all[i])->result = detail::component_of(result, i);
      }
    }
  });
  if constexpr (!std::is_void_v<Result>) return std::move(*mine.result);
}

template <typename Fn, typename... Args>
auto Strategy::run(Fn&& fn, Args&&... args) const {
  require_cross_replica("run");
  using Result = detail::CallResult<std::decay_t<Fn>, std::decay_t<Args>...>;
  using Job = detail::RunJob<Result, std::decay_t<Fn>, std::decay_t<Args>...>;
  const auto job = std::make_shared<Job>(num_local_replicas(), std::forward<Fn>(fn), std::forward<Args>(args)...);
  std::apply([&](const auto&... each) { (detail::note_if_batch(*core_, *job, each), ...); }, job->args());
  detail::run_job(*core_, job);
  if constexpr (!std::is_void_v<Result>) return job->take_results();
}

template <typename Fn>
auto Strategy::values_from_function(Fn&& fn) const {
  std::vector<std::decay_t<std::invoke_result_t<Fn&, ValueContext>>> values;
  for (int i = 0; i < num_local_replicas(); ++i) values.push_back(fn(value_context(i)));
  return PerReplica(std::move(values));
}

template <typename Factory>
auto Strategy::mirror(Factory&& factory) const -> Mirrored<std::decay_t<std::invoke_result_t<Factory&>>> {
  using M = std::decay_t<std::invoke_result_t<Factory&>>;
  std::vector<M> made;
  MirroredModule base = mirror_modules([&]() -> std::shared_ptr<torch::nn::Module> {
    made.push_back(factory());
    if constexpr (requires { made.back().ptr(); }) {
      return made.back().ptr();
    } else {
      return made.back();
    }
  });
  return Mirrored<M>(std::move(base), std::move(made));
}

}  // namespace cohort
