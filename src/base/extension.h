// Extensions: what wings give the core. A struct of the core says what there may be more of (a back end, an exchange, a
// flag), a wing's install function adds some, and the core asks for all of them. So the core names no wing.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.h"

namespace cohort {

// Calls the install function of each wing of this build, once. Thread-safe. The build writes its definition.
void install_wings();

namespace detail {

template <typename T>
std::vector<T>& extension_list() {
  static std::vector<T> list;
  return list;
}

}  // namespace detail

// Adds to what the core asks for. To be called by the install function of a wing (src/wings/*/install.cpp).
template <typename T>
void extend(T what) {
  detail::extension_list<T>().push_back(std::move(what));
}

// Returns what the wings of this build have added, in the order of their names.
template <typename T>
const std::vector<T>& extensions() {
  install_wings();
  return detail::extension_list<T>();
}

// Fails because this build lacks a wing, which `parts` ask for.
template <typename... Parts>
[[noreturn]] void fail_without(std::string_view wing, const Parts&... parts) {
  fail<Unimplemented>(parts..., ", for which this build has no wing ", wing, " (COHORT_WINGS)");
}

// Returns the first of these. Unimplemented: there is none, because this build lacks a wing, which `what` asks for.
template <typename T>
const T& extension_of(std::string_view wing, std::string_view what) {
  const std::vector<T>& all = extensions<T>();
  if (all.empty()) fail_without(wing, what);
  return all.front();
}

}  // namespace cohort
