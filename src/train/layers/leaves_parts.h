// LeavesParts: a module that can leave its outputs in parts, as parts_along() does.
#pragma once

namespace cohort {

class LeavesParts {
 public:
  virtual ~LeavesParts() = default;
  // Has it do so from now on, where it computes parts.
  virtual void leave_parts() = 0;
};

}  // namespace cohort
