#include "base/wait_reporting.h"

#include <c10/util/StringUtil.h>

#include "base/log.h"

namespace cohort {

namespace {

// Returns "WHO VERB in IN" without the parts that are empty.
std::string opening(const WaitOptions& options, const std::string& verb) {
  return c10::str(options.who, options.who.empty() ? "" : " ", verb, options.in.empty() ? "" : " in ", options.in);
}

}  // namespace

bool WaitReport::due(Time now) {
  if (now < next_) return false;
  next_ = now + options_.report_interval;
  return true;
}

std::string WaitReport::text(const std::string& missing, Time now) const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(waited(now));
  return c10::str(opening(options_, "waits"), " for ", missing, " (", seconds.count(), " s of ",
                  to_text(options_.limit), ")");
}

std::string WaitReport::verdict(const std::string& missing) const {
  return c10::str(opening(options_, "waited " + to_text(options_.limit)), " for ", missing);
}

void WaitReport::warn_if_due(const std::string& missing, Time now) {
  if (due(now)) log().warn("{}", text(missing, now));
}

}  // namespace cohort
