// The one way to raise an error: fail<InvalidArgument>("[device] ", text, ": ...").
#pragma once

#include <c10/util/StringUtil.h>

#include "cohort/error.h"

namespace cohort {

template <typename Kind, typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Kind(c10::str(parts...));
}

}  // namespace cohort
