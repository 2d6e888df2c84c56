#include "base/deadline.h"

#include <c10/util/StringUtil.h>

namespace cohort {

std::string to_text(std::chrono::milliseconds time) {
  if (time.count() < 1000) return c10::str(time.count(), " ms");
  return c10::str(static_cast<double>(time.count()) / 1000.0, " s");
}

}  // namespace cohort
