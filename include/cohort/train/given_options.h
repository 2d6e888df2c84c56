// GivenOptions: what an object was made with, from which files make it again.
#pragma once

#include <any>
#include <memory>
#include <utility>

namespace cohort {

// Base of kinds of layers and of the rules of losses and metrics.
class GivenOptions {
 public:
  // Returns what the object was made with, as its struct of options. Empty: no file can hold it.
  const std::any& options() const { return options_; }
  // Sets them, before the object is shared.
  void set_options(std::any options) { options_ = std::move(options); }

 private:
  std::any options_;
};

// Makes an Object(arguments...) that has these options.
template <typename Object, typename Options, typename... Arguments>
std::shared_ptr<Object> made_with(const Options& options, Arguments&&... arguments) {
  auto object = std::make_shared<Object>(std::forward<Arguments>(arguments)...);
  object->set_options(options);
  return object;
}

}  // namespace cohort
