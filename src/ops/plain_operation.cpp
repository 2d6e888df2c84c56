#include "ops/plain_operation.h"

namespace cohort {

namespace {

thread_local const InputWatch* input_watch = nullptr;

}  // namespace

void watch_inputs(const InputWatch* watch) {
  input_watch = watch;
}

bool PlainOperation::begin() {
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  if (keys.excluded_ != c10::default_excluded_set) return false;
  if (keys.included_ == c10::default_included_set) return true;
  if (input_watch == nullptr || keys.included_ != c10::default_included_set.add(input_watch->key)) return false;
  watch_ = input_watch;
  within_.emplace(watch_->key);
  return true;
}

void PlainOperation::note(const torch::Tensor& input) const {
  if (watch_ != nullptr && input.defined()) watch_->note(input);
}

}  // namespace cohort
