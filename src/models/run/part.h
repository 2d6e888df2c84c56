// Part: the part of a process in a run of an experiment.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/strategy.h"

namespace cohort {

// Makes the whole run, alone or as one of several workers alike. Wings have others.
class Part {
 public:
  Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  virtual ~Part() = default;

  // Returns whether this process may write and report.
  virtual bool in_charge() const { return true; }
  // Does what another process asks for, and returns true if this one has nothing else to do.
  virtual bool serves(bool /*trains*/) const { return false; }
  // Throws Unimplemented if the training cannot change after these steps.
  virtual void require_stages(const std::vector<int64_t>& /*stages*/) const {}
};

// An extension.
struct PartMaker {
  // Returns the part under a strategy; null: the strategy is not the wing's.
  std::unique_ptr<Part> (*make)(const Strategy& strategy);
};

}  // namespace cohort
