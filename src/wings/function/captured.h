// CapturedFunction: what a Function keeps where its device captures work as graphs: for each signature, and each
// replica, the graph with the tensors that it reads its arguments from.
#pragma once

#include <any>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "wings/function/device/graph_capture.h"
#include "wings/function/state.h"

namespace cohort {

// The calls of one signature in one place. They may be many, but one at a time is captured or run again.
struct CapturedSignature {
  struct Graph {
    // Puts a call's arguments where the graph reads them.
    void take(const std::vector<torch::Tensor>& given) const;

    CapturedWork work;
    std::vector<torch::Tensor> arguments;               // that the graph reads
    std::vector<bool> written;                          // which of them it writes
    std::any result;                                    // the result, with undefined tensors
    std::vector<torch::Tensor> results;                 // of the result, in the graph's memory; undefined ones, too
    std::vector<bool> requires_grad;                    // of these
    std::optional<std::weak_ptr<const void>> strategy;  // of the replica
  };

  std::mutex mutex;  // of all members
  int calls = 0;     // that were run without a graph, before there was one
  int captures = 0;
  std::optional<Graph> graph;
};

class CapturedFunction {
 public:
  explicit CapturedFunction(const FunctionOptions& options) : options_(options) {}

  // Calls the function: as it is while it is warming up, then once within a capture, then by running the graph.
  // NotCapturable: it does what cannot be captured.
  void call(detail::FunctionCall& call, const FunctionArguments& arguments);

 private:
  std::shared_ptr<CapturedSignature> find(const FunctionArguments& arguments);
  bool warms_up(CapturedSignature& own, const FunctionArguments& arguments);
  CapturedSignature::Graph capture(detail::FunctionCall& call, const FunctionArguments& arguments,
                                   const std::vector<torch::Tensor>& given) const;
  void run(detail::FunctionCall& call, const FunctionArguments& arguments,
           const std::vector<torch::Tensor>& given) const;

  const FunctionOptions& options_;
  std::mutex mutex_;
  std::map<std::string, std::map<std::string, std::shared_ptr<CapturedSignature>>> kept_;  // [place][signature]
  bool has_said_ = false;                                                                  // that there are too many
};

}  // namespace cohort
