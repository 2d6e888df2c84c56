// Graphs of models in DOT. The labels are those of Keras (keras/src/utils/model_visualization.py), character for
// character, where layers have Keras' names.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/access.h"
#include "base/extension.h"
#include "base/fail.h"
#include "cohort/train/plot_model.h"
#include "train/layers/layer_row.h"
#include "train/layers/sequential_module.h"
#include "train/model/model_state.h"
#include "wings/functional/train/functional_module.h"

namespace cohort {

namespace {

void require_one_of(std::string_view option, const std::string& came, const std::vector<std::string_view>& choices) {
  if (std::find(choices.begin(), choices.end(), came) != choices.end()) return;
  std::string list;
  for (const std::string_view each : choices) list += (list.empty() ? "\"" : ", \"") + std::string(each) + "\"";
  fail<InvalidArgument>("[model] model_to_dot: ", option, " is \"", came, "\", wanted one of ", list);
}

// Names are users' text, which must not end a label or open a tag.
std::string in_html(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else
      safe += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return safe;
}

std::string in_quotes(std::string_view text) {
  std::string safe = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') safe += '\\';
    safe += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return safe + '"';
}

// A shape with the batch, as Python prints the tuple.
std::string tuple_of(const Shape& shape) {
  std::string text = "(None";
  for (const int64_t size : shape) text += ", " + (size < 0 ? std::string("None") : std::to_string(size));
  return text + (shape.empty() ? ",)" : ")");
}

std::string list_of(const std::vector<Shape>& shapes) {
  if (shapes.size() == 1) return tuple_of(shapes.front());
  std::string text;
  for (const Shape& each : shapes) text += (text.empty() ? "[" : ", ") + tuple_of(each);
  return shapes.empty() ? "?" : text + "]";
}

// Returns the name of a layer's activation; empty: it has none.
std::string activation_of(const Layer& layer) {
  const std::any& options = layer.kind().options();
  if (const auto* const own = std::any_cast<Activation>(&options)) return std::string(own->name());
  if (const auto* const dense = std::any_cast<DenseOptions>(&options)) return std::string(dense->activation.name());
  if (const auto* const conv = std::any_cast<Conv2DOptions>(&options)) return std::string(conv->activation.name());
  if (layer.type() == "LSTM" || layer.type() == "GRU") return "tanh";  // without an option, as LibTorch's
  for (const LayerRow& row : extensions<LayerRow>()) {
    if (row.type != layer.type()) continue;
    const std::optional<LayerConfig> config = row.tell(options);
    for (const auto& [name, value] : config.value_or(LayerConfig())) {
      if (const auto* const found = std::get_if<Activation>(&value); found != nullptr && name == "activation") {
        return std::string(found->name());
      }
    }
  }
  return {};
}

// The layers of a model, whatever it is made of, with what their nodes show.
class DotModel {
 public:
  explicit DotModel(const ModelState& state) : state_(state) {
    const torch::nn::Module* const module = state.module().copies().front().get();
    if (const auto* const functional = dynamic_cast<const FunctionalModule*>(module)) plan_ = &functional->plan();
    is_chain_ = dynamic_cast<const SequentialModule*>(module) != nullptr;
  }

  const FunctionalPlan* plan() const { return plan_; }
  // Returns whether its layers can be listed.
  bool has_layers() const { return plan_ != nullptr || is_chain_; }
  const ModelState& state() const { return state_; }
  std::size_t size() const { return state_.entries().size(); }
  const Layer& layer(std::size_t index) const { return plan_ ? plan_->layers[index].layer : state_.layers()[index]; }
  // Returns the model that a layer is; null: it is none.
  const ModelState* nested(std::size_t index) const {
    const auto* const kind = dynamic_cast<const ModelKind*>(&layer(index).kind());
    return kind == nullptr ? nullptr : &kind->model();
  }

  // Returns what is equal for the same layer in all models.
  const void* key(std::size_t index) const {
    if (plan_ == nullptr) return state_.layers()[index].instance().get();
    if (plan_->layers[index].node != nullptr) return plan_->layers[index].node->key;
    const auto input = std::find(plan_->input_layers.begin(), plan_->input_layers.end(), index);
    const SymbolicTensor& tensor = plan_->inputs[static_cast<std::size_t>(input - plan_->input_layers.begin())];
    const bool declared = dynamic_cast<const InputKind*>(&tensor.node()->layer.kind()) != nullptr;
    return declared ? tensor.node()->key : static_cast<const void*>(&plan_->layers[index]);
  }

  // Returns the layer that makes a value of the plan, and the number among its outputs.
  std::pair<std::size_t, std::size_t> origin(std::size_t value) const {
    if (value < plan_->inputs.size()) return {plan_->input_layers[value], 0};
    const auto after = std::upper_bound(plan_->calls.begin(), plan_->calls.end(), value,
                                        [](std::size_t v, const FunctionalPlan::Call& call) { return v < call.first; });
    const FunctionalPlan::Call& call = *std::prev(after);
    return {call.layer, value - call.first};
  }

  std::string input_text() const;
  std::string output_text() const;
  std::string input_text(std::size_t index) const;
  std::string output_text(std::size_t index) const;
  // Returns whether a layer learns; nothing: it has no weights.
  std::optional<bool> learns(std::size_t index) const;

 private:
  const ModelState& state_;
  const FunctionalPlan* plan_ = nullptr;
  bool is_chain_ = false;
};

std::string DotModel::input_text() const {
  if (plan_ != nullptr) return list_of(shapes_of(plan_->inputs));
  return is_chain_ ? tuple_of(state_.built_for().input) : "?";
}

std::string DotModel::output_text() const {
  if (plan_ == nullptr) return is_chain_ ? output_text(size() - 1) : "?";
  std::string named;
  std::vector<Shape> shapes;
  for (const auto& [name, output] : plan_->outputs) {
    shapes.push_back(output.shape());
    named += (named.empty() ? "" : ", ") + name + ": " + tuple_of(output.shape());
  }
  return plan_->gave_names ? named : list_of(shapes);
}

std::string DotModel::input_text(std::size_t index) const {
  if (const ModelState* const model = nested(index)) return DotModel(*model).input_text();
  if (plan_ != nullptr) return list_of(shapes_of(plan_->layers[index].node->inputs));
  return index == 0 ? tuple_of(state_.built_for().input) : output_text(index - 1);
}

std::string DotModel::output_text(std::size_t index) const {
  if (const ModelState* const model = nested(index)) return DotModel(*model).output_text();
  if (plan_ != nullptr && plan_->layers[index].node != nullptr) return list_of(plan_->layers[index].node->shapes);
  const std::optional<Shape>& shape = state_.entries()[index].output;
  return shape ? tuple_of(*shape) : "?";
}

std::optional<bool> DotModel::learns(std::size_t index) const {
  const ModelState::Entry& entry = state_.entries()[index];
  if (state_.entry_parameters(index, 0).empty() && state_.entry_buffers(index, 0).empty()) return std::nullopt;
  const ModelState* const model = nested(index);
  if (model == nullptr || !entry.trainable) return entry.trainable;
  const auto& inner = model->entries();
  return std::any_of(inner.begin(), inner.end(), [](const auto& each) { return each.trainable; });
}

class DotWriter {
 public:
  explicit DotWriter(const PlotOptions& options) : options_(options) {}

  std::string write(const ModelState& state);

 private:
  void add_nodes(const DotModel& model, const std::string& indent);
  void add_edges(const DotModel& model);
  void add_node(const void* key, const std::string& label, const std::string& indent);
  void add_edge(const void* from, const void* to);
  std::string label(const DotModel& model, std::size_t index) const;
  std::string title(const std::string& name, std::string_view type) const;
  // Returns the number of columns below a title.
  std::string width() const {
    return std::to_string(std::max(1, (options_.show_shapes ? 2 : 0) + (options_.show_trainable ? 1 : 0)));
  }
  // Returns the model whose layers are drawn in place of a layer; null: the layer is a node.
  const ModelState* drawn_inside(const DotModel& model, std::size_t index) const {
    const ModelState* const nested = options_.expand_nested ? model.nested(index) : nullptr;
    return nested != nullptr && DotModel(*nested).has_layers() ? nested : nullptr;
  }
  const void* leaving(const DotModel& model, std::size_t index, std::size_t output) const;
  const void* entering(const DotModel& model, std::size_t index, std::size_t input) const;
  const std::string& name_of(const void* key) {
    return names_.emplace(key, "n" + std::to_string(names_.size() + 1)).first->second;
  }

  const PlotOptions& options_;
  std::map<const void*, std::string> names_;
  std::set<std::pair<const void*, const void*>> edges_;
  std::string text_;
};

std::string DotWriter::title(const std::string& name, std::string_view type) const {
  const std::string shown = options_.show_layer_names.value_or(true)
                                ? "<b>" + in_html(name) + "</b> (" + in_html(type) + ")"
                                : "<b>" + in_html(type) + "</b>";
  return R"(<tr><td colspan=")" + width() + R"(" bgcolor="black"><font point-size="16" color="white">)" + shown +
         "</font></td></tr>";
}

std::string table_of(const std::string& title, const std::string& activation, const std::string& columns) {
  return R"(<<table border="0" cellborder="1" bgcolor="black" cellpadding="10">)" + title + activation +
         (columns.empty() ? "" : "<tr>" + columns + "</tr>") + "</table>>";
}

std::string shape_column(const std::string& what, const std::string& shape) {
  return R"(<td bgcolor="white"><font point-size="14">)" + what + ": <b>" + in_html(shape) + "</b></font></td>";
}

std::string DotWriter::label(const DotModel& model, std::size_t index) const {
  const ModelState::Entry& entry = model.state().entries()[index];
  std::string activation, columns;
  const std::string function = options_.show_layer_activations ? activation_of(model.layer(index)) : "";
  if (!function.empty()) {
    activation = R"(<tr><td bgcolor="white" colspan=")" + width() + R"("><font point-size="14">Activation: <b>)" +
                 in_html(function) + "</b></font></td></tr>";
  }
  if (options_.show_shapes) {
    const bool is_input = dynamic_cast<const InputKind*>(&model.layer(index).kind()) != nullptr;
    if (!is_input) columns += shape_column("Input shape", model.input_text(index));
    columns += shape_column("Output shape", model.output_text(index));
  }
  if (const std::optional<bool> learns = options_.show_trainable ? model.learns(index) : std::nullopt) {
    columns += std::string(R"(<td bgcolor=")") + (*learns ? "forestgreen" : "firebrick") +
               R"("><font point-size="14" color="white"><b>)" + (*learns ? "Trainable" : "Non-trainable") +
               "</b></font></td>";
  }
  return table_of(title(entry.name, entry.type), activation, columns);
}

void DotWriter::add_node(const void* key, const std::string& label, const std::string& indent) {
  text_ += indent + name_of(key) + " [label=" + label + ", fontname=Helvetica, border=0, margin=0];\n";
}

// Returns the begin of a box for the layers of a model.
std::string cluster_head(const std::string& name, const std::string& indent) {
  return indent + "subgraph " + in_quotes("cluster_" + name) + " {\n" + indent + "  style=dashed;\n" + indent +
         "  label=" + in_quotes(name) + ";\n" + indent + "  labeljust=l;\n";
}

void DotWriter::add_nodes(const DotModel& model, const std::string& indent) {
  for (std::size_t i = 0; i < model.size(); ++i) {
    const ModelState* const inside = drawn_inside(model, i);
    if (inside == nullptr) {
      add_node(model.key(i), label(model, i), indent);
      continue;
    }
    text_ += cluster_head(inside->name(), indent);
    add_nodes(DotModel(*inside), indent + "  ");
    text_ += indent + "}\n";
  }
}

// Returns the node that an edge from an output of a layer begins at.
const void* DotWriter::leaving(const DotModel& model, std::size_t index, std::size_t output) const {
  const ModelState* const inside = drawn_inside(model, index);
  if (inside == nullptr) return model.key(index);
  const DotModel inner(*inside);
  if (inner.plan() == nullptr) return leaving(inner, inner.size() - 1, 0);
  const auto [layer, number] = inner.origin(inner.plan()->output_values[output]);
  return leaving(inner, layer, number);
}

// Returns the node that an edge to an input of a layer ends at.
const void* DotWriter::entering(const DotModel& model, std::size_t index, std::size_t input) const {
  const ModelState* const inside = drawn_inside(model, index);
  if (inside == nullptr) return model.key(index);
  const DotModel inner(*inside);
  return entering(inner, inner.plan() == nullptr ? 0 : inner.plan()->input_layers[input], 0);
}

void DotWriter::add_edge(const void* from, const void* to) {
  if (!edges_.emplace(from, to).second) return;
  text_ += "  " + name_of(from) + " -> " + name_of(to) + " [penwidth=2];\n";
}

void DotWriter::add_edges(const DotModel& model) {
  for (std::size_t i = 0; i < model.size(); ++i) {
    if (const ModelState* const inside = drawn_inside(model, i)) add_edges(DotModel(*inside));
    if (model.plan() == nullptr) {
      if (i > 0) add_edge(leaving(model, i - 1, 0), entering(model, i, 0));
      continue;
    }
    for (const std::size_t call : model.plan()->layers[i].calls) {
      const std::vector<std::size_t>& inputs = model.plan()->calls[call].inputs;
      for (std::size_t j = 0; j < inputs.size(); ++j) {
        const auto [layer, output] = model.origin(inputs[j]);
        add_edge(leaving(model, layer, output), entering(model, i, j));
      }
    }
  }
}

std::string DotWriter::write(const ModelState& state) {
  text_ = "digraph G {\n  graph [rankdir=" + options_.rankdir +
          ", concentrate=true, dpi=" + std::to_string(options_.dpi) + ", splines=" + options_.splines +
          "];\n  node [shape=record];\n";
  const DotModel model(state);
  if (model.has_layers()) {
    add_nodes(model, "  ");
    add_edges(model);
  } else {
    const std::string shapes = shape_column("Input shape", "?") + shape_column("Output shape", "?");
    add_node(&state, table_of(title(state.name(), "Model"), "", options_.show_shapes ? shapes : ""), "  ");
  }
  return std::move(text_) + "}\n";
}

}  // namespace

std::string model_to_dot(const Model& model, const PlotOptions& options) {
  require_one_of("rankdir", options.rankdir, {"TB", "BT", "LR", "RL"});
  require_one_of("splines", options.splines, {"ortho", "curved", "polyline", "spline", "line"});
  if (options.dpi < 1) fail<InvalidArgument>("[model] model_to_dot: dpi is ", options.dpi, ", wanted at least 1");
  const ModelState& state = *Access::state(model);
  state.require_built("model_to_dot");
  return DotWriter(options).write(state);
}

}  // namespace cohort
