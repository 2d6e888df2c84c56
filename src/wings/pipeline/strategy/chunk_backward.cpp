// The graph is walked before it is run: to find the parameters, to notice values that came around the chunk's inputs,
// and for the two halves to find the branches. These are the operations that lead to an input and have a way beside it
// that leads to parameters, such as a linear layer's: the first half notes the gradients that come to them on their way
// to the inputs, and the second one starts from these. An operation of a branch runs in both, but LibTorch's compute
// only what is asked for: the linear layer's first the product for its input, then the one for its weight.
//
// From the second microbatch on a parameter's gradient is added to the sum by the operation that makes it, or by a hook
// of it while the gradient is in the core's cache, and the next one gets its memory. Autograd would keep all of them
// until the end of the chunk. A parameter with hooks of its own has them called with each microbatch's gradient, which
// is added then.
#include "wings/pipeline/strategy/chunk_backward.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/fail.h"
#include "base/libtorch_compat.h"
#include "device/identity.h"
#include "ops/adds_gradient.h"
#include "ops/plain_tensor.h"
#include "strategy/own_hook.h"

namespace cohort {

namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

std::vector<torch::Tensor> run(const edge_list& roots, const std::vector<torch::Tensor>& gradients, bool keep,
                               const edge_list& wanted) {
  return torch::autograd::Engine::get_default_engine().execute(roots, gradients, keep, /*create_graph=*/false,
                                                               /*accumulate_grad=*/false, wanted);
}

}  // namespace

GradientSums::GradientSums(const std::vector<torch::Tensor>& parameters, int chunks)
    : sums_(static_cast<std::size_t>(chunks), std::vector<torch::Tensor>(parameters.size())),
      hooked_in_(parameters.size()) {
  for (std::size_t p = 0; p < parameters.size(); ++p) numbers_[tensor_id(parameters[p])] = p;
}

int64_t GradientSums::find(const torch::Tensor& tensor) const {
  const auto found = numbers_.find(tensor_id(tensor));
  return found == numbers_.end() ? -1 : static_cast<int64_t>(found->second);
}

void refuse_hooks(const std::string& parameter, const std::string& places) {
  fail<Unimplemented>("[pipeline] ", parameter, " has hooks (register_hook) and is used ", places,
                      ": they would see the gradient of one of them, wanted hooks of parameters of one chunk");
}

void GradientSums::add(int chunk, std::size_t parameter, torch::Tensor gradient) {
  if (!gradient.defined()) return;
  torch::Tensor& sum = sums_[static_cast<std::size_t>(chunk)][parameter];
  if (!sum.defined()) {
    sum = is_own(gradient) && gradient.is_non_overlapping_and_dense() ? std::move(gradient) : gradient.clone();
  } else if (sum.is_sparse() && !gradient.is_sparse()) {
    sum = gradient + sum;
  } else {
    sum.add_(gradient);
  }
}

void GradientSums::require_one_chunk(int chunk, std::size_t parameter, const torch::Tensor& tensor) {
  int other = 0;
  if (hooked_in_[parameter].compare_exchange_strong(other, chunk + 1) || other == chunk + 1) return;
  refuse_hooks(
      c10::str("a parameter of shape ", tensor.sizes()),
      c10::str("in chunks ", std::min(other - 1, chunk), " and ", std::max(other - 1, chunk), " of the model"));
}

std::vector<torch::Tensor> GradientSums::take() {
  std::vector<torch::Tensor> all = std::move(sums_.front());
  for (std::size_t chunk = 1; chunk < sums_.size(); ++chunk) {
    for (std::size_t p = 0; p < all.size(); ++p) {
      torch::Tensor& more = sums_[chunk][p];
      if (!more.defined()) continue;
      if (all[p].defined() && all[p].is_sparse()) std::swap(all[p], more);  // a dense one comes first
      all[p] = all[p].defined() ? all[p] + more : std::move(more);
    }
  }
  return all;
}

// The graph, and with it the hook, may live longer than the pass.
class ChunkBackward::AddsAtOnce final : public torch::autograd::FunctionPostHook {
 public:
  // Which of an operation's gradients is that of which parameter.
  using Results = std::vector<std::pair<std::size_t, std::size_t>>;

  AddsAtOnce(std::shared_ptr<const Adding> adding, int chunk, Results results)
      : adding_(std::move(adding)), chunk_(chunk), results_(std::move(results)) {}

  variable_list operator()(const variable_list& gradients, const variable_list& /*of_results*/) override {
    if (adding_->sums == nullptr) return gradients;
    variable_list left = gradients;
    const torch::NoGradGuard no_grad;
    for (const auto& [place, parameter] : results_) {
      if (!adding_->sums->sum(chunk_, parameter).defined()) continue;
      adding_->sums->add(chunk_, parameter, gradients[place]);
      left[place] = torch::Tensor();
    }
    return left;
  }

 private:
  std::shared_ptr<const Adding> adding_;
  int chunk_;
  Results results_;
};

ChunkBackward::ChunkBackward(ChunkGraph graph, GradientSums& sums) : graph_(std::move(graph)), sums_(sums) {
  walk();
}

void ChunkBackward::walk() {
  for (const torch::Tensor& input : graph_.inputs) {
    ends_.push_back(input.requires_grad() ? torch::autograd::impl::gradient_edge(input) : Edge());
    if (input.requires_grad()) leads_[ends_.back().function.get()] = true;
  }
  std::vector<std::pair<Node*, std::size_t>> open;  // with the number of the next edge
  const auto enter = [&](Node* node) {
    if (node == nullptr || leads_.contains(node)) return;
    leads_[node] = false;
    visit(*node);
    open.emplace_back(node, 0);
  };
  for (const torch::Tensor& output : graph_.outputs) {
    if (!output.requires_grad()) continue;
    enter(torch::autograd::impl::gradient_edge(output).function.get());
    while (!open.empty()) {
      auto& [node, next] = open.back();
      if (next < node->next_edges().size()) {
        enter(node->next_edges()[next++].function.get());
        continue;
      }
      for (const Edge& edge : node->next_edges()) {
        if (edge.is_valid() && leads_.at(edge.function.get())) leads_[node] = true;
      }
      add_at_once(*node);
      order_.push_back(node);
      open.pop_back();
    }
  }
}

void ChunkBackward::visit(Node& node) {
  if (const auto* end = dynamic_cast<const AccumulateGrad*>(&node)) {
    const int64_t number = sums_.find(end->variable);
    if (number >= 0) {
      const auto parameter = static_cast<std::size_t>(number);
      accumulators_[&node] = parameter;
      parameters_.push_back(parameter);
      edges_[parameter] = compat::edge_to(node, 0);
      visit_hooks(node, parameter, end->variable);
      return;
    }
    fail<InvalidArgument>("[pipeline] chunk ", graph_.chunk, " of the model depends on a tensor of shape ",
                          end->variable.sizes(), " that requires a gradient and is neither one of the optimizer's ",
                          "parameters nor given to next_stage()");
  }
  if (node.sequence_nr() >= graph_.first_node) return;
  fail<InvalidArgument>("[pipeline] chunk ", graph_.chunk, " of the model depends on what an earlier chunk has ",
                        "computed (by ", node.name(), ") otherwise than by its input: give all that later layers need ",
                        "to next_stage()");
}

// The gradient comes to the node, but the node does not do anything with it: a pass that adds to grad() would.
void ChunkBackward::visit_hooks(Node& accumulator, std::size_t parameter, const torch::Tensor& tensor) {
  const auto& behind = accumulator.post_hooks();
  const bool of_others = std::any_of(behind.begin(), behind.end(), [](const auto& hook) {
    return dynamic_cast<const OwnHook*>(hook.get()) == nullptr;
  });
  if (of_others || !accumulator.pre_hooks().empty() || compat::has_hooks_of_sum(tensor)) {
    fail<Unimplemented>("[pipeline] a parameter of shape ", tensor.sizes(), " has hooks at its gradient accumulator, ",
                        "which a pipeline does not call, because it adds up gradients elsewhere; take ",
                        "Tensor::register_hook()");
  }
  if (!compat::has_hooks(tensor)) return;
  sums_.require_one_chunk(graph_.chunk, parameter, tensor);
  hooked_.emplace(parameter, tensor);
}

void ChunkBackward::add_at_once(Node& node) const {
  AddsAtOnce::Results results;
  for (std::size_t i = 0; i < node.next_edges().size(); ++i) {
    const auto found = accumulators_.find(node.next_edges()[i].function.get());
    if (found == accumulators_.end() || hooked_.contains(found->second)) continue;
    results.emplace_back(i, found->second);
  }
  if (results.empty()) return;
  if (auto* adds = dynamic_cast<AddsGradient*>(&node)) {
    for (const auto& [place, parameter] : results) {
      adds->add_to(place, [adding = adding_, chunk = graph_.chunk, number = parameter] {
        const torch::Tensor sum = adding->sums == nullptr ? torch::Tensor() : adding->sums->sum(chunk, number);
        return sum.defined() && sum.is_sparse() ? torch::Tensor() : sum;
      });
    }
  }
  node.add_post_hook(std::make_unique<AddsAtOnce>(adding_, graph_.chunk, std::move(results)));
}

// Runs a pass that makes gradients of parameters, and returns those that it has not added.
std::vector<torch::Tensor> ChunkBackward::run_and_add(const edge_list& begin, const std::vector<torch::Tensor>& given,
                                                      const edge_list& wanted) const {
  struct Open {
    Adding& adding;
    ~Open() { adding.sums = nullptr; }
  } const open{*adding_};
  open.adding.sums = &sums_;
  return run(begin, given, /*keep=*/false, wanted);
}

edge_list ChunkBackward::roots(const std::vector<torch::Tensor>& gradients, std::vector<torch::Tensor>& given) const {
  edge_list edges;
  for (std::size_t i = 0; i < graph_.outputs.size() && i < gradients.size(); ++i) {
    if (!graph_.outputs[i].requires_grad() || !gradients[i].defined()) continue;
    edges.push_back(torch::autograd::impl::gradient_edge(graph_.outputs[i]));
    given.push_back(gradients[i]);
  }
  return edges;
}

void ChunkBackward::add(const std::vector<std::size_t>& parameters, std::vector<torch::Tensor> gradients,
                        std::size_t first) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    torch::Tensor gradient = std::move(gradients[first + i]);
    const auto hooked = hooked_.find(parameters[i]);
    if (hooked != hooked_.end() && gradient.defined()) {
      gradient = compat::through_hooks(hooked->second, std::move(gradient));
    }
    sums_.add(graph_.chunk, parameters[i], std::move(gradient));
  }
}

std::vector<torch::Tensor> ChunkBackward::whole(const std::vector<torch::Tensor>& gradients) {
  std::vector<torch::Tensor> of_inputs(graph_.inputs.size());
  std::vector<torch::Tensor> given;
  const edge_list begin = roots(gradients, given);
  edge_list wanted;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < of_inputs.size(); ++i) {
    if (!graph_.inputs[i].requires_grad()) continue;
    wanted.push_back(ends_[i]);
    places.push_back(i);
  }
  for (const std::size_t parameter : parameters_) wanted.push_back(edges_.at(parameter));
  if (!begin.empty() && !wanted.empty()) {
    std::vector<torch::Tensor> found = run_and_add(begin, given, wanted);
    for (std::size_t i = 0; i < places.size(); ++i) of_inputs[places[i]] = found[i];
    add(parameters_, std::move(found), places.size());
  }
  graph_.outputs.clear();
  return of_inputs;
}

void ChunkBackward::collect(Node& node, std::vector<std::size_t>& found) const {
  std::vector<Node*> open = {&node};
  std::set<Node*> seen = {&node};
  while (!open.empty()) {
    Node* const at = open.back();
    open.pop_back();
    if (const auto own = accumulators_.find(at); own != accumulators_.end()) found.push_back(own->second);
    for (const Edge& edge : at->next_edges()) {
      if (edge.is_valid() && seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
    }
  }
}

// Returns false if a parameter is on several branches, or one of an output that does not depend on the inputs.
bool ChunkBackward::find_branches() {
  std::set<std::size_t> owned;
  for (Node* node : order_) {
    if (!leads_.at(node)) continue;
    Branch branch;
    for (const Edge& edge : node->next_edges()) {
      if (edge.is_valid() && !leads_.at(edge.function.get())) collect(*edge.function, branch.parameters);
    }
    if (branch.parameters.empty()) continue;
    for (const std::size_t parameter : branch.parameters) {
      if (!owned.insert(parameter).second) return false;
    }
    for (uint32_t i = 0; i < node->num_inputs(); ++i) branch.edges.push_back(compat::edge_to(*node, i));
    branches_.push_back(std::move(branch));
  }
  return owned.size() == parameters_.size();
}

std::vector<torch::Tensor> ChunkBackward::inputs(const std::vector<torch::Tensor>& gradients) {
  const bool has_inputs = std::any_of(graph_.inputs.begin(), graph_.inputs.end(),
                                      [](const torch::Tensor& input) { return input.requires_grad(); });
  if (!has_inputs || !find_branches()) {
    branches_.clear();
    return whole(gradients);
  }
  std::vector<torch::Tensor> of_inputs(graph_.inputs.size());
  std::vector<torch::Tensor> given;
  const edge_list begin = roots(gradients, given);
  edge_list wanted;
  std::vector<torch::Tensor*> places;
  for (std::size_t i = 0; i < of_inputs.size(); ++i) {
    if (!graph_.inputs[i].requires_grad()) continue;
    wanted.push_back(ends_[i]);
    places.push_back(&of_inputs[i]);
  }
  for (Branch& branch : branches_) {
    branch.gradients.resize(branch.edges.size());
    for (std::size_t i = 0; i < branch.edges.size(); ++i) {
      wanted.push_back(branch.edges[i]);
      places.push_back(&branch.gradients[i]);
    }
  }
  if (begin.empty()) {
    branches_.clear();
    return of_inputs;
  }
  const std::vector<torch::Tensor> found = run(begin, given, /*keep=*/true, wanted);
  for (std::size_t i = 0; i < places.size(); ++i) *places[i] = found[i];
  return of_inputs;
}

void ChunkBackward::weights() {
  for (Branch& branch : branches_) {
    edge_list begin, wanted;
    std::vector<torch::Tensor> given;
    for (std::size_t i = 0; i < branch.edges.size(); ++i) {
      if (!branch.gradients[i].defined()) continue;
      begin.push_back(branch.edges[i]);
      given.push_back(branch.gradients[i]);
    }
    for (const std::size_t parameter : branch.parameters) wanted.push_back(edges_.at(parameter));
    if (!begin.empty()) add(branch.parameters, run_and_add(begin, given, wanted), 0);
  }
  branches_.clear();
  graph_.outputs.clear();
}

}  // namespace cohort
