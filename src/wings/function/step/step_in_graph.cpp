// The update of a step that is captured as a part of a graph. Its numbers are in the device's memory, where the host
// writes those of each run before the graph begins, so that nothing is between backward and update but an exchange with
// other replicas, if there is one that is not captured, too. Where an update cannot be captured, exchange and update
// are what the host does in each run.
#include "wings/function/step/step_in_graph.h"

#include <algorithm>

#include "base/access.h"
#include "base/fail.h"
#include "device/backend.h"
#include "strategy/core.h"
#include "wings/function/device/graph_capture.h"
#include "wings/function/step/communicator_in_graphs.h"
#include "wings/function/step/graph_numbers.h"

namespace cohort {

namespace {

constexpr int64_t kScales = 2;  // at the beginning of a row

class StepsInGraphs final : public StepEngine {
 public:
  void prepare(Step& step, Replica& replica) const;

  // A graph has nothing of the exchange, which goes by the host.
  void backward(Step& step, Replica& replica, const torch::Tensor& loss) const override {
    if (exchange(step).shards() != nullptr) {
      fail<NotCapturable>("[optimizer] ", step.rule().name(),
                          ": the gradients of sharding stages 2 and 3 leave during ",
                          "backward, which cannot be captured as a graph; take stage 1, or leave jit_compile unset");
    }
    flat(step).backward(replica.local_id(), loss);
  }
  torch::Tensor loss_scale(Step& step, const Replica& replica, const torch::Tensor& like, double factor) const override;
  void update(Step& step, Replica& replica, Step::Given given) const override;

 private:
  // Returns the numbers of a replica's steps; null where the host makes the updates.
  static GraphNumbers* numbers(Step& step, int local_id) {
    const auto* const own = std::any_cast<std::shared_ptr<GraphNumbers>>(&kept(step, local_id).own);
    return own == nullptr ? nullptr : own->get();
  }
  // Returns the numbers that a captured step of a replica reads: the scale of the loss with the fixed one, that scale
  // alone, and those of the update, for scaled gradients and for others.
  static std::vector<double> row(const Step& step, int local_id, int64_t iterations, double loss_scale);
  static void write_row(Step& step, int local_id);
  // Returns them as they are on the device in each run.
  static torch::Tensor row_in_graph(Step& step, GraphCapture& capture, int local_id);
  static void update_by_host(Step& step, GraphCapture& capture, Replica& replica, Step::Given given);
};

const StepsInGraphs& engine() {
  static const StepsInGraphs kEngine;
  return kEngine;
}

// Gradients that are added up over several calls are updated by some of them, which a graph does not tell apart.
void StepsInGraphs::prepare(Step& step, Replica& replica) const {
  const int id = replica.local_id();
  auto& own = kept(step, id);
  if (own.own.has_value() || step.rule().gradient().gradient_accumulation_steps > 1) return;
  const CommunicatorInGraphs* const captured = CommunicatorInGraphs::of(exchange(step));
  if (captured == nullptr || !captures(replica.device())) return;
  const auto wanted = captured->graph_numbers(id, {});
  if (!wanted) return;
  const auto made = std::make_shared<GraphNumbers>(kScales + 2 * static_cast<int64_t>(wanted->size()), replica.device(),
                                                   step.rule().gradient().loss_scale.has_value());
  const std::vector<Verdict>& pending = state(step).unsettled(id).pending;
  if (!pending.empty()) made->note(pending.back().there());
  own.note = [made](const Verdict& verdict) { made->note(verdict.there()); };
  own.own = made;
}

std::vector<double> StepsInGraphs::row(const Step& step, int local_id, int64_t iterations, double loss_scale) {
  std::vector<double> row{loss_scale * fixed_scale(step), loss_scale};
  const CommunicatorInGraphs& captured = *CommunicatorInGraphs::of(exchange(step));
  for (const double scale : {loss_scale, 1.0}) {
    const auto numbers = captured.graph_numbers(local_id, context_after(step, iterations, scale));
    row.insert(row.end(), numbers->begin(), numbers->end());
  }
  return row;
}

// The norm of the step before the last one has arrived when the last one has begun, so that the device is not waited
// for.
void StepsInGraphs::write_row(Step& step, int local_id) {
  ReplicaProgress& progress = state(step).unsettled(local_id);
  const bool known_there = !progress.pending.empty() && progress.pending.back().there().defined();
  progress.settle(known_there ? 1 : 0);
  std::vector<std::vector<double>> rows;
  for (const bool updated : {false, true}) {
    ReplicaProgress then{.iterations = progress.iterations, .scaler = progress.scaler};
    if (known_there) then.count(updated);
    rows.push_back(row(step, local_id, then.iterations, then.scaler.scale()));
    if (!known_there) break;
  }
  numbers(step, local_id)->write(rows);
}

torch::Tensor StepsInGraphs::row_in_graph(Step& step, GraphCapture& capture, int local_id) {
  const std::weak_ptr<Step> self = weak(step);
  const auto write = [self, local_id] {
    if (const std::shared_ptr<Step> own = self.lock()) write_row(*own, local_id);
  };
  return numbers(step, local_id)->read(capture, {.act = write, .owner = self});
}

torch::Tensor StepsInGraphs::loss_scale(Step& step, const Replica& replica, const torch::Tensor& like,
                                        double factor) const {
  GraphCapture& capture = *GraphCapture::current();
  const int id = replica.local_id();
  if (numbers(step, id) != nullptr) {
    return row_in_graph(step, capture, id)[factor == 1.0 ? 1 : 0].to(like.scalar_type());
  }
  const std::weak_ptr<Step> owner = weak(step);
  const auto now = [owner, id, factor] {
    const std::shared_ptr<Step> own = owner.lock();
    return own == nullptr ? factor : state(*own).of(id).scaler.scale() * factor;
  };
  return capture.number(now, like.scalar_type(), owner);
}

void StepsInGraphs::update(Step& step, Replica& replica, Step::Given given) const {
  GraphCapture& capture = *GraphCapture::current();
  const bool has_sparse = std::any_of(given.gradients.begin(), given.gradients.end(),
                                      [](const torch::Tensor& each) { return each.defined() && each.is_sparse(); });
  const int id = replica.local_id();
  GraphNumbers* const own = numbers(step, id);
  if (own == nullptr || has_sparse) {
    update_by_host(step, capture, replica, std::move(given));
    if (own != nullptr) own->end(capture);
    return;
  }
  const torch::Tensor row = row_in_graph(step, capture, id);
  const int64_t size = (row.numel() - kScales) / 2;
  const std::weak_ptr<Step> self = weak(step);
  const StepContext now = context_after(step, state(step).unsettled(id).iterations, 1.0);
  const Verdict verdict = CommunicatorInGraphs::of(exchange(step))
                              ->step_in_graph(capture, replica,
                                              {.gradients = given.gradients,
                                               .reduced = given.reduced,
                                               .context = now,
                                               .numbers = row.narrow(0, kScales + (given.scaled ? 0 : size), size),
                                               .note = [own](const Verdict& made) { own->note(made.there()); },
                                               .owner = self});
  own->end(capture);
  const auto count = [self, id, verdict] {
    const std::shared_ptr<Step> counted = self.lock();
    if (counted != nullptr) state(*counted).unsettled(id).pending.push_back(verdict.of_last_run());
  };
  capture.behind({.act = count, .owner = self});
}

// The host gives the device the numbers of the update with the kernels that compute it.
void StepsInGraphs::update_by_host(Step& step, GraphCapture& capture, Replica& replica, Step::Given given) {
  const std::weak_ptr<Step> self = weak(step);
  const auto act = [self, &replica, given = std::move(given)] {
    if (const std::shared_ptr<Step> own = self.lock()) update_now(*own, replica, given);
  };
  capture.part({.act = act, .owner = self});
}

}  // namespace

const StepEngine& steps_in_graphs() {
  return engine();
}

void prepare_steps_for_graphs(Replica& replica) {
  for (LiveOptimizer* const each : Access::core(replica).optimizers().alive()) {
    if (auto* const step = dynamic_cast<Step*>(each)) engine().prepare(*step, replica);
  }
}

}  // namespace cohort
