// TakenOptions: the options of an object of Keras', which are taken one by one, so that none is overlooked.
#pragma once

#include <array>
#include <string>

#include "wings/keras/train/place.h"

namespace cohort {

class TakenOptions {
 public:
  TakenOptions(Json config, FilePlace place) : config_(std::move(config)), place_(std::move(place)) {
    if (!config_.is_object()) place_.damaged("the options are ", brief(config_), ", wanted an object");
  }

  const FilePlace& place() const { return place_; }
  // Returns an option, or null.
  Json take(const char* key) {
    Json value = config_.value(key, Json());
    config_.erase(key);
    return value;
  }
  // Each returns `otherwise` where there is no option or it is null. NotFound: it is of another sort.
  double number(const char* key, double otherwise) {
    const Json value = take(key);
    if (value.is_null()) return otherwise;
    if (!value.is_number()) place_.unsupported(key, " = ", brief(value), " is not supported, only a number");
    return value.get<double>();
  }
  int64_t whole(const char* key, int64_t otherwise) {
    const Json value = take(key);
    if (value.is_null()) return otherwise;
    if (!value.is_number_integer()) place_.unsupported(key, " = ", brief(value), " is not supported, only an integer");
    return value.get<int64_t>();
  }
  bool flag(const char* key, bool otherwise) {
    const Json value = take(key);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) place_.unsupported(key, " = ", brief(value), " is not supported, only true or false");
    return value.get<bool>();
  }
  std::string text(const char* key, const std::string& otherwise) {
    const Json value = take(key);
    if (value.is_null()) return otherwise;
    if (!value.is_string()) place_.unsupported(key, " = ", brief(value), " is not supported, only a text");
    return value.get<std::string>();
  }
  // Returns which of the names it is.
  template <std::size_t size>
  std::size_t choice(const char* key, const std::array<const char*, size>& names, std::size_t otherwise) {
    const Json value = take(key);
    if (value.is_null()) return otherwise;
    for (std::size_t i = 0; i < size; ++i) {
      if (value == names[i]) return i;
    }
    place_.unsupported(key, " = ", brief(value), " is not supported");
  }
  // Fails unless no option is left but those that are null.
  void end() const {
    for (const auto& [key, value] : config_.items()) {
      if (!value.is_null()) place_.unsupported("the option ", key, " = ", brief(value), " is not supported");
    }
  }

 private:
  Json config_;
  FilePlace place_;
};

}  // namespace cohort
