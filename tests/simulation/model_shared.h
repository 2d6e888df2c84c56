// Shared: a part of the model's state (model.h). Most steps change one part: states share the others, and what they are
// known by.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace cohort::simulation::model {

// 128 bits of a state's bytes, by which it is known: 10^8 states are confused with a probability below 10^-22.
struct Key {
  uint64_t first = 0;
  uint64_t second = 0;

  friend bool operator==(const Key& a, const Key& b) { return a.first == b.first && a.second == b.second; }
};

// Mixes the bits of a number (the last steps of MurmurHash3).
inline uint64_t mixed(uint64_t bits) {
  bits = (bits ^ (bits >> 33)) * 0xFF51AFD7ED558CCDULL;
  bits = (bits ^ (bits >> 33)) * 0xC4CEB9FE1A85EC53ULL;
  return bits ^ (bits >> 33);
}

inline Key key_of(const std::string& bytes) {
  constexpr uint64_t kPrime = 0x100000001B3ULL;
  uint64_t second = 0xCBF29CE484222325ULL;
  for (const char byte : bytes) second = (second ^ static_cast<uint8_t>(byte)) * kPrime;
  return {.first = std::hash<std::string>()(bytes), .second = mixed(second)};
}

// Returns the key of a part that comes after others.
inline Key then(const Key& before, const Key& part) {
  return {.first = mixed(before.first * 3 + part.first), .second = mixed(before.second * 5 + part.second)};
}

// The key of parts in any order.
inline Key beside(const Key& one, const Key& other) {
  return {.first = one.first + mixed(other.first), .second = one.second + mixed(other.second)};
}

// A value that has bytes(). Copies share it until one of them changes it.
template <typename Value>
class Shared {
 public:
  Shared(Value value) : held_(std::make_shared<Held>(std::move(value))) {}  // NOLINT(google-explicit-constructor)

  const Value& operator*() const { return held_->value; }
  const Value* operator->() const { return &held_->value; }
  Value& change() {
    if (held_.use_count() > 1) held_ = std::make_shared<Held>(held_->value);
    held_->key.reset();
    return held_->value;
  }
  const Key& key() const {
    if (!held_->key) held_->key = key_of(held_->value.bytes());
    return *held_->key;
  }

 private:
  struct Held {
    explicit Held(Value given) : value(std::move(given)) {}
    Value value;
    std::optional<Key> key;
  };

  std::shared_ptr<Held> held_;
};

}  // namespace cohort::simulation::model
