#include "wings/function/tracing.h"

#include <c10/util/StringUtil.h>

namespace cohort {

namespace {

// TensorFlow's numbers.
constexpr int64_t kCallsLookedAt = 10;
constexpr std::size_t kTooManyTracings = 5;
constexpr int kMostWarnings = 2;

}  // namespace

std::optional<std::size_t> SignatureTable::find(const Signature& signature) const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < signatures_.size(); ++i) {
    if (signatures_[i] == signature) return i;
    if (!signatures_[i].accepts(signature)) continue;
    if (!best || signatures_[*best].accepts(signatures_[i])) best = i;
  }
  return best;
}

Signature SignatureTable::relaxed_with_known(const Signature& signature) const {
  Signature wide = signature;
  for (const Signature& known : signatures_) {
    if (const std::optional<Signature> both = relaxed(wide, known)) wide = *both;
  }
  return wide;
}

std::size_t SignatureTable::add(Signature signature) {
  signatures_.push_back(std::move(signature));
  return signatures_.size() - 1;
}

void RetracingDetector::called_without_tracing() {
  if (calls_per_tracing_.empty()) calls_per_tracing_.push_back(0);
  ++calls_per_tracing_.back();
  ++calls_;
}

std::string RetracingDetector::called_with_tracing(const std::string& function, const std::string& difference) {
  calls_per_tracing_.push_back(1);
  ++calls_;
  while (calls_ - calls_per_tracing_.front() > kCallsLookedAt) {
    calls_ -= calls_per_tracing_.front();
    calls_per_tracing_.pop_front();
  }
  if (calls_per_tracing_.size() < kTooManyTracings || warnings_ >= kMostWarnings) return "";
  ++warnings_;
  return c10::str("[function] ", calls_per_tracing_.size(), " out of the last ", calls_, " calls to ", function,
                  " triggered retracing. Tracing is expensive and the excessive number of tracings could be due to (1) "
                  "making a cohort::function repeatedly in a loop, (2) passing tensors with different shapes, (3) "
                  "passing numbers and other values instead of tensors. For (1), make the function outside of the "
                  "loop. For (2), reduce_retracing = true can avoid unnecessary retracing. For (3), see "
                  "docs/functions.md. The last time: ",
                  difference);
}

}  // namespace cohort
