// Every key of every experiment, set to another valid value, changes what a run does, or is an error that names it.
//
// First the experiment is set up as it is. A key that this did not read would be set for nothing: then
// Config::require_read() has to say so. A key that was read could still be thrown away: so the experiment is set up
// again with another value, and some part of it has to come out differently (every_key.h): the plan that the controller
// gets, steps of the optimizer, the strategy, batches of the data, a step of the model. The tests also look at whether
// each part comes out the same twice when nothing changes. Experiments that differ only in the size of their model are
// made small and looked at once, and so is a key that several experiments of one task and one backbone read.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>
#include <typeinfo>

#include "cohort/error.h"
#include "tests/models/every_key.h"
#include "tests/models/every_key_data.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::every_key_test {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): what every_key.h looks at

// An experiment, made small, and the keys of it that are looked at: all that begin so.
struct Subject {
  std::string experiment;
  std::vector<std::string> overrides;
  std::string beginning;
  std::string data = "photographs";   // the folder of its data,
  std::string other_data = "others";  // and another one
};

class EveryKey : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder();  // NOLINT(cppcoreguidelines-owning-memory): GoogleTest's way
    const std::filesystem::path& folder = folder_->path();
    for (const char* name : {"photographs", "others", "spoiled"}) testing::make_photographs(folder / name);
    for (const char* name : {"scenes", "other_scenes"}) testing::make_scenes(folder / name);
    for (const char* name : {"writings", "other_writings"}) testing::make_writings(folder / name);
    for (const char* name : {"clicks", "other_clicks"}) testing::make_clicks(folder / name);
    testing::spoil_a_photograph(folder / "spoiled");
    testing::make_digits(folder / "digits");
  }
  static void TearDownTestSuite() { delete folder_; }  // NOLINT(cppcoreguidelines-owning-memory)

  static std::string path(const std::string& name) { return (*folder_ / name).string(); }
  static std::string input(const std::string& name) { return "task.train_data.input_path=" + path(name); }

  static Subject small(const std::string& experiment) {
    Subject subject{experiment, {"task.train_data.global_batch_size=5,task.validation_data.global_batch_size=3"}, ""};
    const auto also = [&](const std::string& text) { subject.overrides.push_back(text); };
    if (experiment.starts_with("mnist")) {
      also(input("digits"));
      return subject;
    }
    if (experiment == "unet_small") {
      subject.data = "scenes";
      subject.other_data = "other_scenes";
      also(input(subject.data));
      also("task.model.input_size=[17,19,3],task.model.backbone.unet.filters=2,task.model.backbone.unet.levels=2");
      return subject;
    }
    if (experiment.starts_with("lm_")) {
      subject.data = "writings";
      subject.other_data = "other_writings";
      also(input(subject.data));
      also("task.seq_length=9,task.model.hidden_size=8,task.model.intermediate_size=6,task.model.num_hidden_layers=2");
      also("task.model.num_attention_heads=2,task.model.dropout_rate=0.1");
      also("{task.model.rope_scaling: {rope_type: llama3, factor: 4, original_max_position_embeddings: 9}}");
      also("trainer.optimizer_config.learning_rate.cosine.initial_learning_rate=0.01");
      return subject;
    }
    if (experiment == "dlrm_small") return small_ranking(std::move(subject));
    if (experiment.starts_with("bert")) return small_bert(std::move(subject));
    also(input("photographs"));
    also("task.model.input_size=[32,32,3]");
    const OpenExperiment open(experiment, {});
    if (open.made.trainer.train_steps == 0 && open.made.trainer.train_epochs == 0) also("trainer.train_steps=8");
    const std::string yaml = open.config.to_yaml();
    if (yaml.find("type: \"resnet\"") != std::string::npos) also("task.model.backbone.resnet.model_id=18");
    if (yaml.find("type: \"resnet_cifar\"") != std::string::npos) also("task.model.backbone.resnet_cifar.model_id=8");
    if (yaml.find("type: \"efficientnet\"") != std::string::npos) also("task.model.backbone.efficientnet.model_id=b0");
    if (yaml.find("type: \"vit\"") != std::string::npos) also("task.model.backbone.vit.model_name=vit-ti16");
    return subject;
  }

  static Subject small_ranking(Subject subject) {
    subject.data = "clicks";
    subject.other_data = "other_clicks";
    std::string sizes = testing::other_values().at("task.model.vocab_sizes");
    sizes.replace(0, 3, "[11");
    for (const std::string& text : {input(subject.data), "task.model.vocab_sizes=" + sizes,
                                    std::string("task.model.embedding_dim=4,task.model.bottom_mlp=[5,4]"),
                                    std::string("task.model.top_mlp=[3,1]")}) {
      subject.overrides.push_back(text);
    }
    return subject;
  }

  static Subject small_bert(Subject subject) {
    subject.data = "writings";
    subject.other_data = "other_writings";
    subject.overrides.push_back(input(subject.data));
    for (const char* text :
         {"vocab_size=260", "hidden_size=8", "num_layers=2", "num_attention_heads=2", "intermediate_size=6",
          "max_position_embeddings=16", "dropout_rate=0.1", "attention_dropout_rate=0.1"}) {
      subject.overrides.push_back(std::string("task.model.encoder.bert.") + text);
    }
    for (const std::string part : {"task.train_data.", "task.validation_data."}) {
      subject.overrides.push_back(part + "seq_length=15," + part + "max_predictions_per_seq=3");
    }
    const std::string optimizer = "trainer.optimizer_config.";
    if (subject.experiment == "bert_tiny") {
      subject.overrides.push_back(optimizer + "learning_rate.cosine.initial_learning_rate=0.01");
    } else {
      subject.overrides.push_back(optimizer + "learning_rate.polynomial.initial_learning_rate=0.01");
      subject.overrides.push_back(optimizer + "warmup.polynomial.warmup_steps=5,trainer.train_steps=500");
      subject.beginning = "trainer";  // the other keys are those of bert_tiny
    }
    return subject;
  }

  // Sets every key of the subject, one at a time.
  static void walk(const Subject& subject);
  // Returns whether a key has been looked at in an experiment of the same task and backbone; from now on it has.
  static bool looked_at(const OpenExperiment& open, const std::string& key);
  static void look_at_read(const Subject& subject, const ConfigFields::Field& field);
  static std::string other_value(const Subject& subject, const ConfigFields::Field& field);
  // The weights that the subject's model has by another seed.
  static std::string weights_for(const Subject& subject);

  static TemporaryFolder* folder_;
};
TemporaryFolder* EveryKey::folder_ = nullptr;

using Part = std::function<std::string(OpenExperiment&)>;

std::vector<std::pair<std::string, Part>> parts_for(const std::string& key) {
  const std::pair<std::string, Part> plan{"plan", plan_of};
  const std::pair<std::string, Part> optimizer{"optimizer", optimizer_of};
  const std::pair<std::string, Part> data{"data", data_of};
  const std::pair<std::string, Part> step{"step", step_of};
  if (key.ends_with("_data.cache")) return {{"memory", memory_of}};
  if (key == "task.model.remat") return {{"graph", graph_of}};
  if (key.starts_with("trainer.optimizer_config.ema")) return {plan};
  if (key.starts_with("trainer.optimizer_config") || key == "task.losses.l2_weight_decay") return {optimizer};
  if (key.starts_with("trainer.")) return {plan};
  if (key.starts_with("runtime.")) return {{"strategy", strategy_of}, plan, data, optimizer};
  return {data, plan, step};
}

// Returns what has to be set, too, for a key to have an effect that can be seen.
std::vector<std::string> stage_for(const std::string& key, const std::string& spoiled) {
  if (key.ends_with("train_data.skip_damaged")) return {"task.train_data.input_path=" + spoiled};
  if (key.ends_with("all_reduce_alg") || key.ends_with("scale_by_replicas")) return {"runtime.num_replicas=2"};
  if (key.ends_with("include_in_weight_decay")) {
    return {"trainer.optimizer_config.optimizer.adamw.exclude_from_weight_decay=[nothing]"};
  }
  if (key.ends_with("optimizer.formulation")) return {"trainer.optimizer_config.optimizer.sgd.momentum=0.5"};
  if (key.ends_with("use_sync_bn")) return {"runtime.num_replicas=2"};
  if (key == "task.losses.one_hot")
    return {
        "task.losses.label_smoothing=0, task.losses.soft_labels=false, "
        "task.train_data.mixup_and_cutmix.mixup_alpha=0, "
        "task.train_data.mixup_and_cutmix.cutmix_alpha=0, task.train_data.mixup_and_cutmix.label_smoothing=0"};
  return {};
}

std::string last_of(const std::string& key) {
  return key.substr(key.rfind('.') + 1);
}

// Returns another value of the field's kind; those that need one of their own are in other_value().
std::string other_by_kind(const ConfigFields::Field& field) {
  if (const auto* flag = std::get_if<bool*>(&field.target)) return **flag ? "false" : "true";
  if (const auto* number = std::get_if<int64_t*>(&field.target)) {
    const int64_t value = **number;
    return std::to_string(value == 0 ? 7 : value + 1);
  }
  if (const auto* number = std::get_if<double*>(&field.target)) {
    const double value = **number;
    return c10::str(value == 0.0 ? 0.25 : value < 1e-3 ? 0.01 : value / 2);
  }
  if (std::holds_alternative<std::vector<std::string>*>(field.target)) return "[Rotate, Equalize]";
  const auto* text = std::get_if<std::string*>(&field.target);
  for (const std::string& choice : field.choices) {
    if (choice != **text && !choice.empty()) return choice;
  }
  return field.choices.empty() ? "other" : "";
}

void set_other(Config& config, const std::string& path, const std::string& value) {
  if (value.starts_with('[')) {
    config.apply_override(path + "=" + value, "--other");
  } else {
    config.set(path, value, "--other");
  }
}

std::string part_or_error(const Part& part, OpenExperiment& experiment) {
  try {
    return part(experiment);
  } catch (const Error& error) {
    return c10::str("error: ", error.what());
  }
}

std::string EveryKey::weights_for(const Subject& subject) {
  OpenExperiment open(subject.experiment, subject.overrides);
  torch::manual_seed(7);
  std::string name = subject.experiment;
  std::replace(name.begin(), name.end(), '/', '_');
  const std::string file = path(name + ".safetensors");
  open.made.task->build_model().save_weights(file);
  return file;
}

std::string EveryKey::other_value(const Subject& subject, const ConfigFields::Field& field) {
  if (field.path.ends_with("_data.input_path") || field.path.ends_with("_data.tfds_data_dir")) {
    return path(subject.other_data);
  }
  const std::map<std::string, std::string>& others = testing::other_values();
  if (const auto found = others.find(field.path); found != others.end()) return found->second;
  if (field.path == "task.model.input_size") {
    return subject.experiment.starts_with("mnist") ? "[48, 48, 1]" : "[48, 48, 3]";
  }
  if (field.path == "task.init_checkpoint") return weights_for(subject);
  // Those of their neighbours that need no more than the type.
  const auto* const text = std::get_if<std::string*>(&field.target);
  if (field.path == "task.model.backbone.type") return **text == "resnet_cifar" ? "resnet" : "resnet_cifar";
  if (field.path.ends_with("kernel_initializer")) return **text == "random_uniform" ? "zeros" : "random_uniform";
  if (field.path.ends_with("optimizer.formulation")) {
    // These are the same in Model Garden's form and in LibTorch's.
    const std::string all = c10::Join(",", subject.overrides);
    const bool adagrad = subject.experiment == "dlrm_small" || all.find("type=adagrad") != std::string::npos;
    return adagrad || all.find("type=lamb") != std::string::npos ? "keras" : "torch";
  }
  if (field.path.ends_with("optimizer.type")) return **text == "adam" ? "sgd" : "adam";
  if (field.path.ends_with("learning_rate.type")) return **text == "exponential" ? "polynomial" : "exponential";
  return other_by_kind(field);
}

void EveryKey::look_at_read(const Subject& subject, const ConfigFields::Field& field) {
  // These decide how the batches are made and not what is in them: that they are read has to do.
  if (field.path == "runtime.dataset_num_private_threads" || field.path.ends_with("prefetch_buffer_size")) return;
  if (field.path.ends_with("images_on_device")) return;
  std::vector<std::string> overrides = subject.overrides;
  for (const std::string& text : stage_for(field.path, path("spoiled"))) overrides.push_back(text);
  const std::string value = other_value(subject, field);
  const std::string folder = path("passing");
  if (field.path.ends_with("_data.cache")) overrides.push_back(input("passing"));
  const auto prepare = [&] {
    std::filesystem::remove_all(folder);
    std::filesystem::copy(path(subject.data), folder, std::filesystem::copy_options::recursive);
  };
  for (const auto& [name, part] : parts_for(field.path)) {
    // The parts of the experiment as it is are the same for many keys.
    static std::map<std::string, std::string> known;
    std::string& before = known[c10::str(name, subject.experiment, c10::Join(",", overrides))];
    if (before.empty()) {
      for (const bool again : {false, true}) {
        OpenExperiment as_it_is(subject.experiment, overrides);
        if (name == "memory") prepare();
        const std::string text = part_or_error(part, as_it_is);
        if (again) {
          ASSERT_EQ(text, before) << "the part " << name << " is not the same twice";
        }
        before = text;
      }
    }
    OpenExperiment changed(subject.experiment, overrides);
    set_other(changed.config, field.path, value);
    changed.config.lock();
    if (name == "memory") prepare();
    const std::string after = part_or_error(part, changed);
    if (after == before) continue;
    const bool named = after.find(last_of(field.path)) != std::string::npos ||
                       (!value.empty() && after.find(value) != std::string::npos);
    EXPECT_TRUE(!after.starts_with("error: ") || before.starts_with("error: ") || named)
        << field.path << "=" << value << " is an error that does not name it: " << after;
    return;
  }
  ADD_FAILURE() << "nothing comes of " << field.path << "=" << value << " in " << subject.experiment << " with "
                << c10::Join(", ", subject.overrides);
}

bool EveryKey::looked_at(const OpenExperiment& open, const std::string& key) {
  static std::set<std::string> known;
  std::string kind = typeid(*open.made.task).name();
  for (const ConfigFields::Field& field : open.config.fields()) {
    if (field.path == "task.model.backbone.type") kind += *std::get<std::string*>(field.target);
  }
  return !known.insert(c10::str(kind, " ", key)).second;
}

void EveryKey::walk(const Subject& subject) {
  OpenExperiment open(subject.experiment, subject.overrides);
  set_up(open);
  const auto& fields = open.config.fields();
  std::set<std::string> read;
  for (const ConfigFields::Field& field : fields) {
    if (*field.read) read.insert(field.path);
  }
  open.config.require_read(subject.experiment + " as it is");
  for (const ConfigFields::Field& field : fields) {
    if (!field.path.starts_with(subject.beginning)) continue;
    if (read.contains(field.path)) {
      if (!subject.beginning.empty() || !looked_at(open, field.path)) look_at_read(subject, field);
      continue;
    }
    if (field.choices.size() == 1) continue;  // there is no other value
    set_other(open.config, field.path, other_value(subject, field));
    expect_error<InvalidArgument>([&] { open.config.require_read("a run"); }, "  " + field.path + " is ");
    open.config.reset(field.path);
  }
  EXPECT_GT(read.size(), 50U);
}

TEST_F(EveryKey, OfEveryExperimentSaysSomething) {
  std::set<std::string> seen;
  for (const Experiment& experiment : experiments()) {
    const Subject subject = small(experiment.name);
    SCOPED_TRACE(experiment.name);
    if (seen.insert(OpenExperiment(subject.experiment, subject.overrides).config.to_yaml()).second) walk(subject);
  }
  EXPECT_GE(seen.size(), 6U);
}

// These keys belong to a type that is not the default's.
TEST_F(EveryKey, OfEveryOptimizerAndScheduleSaysSomething) {
  const std::string config = "trainer.optimizer_config.";
  OpenExperiment open("mnist_mlp", {});
  for (const ConfigFields::Field& field : open.config.fields()) {
    if (!field.path.starts_with(config) || last_of(field.path) != "type") continue;
    for (const std::string& choice : field.choices) {
      if (choice.empty()) continue;
      SCOPED_TRACE(field.path + "=" + choice);
      Subject subject = small("mnist_mlp");
      subject.overrides.push_back(field.path + "=" + choice);
      if (choice == "stepwise") {
        subject.overrides.push_back("{" + config + "learning_rate.stepwise.boundaries: [2], " + config +
                                    "learning_rate.stepwise.values: [0.1, 0.05]}");
      }
      if (choice == "step_cosine_with_offset") {
        subject.overrides.push_back("{" + config + "learning_rate.step_cosine_with_offset.boundaries: [0, 5], " +
                                    config + "learning_rate.step_cosine_with_offset.values: [0.1, 0.05]}");
      }
      const bool warms_up = field.path.ends_with("warmup.type");
      if (warms_up) subject.overrides.push_back(config + "warmup." + choice + ".warmup_steps=4");
      if (field.path.ends_with("optimizer.type") && choice != "adagrad") {
        subject.overrides.push_back(config + "optimizer." + choice +
                                    (choice == "lars" ? ".weight_decay_rate=0.1" : ".weight_decay=0.1"));
      }
      if (choice == "sgd") subject.overrides.push_back(config + "optimizer.sgd.momentum=0.5");
      subject.beginning =
          config + (warms_up ? "warmup" : field.path.substr(config.size(), field.path.rfind('.') - config.size()));
      walk(subject);
    }
  }
}

// These keys count only where something else is on.
TEST_F(EveryKey, OfWhatIsSwitchedOnSaysSomething) {
  Subject subject = small("resnet20_cifar10");
  for (const char* text :
       {"task.train_data.aug_policy=randaug", "task.train_data.randaug_magnitude=7",
        "task.train_data.mixup_and_cutmix.mixup_alpha=0.5", "task.train_data.mixup_and_cutmix.cutmix_alpha=0.5",
        "trainer.optimizer_config.ema.average_decay=0.9", "trainer.best_checkpoint_export_subdir=best",
        "trainer.best_checkpoint_eval_metric=accuracy", "runtime.loss_scale=64", "task.freeze_backbone_steps=2",
        "task.init_checkpoint_modules=backbone"}) {
    subject.overrides.emplace_back(text);
  }
  Subject plain = small("resnet20_cifar10");
  subject.overrides.push_back("task.init_checkpoint=" + weights_for(plain));
  // The keys of the model are left out: another model would not fit the weights.
  for (const char* beginning : {"task.train_data", "task.validation_data", "task.init_checkpoint_modules",
                                "task.freeze", "task.losses", "task.evaluation", "trainer", "runtime"}) {
    subject.beginning = beginning;
    walk(subject);
  }
  Subject adapted = small("lm_tiny");
  adapted.overrides.emplace_back("task.model.lora.rank=2,task.model.lora.dropout=0.1");
  adapted.beginning = "task.model.lora";
  walk(adapted);
}

}  // namespace
}  // namespace cohort::every_key_test
