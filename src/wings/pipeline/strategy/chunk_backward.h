// ChunkBackward: the backward pass of one chunk of a model for one microbatch, whole or in two halves, of which the
// first has the gradients of the chunk's inputs and the second those of its parameters, without computing anything
// twice.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace cohort {

// The operations of a chunk, as autograd has them.
struct ChunkGraph {
  int chunk = 0;
  std::vector<torch::Tensor> inputs;   // leaves; those of the first chunk are none
  std::vector<torch::Tensor> outputs;  // or the loss
  uint64_t first_node = 0;             // the sequence number of its first operation
};

// Fails with Unimplemented, because hooks of a parameter would see a part of its gradient: two places use it ("in the
// chunks 0 and 1 of the model").
[[noreturn]] void refuse_hooks(const std::string& parameter, const std::string& places);

// The sums of the gradients of parameters over the microbatches, apart for each chunk, whose thread adds to them.
class GradientSums {
 public:
  GradientSums(const std::vector<torch::Tensor>& parameters, int chunks);

  // Returns the number of a parameter; -1: it is none.
  int64_t find(const torch::Tensor& tensor) const;
  // Returns the sum of that chunk so far; undefined: there is none.
  const torch::Tensor& sum(int chunk, std::size_t parameter) const {
    return sums_[static_cast<std::size_t>(chunk)][parameter];
  }
  void add(int chunk, std::size_t parameter, torch::Tensor gradient);
  // Unimplemented: a parameter that has hooks is used by another chunk, too. Of each microbatch they would see the
  // gradient of either chunk, wanted the whole one.
  void require_one_chunk(int chunk, std::size_t parameter, const torch::Tensor& tensor);
  // Returns the sums over the chunks too, undefined for zero.
  std::vector<torch::Tensor> take();

 private:
  std::unordered_map<const void*, std::size_t> numbers_;
  std::vector<std::vector<torch::Tensor>> sums_;  // [chunk][parameter]
  std::vector<std::atomic<int>> hooked_in_;       // [parameter]: the chunk that uses one with hooks, from 1 on; 0: none
};

class ChunkBackward {
 public:
  // InvalidArgument: the chunk depends on what is neither its input nor a parameter. Unimplemented: a parameter has
  // hooks that cannot see what they would see on one device.
  ChunkBackward(ChunkGraph graph, GradientSums& sums);

  // Each takes the gradients of the outputs, undefined for zero, and returns those of the inputs. whole() adds those of
  // the parameters to the sums, inputs() leaves it to weights().
  std::vector<torch::Tensor> whole(const std::vector<torch::Tensor>& gradients);
  std::vector<torch::Tensor> inputs(const std::vector<torch::Tensor>& gradients);
  void weights();

 private:
  using Node = torch::autograd::Node;
  // Where gradients turn from the way to the inputs to parameters.
  struct Branch {
    std::vector<torch::autograd::Edge> edges;
    std::vector<torch::Tensor> gradients;  // of the edges
    std::vector<std::size_t> parameters;
  };

  // What the operations that make gradients of parameters look at: where these are added at once; null: nowhere.
  struct Adding {
    GradientSums* sums = nullptr;
  };
  class AddsAtOnce;

  void walk();
  void visit(Node& node);
  void visit_hooks(Node& accumulator, std::size_t parameter, const torch::Tensor& tensor);
  void add_at_once(Node& node) const;
  std::vector<torch::Tensor> run_and_add(const torch::autograd::edge_list& begin,
                                         const std::vector<torch::Tensor>& given,
                                         const torch::autograd::edge_list& wanted) const;
  bool find_branches();
  void collect(Node& node, std::vector<std::size_t>& found) const;
  torch::autograd::edge_list roots(const std::vector<torch::Tensor>& gradients,
                                   std::vector<torch::Tensor>& given) const;
  void add(const std::vector<std::size_t>& parameters, std::vector<torch::Tensor> gradients, std::size_t first);

  ChunkGraph graph_;
  GradientSums& sums_;
  std::shared_ptr<Adding> adding_ = std::make_shared<Adding>();
  // Where the gradients of the inputs arrive. Autograd forgets the node of a leaf that nothing holds, such as that of
  // an input that goes through the chunk as it is, and makes another one when it is asked again.
  std::vector<torch::autograd::Edge> ends_;
  std::vector<Node*> order_;                             // every node behind those that it leads to
  std::unordered_map<Node*, bool> leads_;                // whether a node leads to an input
  std::unordered_map<Node*, std::size_t> accumulators_;  // those of parameters
  std::vector<std::size_t> parameters_;                  // the parameters of the chunk
  std::unordered_map<std::size_t, torch::autograd::Edge> edges_;
  std::unordered_map<std::size_t, torch::Tensor> hooked_;  // those that have hooks
  std::vector<Branch> branches_;
};

}  // namespace cohort
