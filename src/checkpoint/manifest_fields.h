// ManifestFields: reads the fields of one JSON map of a manifest; errors name its place.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/fail.h"

namespace cohort {

class ManifestFields {
 public:
  ManifestFields(const nlohmann::json& tree, std::string place, const std::string& source)
      : tree_(tree), place_(std::move(place)), source_(source) {
    if (!tree.is_object()) refuse("", "a map");
  }

  int64_t number(const char* key) const {
    const nlohmann::json& value = at(key);
    if (!value.is_number_integer()) refuse(key, "a whole number");
    const auto found = value.get<int64_t>();
    if (found < 0 || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX)) refuse(key, "0 or more");
    return found;
  }

  std::string text(const char* key) const {
    const nlohmann::json& value = at(key);
    if (!value.is_string()) refuse(key, "a text");
    return value.get<std::string>();
  }

  const nlohmann::json& map(const char* key) const {
    if (!at(key).is_object()) refuse(key, "a map");
    return at(key);
  }

  [[noreturn]] void refuse(const std::string& key, const char* wanted) const {
    const bool there = key.empty() || tree_.contains(key);
    const std::string place = key.empty() ? place_ : place_ + (place_.empty() ? "" : ".") + key;
    fail<DataLoss>("[checkpoint] ", source_, ": ", place.empty() ? "it" : place, " is ",
                   !there ? std::string("missing") : shorten(key.empty() ? tree_ : tree_.at(key)), ", wanted ", wanted);
  }

 private:
  static std::string shorten(const nlohmann::json& value) {
    std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return text.size() > 80 ? text.substr(0, 80) + "..." : text;
  }

  const nlohmann::json& at(const char* key) const {
    const auto found = tree_.find(key);
    if (found == tree_.end()) refuse(key, "it to be there");
    return *found;
  }

  const nlohmann::json& tree_;
  std::string place_;
  const std::string& source_;
};

}  // namespace cohort
