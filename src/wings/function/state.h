// FunctionState: has what the copies of a Function share, its signatures, and what was captured or recorded of each.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cohort/function.h"
#include "wings/function/arguments.h"
#include "wings/function/recorded.h"
#include "wings/function/tracing.h"

namespace cohort {

class CapturedFunction;

namespace detail {

class FunctionState {
 public:
  FunctionState(FunctionOptions options, std::string key);

  void call(FunctionCall& call);
  ConcreteFunction concrete(FunctionCall& call);
  int64_t tracing_count() const;
  std::vector<std::string> signatures() const;
  void set_joint();

 private:
  void check(FunctionCall& call, FunctionArguments& arguments) const;
  void note_tracing(bool is_new, const std::string& difference) const;
  bool enter(const FunctionArguments& arguments, std::string& difference);
  RecordedFunction& recorded() const;

  const FunctionOptions options_;
  std::shared_ptr<CapturedFunction> captured_;
  std::unique_ptr<RecordedFunction> recorded_;  // null: this build has none
  std::string key_;
  bool joint_ = false;
  mutable std::mutex mutex_;
  SignatureTable table_;
  std::vector<std::shared_ptr<const void>> kept_;  // objects of signatures
};

}  // namespace detail

class ConcreteFunctionState {
 public:
  std::string signature;
  std::string name;
  std::shared_ptr<const FunctionProgram> program;  // null: there is none
  std::string why_none;                            // the reason
};

}  // namespace cohort
