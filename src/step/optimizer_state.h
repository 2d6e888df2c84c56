// OptimizerState: the things that an optimizer knows from one step to the next: counts, the rate, the loss scale, sums
// that are not applied yet, and (in the exchange's keeping) the slots. All of it can be saved and gone on from.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor_piece.h"
#include "cohort/optimizer.h"
#include "step/exchange/exchange.h"
#include "step/flat_parameters.h"
#include "step/scaling.h"
#include "step/update/slots.h"
#include "strategy/module_pieces.h"

namespace cohort {

// The entry of an optimizer's state that holds a rate that was set.
inline constexpr const char* kLearningRateEntry = "learning_rate";
// The entry that holds the scale of the loss.
inline constexpr const char* kLossScaleEntry = "loss_scale";
inline constexpr const char* kIterations = "iterations";
inline constexpr const char* kGoodSteps = "good_steps";

// Says what is the matter where a slot is not there, but the other formulation's velocity was saved.
std::string other_formulation(const std::string& name, const std::function<bool(const std::string&)>& is_given);

// Each replica has its own, so that no replica reads what another writes; all come to the same numbers.
struct alignas(64) ReplicaProgress {
  int64_t iterations = 0;   // updates
  int64_t accumulated = 0;  // calls since the last update
  // Sums of the gradients of these calls: one a parameter, undefined for zero, or where gradients are shared those of
  // slices that the replica owns.
  std::vector<torch::Tensor> sums;
  // Where gradients are shared: sums of a checkpoint, one a parameter, that the next call adds up over the replicas.
  std::vector<torch::Tensor> loaded;
  LossScaler scaler;
  std::vector<Verdict> pending;  // of the last steps, in their order, while these are not counted

  void count(bool updated) {
    if (updated) ++iterations;
    scaler.note(updated);
  }
  // Counts the last steps, all but so many.
  void settle(std::size_t keep = 0) {
    while (pending.size() > keep) {
      const Verdict first = std::move(pending.front());
      pending.erase(pending.begin());
      count(first.updated());
    }
  }
};

class OptimizerState {
 public:
  OptimizerState(const StrategyCore& core, const Optimizer& rule, FlatParameters& flat, Exchange& exchange);

  // Returns what a replica knows after its last step; with a loss scale this is where the host waits for a device to
  // say whether there was an update.
  ReplicaProgress& of(int replica) { return settled(replica); }
  const ReplicaProgress& of(int replica) const { return settled(replica); }
  // Returns the same without a wait: steps of which the host does not know the end are not counted.
  ReplicaProgress& unsettled(int replica) { return progress_[static_cast<std::size_t>(replica)]; }
  int64_t iterations() const { return exchange_.iterations().value_or(of(0).iterations); }
  // Returns the same with a last step of which nobody knows yet whether it was left out.
  int64_t iterations_begun() const {
    const ReplicaProgress& first = progress_.front();
    return exchange_.iterations().value_or(first.iterations + static_cast<int64_t>(first.pending.size()));
  }
  const Schedule& schedule() const { return schedule_; }
  // Returns the rate of the next call of minimize().
  double learning_rate() const;
  void set_learning_rate(Schedule schedule);

  // Lets the sums of the calls before an update be tensors that stay, zero where nothing came, because functions that
  // are recorded write to them.
  void keep_sums();
  bool keeps_sums() const { return keeps_sums_; }

  // Brings parameters of workers together, and puts the averages of them into them;
  // MirroredOptimizer::finalize_variable_values().
  void put_averages();

  // Takes over what an optimizer knew that had more parameters: `kept` are the numbers that those here had there.
  void go_on_from(const OptimizerState& before, const Exchange& exchange, const FlatParameters& flat,
                  const std::vector<std::size_t>& kept);

  // The contracts are those of MirroredOptimizer's methods.
  std::vector<std::pair<std::string, torch::Tensor>> save() const;
  void load(const std::vector<std::pair<std::string, torch::Tensor>>& state);

  // Returns the pieces of the state that this worker writes; together the workers write each element of save() once.
  // Their values may be the slots' own memory. No collective.
  std::vector<TensorPiece> pieces() const;
  // Does what load() does with what is read, of which this worker reads what its replicas have.
  void load_pieces(const TensorSource& source);

  std::vector<torch::Tensor> save_accumulated() const;
  void load_accumulated(const std::vector<torch::Tensor>& sums);

 private:
  ReplicaProgress& settled(int replica) const {
    const auto number = static_cast<std::size_t>(replica);
    const std::lock_guard lock(settling_[number]);
    progress_[number].settle();
    return progress_[number];
  }
  std::vector<torch::Tensor> save_sums() const;
  void load_rate(std::optional<double> saved);
  // Returns what is saved beside the slots.
  std::vector<std::pair<std::string, torch::Tensor>> save_numbers() const;
  // Begins anew at an update, with such numbers.
  using Given = std::map<std::string, torch::Tensor>;
  void restart(int64_t iterations, const Given& numbers);
  std::vector<SlotKind> slots_of(const FlatParameter& parameter) const {
    return slots_for(rule_, flat_.groups()[parameter.group].dtype);
  }
  // Returns whether a slot is a master, which a state that was saved without masters does not have. It is zero then,
  // and the next update takes it from the parameter.
  bool may_be_missing(std::size_t slot) const { return slot == rule_.rule().slots().size(); }
  bool is_missing(const TensorSource& source, const std::string& name, std::size_t slot) const {
    return may_be_missing(slot) && source.find(name) == nullptr;
  }
  // Warns once if any is.
  void tell_missing(const std::function<bool(const std::string&)>& is_given) const;
  // Returns the averages of parameters among the slots of a group.
  const torch::Tensor& average_in(const std::vector<torch::Tensor>& slots) const {
    return slots[rule_.rule().slots().size() - 1];
  }
  // Which slot of which parameter.
  struct Place {
    std::size_t parameter;
    std::size_t slot;
  };
  // Calls visit(name, tensor, place) for every slot of every parameter.
  template <typename Visit>
  void each_slot(const Exchange::Slots& slots, const Visit& visit) const {
    for (std::size_t p = 0; p < flat_.parameters().size(); ++p) {
      const FlatParameter& parameter = flat_.parameters()[p];
      const std::vector<SlotKind> kinds = slots_of(parameter);
      for (std::size_t s = 0; s < kinds.size(); ++s) {
        visit(parameter.name + "/" + kinds[s].name, flat_.part_of(slots[parameter.group][s], p),
              Place{.parameter = p, .slot = s});
      }
    }
  }
  // Returns a list of slots, of which other processes of a pipeline may have some, with all of them in their order.
  std::vector<std::pair<std::string, torch::Tensor>> with_others(
      const std::vector<std::pair<std::string, torch::Tensor>>& own) const;
  // Returns the number here of each of FlatParameters::all_names(); nothing where another process has the parameter.
  std::vector<std::optional<std::size_t>> numbers_of_all() const;
  void load_own_slots(const TensorSource& source, const std::vector<Exchange::OwnSlots>& parts);
  void load_slots(const TensorSource& source);
  // Gives each replica its parts of slots of parameters that are cut.
  void load_cut_slots(const TensorSource& source);
  // Returns what of a parameter such slots are.
  SliceOfPart slice_of(const Exchange::OwnSlots& own) const;
  // Returns the slot that a replica, which has these slots, has for its part of a parameter.
  torch::Tensor part_of_slot(const Place& place, const Exchange::Slots& slots) const;
  // Returns the slot of a whole parameter, which is cut, of those of the local replicas; as ParameterLayout::whole().
  torch::Tensor whole_slot(const Place& place, const std::vector<Exchange::Slots>& slots) const;
  // Sets a replica's part of it.
  void set_part_of_slot(const Place& place, int replica, const torch::Tensor& whole) const;

  const StrategyCore& core_;
  Optimizer rule_;
  FlatParameters& flat_;
  Exchange& exchange_;
  Schedule schedule_;
  bool keeps_sums_ = false;
  bool rate_is_set_ = false;  // true if the rate is a number that is not the rule's own: a part of the state
  mutable std::vector<ReplicaProgress> progress_;  // the last steps are counted when somebody asks
  mutable std::deque<std::mutex> settling_;        // of each: the microbatches of a pipeline ask at the same time
};

}  // namespace cohort
