// Graphs of models, held to those that Keras makes (plot_model_facts.py).
#include "cohort/train/plot_model.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "cohort/error.h"
#include "cohort/train.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::plot_model_test {
namespace {

using nlohmann::json;
using testing::expect_error;
using testing::read_file;
using testing::TemporaryFolder;

Model chain() {
  Sequential model({Dense({.units = 8, .activation = "relu", .name = "hidden"}), BatchNormalization({.name = "norm"}),
                    Dropout({.rate = 0.5, .name = "drop"}), Layer(Activation("tanh")).named("tanh"),
                    Dense({.units = 3, .name = "out"})},
                   {.name = "chain"});
  model.build({4});
  return model;
}

Model graph() {
  const SymbolicTensor a = Input({3}, {.name = "a"}), b = Input({-1, 2}, {.name = "b"});
  const Layer shared = Dense({.units = 4, .activation = "gelu", .name = "shared"});
  const SymbolicTensor steps = LSTM({.units = 4, .name = "steps"})(b);
  const SymbolicTensor joined = Concatenate({.name = "join"})({shared(a), steps});
  const SymbolicTensor fixed = Dense({.units = 3, .name = "fixed", .trainable = false})(joined);
  return Functional({a, b}, {Add({.name = "add"})({shared(fixed), steps}), fixed}, {.name = "graph"});
}

Model nested() {
  const SymbolicTensor x = Input({4}, {.name = "x"});
  const SymbolicTensor first = Input({8}, {.name = "first"}), second = Input({8}, {.name = "second"});
  const SymbolicTensor left = Dense({.units = 5, .name = "left"})(first);
  const SymbolicTensor minus = Subtract({.name = "minus"})({left, Dense({.units = 5, .name = "right"})(second)});
  const Functional inner({first, second}, {left, minus}, {.name = "inner"});
  const Sequential tower({Dense({.units = 8, .name = "low"}), Dense({.units = 8, .name = "high"})}, {.name = "tower"});
  const SymbolicTensor seen = tower(x);
  tower.set_trainable(false);
  const SymbolicTensor up = Dense({.units = 8, .name = "up"})(x);
  return Functional(x, Concatenate({.name = "join"})(call_for_all(inner, {seen, up})), {.name = "outer"});
}

Model module() {
  return Model([] { return torch::nn::Linear(3, 3); }, "own");
}

// A text in DOT as the facts have it.
json graph_of(const std::string& text) {
  std::map<std::string, std::string> labels;
  std::set<std::pair<std::string, std::string>> edges;
  std::map<std::string, std::multiset<std::string>> clusters;
  std::vector<std::string> open;
  json settings;
  std::istringstream lines(text);
  std::smatch found;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, found,
                         std::regex(R"( *(n\d+) \[label=(<.*>), fontname=Helvetica, border=0, margin=0\];)"))) {
      labels[found[1]] = found[2];
      if (!open.empty()) clusters[open.back()].insert(found[2]);
    } else if (std::regex_match(line, found, std::regex(R"(  (n\d+) -> (n\d+) \[penwidth=2\];)"))) {
      EXPECT_TRUE(edges.emplace(found[1], found[2]).second) << "twice: " << line;
    } else if (std::regex_match(line, found, std::regex(R"re( *subgraph "cluster_(.*)" \{)re"))) {
      open.push_back(found[1]);
    } else if (std::regex_match(line, std::regex(" +\\}"))) {
      open.pop_back();
    } else if (std::regex_match(line, found,
                                std::regex(R"(  graph \[rankdir=(.*), concentrate=(.*), dpi=(.*), splines=(.*)\];)"))) {
      std::string direction = found[1];
      for (char& c : direction) c = static_cast<char>(std::tolower(c));
      settings = {{"rankdir", direction}, {"concentrate", found[2]}, {"dpi", found[3]}, {"splines", found[4]}};
    }
  }
  std::multiset<std::string> nodes;
  for (const auto& [name, label] : labels) nodes.insert(label);
  const std::vector<std::string> list(nodes.begin(), nodes.end());
  const auto number = [&](const std::string& label) {
    return std::find(list.begin(), list.end(), label) - list.begin();
  };
  std::set<std::pair<int64_t, int64_t>> pairs;
  for (const auto& [from, to] : edges) pairs.emplace(number(labels.at(from)), number(labels.at(to)));
  json inside = json::object();
  for (const auto& [name, own] : clusters) {
    for (const std::string& label : own) inside[name].push_back(number(label));
  }
  return {{"settings", settings}, {"nodes", nodes}, {"edges", pairs}, {"clusters", inside}};
}

PlotOptions options_of(const json& given) {
  PlotOptions options;
  for (const auto& [name, value] : given.items()) {
    if (name == "show_shapes")
      options.show_shapes = value;
    else if (name == "show_layer_names")
      options.show_layer_names = value.get<bool>();
    else if (name == "show_layer_activations")
      options.show_layer_activations = value;
    else if (name == "show_trainable")
      options.show_trainable = value;
    else if (name == "expand_nested")
      options.expand_nested = value;
    else if (name == "rankdir")
      options.rankdir = value;
    else if (name == "splines")
      options.splines = value;
    else if (name == "dpi")
      options.dpi = value;
    else
      ADD_FAILURE() << name;
  }
  return options;
}

TEST(PlotModel, MakesKerasGraphs) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const std::map<std::string, Model> models = {
      {"chain", chain()}, {"graph", graph()}, {"nested", nested()}, {"module", module()}};
  const auto file = std::filesystem::path(__FILE__).parent_path() / "plot_model_facts.json";
  const json facts = json::parse(std::ifstream(file));
  EXPECT_EQ(facts.size(), 20U);
  for (const json& fact : facts) {
    const std::string text = model_to_dot(models.at(fact.at("model")), options_of(fact.at("options")));
    const json own = graph_of(text);
    EXPECT_EQ(own, fact.at("graph")) << fact.at("model") << fact.at("options")
                                     << json::diff(own, fact.at("graph")).dump(1);
  }
}

TEST(PlotModel, NamesDoNotEndLabels) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const SymbolicTensor in = Input({2}, {.name = "<b>&\"in\""}), x = Input({2}, {.name = "x"});
  const Functional inner(in, Dense({.units = 2, .name = "<table>>];"})(in), {.name = "a\"b\\"});
  const Functional model(x, inner(x));
  const std::string text = model_to_dot(model, {.expand_nested = true});
  EXPECT_NE(text.find("<b>&lt;b&gt;&amp;\"in\"</b> (InputLayer)"), std::string::npos) << text;
  EXPECT_NE(text.find("<b>&lt;table&gt;&gt;];</b> (Dense)"), std::string::npos) << text;
  EXPECT_NE(text.find("subgraph \"cluster_a\\\"b\\\\\" {"), std::string::npos) << text;
}

TEST(PlotModel, RefusesWhatItCannotDraw) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const Model model = chain();
  expect_error<InvalidArgument>([&] { model_to_dot(model, {.rankdir = "up"}); },
                                "rankdir is \"up\", wanted one of \"TB\"");
  expect_error<InvalidArgument>([&] { model_to_dot(model, {.dpi = 0}); }, "dpi is 0");
  expect_error<InvalidArgument>([&] { model_to_dot(model, {.splines = "a];"}); }, "splines is \"a];\"");
  expect_error<InvalidArgument>([&] { plot_model(model, "m.doc"); }, "\"m.doc\", wanted a name that ends in .png");
  expect_error<FailedPrecondition>([&] { model_to_dot(Sequential{Dense(2)}); }, "not built");
}

// The programs that are found by PATH, while it lives.
class OnlyPrograms {
 public:
  explicit OnlyPrograms(const std::filesystem::path& folder) : before_(std::getenv("PATH")) {
    ::setenv("PATH", folder.c_str(), 1);
  }
  OnlyPrograms(const OnlyPrograms&) = delete;
  OnlyPrograms& operator=(const OnlyPrograms&) = delete;
  ~OnlyPrograms() { ::setenv("PATH", before_.c_str(), 1); }

 private:
  std::string before_;
};

TEST(PlotModel, RunsDot) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const Model model = chain();
  const TemporaryFolder folder;
  const auto become = [&](const std::string& script) {
    testing::write_file(folder / "dot", "#!/bin/sh\n" + script);
    ::chmod((folder / "dot").c_str(), 0755);
  };
  const OnlyPrograms only(folder.path());
  expect_error<FailedPrecondition>([&] { plot_model(model, folder / "m.svg"); }, "install the package graphviz");
  plot_model(model, folder / "m.gv", {.rankdir = "LR"});
  EXPECT_EQ(read_file(folder / "m.gv"), model_to_dot(model, {.show_layer_names = false, .rankdir = "LR"}));
  become("echo $1\nexec /bin/cat\n");
  plot_model(model, folder / "m.svg");
  EXPECT_EQ(read_file(folder / "m.svg"), "-Tsvg\n" + model_to_dot(model, {.show_layer_names = false}));
  plot_model(model, folder / "m", {.show_layer_names = true});
  EXPECT_EQ(read_file(folder / "m"), "-Tpng\n" + model_to_dot(model));
  become("echo half\necho no room >&2\nexit 3\n");
  expect_error<FailedPrecondition>([&] { plot_model(model, folder / "bad.pdf"); }, "dot failed: no room");
  become("exec /bin/sleep 1000\n");
  expect_error<DeadlineExceeded>(
      [&] { plot_model(model, folder / "bad.pdf", {.timeout = std::chrono::milliseconds(20)}); }, "within 20 ms");
  EXPECT_EQ(testing::names_in(folder.path()), (std::vector<std::string>{"dot", "m", "m.gv", "m.svg"}));
}

TEST(PlotModel, DrawsPictures) {
  if (std::system("dot -V >/dev/null 2>&1") != 0) GTEST_SKIP() << "needs the program dot (package graphviz)";
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const TemporaryFolder folder;
  const PlotOptions all{.show_shapes = true, .show_layer_names = true, .expand_nested = true, .show_trainable = true};
  for (const auto& [name, begins] :
       std::map<std::string, std::string>{{"m.png", "\x89PNG"}, {"m.svg", "<?xml"}, {"m.pdf", "%PDF"}}) {
    plot_model(nested(), folder / name, all);
    EXPECT_EQ(read_file(folder / name).substr(0, begins.size()), begins);
  }
  const std::string svg = read_file(folder / "m.svg");
  for (const char* const text : {"inner", "left", "Trainable", "(None, 8)"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace cohort::plot_model_test
