// PerReplica<T>: one value for each local replica.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {

class Replica;

namespace detail {
int local_id(const Replica& replica);
[[noreturn]] void bad_replica_index(std::size_t index, std::size_t size);
}  // namespace detail

// The values of this process's replicas, in replica order, as strategy.run() takes and returns them.
// A plain container: copying it copies the values (tensors are handles). Reading from several threads is safe.
template <typename T>
class PerReplica {
 public:
  static_assert(!std::is_same_v<T, bool>, "PerReplica<bool>: use int, std::vector<bool> holds no references");
  // The type of the values.
  using value_type = T;

  PerReplica() = default;
  // One value for each local replica, in replica order.
  explicit PerReplica(std::vector<T> values) : values_(std::move(values)) {}

  // Returns the number of local replicas.
  std::size_t size() const { return values_.size(); }

  // Returns the value of a replica, by local index or by the replica itself. InvalidArgument: the index is out of
  // range.
  const T& operator[](std::size_t index) const { return values_[checked(index)]; }
  T& operator[](std::size_t index) { return values_[checked(index)]; }
  const T& operator[](const Replica& replica) const {
    return (*this)[static_cast<std::size_t>(detail::local_id(replica))];
  }
  T& operator[](const Replica& replica) { return (*this)[static_cast<std::size_t>(detail::local_id(replica))]; }

  // Returns the values, in replica order.
  const std::vector<T>& values() const { return values_; }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

  // Returns fn applied to every value, as a PerReplica.
  template <typename Fn>
  auto map(Fn&& fn) const {
    std::vector<std::decay_t<std::invoke_result_t<Fn&, const T&>>> mapped;
    mapped.reserve(values_.size());
    for (const T& value : values_) mapped.push_back(fn(value));
    return PerReplica<typename decltype(mapped)::value_type>(std::move(mapped));
  }

 private:
  std::size_t checked(std::size_t index) const {
    if (index >= values_.size()) detail::bad_replica_index(index, values_.size());
    return index;
  }

  std::vector<T> values_;
};

namespace detail {

template <typename T>
std::true_type is_per_replica(const PerReplica<T>* values);
std::false_type is_per_replica(const void* other);

// Whether T is a PerReplica or a class derived from one, such as GlobalBatch.
template <typename T>
inline constexpr bool kIsPerReplica = decltype(is_per_replica(static_cast<const T*>(nullptr)))::value;

template <typename T>
concept PlainValue = !kIsPerReplica<T>;

}  // namespace detail

}  // namespace cohort
