// The variables of optimizers in files: iterations, the rate, and what the rule keeps of each weight.
#include <algorithm>
#include <cmath>

#include "optimizer/update_rule.h"
#include "wings/keras/train/optimizers.h"

namespace cohort {

namespace {

constexpr const char* kAccumulator = "gradient_accumulator";

// The slots in Keras' order, ours by name. The slots of a line alternate from weight to weight.
const std::vector<std::vector<std::string>>& slot_lines() {
  static const std::vector<std::vector<std::string>> lines = {{"average"},
                                                              {kAccumulator},
                                                              {"exp_avg", "exp_avg_sq", "exp_inf"},
                                                              {"max_exp_avg_sq"},
                                                              {"square_avg", "acc_delta"},
                                                              {"accumulator", "linear"},
                                                              {"sum"},
                                                              {"momentum"},
                                                              {"grad_avg"}};
  return lines;
}

int64_t calls_of(const Optimizer& rule) {
  return rule.gradient().gradient_accumulation_steps;
}

// Returns the group of a file in which an optimizer's variables are; those of the one in a LossScaleOptimizer.
std::string variables_of(const Optimizer& rule) {
  return rule.gradient().loss_scale ? "optimizer/inner_optimizer/vars/" : "optimizer/vars/";
}

// Calls visit with each weight that the optimizer updates and each of its slots, in Keras' order.
template <typename Visit>
void each_slot(const MirroredOptimizer& optimizer, const std::vector<BoundWeight>& weights, const Visit& visit) {
  std::vector<std::string> slots = optimizer.rule().rule().slots();
  if (calls_of(optimizer.rule()) > 1) slots.emplace_back(kAccumulator);
  const std::vector<std::string>& names = optimizer.parameter_names();
  for (const std::vector<std::string>& line : slot_lines()) {
    for (const BoundWeight& weight : weights) {
      if (std::find(names.begin(), names.end(), weight.first) == names.end()) continue;
      for (const std::string& slot : line) {
        if (std::find(slots.begin(), slots.end(), slot) != slots.end()) visit(weight, slot);
      }
    }
  }
}

// Returns what a number of Keras' is multiplied with to be ours.
double factor_of(const Optimizer& rule, const std::string& slot) {
  // Keras has the velocity with the other sign, and adds up gradients that are divided by the factor already.
  if (slot == "momentum" && rule.name() == "SGD") return -1.0;
  const double scale = rule.gradient().loss_scale_factor;
  return slot == kAccumulator && scale != 0.0 ? scale : 1.0;
}

// Returns the product of the momenta that Nadam has used, which Keras keeps behind the slots; nothing for other rules.
std::optional<double> momentum_product(const Optimizer& rule, int64_t updates) {
  if (rule.name() != "Nadam") return std::nullopt;
  const double beta_1 = number_of_optimizer(rule, "beta_1");
  double product = 1.0;
  for (int64_t t = 1; t <= updates && product > 0.0; ++t) {
    product *= beta_1 * (1.0 - 0.5 * std::pow(0.96, static_cast<double>(t)));
  }
  return product;
}

// Adds the state of a LossScaleOptimizer to that of the optimizer in it.
void add_loss_scale(NamedTensors& state, const std::map<std::string, torch::Tensor>& file, const FilePlace& place) {
  const auto number = [&](const char* path) {
    const auto found = file.find(path);
    if (found == file.end() || found->second.numel() != 1) (place / path).damaged("is not there, or not one number");
    return found->second.to(torch::kDouble).item<double>();
  };
  const double steps = number("optimizer/vars/2"), scale = number("optimizer/vars/3");
  if (!(steps >= 0.0 && scale > 0.0 && std::isfinite(steps) && std::isfinite(scale))) {
    place.damaged("the loss scale is ", scale, " since ", steps, " steps, wanted positive numbers");
  }
  state.emplace_back("loss_scale", torch::scalar_tensor(scale, torch::kDouble));
  state.emplace_back("good_steps", torch::scalar_tensor(static_cast<int64_t>(steps), torch::kLong));
}

// Returns the sums of gradients of calls that have not made an update yet, by the names of slots.
std::map<std::string, torch::Tensor> accumulated_of(const Model& model, const FilePlace& place) {
  const MirroredOptimizer& optimizer = model.optimizer();
  const std::vector<std::string>& names = optimizer.parameter_names();
  const std::vector<torch::Tensor> list = optimizer.accumulated();
  const auto replicas = static_cast<std::size_t>(model.strategy().num_local_replicas());
  if (list.size() != replicas * (1 + names.size())) {
    place.unsupported("the state of gradient_accumulation_steps has parts that are not in Keras' files");
  }
  std::map<std::string, torch::Tensor> sums;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::size_t number = i % (1 + names.size());
    if (number == 0 || list[i].numel() == 0) continue;
    torch::Tensor& sum = sums[names[number - 1] + "/" + kAccumulator];
    sum = sum.defined() ? sum + list[i] : list[i];
  }
  return sums;
}

// Returns the number of calls since the last update.
int64_t calls_since(const Model& model) {
  return calls_of(model.optimizer().rule()) == 1 ? 0 : model.optimizer().accumulated().front().item<int64_t>();
}

// Fails unless a state in the midst of an update can be in a file.
void require_one_process(const Model& model, int64_t calls, const FilePlace& place) {
  const Strategy& strategy = model.strategy();
  if (calls_of(model.optimizer().rule()) > 1 && model.optimizer().rule().gradient().loss_scale) {
    place.unsupported("the state of a LossScaleOptimizer with gradient_accumulation_steps is not supported");
  }
  if (calls == 0) return;
  if (strategy.num_local_replicas() != strategy.num_replicas_in_sync()) {
    place.unsupported("the state between two updates of gradient_accumulation_steps, of several processes");
  }
  if (model.optimizer().rule().rule().keeps_averages()) {
    place.unsupported("the state between two updates of gradient_accumulation_steps with use_ema is not supported");
  }
}

// Gives the first replica the sums of the calls since the last update.
void load_accumulated(const Model& model, int64_t calls, const std::map<std::string, torch::Tensor>& sums) {
  const std::vector<std::string>& names = model.optimizer().parameter_names();
  std::vector<torch::Tensor> list;
  for (int replica = 0; replica < model.strategy().num_local_replicas(); ++replica) {
    list.push_back(torch::scalar_tensor(calls, torch::kLong));
    for (const std::string& name : names) {
      const auto found = sums.find(name + "/" + kAccumulator);
      const bool is_first = replica == 0 && calls > 0 && found != sums.end();
      list.push_back(is_first ? found->second : torch::empty({0}));
    }
  }
  model.optimizer().load_accumulated(list);
}

// Adds the variables of a LossScaleOptimizer, which has those of the one in it, too. Its own iterations and rate are 0.
void add_own_variables(NamedTensors& variables, const std::map<std::string, torch::Tensor>& state) {
  NamedTensors all = {{"", torch::zeros({}, torch::kLong)},
                      {"", torch::zeros({}, torch::kFloat)},
                      {"", state.at("good_steps").to(torch::kLong).reshape({})},
                      {"", state.at("loss_scale").to(torch::kFloat).reshape({})}};
  all.insert(all.end(), variables.begin(), variables.end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    variables.emplace_back("optimizer/vars/" + std::to_string(i), all[i].second);
  }
}

// Takes the variables of a file one by one.
class Variables {
 public:
  Variables(const std::map<std::string, torch::Tensor>& file, std::string group, const FilePlace& place)
      : file_(file), group_(std::move(group)), place_(place) {
    while (file_.contains(group_ + std::to_string(count_))) ++count_;
  }

  std::size_t count() const { return count_; }
  FilePlace place() const { return place_ / (group_ + std::to_string(next_)); }
  const torch::Tensor& next() { return file_.at(group_ + std::to_string(next_++)); }
  torch::Tensor number() {
    if (next_ < count_ && file_.at(group_ + std::to_string(next_)).numel() == 1) return next();
    place().damaged("is not there, or not one number; there are ", count_,
                    " variables, wanted iterations, the rate and what the rule keeps");
  }

 private:
  const std::map<std::string, torch::Tensor>& file_;
  std::string group_;
  const FilePlace& place_;
  std::size_t count_ = 0;
  std::size_t next_ = 0;
};

}  // namespace

void load_optimizer(const Model& model, const std::map<std::string, torch::Tensor>& file,
                    const std::vector<BoundWeight>& weights, const FilePlace& place) {
  const MirroredOptimizer& optimizer = model.optimizer();
  const Optimizer& rule = optimizer.rule();
  Variables variables(file, variables_of(rule), place);
  const auto calls = variables.number().to(torch::kLong).item<int64_t>();
  if (calls < 0) place.damaged("the optimizer has made ", calls, " steps");
  const bool has_rate = rule.learning_rate().is_constant();  // a schedule is no variable
  const auto rate = has_rate ? variables.number().to(torch::kDouble).item<double>() : 0.0;
  std::size_t wanted = has_rate ? 2 : 1;
  if (variables.count() == wanted && calls == 0) return;  // it was never trained
  const int64_t updates = calls / calls_of(rule);
  const std::optional<double> product = momentum_product(rule, updates);
  each_slot(optimizer, weights, [&](const BoundWeight& /*weight*/, const std::string& /*slot*/) { ++wanted; });
  if (product) ++wanted;
  if (variables.count() != wanted) {
    place.damaged("there are ", variables.count(), " variables, wanted ", wanted, " for the model");
  }
  require_one_process(model, calls % calls_of(rule), place);
  std::map<std::string, torch::Tensor> ours;
  std::map<std::string, torch::Tensor> sums;
  for (const auto& [name, tensor] : model.weights()) ours[name] = tensor;
  NamedTensors state = {{"iterations", torch::scalar_tensor(updates, torch::kLong)}};
  each_slot(optimizer, weights, [&](const BoundWeight& weight, const std::string& slot) {
    const FilePlace here = variables.place();
    std::vector<torch::Tensor> values = from_file(weight, variables.next(), ours.at(weight.first), here);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::string name = (i == 0 ? weight.first : weight.second) + "/" + slot;
      const torch::Tensor value = values[i] * factor_of(rule, slot);
      slot == kAccumulator ? static_cast<void>(sums[name] = value) : static_cast<void>(state.emplace_back(name, value));
    }
  });
  if (product) {
    const FilePlace here = variables.place();
    const auto there = variables.number().to(torch::kDouble).item<double>();
    if (!(std::abs(there - *product) <= 1e-30 + 1e-3 * *product)) {
      here.unsupported("the product of the momenta is ", there, ", and only that of ", updates, " updates, ", *product,
                       ", is supported");
    }
  }
  if (rule.gradient().loss_scale) add_loss_scale(state, file, place);
  // The file has both: the rate of the options, and what has become of it.
  if (has_rate && static_cast<float>(optimizer.learning_rate()) != static_cast<float>(rate)) {
    state.emplace_back("learning_rate", torch::scalar_tensor(rate, torch::kDouble));
  }
  optimizer.load_state(state);
  if (calls_of(rule) > 1) load_accumulated(model, calls % calls_of(rule), sums);
}

NamedTensors write_optimizer(const Model& model, const std::vector<BoundWeight>& weights, const FilePlace& place) {
  const MirroredOptimizer& optimizer = model.optimizer();
  const Optimizer& rule = optimizer.rule();
  const int64_t since = calls_since(model);
  require_one_process(model, since, place);
  std::map<std::string, torch::Tensor> state;
  for (const auto& [name, tensor] : optimizer.state()) state[name] = tensor;
  if (calls_of(rule) > 1) state.merge(accumulated_of(model, place));
  NamedTensors variables;
  const auto add = [&](const torch::Tensor& value) {
    variables.emplace_back(variables_of(rule) + std::to_string(variables.size()), value);
  };
  const auto updates = state.at("iterations").item<int64_t>();
  add(torch::scalar_tensor(updates * calls_of(rule) + since, torch::kLong));
  if (rule.learning_rate().is_constant()) {
    add(torch::scalar_tensor(optimizer.learning_rate(), torch::kFloat));
  } else if (state.contains("learning_rate")) {
    place.unsupported("the rate was set to ", optimizer.learning_rate(), ", which Keras' ", rule.learning_rate().name(),
                      " does not know");
  }
  const std::map<std::string, torch::Tensor> ours = [&] {
    std::map<std::string, torch::Tensor> list;
    for (const auto& [name, tensor] : model.weights()) list[name] = tensor;
    return list;
  }();
  each_slot(optimizer, weights, [&](const BoundWeight& weight, const std::string& slot) {
    const auto of = [&](const std::string& name) {
      if (name.empty()) return torch::Tensor();
      const auto found = state.find(name + "/" + slot);
      return found == state.end() ? torch::zeros_like(ours.at(name)) : found->second / factor_of(rule, slot);
    };
    add(to_file(weight.layout, weight.parts, of(weight.first), of(weight.second)));
  });
  if (const std::optional<double> product = momentum_product(rule, updates)) {
    add(torch::scalar_tensor(*product, torch::kFloat));
  }
  if (rule.gradient().loss_scale) add_own_variables(variables, state);
  return variables;
}

}  // namespace cohort
