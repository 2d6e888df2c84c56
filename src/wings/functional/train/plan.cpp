// The order of the layers is that of Keras (keras/src/ops/function.py, map_graph): by depth, which is the length of the
// longest way to an output, and within a depth as a search from the outputs meets them. Weights of Keras' files are in
// this order. The calls are in the order in which that search ends with them: a layer comes right behind the only one
// that it needs.
#include "wings/functional/train/plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/fail.h"
#include "train/layers/sequential_module.h"

namespace cohort {

namespace {

using detail::SymbolicNode;

// A value by the call that makes it.
using Value = std::pair<const SymbolicNode*, std::size_t>;

Value value_of(const SymbolicTensor& tensor) {
  return {tensor.node().get(), tensor.output()};
}

class Planner {
 public:
  Planner(FunctionalPlan& plan, std::string speaker) : plan_(plan), speaker_(std::move(speaker)) {}

  void add_inputs() {
    for (const SymbolicTensor& input : plan_.inputs) {
      if (!values_.emplace(value_of(input), plan_.values++).second) {
        fail<InvalidArgument>(speaker_, "the same tensor is an input twice");
      }
    }
  }

  // Goes from an output back to the inputs; calls before it are added first. The stack is ours, because a graph may be
  // deeper than the thread's.
  void add_output(const SymbolicTensor& output) {
    struct Visit {
      std::shared_ptr<const SymbolicNode> node;
      std::size_t next = 0;
    };
    std::vector<Visit> stack;
    const auto enter = [&](const SymbolicTensor& tensor) {
      meet(tensor.node().get());
      if (values_.contains(value_of(tensor)) || done_.contains(tensor.node().get())) return;
      stack.push_back({.node = tensor.node()});
    };
    enter(output);
    while (!stack.empty()) {
      Visit& visit = stack.back();
      if (visit.next < visit.node->inputs.size()) {
        enter(visit.node->inputs[visit.next++]);  // `visit` may be gone then
        continue;
      }
      const std::shared_ptr<const SymbolicNode> node = visit.node;
      stack.pop_back();
      if (done_.insert(node.get()).second) finish(node);
    }
    plan_.output_values.push_back(values_.at(value_of(output)));
  }

  void order_layers();

 private:
  // Gives the layer of a call its number when it is met.
  void meet(const SymbolicNode* node) {
    if (!met_.emplace(node->key, met_.size()).second) return;
    first_[node->key] = node;
  }

  void finish(const std::shared_ptr<const SymbolicNode>& node) {
    if (dynamic_cast<const InputKind*>(&node->layer.kind()) != nullptr) {
      fail<InvalidArgument>(speaker_, "an output depends on the input \"",
                            node->layer.name().empty() ? "input_layer" : node->layer.name(),
                            "\", which is not among the inputs of the model");
    }
    FunctionalPlan::Call call{.node = node, .first = plan_.values};
    for (const SymbolicTensor& input : node->inputs) call.inputs.push_back(values_.at(value_of(input)));
    for (std::size_t i = 0; i < node->shapes.size(); ++i) {
      if (!values_.contains({node.get(), i})) values_[{node.get(), i}] = plan_.values + i;
    }
    plan_.values += node->shapes.size();
    plan_.calls.push_back(std::move(call));
  }

  std::map<const void*, std::size_t> depths_of_layers(std::map<std::size_t, std::size_t>& of_inputs) const;

  FunctionalPlan& plan_;
  std::string speaker_;
  std::map<Value, std::size_t> values_;
  std::set<const SymbolicNode*> done_;
  std::map<const void*, std::size_t> met_;  // the layers in the order in which the search meets them
  std::map<const void*, const SymbolicNode*> first_;
};

// Returns the depth of each layer; of_inputs: that of each input of the model.
std::map<const void*, std::size_t> Planner::depths_of_layers(std::map<std::size_t, std::size_t>& of_inputs) const {
  std::map<const void*, std::size_t> of_layers;
  std::map<const SymbolicNode*, std::size_t> of_calls;
  for (std::size_t i = plan_.calls.size(); i-- > 0;) {
    const SymbolicNode* const node = plan_.calls[i].node.get();
    const std::size_t depth = std::max(of_calls[node], of_layers[node->key]);
    of_layers[node->key] = depth;
    of_calls[node] = plan_.calls[i].depth = depth;
    for (std::size_t j = 0; j < node->inputs.size(); ++j) {
      const std::size_t value = plan_.calls[i].inputs[j];
      std::size_t& before = value < plan_.inputs.size() ? of_inputs[value] : of_calls[node->inputs[j].node().get()];
      before = std::max(before, depth + 1);
    }
  }
  return of_layers;
}

void Planner::order_layers() {
  struct Row {
    std::size_t depth;
    int64_t met;      // -1: an input that no output needs
    const void* key;  // null: it stands for an input
    std::size_t input = 0;
  };
  std::map<std::size_t, std::size_t> of_inputs;
  const std::map<const void*, std::size_t> of_layers = depths_of_layers(of_inputs);
  std::vector<Row> rows;
  for (const auto& [key, depth] : of_layers) {
    rows.push_back({.depth = depth, .met = static_cast<int64_t>(met_.at(key)), .key = key});
  }
  for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
    const auto met = met_.find(plan_.inputs[i].node()->key);
    const int64_t number = met == met_.end() ? -1 : static_cast<int64_t>(met->second);
    rows.push_back({.depth = of_inputs[i], .met = number, .key = nullptr, .input = i});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.depth != b.depth ? a.depth > b.depth : a.met < b.met; });
  std::map<const void*, std::size_t> places;
  plan_.input_layers.resize(plan_.inputs.size());
  for (const Row& row : rows) {
    if (row.key == nullptr) {
      const SymbolicTensor& input = plan_.inputs[row.input];
      const bool declared = dynamic_cast<const InputKind*>(&input.node()->layer.kind()) != nullptr;
      plan_.input_layers[row.input] = plan_.layers.size();
      plan_.layers.push_back(
          {.layer = declared ? input.node()->layer : Layer(std::make_shared<InputKind>(input.shape(), input.dtype())),
           .output = input.shape()});
      continue;
    }
    const SymbolicNode* const node = first_.at(row.key);
    places[row.key] = plan_.layers.size();
    plan_.layers.push_back(
        {.layer = node->layer, .node = node, .training = node->training, .output = node->shapes.front()});
  }
  for (std::size_t i = 0; i < plan_.calls.size(); ++i) {
    plan_.calls[i].layer = places.at(plan_.calls[i].node->key);
    plan_.layers[plan_.calls[i].layer].calls.push_back(i);
  }
}

void name_all(FunctionalPlan& plan) {
  std::vector<Layer> layers;
  for (const FunctionalPlan::Planned& each : plan.layers) layers.push_back(each.layer);
  name_layers(layers);
  for (std::size_t i = 0; i < layers.size(); ++i) plan.layers[i].layer = layers[i];
}

// Calls of one layer have one mode.
void check_modes(const FunctionalPlan& plan, const std::string& speaker) {
  for (const FunctionalPlan::Call& call : plan.calls) {
    const FunctionalPlan::Planned& planned = plan.layers[call.layer];
    if (call.node->training == planned.training) continue;
    fail<InvalidArgument>(speaker, "the layer \"", planned.layer.name(),
                          "\" is called several times, with training set in different ways; give all calls the same");
  }
}

// Ends the masks of the inputs of layers that do so. A call that is nearer to the outputs comes later in Keras.
void end_masks(FunctionalPlan& plan) {
  std::map<std::size_t, std::size_t> ended;  // values, with the depth of the first call that ends their masks
  for (const FunctionalPlan::Call& call : plan.calls) {
    const auto* const graph = dynamic_cast<const GraphLayerKind*>(&call.node->layer.kind());
    if (graph == nullptr || !graph->ends_masks()) continue;
    for (std::size_t i = 0; i < call.node->tensors(); ++i) {
      std::size_t& first = ended[call.inputs[i]];
      first = std::max(first, call.depth);
    }
  }
  for (FunctionalPlan::Call& call : plan.calls) {
    for (std::size_t i = 0; i < call.node->tensors(); ++i) {
      const auto found = ended.find(call.inputs[i]);
      if (found != ended.end() && call.depth < found->second) call.unmasked.push_back(i);
    }
  }
}

void list_connections(FunctionalPlan& plan) {
  struct Origin {
    std::size_t layer;
    std::size_t call;
    std::size_t output;
  };
  std::vector<Origin> origins(plan.values);
  for (std::size_t i = 0; i < plan.inputs.size(); ++i) origins[i] = {plan.input_layers[i], 0, 0};
  for (std::size_t i = 0; i < plan.calls.size(); ++i) {
    const FunctionalPlan::Call& call = plan.calls[i];
    const std::vector<std::size_t>& all = plan.layers[call.layer].calls;
    const auto number = static_cast<std::size_t>(std::find(all.begin(), all.end(), i) - all.begin());
    for (std::size_t o = 0; o < call.node->shapes.size(); ++o) origins[call.first + o] = {call.layer, number, o};
  }
  for (FunctionalPlan::Planned& planned : plan.layers) {
    for (const std::size_t call : planned.calls) {
      for (const std::size_t value : plan.calls[call].inputs) {
        const Origin& origin = origins[value];
        planned.inputs += (planned.inputs.empty() ? "" : ", ") + plan.layers[origin.layer].layer.name() + "[" +
                          std::to_string(origin.call) + "][" + std::to_string(origin.output) + "]";
      }
    }
    if (planned.calls.empty()) planned.inputs = "-";
  }
}

// Several outputs without names have those of their layers, as Keras'.
void name_outputs(FunctionalPlan& plan, const std::string& speaker) {
  std::map<std::size_t, std::string> layer_of;
  for (std::size_t i = 0; i < plan.inputs.size(); ++i) layer_of[i] = plan.layers[plan.input_layers[i]].layer.name();
  for (const FunctionalPlan::Call& call : plan.calls) {
    for (std::size_t o = 0; o < call.node->shapes.size(); ++o) {
      layer_of[call.first + o] = plan.layers[call.layer].layer.name();
    }
  }
  std::set<std::string> taken;
  for (std::size_t i = 0; i < plan.outputs.size(); ++i) {
    std::string& name = plan.outputs[i].first;
    const std::string base = name.empty() ? layer_of.at(plan.output_values[i]) : name;
    const bool given = !name.empty();
    name = base;
    for (int again = 1; !taken.insert(name).second; ++again) {
      if (given) fail<InvalidArgument>(speaker, "two outputs are named \"", name, "\"");
      name = base + "_" + std::to_string(again);
    }
  }
}

}  // namespace

std::vector<std::string> FunctionalPlan::input_names() const {
  std::vector<std::string> names;
  for (const std::size_t layer : input_layers) names.push_back(layers[layer].layer.name());
  return names;
}

std::vector<std::size_t> FunctionalPlan::uses() const {
  std::vector<std::size_t> counts(values, 0);
  for (const Call& call : calls) {
    for (const std::size_t input : call.inputs) ++counts[input];
  }
  for (const std::size_t output : output_values) ++counts[output];
  return counts;
}

FunctionalPlan make_plan(const std::string& name, const std::vector<SymbolicTensor>& inputs,
                         const SymbolicOutputs& outputs) {
  const std::string speaker = "[model] " + name + ": ";
  if (inputs.empty()) fail<InvalidArgument>(speaker, "there is no input");
  if (outputs.list().empty()) fail<InvalidArgument>(speaker, "there is no output");
  FunctionalPlan plan{.name = name, .inputs = inputs, .outputs = outputs.list()};
  Planner planner(plan, speaker);
  planner.add_inputs();
  for (const auto& [output_name, output] : plan.outputs) planner.add_output(output);
  planner.order_layers();
  end_masks(plan);
  name_all(plan);
  check_modes(plan, speaker);
  list_connections(plan);
  for (const auto& [output_name, output] : plan.outputs) plan.gave_names = plan.gave_names || !output_name.empty();
  name_outputs(plan, speaker);
  return plan;
}

}  // namespace cohort
