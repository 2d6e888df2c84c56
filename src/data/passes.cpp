#include "data/passes.h"

#include <limits>

#include "base/fail.h"

namespace cohort {

Pass::Pass(const IteratorOptions& options, std::shared_ptr<PassCounter> counter) : options_(options) {
  if (options.epoch >= 0) return;
  if (options.epoch != kAuto) fail<InvalidArgument>("[data] iterator: epoch is ", options.epoch, ", wanted 0 or more");
  counter_ = std::move(counter);
  options_.epoch = counter_->begin();
}

nlohmann::json Pass::save(nlohmann::json position) const {
  if (!counter_) return position;
  return {{"pass", options_.epoch}, {"position", std::move(position)}};
}

std::optional<int64_t> Pass::saved_pass(const nlohmann::json& saved) {
  if (!saved.is_object() || !saved.contains("pass")) return std::nullopt;
  const auto pass = saved.at("pass").get<int64_t>();
  if (pass >= 0 && pass < std::numeric_limits<int64_t>::max()) return pass;
  fail<InvalidArgument>("[data] iterator state: pass ", pass, ", wanted 0 or more");
}

}  // namespace cohort
