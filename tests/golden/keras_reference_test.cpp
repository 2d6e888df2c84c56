// .keras files beside Keras itself: its files compute here what they compute there, a step of training included, and
// files that are written here compute in Keras what they compute here. COHORT_KERAS_PYTHON names a Python with Keras 3;
// by default python3.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cohort/error.h"
#include "cohort/train.h"
#include "cohort/train/applications.h"
#include "cohort/train/keras_file.h"
#include "tests/golden/golden.h"
#include "tests/support/files.h"

namespace cohort::testing::keras_reference_test {
namespace {

using nlohmann::json;

constexpr Tolerance kWithin = {.absolute = 2e-5, .relative = 2e-5};
constexpr Tolerance kWithinFew = {.absolute = 1e-6, .relative = 1e-6};  // a few roundings of float32
constexpr Tolerance kWithinHalf = {.absolute = 4e-3, .relative = 4e-3};

Tolerance tolerance_of(const std::string& name) {
  return name == "half" ? kWithinHalf : name == "graph" ? kWithinFew : kWithin;
}

std::string python() {
  const char* const given = std::getenv("COHORT_KERAS_PYTHON");
  return given != nullptr ? given : "python3";
}

class KerasReference : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder();
    const std::string quiet = " > " + (*folder_ / "log").string() + " 2>&1";
    if (std::system((python() + " -c 'import keras; assert keras.version().startswith(\"3.\")'" + quiet).c_str()) !=
        0) {
      return;
    }
    is_there_ = true;
    made_ = run("make", folder_->path());
  }
  static void TearDownTestSuite() { delete folder_; }

  void SetUp() override {
    if (!is_there_) GTEST_SKIP() << python() << " has no Keras 3 (COHORT_KERAS_PYTHON): no reference";
    ASSERT_TRUE(made_) << read_file(*folder_ / "log");
  }

  static bool run(const std::string& what, const std::filesystem::path& folder) {
    // JAX compiles each model several times: once is enough, and without what makes it fast.
    const std::string compile = "JAX_COMPILATION_CACHE_DIR=" + (*folder_ / "compiled").string() +
                                " JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 XLA_FLAGS='"
                                "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true' ";
    const std::string command = compile + python() + " tests/golden/keras_reference.py " + what + " " +
                                folder.string() + " > " + (*folder_ / "log").string() + " 2>&1";
    return std::system(command.c_str()) == 0;
  }

  static std::vector<std::string> names() {
    std::vector<std::string> list = {"dense", "image", "words", "steps",     "shapes",   "volume",
                                     "sums",  "drawn", "films", "functions", "features", "graph",
                                     "both",  "masks", "heads", "half",      "states"};
    // A Keras without TensorFlow does not make this one.
    if (std::filesystem::exists(*folder_ / "lookups.keras")) list.emplace_back("lookups");
    return list;
  }
  static json fact(const std::string& name) { return json::parse(read_file(*folder_ / (name + ".json"))); }
  static NamedTensors columns(const json& facts) {
    NamedTensors list;
    for (const auto& [name, each] : facts.items()) {
      list.emplace_back(name, golden_tensor(each.at("values"), each.at("integers") ? torch::kLong : torch::kFloat));
    }
    return list;
  }
  static Example example(const json& facts) {
    Example example;
    example.inputs = columns(facts.at("inputs"));
    example.targets = columns(facts.at("targets"));
    return example;
  }
  static std::string difference_of_outputs(Model& model, const Example& batch, const json& wanted,
                                           const std::string& what, const Tolerance& within = kWithin) {
    std::string wrong;
    for (const auto& [name, tensor] : model.predict_outputs(batch)) {
      const json& numbers = wanted.size() > 1 ? wanted.at(name) : *wanted.begin();
      wrong += difference(what + " " + name, tensor.to(torch::kDouble), golden_tensor(numbers), within);
    }
    return wrong;
  }
  static std::string difference_of(const Logs& logs, const json& wanted, const std::string& what,
                                   const Tolerance& within = kWithin) {
    std::string wrong;
    for (const auto& [name, value] : wanted.items()) {
      const std::optional<double> found = logs.find(name);
      wrong += found.has_value() ? difference(what + " " + name, *found, value.get<double>(), within)
                                 : what + ": there is no " + name + "; ";
    }
    return wrong;
  }

  static inline TemporaryFolder* folder_ = nullptr;
  static inline bool is_there_ = false;
  static inline bool made_ = false;
};

TEST_F(KerasReference, FilesComputeTheSameHere) {
  for (const std::string& name : names()) {
    SCOPED_TRACE(name);
    const Tolerance within = tolerance_of(name);
    const json facts = fact(name);
    const Example batch = example(facts);
    Model model = load_model(*folder_ / (name + ".keras"));
    ASSERT_TRUE(model.compiled());
    EXPECT_EQ(difference_of_outputs(model, batch, facts.at("outputs"), "outputs", within), "");
    EXPECT_EQ(difference_of(model.test_on_batch(batch), facts.at("evaluate"), "evaluate", within), "");
    EXPECT_EQ(difference_of(model.train_on_batch(batch), facts.at("train_on_batch"), "train_on_batch", within), "");
    EXPECT_EQ(difference_of_outputs(model, batch, facts.at("outputs_after"), "after a step", within), "");
  }
}

// Keras reads what was trained here, and both go on in the same way.
TEST_F(KerasReference, FilesOfOursComputeTheSameThere) {
  const TemporaryFolder written;
  std::vector<Model> models;
  for (const std::string& name : names()) {
    const json facts = fact(name);
    models.push_back(load_model(*folder_ / (name + ".keras")));
    models.back().train_on_batch(example(facts));
    save_model(models.back(), written / (name + ".keras"));
    write_file(written / (name + ".inputs.json"), json{{"inputs", facts.at("inputs")},
                                                       {"targets", facts.at("targets")},
                                                       {"original", (*folder_ / (name + ".keras")).string()}}
                                                      .dump());
  }
  ASSERT_TRUE(run("check", written.path())) << read_file(*folder_ / "log");
  for (std::size_t i = 0; i < models.size(); ++i) {
    SCOPED_TRACE(names()[i]);
    const Tolerance within = tolerance_of(names()[i]);
    const json got = json::parse(read_file(written / (names()[i] + ".outputs.json")));
    const Example batch = example(fact(names()[i]));
    EXPECT_EQ(got.value("ours", json()), got.value("options", json()));
    EXPECT_EQ(difference_of_outputs(models[i], batch, got.at("outputs"), "outputs", within), "");
    EXPECT_EQ(difference_of(models[i].train_on_batch(batch), got.at("train_on_batch"), "train_on_batch", within), "");
    EXPECT_EQ(difference_of_outputs(models[i], batch, got.at("outputs_after"), "after a step", within), "");
  }
}

// A network whose channels come first takes the weights of one whose channels come last.
TEST_F(KerasReference, WeightsOfANetworkComputeTheSameHere) {
  std::map<std::string, Model> networks = {
      {"mobile", applications::MobileNetV2({.input_shape = {3, 32, 32}, .alpha = 0.35, .classes = 5})},
      {"efficient", applications::EfficientNetB0({.input_shape = {3, 32, 32}, .classes = 5})}};
  for (auto& [name, model] : networks) {
    const json facts = fact(name);
    load_keras_weights(model, *folder_ / (name + ".weights.h5"));
    const torch::Tensor x = golden_tensor(facts.at("inputs"), torch::kFloat).permute({0, 3, 1, 2});
    EXPECT_EQ(difference(name, model.predict(x).to(torch::kDouble), golden_tensor(facts.at("outputs")), kWithin), "");
  }
}

// The weights of a whole model go into one that was made here.
TEST_F(KerasReference, WeightsOfAWholeFileComputeTheSameHere) {
  const json facts = fact("shapes");
  Sequential model{Rescaling(0.5, 0.1),
                   Permute({2, 1}),
                   Reshape({3, 4, 1}),
                   ChannelsLast(GlobalMaxPooling2D({.keepdims = true})),
                   Flatten(),
                   Activation("elu"),
                   Dense(4)};
  model.build({2, 6});
  model.load_weights(*folder_ / "shapes.keras");
  EXPECT_EQ(difference_of_outputs(model, example(facts), facts.at("outputs"), "outputs"), "");
  EXPECT_THROW(model.save_weights(*folder_ / "own.keras"), InvalidArgument);
}

TEST_F(KerasReference, HostileFilesAreRefused) {
  const TemporaryFolder folder;
  ASSERT_TRUE(run("hostile", folder.path())) << read_file(*folder_ / "log");
  load_model(folder / "good.keras");
  const json messages = json::parse(read_file(folder / "hostile.json"));
  EXPECT_GT(messages.size(), 20U);
  for (const auto& [name, message] : messages.items()) {
    const std::filesystem::path file = folder / (name + ".keras");
    try {
      load_model(file);
      ADD_FAILURE() << name << " was loaded";
    } catch (const Error& error) {
      const std::string said = error.what();
      EXPECT_NE(said.find(message.get<std::string>()), std::string::npos) << name << ": " << said;
      EXPECT_NE(said.find(file.string()), std::string::npos) << name << ": " << said;
      EXPECT_LT(said.size(), 1000U) << name;
    }
  }
}

}  // namespace
}  // namespace cohort::testing::keras_reference_test
