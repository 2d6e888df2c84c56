// RecordedFunction: what a Function keeps where its device records its work. The wing xla has it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cohort/function.h"
#include "wings/function/arguments.h"

namespace cohort {

// The program of one signature. Thread-safe.
class FunctionProgram {
 public:
  virtual ~FunctionProgram() = default;

  // Returns it as StableHLO text, under a name.
  virtual std::string text(const std::string& name) const = 0;
  // Returns the plugin's estimate of one run. Nothing: no plugin is open to compile it.
  virtual std::optional<FunctionCost> cost() const = 0;
};

// Thread-safe if the function is; on one device, one thread at a time.
class RecordedFunction {
 public:
  virtual ~RecordedFunction() = default;

  // Calls the function: records it if its arguments are new, and runs what was recorded. Within one that is being
  // recorded it is a part of that. `joint`: all replicas run their programs as one launch, also without sums.
  virtual void call(detail::FunctionCall& call, const FunctionArguments& arguments, bool joint) = 0;
  // Returns the program for the arguments, and records it if they are new; nothing is run.
  virtual std::shared_ptr<const FunctionProgram> program(detail::FunctionCall& call,
                                                         const FunctionArguments& arguments) = 0;
};

// The options outlive what is made.
struct RecordedFunctionMaker {
  std::unique_ptr<RecordedFunction> (*make)(const FunctionOptions& options);
};

}  // namespace cohort
