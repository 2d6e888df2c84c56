// The state that an optimizer keeps between steps, as named tensors that can be saved and gone on from.
#include "step/optimizer_state.h"

#include <ATen/Functions.h>
#include <c10/util/accumulate.h>

#include "base/fail.h"
#include "base/log.h"
#include "step/exchange/in_shards.h"
#include "strategy/holders.h"

namespace cohort {

std::string other_formulation(const std::string& name, const std::function<bool(const std::string&)>& is_given) {
  const std::size_t cut = name.rfind('/');
  if (cut == std::string::npos) return "";
  const std::string slot = name.substr(cut + 1);
  const bool keras = slot == "momentum";
  const std::string other = keras ? "momentum_buffer" : "momentum";
  if ((!keras && slot != "momentum_buffer") || !is_given(name.substr(0, cut + 1) + other)) return "";
  return c10::str("; \"", other, "\" is there, the momentum of another formulation: formulation = ",
                  keras ? "kTorch goes on with what LibTorch's form (the only one until 0.1) saved"
                        : "kKeras goes on with what Keras' form saved");
}

namespace {

// Returns for each element of a parameter the number of a slot that stands for it, so that they are cut and joined as
// the parameter is; see UpdateRule::left_out().
torch::Tensor for_each_element(const torch::Tensor& slot, int64_t left_out) {
  std::vector<int64_t> sizes = slot.sizes().vec();
  sizes[static_cast<std::size_t>(left_out)] = 1;
  const int64_t count = c10::multiply_integers(sizes);
  return slot.as_strided({count}, {1}, slot.storage_offset()).view(sizes).expand(slot.sizes()).contiguous();
}

// Sets a slot's numbers to those of each element.
void set_beginning(const torch::Tensor& slot, const torch::Tensor& each, int64_t left_out) {
  const torch::Tensor numbers = each.select(left_out, 0).reshape({-1});
  slot.as_strided({numbers.numel()}, {1}, slot.storage_offset()).copy_(numbers);
}

}  // namespace

OptimizerState::OptimizerState(const StrategyCore& core, const Optimizer& rule, FlatParameters& flat,
                               Exchange& exchange)
    : core_(core),
      rule_(rule),
      flat_(flat),
      exchange_(exchange),
      schedule_(rule.learning_rate()),
      progress_(flat.groups().front().copies.size(), ReplicaProgress{.scaler = LossScaler(rule.gradient().loss_scale)}),
      settling_(progress_.size()) {}

void OptimizerState::keep_sums() {
  const torch::NoGradGuard no_grad;
  keeps_sums_ = true;
  for (std::size_t replica = 0; replica < progress_.size(); ++replica) {
    for (const torch::Tensor& parameter : flat_.tensors(static_cast<int>(replica))) {
      progress_[replica].sums.push_back(at::zeros_like(parameter));
    }
  }
}

double OptimizerState::learning_rate() const {
  return schedule_(iterations() * rule_.gradient().gradient_accumulation_steps + of(0).accumulated);
}

void OptimizerState::set_learning_rate(Schedule schedule) {
  exchange_.set_learning_rate(schedule);
  schedule_ = std::move(schedule);
  rate_is_set_ = schedule_.is_constant();
}

torch::Tensor OptimizerState::part_of_slot(const Place& place, const Exchange::Slots& slots) const {
  const std::size_t group = flat_.parameters()[place.parameter].group;
  return flat_.part_of(slots[group][place.slot], place.parameter);
}

torch::Tensor OptimizerState::whole_slot(const Place& place, const std::vector<Exchange::Slots>& slots) const {
  const std::string& parameter = flat_.parameters()[place.parameter].name;
  const torch::Tensor first = part_of_slot(place, slots.front());
  const std::optional<int64_t> left_out = rule_.rule().left_out(place.slot, first.dim());
  torch::Tensor whole = flat_.layout().whole(parameter, [&](int r) {
    const torch::Tensor part = part_of_slot(place, slots[static_cast<std::size_t>(r)]);
    return left_out ? for_each_element(part, *left_out) : part;
  });
  if (!left_out) return whole;
  torch::Tensor slot = at::zeros(whole.sizes(), whole.options()).contiguous(first.suggest_memory_format());
  set_beginning(slot, whole, *left_out);
  return slot;
}

void OptimizerState::set_part_of_slot(const Place& place, int replica, const torch::Tensor& whole) const {
  const std::string& parameter = flat_.parameters()[place.parameter].name;
  torch::Tensor slot = part_of_slot(place, exchange_.slots_of(replica));
  const std::optional<int64_t> left_out = rule_.rule().left_out(place.slot, slot.dim());
  if (!left_out) return slot.copy_(flat_.layout().part(parameter, whole, replica)), void();
  const torch::Tensor given = whole.contiguous(slot.suggest_memory_format());
  set_beginning(slot.zero_(), flat_.layout().part(parameter, for_each_element(given, *left_out), replica), *left_out);
}

std::vector<std::pair<std::string, torch::Tensor>> OptimizerState::save_numbers() const {
  std::vector<std::pair<std::string, torch::Tensor>> list;
  list.emplace_back(kIterations, torch::tensor(iterations(), torch::kLong));
  if (rule_.gradient().loss_scale) {
    list.emplace_back(kLossScaleEntry, torch::tensor(of(0).scaler.scale(), torch::kDouble));
    list.emplace_back(kGoodSteps, torch::tensor(of(0).scaler.good_steps(), torch::kLong));
  }
  if (rate_is_set_) list.emplace_back(kLearningRateEntry, torch::tensor(schedule_(0), torch::kDouble));
  return list;
}

std::vector<std::pair<std::string, torch::Tensor>> OptimizerState::save() const {
  std::vector<std::pair<std::string, torch::Tensor>> list = save_numbers();
  const std::vector<Exchange::Slots> slots = exchange_.slots_of_all();
  each_slot(slots.front(), [&](const std::string& name, const torch::Tensor& slot, const Place& place) {
    const std::string& parameter = flat_.parameters()[place.parameter].name;
    list.emplace_back(name, flat_.layout().find(parameter) == nullptr ? slot.clone() : whole_slot(place, slots));
  });
  return has_stages(core_) ? with_others(list) : list;
}

std::vector<std::pair<std::string, torch::Tensor>> OptimizerState::with_others(
    const std::vector<std::pair<std::string, torch::Tensor>>& own) const {
  const NamedTensors all = from_holders(core_, own);
  const std::map<std::string, torch::Tensor> by_name(all.begin(), all.end());
  std::vector<std::pair<std::string, torch::Tensor>> list = save_numbers();
  for (const std::string& parameter : flat_.all_names()) {
    for (const std::string& slot : rule_.rule().slots()) {
      const std::string name = c10::str(parameter, "/", slot);
      list.emplace_back(name, by_name.at(name));
    }
    const auto master = by_name.find(c10::str(parameter, "/", kMaster));
    if (master != by_name.end()) list.emplace_back(master->first, master->second);
  }
  return list;
}

void OptimizerState::go_on_from(const OptimizerState& before, const Exchange& exchange, const FlatParameters& flat,
                                const std::vector<std::size_t>& kept) {
  const torch::NoGradGuard no_grad;
  exchange_.load_own_state(exchange.own_state());
  schedule_ = before.schedule_;
  rate_is_set_ = before.rate_is_set_;
  progress_ = before.progress_;
  for (std::size_t r = 0; r < progress_.size(); ++r) {
    std::vector<torch::Tensor>& sums = progress_[r].sums;
    const std::vector<torch::Tensor> all = std::exchange(sums, {});
    for (std::size_t p = 0; p < kept.size() && !all.empty(); ++p) sums.push_back(all[kept[p]]);
    const Exchange::Slots old = exchange.slots_of(static_cast<int>(r));
    each_slot(exchange_.slots_of(static_cast<int>(r)),
              [&](const std::string& /*name*/, torch::Tensor slot, const Place& place) {
                const std::size_t number = kept[place.parameter];
                slot.copy_(flat.part_of(old[flat.parameters()[number].group][place.slot], number));
              });
  }
}

std::vector<std::optional<std::size_t>> OptimizerState::numbers_of_all() const {
  std::vector<std::optional<std::size_t>> numbers;
  std::size_t next = 0;  // both are in the module's order
  for (const std::string& name : flat_.all_names()) {
    const bool is_here = next < flat_.parameters().size() && flat_.parameters()[next].name == name;
    numbers.push_back(is_here ? std::optional(next) : std::nullopt);
    if (is_here) ++next;
  }
  return numbers;
}

void OptimizerState::tell_missing(const std::function<bool(const std::string&)>& is_given) const {
  for (const FlatParameter& parameter : flat_.parameters()) {
    const std::string name = c10::str(parameter.name, "/", kMaster);
    if (slots_of(parameter).size() == rule_.rule().slots().size() || is_given(name)) continue;
    log().warn(
        "[optimizer] load_state: there is no \"{}\"; the next update takes the master weights that were not "
        "saved from the parameters",
        name);
    return;
  }
}

void OptimizerState::load(const std::vector<std::pair<std::string, torch::Tensor>>& state) {
  load_pieces(TensorsByName(state));
}

void OptimizerState::restart(int64_t iterations, const Given& numbers) {
  exchange_.forget_own_state();
  const auto rate = numbers.find(kLearningRateEntry);
  load_rate(rate == numbers.end() ? std::nullopt : std::optional(rate->second.item<double>()));
  // A training without loss scaling may be gone on with.
  const bool has_scale = numbers.contains(kLossScaleEntry) && numbers.contains(kGoodSteps);
  for (ReplicaProgress& progress : progress_) {
    std::vector<torch::Tensor> kept;
    if (keeps_sums_) kept = std::move(progress.sums);
    for (torch::Tensor& sum : kept) sum.zero_();
    progress = ReplicaProgress{
        .iterations = iterations, .sums = std::move(kept), .scaler = LossScaler(rule_.gradient().loss_scale)};
    if (!has_scale) continue;
    progress.scaler.restore(numbers.at(kLossScaleEntry).item<double>(), numbers.at(kGoodSteps).item<int64_t>());
  }
}

void OptimizerState::put_averages() {
  const torch::NoGradGuard no_grad;
  exchange_.bring_together();
  if (!rule_.rule().keeps_averages() || iterations() == 0) return;
  const std::vector<Exchange::Slots> all = exchange_.slots_of_all();
  if (all.front().empty()) {
    fail<FailedPrecondition>("[optimizer] finalize_variable_values: this task has no averages of ", rule_.name(),
                             "'s parameters; the coordinator of the parameter servers has them");
  }
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::vector<torch::Tensor> averages;
    for (const auto& slots : all[r]) averages.push_back(average_in(slots));
    exchange_.set_values(static_cast<int>(r), averages);
  }
}

// Makes the rate what it was. A schedule that the program has set is the program's own and stays.
void OptimizerState::load_rate(std::optional<double> saved) {
  if (saved) return set_learning_rate(*saved);
  if (!rate_is_set_) return;
  set_learning_rate(rule_.learning_rate());
  rate_is_set_ = false;
}

// Each replica has here the number of calls that were added up, then a sum for each parameter, empty where none came.
// Those of all replicas together are the sum of all calls, also where each replica has its shard alone.
std::vector<torch::Tensor> OptimizerState::save_sums() const {
  std::vector<torch::Tensor> list;
  if (rule_.gradient().gradient_accumulation_steps == 1) return list;
  for (std::size_t r = 0; r < progress_.size(); ++r) {
    const ReplicaProgress& progress = progress_[r];
    list.push_back(torch::tensor(progress.accumulated, torch::kLong));
    const bool by_shards = exchange_.shards() != nullptr && progress.loaded.empty() && !progress.sums.empty();
    const std::vector<torch::Tensor> sums = by_shards ? exchange_.shards()->in_place(static_cast<int>(r), progress.sums)
                                            : progress.loaded.empty() ? progress.sums
                                                                      : progress.loaded;
    for (const std::optional<std::size_t>& p : numbers_of_all()) {
      const bool came = p && *p < sums.size() && sums[*p].defined() && !(keeps_sums_ && progress.accumulated == 0);
      list.push_back(came ? flat_.laid_out(sums[*p], *p).to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true)
                          : torch::empty({0}));
    }
  }
  return list;
}

std::vector<torch::Tensor> OptimizerState::save_accumulated() const {
  std::vector<torch::Tensor> list = save_sums();
  for (torch::Tensor& own : exchange_.own_state()) list.push_back(std::move(own));
  return list;
}

void OptimizerState::load_accumulated(const std::vector<torch::Tensor>& sums) {
  const bool accumulates = rule_.gradient().gradient_accumulation_steps > 1;
  const std::size_t count = flat_.parameters().size();
  const std::vector<std::optional<std::size_t>> numbers = numbers_of_all();
  const std::size_t of_exchange = exchange_.own_state().size();
  const std::size_t wanted = (accumulates ? progress_.size() * (1 + numbers.size()) : 0) + of_exchange;
  if (sums.size() != wanted) {
    fail<InvalidArgument>("[optimizer] load_accumulated: got ", sums.size(), " tensors, wanted ", wanted);
  }
  exchange_.load_own_state(std::span(sums).last(of_exchange));
  auto next = sums.begin();
  for (std::size_t replica = 0; accumulates && replica < progress_.size(); ++replica) {
    ReplicaProgress& progress = progress_[replica];
    progress.accumulated = (next++)->item<int64_t>();
    if (!keeps_sums_) progress.sums.clear();
    progress.loaded.clear();
    std::vector<torch::Tensor>& own = exchange_.shards() != nullptr ? progress.loaded : progress.sums;
    if (!keeps_sums_ && (exchange_.shards() == nullptr || progress.accumulated > 0)) own.assign(count, {});
    for (std::size_t i = 0; i < numbers.size(); ++i, ++next) {
      if (!numbers[i]) continue;
      const std::size_t p = *numbers[i];
      const FlatParameter& parameter = flat_.parameters()[p];
      if (next->sizes() == c10::IntArrayRef(parameter.shape)) {
        if (keeps_sums_) {
          own.at(p).copy_(*next);
          continue;
        }
        own.at(p) = next->to(flat_.tensors(static_cast<int>(replica))[p].options(), false, /*copy=*/true);
      } else if (next->numel() > 0) {
        fail<InvalidArgument>("[optimizer] load_accumulated: the sum for ", parameter.name, " has shape ",
                              next->sizes(), ", wanted ", c10::IntArrayRef(parameter.shape));
      } else if (keeps_sums_) {
        progress.sums[p].zero_();
      }
    }
  }
}

}  // namespace cohort
