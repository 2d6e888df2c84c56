// FilePlace: where in a file something stands, for messages.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/fail.h"

namespace cohort {

using Json = nlohmann::json;

class FilePlace {
 public:
  explicit FilePlace(std::string text) : text_(std::move(text)) {}
  // Returns a place within this one.
  FilePlace operator/(const std::string& part) const { return FilePlace(text_ + ": " + part); }
  const std::string& text() const { return text_; }

  template <typename... Parts>
  [[noreturn]] void unsupported(const Parts&... parts) const {
    cohort::fail<NotFound>(text_, ": ", parts...);
  }
  template <typename... Parts>
  [[noreturn]] void damaged(const Parts&... parts) const {
    cohort::fail<DataLoss>(text_, ": ", parts...);
  }

 private:
  std::string text_;
};

// Returns the beginning of a value, for messages.
inline std::string brief(const Json& value) {
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return text.size() > 100 ? text.substr(0, 100) + "..." : text;
}

// Returns a member of an object. DataLoss: there is none, or no object.
inline const Json& member(const Json& object, const char* key, const FilePlace& place) {
  if (!object.is_object() || !object.contains(key)) place.damaged("there is no \"", key, "\"");
  return object.at(key);
}
inline std::string text_member(const Json& object, const char* key, const FilePlace& place) {
  const Json& value = member(object, key, place);
  if (!value.is_string()) place.damaged("\"", key, "\" is ", brief(value), ", wanted a text");
  return value.get<std::string>();
}

// An object of one of Keras' classes.
struct KerasObject {
  std::string class_name;
  Json config;
};

// Returns the class and the options of an object. NotFound: the class is not one of Keras' own.
inline KerasObject keras_object(const Json& object, const FilePlace& place) {
  KerasObject made{.class_name = text_member(object, "class_name", place), .config = member(object, "config", place)};
  const Json module = object.value("module", Json());
  const std::string from = module.is_string() ? module.get<std::string>() : "";
  if (from != "keras" && from.rfind("keras.", 0) != 0) {
    place.unsupported("the class ", brief(made.class_name), " of the module ", brief(module),
                      " is not one of Keras, and no other code is loaded");
  }
  return made;
}

}  // namespace cohort
