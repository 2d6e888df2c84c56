// A node of autograd's graph stands for the whole block. Its inputs are the block's input and its parameters, so that
// gradients reach the parameters as always: when this node ends, not within its backward, where the exchange of
// gradients would not look for them.
#include "cohort/train/layers/remat.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/custom_class.h>

#include <optional>
#include <set>

#include "base/fail.h"
#include "base/first_derivative.h"
#include "base/libtorch_compat.h"
#include "cohort/replica.h"
#include "cohort/strategy.h"
#include "device/identity.h"
#include "device/random_draws.h"
#include "strategy/combinations.h"
#include "strategy/context.h"
#include "strategy/divided.h"
#include "strategy/module_tensors.h"
#include "train/model/kept_modes.h"

namespace cohort {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Node;
using torch::autograd::variable_list;

constexpr std::string_view kWho = "[layers] Checkpointed: ";

// What the block was computed with, so that it can be computed again.
struct Computation : torch::CustomClassHolder {
  std::shared_ptr<torch::nn::Module> block;
  std::function<torch::Tensor(const torch::Tensor&)> forward;
  Replica* replica = nullptr;
  std::optional<Strategy> strategy;       // keeps the replica
  std::optional<torch::ScalarType> half;  // autocast's
  variable_list parameters;               // those that learn
  std::vector<bool> modes;                // training or evaluation, of each module of the block
  std::vector<RandomDraw> draws;
};

// Buffers have their present values again when it ends.
class KeptBuffers {
 public:
  explicit KeptBuffers(const torch::nn::Module& block) {
    for (const torch::Tensor& buffer : block.buffers()) {
      if (buffer.defined()) kept_.emplace_back(buffer.detach(), buffer.detach().clone());
    }
  }
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;
  ~KeptBuffers() {
    const torch::NoGradGuard no_grad;
    for (auto& [buffer, value] : kept_) buffer.copy_(value);
  }

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> kept_;
};

// Returns the generators from which a block may draw whose draws can be repeated.
std::vector<at::Generator> generators_of(Replica* replica, torch::Device device) {
  std::vector<at::Generator> generators = default_generators(device);
  if (replica != nullptr) generators.insert(generators.begin(), replica->generator());
  return generators;
}

// What was drawn can be drawn again if nobody else draws from the same generator meanwhile.
void require_own(const std::vector<RandomDraw>& draws) {
  if (!beside_others()) return;
  const at::Generator shared = default_generators(torch::kCPU).front();
  for (const RandomDraw& draw : draws) {
    if (draw.generator != shared) continue;
    fail<FailedPrecondition>(kWho, draw.operation,
                             " draws from LibTorch's default generator, from which the other "
                             "replicas of this process may draw at the same time, so that it cannot be drawn again; "
                             "draw from Replica::generator(), as Dropout does");
  }
}

// Checks that gradients of y go to these tensors alone: those of others would be lost.
void require_closed(const torch::Tensor& y, const variable_list& known) {
  std::set<const void*> ends;
  for (const torch::Tensor& tensor : known) ends.insert(tensor_id(tensor));
  std::set<const Node*> seen;
  std::vector<const Node*> open = {y.grad_fn().get()};
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    const auto* end = dynamic_cast<const torch::autograd::AccumulateGrad*>(node);
    if (end != nullptr && !ends.contains(tensor_id(end->variable))) {
      fail<InvalidArgument>(kWho, "the block uses a tensor of the shape ", end->variable.sizes(),
                            " that requires a gradient and is neither its input nor one of its parameters, so that the "
                            "gradient would be lost; register it in the module");
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) open.push_back(edge.function.get());
  }
}

// Computes the block again and returns its output.
torch::Tensor again(const Computation& first, const torch::Tensor& x) {
  const std::optional<ReplicaContext> context = first.replica == Replica::current()
                                                    ? std::optional<ReplicaContext>()
                                                    : std::optional<ReplicaContext>(std::in_place, first.replica);
  std::optional<compat::Autocast> autocast;
  if (first.half) autocast.emplace(x.device().type(), *first.half);
  return first.forward(x);
}

class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  static torch::Tensor forward(AutogradContext* context, const c10::intrusive_ptr<Computation>& computation,
                               const torch::Tensor& x, bool offload, at::TensorList /*parameters*/) {
    torch::Tensor y;
    {
      const RandomWatch watch(generators_of(computation->replica, x.device()));
      y = computation->forward(x);
      computation->draws = watch.draws();
    }
    require_own(computation->draws);
    // Casts that were made here have no gradients, and must not be taken for those of operations that need them.
    if (computation->half) at::autocast::clear_cache();
    context->saved_data["computation"] = torch::IValue::make_capsule(computation);
    context->saved_data["device"] = x.device();
    context->saved_data["needs_gradient"] = x.requires_grad();
    if (offload) {
      context->saved_data["x"] = x.detach().to(torch::kCPU);
    } else {
      context->save_for_backward({x});
    }
    // An output that is its input (Flatten of two dimensions, Dropout outside training) would be taken for changed.
    return y.is_same(x) ? y.view_as(y) : y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    require_first_derivative(kWho, "a block");
    const auto first = c10::static_intrusive_pointer_cast<Computation>(context->saved_data["computation"].toCapsule());
    const auto kept = context->saved_data.find("x");
    torch::Tensor x = kept == context->saved_data.end()
                          ? context->get_saved_variables().front().detach()
                          : kept->second.toTensor().to(context->saved_data["device"].toDevice());
    variable_list wanted = first->parameters;
    const bool needs_gradient = context->saved_data["needs_gradient"].toBool();
    if (needs_gradient) wanted.push_back(x.requires_grad_());
    variable_list found = gradients_of(*first, x, wanted, gradients[0]);
    variable_list all(3);  // of the arguments of forward() before the parameters
    if (needs_gradient) {
      all[1] = found.back();
      found.pop_back();
    }
    all.insert(all.end(), found.begin(), found.end());
    return all;
  }

 private:
  static variable_list gradients_of(const Computation& first, const torch::Tensor& x, const variable_list& wanted,
                                    const torch::Tensor& gradient) {
    const torch::AutoGradMode on(true);
    const KeptBuffers buffers(*first.block);
    const DrawnAgain draws(first.draws);
    const KeptModes modes(*first.block);
    auto mode = first.modes.begin();
    for (const auto& module : first.block->modules()) module->train(*mode++);
    const torch::Tensor y = again(first, x);
    if (!y.requires_grad()) return variable_list(wanted.size());
    require_closed(y, wanted);
    return torch::autograd::grad({y}, wanted, {gradient}, /*retain_graph=*/{}, /*create_graph=*/false,
                                 /*allow_unused=*/true);
  }
};

// Autograd's nodes take and give this replica's part of what is divided.
torch::Tensor remat_part(const std::shared_ptr<torch::nn::Module>& block,
                         const std::function<torch::Tensor(const torch::Tensor&)>& forward, const torch::Tensor& x,
                         const CheckpointedOptions& options) {
  const DividedTensor& divided = *DividedTensor::of(x);
  using Maker = std::function<torch::Tensor(const torch::Tensor& part)>;
  const auto result = std::make_shared<Maker>();  // empty: every replica has all of the output
  const auto of_part = [forward, result, input = divided.maker()](const torch::Tensor& part) {
    torch::Tensor y = forward(input(part));
    const DividedTensor* const made = DividedTensor::of(y);
    if (made == nullptr) return y;
    *result = made->maker();
    return made->part(y);
  };
  const torch::Tensor y = remat(block, of_part, divided.part(x), options);
  return *result ? (*result)(y) : y;
}

}  // namespace

torch::Tensor remat(const std::shared_ptr<torch::nn::Module>& block,
                    const std::function<torch::Tensor(const torch::Tensor&)>& forward, const torch::Tensor& x,
                    const CheckpointedOptions& options) {
  if (!block) fail<InvalidArgument>(kWho, "got no module");
  if (!x.defined()) fail<InvalidArgument>(kWho, "the input is undefined");
  if (x.device().type() == torch::kXLA) {
    require_pair("[layers]", {.feature = kRecomputed, .said = "a block is Checkpointed"},
                 {.feature = kXlaDevices, .said = c10::str("its input is on ", x.device())});
  }
  if (options.offload && x.device().type() == torch::kCPU) {
    fail<InvalidArgument>(kWho, "offload is set, but the input is in the host's memory already");
  }
  if (!torch::GradMode::is_enabled()) return forward(x);
  if (thread_context().replica_scope != nullptr) {
    require_pair("[layers]", {.feature = kRecomputed, .said = "a block is Checkpointed"},
                 {.feature = kPipeline, .said = "a stage of a pipeline computes it"});
  }
  auto computation = c10::make_intrusive<Computation>();
  for (const ModuleTensor& each : distinct_parameters(*block)) {
    if (each.tensor.requires_grad()) computation->parameters.push_back(each.tensor);
  }
  if (computation->parameters.empty() && !x.requires_grad()) return forward(x);
  if (is_divided(x)) return remat_part(block, forward, x, options);
  computation->block = block;
  computation->forward = forward;
  for (const auto& module : block->modules()) computation->modes.push_back(module->is_training());
  computation->half = compat::Autocast::in_force(x.device().type());
  computation->replica = Replica::current();
  if (computation->replica != nullptr) computation->strategy = computation->replica->strategy();
  return Recomputed::apply(computation, x, options.offload, at::TensorList(computation->parameters));
}

}  // namespace cohort
