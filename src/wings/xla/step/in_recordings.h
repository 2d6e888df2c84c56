// ExchangeInRecordings: what an exchange does whose steps are a part of functions that are recorded.
#pragma once

#include "optimizer/update_rule.h"
#include "wings/xla/record/function_recording.h"

namespace cohort {

class ExchangeInRecordings {
 public:
  virtual ~ExchangeInRecordings() = default;

  // Records the update of a replica again, on tensors that stand for its own, with other numbers; parameters whose
  // updates have the same numbers are one.
  virtual record::HostPart::Again update_again(int local_id, StepContext context) = 0;
  // With a loss scale: returns whether the sums of a replica's last step within a function were finite. Waits for it.
  virtual bool was_finite(int local_id) = 0;
};

}  // namespace cohort
