// Setting<T>: a field of a configuration, which notes whether it was read. Its struct describes it (config.h).
//
//   struct TrainerConfig {
//     Setting<int64_t> train_steps = 0;
//     Setting<std::vector<int64_t>> boundaries = {100, 200};
//   };
//   trainer.train_steps = 10;
//   const int64_t steps = trainer.train_steps;     // a read
//   const std::size_t changes = trainer.boundaries->size();  // another
#pragma once

#include <atomic>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {

class ConfigFields;

namespace detail {

template <typename T>
struct ListElement {
  struct None {};
  using Type = None;
};
template <typename E>
struct ListElement<std::vector<E>> {
  using Type = E;
};

}  // namespace detail

// A T with a note of whether it was read; it converts to a T. A copy is the same field: reading the copy is reading the
// field, and assigning a value keeps the note. So a program has to read a setting where it has its effect, and only
// there. It is as thread-safe as a T.
template <typename T>
class Setting {
  using Element = typename detail::ListElement<T>::Type;

 public:
  Setting() = default;
  // Takes the value as the default.
  template <typename U>
  requires(std::convertible_to<U, T> && !std::same_as<U, Setting>) Setting(U value)
      : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  // Takes the list as the default.
  Setting(std::initializer_list<Element> items) requires std::same_as<T, std::vector<Element>> : value_(items) {}
  Setting(const Setting&) = default;
  Setting& operator=(const Setting& other) {
    if (this == &other) return *this;
    value_ = other.value_;
    if (!read_) read_ = other.read_;
    return *this;
  }
  ~Setting() = default;

  // Returns the value, and notes that it was read.
  const T& get() const {
    if (read_) read_->store(true, std::memory_order_relaxed);
    return value_;
  }
  // Returns the value, as get() does.
  operator const T&() const { return get(); }  // NOLINT(google-explicit-constructor)
  // Returns the value, as get() does.
  const T& operator*() const { return get(); }
  // Returns a pointer to the value, as get() does.
  const T* operator->() const { return &get(); }

  // Compares values; numbers are compared by the language's own operator.
  friend bool operator==(const Setting& a, const T& b) requires(!std::is_arithmetic_v<T>) { return a.get() == b; }
  friend std::ostream& operator<<(std::ostream& out, const Setting& setting) requires
      requires(std::ostream& to, const T& value) {
    to << value;
  }
  { return out << setting.get(); }

 private:
  friend class ConfigFields;

  T value_{};
  std::shared_ptr<std::atomic<bool>> read_;  // shared with the description of the field; null: there is none
};

}  // namespace cohort
