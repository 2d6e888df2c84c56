// The one way to raise an error: fail<InvalidArgument>("[device] ", text, ": ...").
#pragma once

#include <c10/util/StringUtil.h>

#include <string>
#include <string_view>

#include "cohort/error.h"

namespace cohort {

template <typename Kind, typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Kind(c10::str(parts...));
}

// Fails because a build lacks what `what` names, which opens the message; `remedy` says what to do.
[[noreturn]] inline void fail_unbuilt(std::string_view what, std::string_view remedy) {
  fail<Unimplemented>(what, ": this build has none; ", remedy);
}

// Calls the function. What it finds wrong or missing is said of "source", such as a file.
template <typename Fn>
void blame(const std::string& source, const Fn& fn) {
  try {
    fn();
  } catch (const InvalidArgument& error) {
    fail<InvalidArgument>(source, ": ", error.what());
  } catch (const NotFound& error) {
    fail<NotFound>(source, ": ", error.what());
  }
}

}  // namespace cohort
