// Calls on a device whose work is captured as graphs. The first calls of a signature warm up: they are the function
// itself, and make what is made once (slots, workspaces, the choice of algorithms). The next one is captured, which
// does its work, too; from then on the graph runs, with the arguments copied to where it reads them. A graph that needs
// those of other replicas beside it runs when theirs do; in other calls the function runs as it is.
#include "wings/function/captured.h"

#include <algorithm>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "cohort/replica.h"
#include "cohort/strategy.h"
#include "strategy/context.h"
#include "wings/function/step/step_in_graph.h"
#include "wings/function/visitors.h"

namespace cohort {

namespace {

constexpr int kWarmUpCalls = 2;
// So many graphs of a function are kept for each replica: every one has memory of its own for all of its tensors.
constexpr std::size_t kMostGraphs = 8;
// So often a signature is captured, when tensors that its graph needs are gone.
constexpr int kMostCaptures = 4;

// Returns where the call takes place: replicas have graphs of their own, also on one device.
std::string home_of(const FunctionArguments& arguments) {
  return c10::str(arguments.device, " ", static_cast<const void*>(thread_context().replica));
}

// Returns the arguments' signature and what replicas divide by.
std::string key_of(const FunctionArguments& arguments) {
  const Replica* const replica = thread_context().replica;
  const int64_t examples = replica == nullptr ? -1 : replica->global_batch_size().value_or(-1);
  return c10::str(to_key(arguments.given), examples);
}

// Returns which of the arguments are to require gradients.
std::vector<bool> requires_grad(const FunctionArguments& arguments) {
  std::vector<bool> wanted;
  for (const ArgumentType& type : arguments.given.arguments) {
    if (type.is_tensor && type.dtype != torch::ScalarType::Undefined) wanted.push_back(type.requires_grad);
  }
  return wanted;
}

void require_no_gradients(const std::string& name, const std::vector<torch::Tensor>& arguments) {
  for (const torch::Tensor& argument : arguments) {
    if (!argument.is_leaf() || !argument.grad().defined()) continue;
    fail<InvalidArgument>("[function] ", name, ": an argument of shape ", argument.sizes(),
                          " got a gradient, which does not leave a function that is captured; give the gradient back ",
                          "as a result (torch::autograd::grad)");
  }
}

// Gives the call its results, cut off from what has made them.
void give_results(detail::FunctionCall& call, std::vector<torch::Tensor> results,
                  const std::vector<bool>& requires_grad, const std::string& name, torch::Device device) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (requires_grad[i]) detail::end_gradients(results[i], name, device);
  }
  detail::Giver giver(std::move(results));
  call.visit_result(giver);
}

// Takes the call's results, and says which of them required gradients.
std::vector<torch::Tensor> take_results(detail::FunctionCall& call, std::vector<bool>& requires_grad) {
  detail::Taker taker;
  call.visit_result(taker);
  for (torch::Tensor& result : taker.taken) {
    requires_grad.push_back(result.defined() && result.requires_grad());
    if (result.defined()) result = result.detach();
  }
  return std::move(taker.taken);
}

// Refuses an argument that is written and lies in the memory of another one.
void require_apart(const std::string& name, const std::vector<torch::Tensor>& given, std::size_t written) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (i == written || !given[i].storage().is_alias_of(given[written].storage())) continue;
    fail<FailedPrecondition>("[function] ", name, ": an argument of shape ", given[written].sizes(),
                             " is written and shares its memory with another one, wanted tensors of their own");
  }
}

}  // namespace

void CapturedSignature::Graph::take(const std::vector<torch::Tensor>& given) const {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < given.size(); ++i) torch::Tensor(arguments[i]).copy_(given[i], /*non_blocking=*/true);
}

std::shared_ptr<CapturedSignature> CapturedFunction::find(const FunctionArguments& arguments) {
  const std::string key = key_of(arguments);
  const std::scoped_lock lock(mutex_);
  auto& here = kept_[home_of(arguments)];
  if (const auto known = here.find(key); known != here.end()) return known->second;
  const auto most = std::min(kMostGraphs, static_cast<std::size_t>(options_.kept_signatures));
  if (here.size() < most) return here[key] = std::make_shared<CapturedSignature>();
  if (!std::exchange(has_said_, true)) {
    log().warn("[function] {}({}) runs as it is: there are graphs of {} other signatures, and no more are kept",
               options_.name, to_string(arguments.signature), most);
  }
  return nullptr;
}

// Returns whether the function is to run as it is.
bool CapturedFunction::warms_up(CapturedSignature& own, const FunctionArguments& arguments) {
  const bool is_there = own.graph && (!own.graph->strategy || !own.graph->strategy->expired());
  if (own.graph && (!is_there || !own.graph->work.is_current())) own.graph.reset();
  if (own.graph) return false;
  if (own.calls < kWarmUpCalls) return ++own.calls > 0;
  if (own.captures < kMostCaptures) return false;
  if (own.captures++ == kMostCaptures) {
    log().warn(
        "[function] {}({}) runs as it is from now on: it was captured {} times, and each time tensors that it had read "
        "or gradients that it had left were gone at the next call, or had another shape or place, or numbers of the "
        "host had other values; write into tensors of the device in place, and reset gradients at its end "
        "(docs/functions.md)",
        options_.name, to_string(arguments.signature), kMostCaptures);
  }
  return true;
}

void CapturedFunction::call(detail::FunctionCall& call, const FunctionArguments& arguments) {
  std::vector<torch::Tensor> given;
  const std::vector<bool> wanted = requires_grad(arguments);
  for (std::size_t i = 0; i < arguments.tensors.size(); ++i) {
    given.push_back(arguments.tensors[i].detach().to(arguments.device).set_requires_grad(wanted[i]));
  }
  const std::shared_ptr<CapturedSignature> own = find(arguments);
  if (own == nullptr) return run(call, arguments, given);
  std::unique_lock lock(own->mutex);
  if (warms_up(*own, arguments)) {
    lock.unlock();
    return run(call, arguments, given);
  }
  if (own->graph) {
    own->graph->take(given);
    if (!own->graph->work.run()) {
      lock.unlock();
      return run(call, arguments, given);
    }
  } else {
    own->graph = capture(call, arguments, given);
    ++own->captures;
  }
  const CapturedSignature::Graph& graph = *own->graph;
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!graph.written[i]) continue;
    require_apart(options_.name, arguments.tensors, i);
    torch::Tensor(arguments.tensors[i]).copy_(graph.arguments[i]);
  }
  std::vector<torch::Tensor> results;
  for (const torch::Tensor& result : graph.results) results.push_back(result.defined() ? result.clone() : result);
  call.set_result(graph.result);
  give_results(call, std::move(results), graph.requires_grad, options_.name, arguments.device);
}

// Runs the function as it is.
void CapturedFunction::run(detail::FunctionCall& call, const FunctionArguments& arguments,
                           const std::vector<torch::Tensor>& given) const {
  {
    const BesideRuns beside;
    const detail::Substituted substituted(call, arguments.tensors, given);
    call.run();
  }
  require_no_gradients(options_.name, given);
  std::vector<bool> requires_grad;
  std::vector<torch::Tensor> results = take_results(call, requires_grad);
  give_results(call, std::move(results), requires_grad, options_.name, arguments.device);
}

CapturedSignature::Graph CapturedFunction::capture(detail::FunctionCall& call, const FunctionArguments& arguments,
                                                   const std::vector<torch::Tensor>& given) const {
  Replica* const replica = thread_context().replica;
  CapturedSignature::Graph made;
  std::vector<int64_t> versions;
  for (const torch::Tensor& each : given) {
    const torch::NoGradGuard no_grad;
    made.arguments.push_back(each.clone());
    made.arguments.back().set_requires_grad(each.requires_grad());
    versions.push_back(made.arguments.back()._version());
  }
  std::vector<at::Generator> generators;
  if (replica != nullptr) {
    generators.push_back(replica->generator());
    const Strategy strategy = replica->strategy();
    made.strategy = Access::core(strategy);
  }
  if (replica != nullptr) prepare_steps_for_graphs(*replica);
  GraphCapture capture(arguments.device, generators, options_.name, &steps_in_graphs());
  try {
    const detail::Substituted substituted(call, arguments.tensors, made.arguments);
    call.run();
    made.results = take_results(call, made.requires_grad);
    made.work = capture.finish();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    capture.explain(error);
    throw;
  }
  require_no_gradients(options_.name, made.arguments);
  for (std::size_t i = 0; i < versions.size(); ++i) {
    made.written.push_back(made.arguments[i]._version() != versions[i]);
  }
  made.result = call.result();
  return made;
}

}  // namespace cohort
