// The key of a state of the model (model.h): its numbers, those that are only compared replaced by their rank among all
// of their kind.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "wings/parameter_server/known_numbers.h"

namespace cohort::simulation::model {

// 128 bits by which a state is known: 10^8 states are confused with a probability below 10^-22.
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

// Returns the key of numbers of which the first ones have an order and the others lie in groups that have none. `ends`:
// the end of those in order, then that of each group.
inline Key key_of(const KnownNumbers& numbers, const std::vector<std::size_t>& ends) {
  using Ranked = std::pair<uint64_t, uint64_t>;  // kind and value
  std::vector<Ranked> ranked;
  ranked.reserve(numbers.list().size());
  for (const KnownNumbers::Number& each : numbers.list()) {
    if (each.kind != KnownNumbers::kPlain && each.value != 0) ranked.emplace_back(each.kind, each.value);
  }
  std::sort(ranked.begin(), ranked.end());
  ranked.erase(std::unique(ranked.begin(), ranked.end()), ranked.end());
  const auto rank = [&](const KnownNumbers::Number& number) -> uint64_t {
    if (number.kind == KnownNumbers::kPlain || number.value == 0) return number.value;
    const auto first = std::lower_bound(ranked.begin(), ranked.end(), Ranked(number.kind, 0));
    const auto own = std::lower_bound(first, ranked.end(), Ranked(number.kind, number.value));
    return static_cast<uint64_t>(own - first) + 1;
  };
  Key key;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    Key part{.first = 0x9E3779B97F4A7C15ULL, .second = 0xCBF29CE484222325ULL};
    for (; begin < end; ++begin) {
      const uint64_t number = rank(numbers.list()[begin]);
      part.first = mixed(part.first * 3 + number);
      part.second = mixed((part.second ^ number) * 0x100000001B3ULL);
    }
    // The first part is told from the groups, whose sum does not depend on their order.
    const uint64_t place = &end == ends.data() ? 7 : 1;
    key.first += mixed(part.first * place);
    key.second += mixed(part.second + place);
  }
  return key;
}

}  // namespace cohort::simulation::model
