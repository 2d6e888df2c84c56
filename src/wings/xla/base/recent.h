// Recent: a map with room for so many entries; where there is none left, the one that was used longest ago goes.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace cohort {

// One thread at a time.
template <typename Key, typename Value>
class Recent {
 public:
  // Returns the value of the key, which counts as used now, or null.
  Value* find(const Key& key) {
    const auto known = places_.find(key);
    if (known == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, known->second);
    return &known->second->second;
  }

  // Sets the value of the key, and gives up entries until there are at most so many, this one among them. Returns it.
  Value& put(const Key& key, Value value, std::size_t most) {
    if (Value* const known = find(key)) {
      *known = std::move(value);
    } else {
      entries_.emplace_front(key, std::move(value));
      places_[key] = entries_.begin();
    }
    while (entries_.size() > most && entries_.size() > 1) {
      places_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return entries_.front().second;
  }

  std::size_t size() const { return entries_.size(); }

 private:
  using Entries = std::list<std::pair<Key, Value>>;  // the one that was used last is first

  Entries entries_;
  std::map<Key, typename Entries::iterator> places_;
};

}  // namespace cohort
