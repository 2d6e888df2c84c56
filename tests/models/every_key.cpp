#include "tests/models/every_key.h"

#include <torch/torch.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "base/columns.h"
#include "cohort/models/strategy_flags.h"
#include "cohort/models/zoo.h"
#include "models/run/plan.h"

namespace cohort::testing {

namespace {

// Returns a text that tells the tensor apart as exactly as its bytes do.
std::string digest(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.detach().contiguous();
  const std::string_view bytes(static_cast<const char*>(flat.data_ptr()), flat.nbytes());
  return c10::str(tensor.sizes(), "#", std::hash<std::string_view>()(bytes));
}

std::string batches(const Dataset& dataset, int64_t most) {
  std::string text;
  Iterator iterator = dataset.iterator();
  for (int64_t i = 0; i < most; ++i) {
    const std::optional<Example> batch = iterator.next();
    if (!batch) break;
    text += " ";
    for (const torch::Tensor& column : columns_of(*batch)) text += column.defined() ? digest(column) : "";
  }
  return text;
}

TaskData data_for(OpenExperiment& experiment) {
  return experiment.made.task->build_inputs(experiment.made.runtime, /*training=*/true);
}

}  // namespace

OpenExperiment::OpenExperiment(const std::string& name, const std::vector<std::string>& overrides)
    : made(find_experiment(name).make()), config([this](ConfigFields& fields) { made.describe(fields); }) {
  for (const std::string& text : overrides) config.apply_override(text, "--test");
}

void set_up(OpenExperiment& experiment) {
  const Strategy strategy = make_strategy(experiment.made.runtime);
  const auto scope = strategy.scope();
  Task& task = *experiment.made.task;
  static_cast<void>(*experiment.made.runtime.seed);
  const TaskData data = data_for(experiment);
  const RunPlan plan = plan_run(experiment.made.trainer, data, /*trains=*/true);
  task.stages();
  const Model model = task.build_model();
  plan_compile(experiment.made, plan, strategy.num_replicas_in_sync(), 0);
  plan_compute(experiment.made.runtime);
}

std::string plan_of(OpenExperiment& experiment) {
  const TaskData data = data_for(experiment);
  const RunPlan plan = plan_run(experiment.made.trainer, data, /*trains=*/true);
  const CompileOptions compile = plan_compile(experiment.made, plan, 1, 0);
  check_best(plan, compile);
  const auto& scale = compile.optimizer.gradient().loss_scale;
  const auto& [best, summaries, averages, recovery] = std::tie(plan.best, plan.summaries, plan.averages, plan.recovery);
  return c10::str(plan.train_steps, " ", plan.steps_per_epoch, " ", plan.steps_per_loop, " ", plan.summary_interval,
                  " ", plan.checkpoint_interval, " ", plan.validation_interval, " ", plan.validation_steps, " ",
                  plan.max_to_keep, " ", plan.sharded_checkpoints, " ", plan.continuous_eval_timeout.count(), " ",
                  plan.saves_when_preempted, " ", plan.compare_replicas_interval, "; ", recovery.loss_upper_bound, " ",
                  recovery.begin_steps, " ", recovery.max_trials, "; ", averages.average_decay, " ",
                  averages.start_step, " ", averages.dynamic_decay, " ", averages.trainable_weights_only, "; ",
                  best ? c10::str(best->folder, " ", best->metric, " ", static_cast<int>(best->comparison)) : "", "; ",
                  summaries.validation_folder, " ", summaries.images, " ", summaries.histograms, "; ",
                  static_cast<int>(compile.precision), " ", scale ? c10::str(scale->initial_scale, scale->dynamic) : "",
                  "; ", c10::Join(",", experiment.made.task->stages()), " ", data.shard_train, data.shard_validation,
                  " ", compile.run_eagerly, " ", compile.eval_run_eagerly.value_or(compile.run_eagerly), " ",
                  plan_compute(experiment.made.runtime).deterministic);
}

std::string optimizer_of(OpenExperiment& experiment) {
  const Strategy strategy = make_strategy(experiment.made.runtime);
  const auto scope = strategy.scope();
  torch::manual_seed(1);
  auto net = strategy.mirror([] { return torch::nn::Linear(5, 3); });
  const RunPlan plan = plan_run(experiment.made.trainer, data_for(experiment), /*trains=*/true);
  const Optimizer rule = plan_compile(experiment.made, plan, strategy.num_replicas_in_sync(), 0).optimizer;
  std::ostringstream text;
  text << rule.name() << std::hexfloat;
  for (const int64_t around : {0, 500, 1000, 2000, 10'000}) {
    for (int64_t step = around; step < around + 20; ++step) text << " " << rule.learning_rate()(step);
  }
  auto optimizer = strategy.optimizer(net, rule);
  optimizer.set_learning_rate(0.1);  // the schedule's first ones may be small
  for (int step = 0; step < 4; ++step) {
    strategy.run([&](Replica& replica) {
      const torch::Tensor x = torch::arange(10, torch::kFloat).view({2, 5}) - 3 * step;
      optimizer[replica].minimize(net[replica]->forward(x).square().sum() / (1 + 10 * step));
    });
  }
  for (const torch::Tensor& each : net[0]->parameters()) text << " " << digest(each);
  return text.str();
}

std::string strategy_of(OpenExperiment& experiment) {
  const Strategy strategy = make_strategy(experiment.made.runtime);
  return c10::str(strategy.name(), " ", strategy.num_replicas_in_sync(), " ", strategy.cross_device_ops());
}

std::string data_of(OpenExperiment& experiment) {
  const TaskData data = data_for(experiment);
  return c10::str(data.description, " ", data.steps_per_epoch, batches(*data.train, 16), " |",
                  batches(*data.validation, 4));
}

std::string memory_of(OpenExperiment& experiment) {
  std::string folder;
  for (const ConfigFields::Field& field : experiment.config.fields()) {
    if (field.path == "task.train_data.input_path") folder = *std::get<std::string*>(field.target);
  }
  const TaskData data = data_for(experiment);
  const auto rest = [](Iterator& iterator, int64_t most) -> std::string {
    try {
      for (int64_t i = 0; i < most; ++i) {
        if (!iterator.next()) break;
      }
      return "goes on ";
    } catch (const Error&) {
      return "ends ";
    }
  };
  Iterator train = data.train->iterator();
  rest(train, 2 * data.steps_per_epoch);
  Iterator first = data.validation->iterator();
  rest(first, 100);
  std::filesystem::remove_all(folder);
  Iterator second = data.validation->iterator();
  return rest(train, 10 * data.steps_per_epoch) + rest(second, 100);
}

std::string step_of(OpenExperiment& experiment) {
  Task& task = *experiment.made.task;
  const Strategy strategy = make_strategy(experiment.made.runtime);
  const auto scope = strategy.scope();
  torch::manual_seed(1);
  const TaskData data = data_for(experiment);
  const RunPlan plan = plan_run(experiment.made.trainer, data, /*trains=*/true);
  Model model = task.build_model();
  task.initialize(model);
  task.before_stage(0, model);
  model.compile(plan_compile(experiment.made, plan, strategy.num_replicas_in_sync(), 0));
  std::ostringstream text;
  text << std::hexfloat;
  for (const auto& item : model.module().copies().front()->named_parameters()) {
    const torch::Tensor& value = item.value();
    const bool last = value.dim() == 4 && value.is_contiguous(torch::MemoryFormat::ChannelsLast);
    text << item.key() << value.sizes() << value.requires_grad() << last << " ";
  }
  const std::optional<Example> batch = data.train->iterator().next();
  model.optimizer().set_learning_rate(0.1);  // the schedule's first ones may be small
  // Some classifiers start as zeros: only at the second step something comes of what is before them.
  for (int i = 0; i < 2; ++i) {
    for (const auto& [name, value] : model.train_on_batch(*batch)) text << name << " " << value << " ";
  }
  for (const auto& [name, value] : model.weights()) text << digest(value);
  return text.str();
}

std::string graph_of(OpenExperiment& experiment) {
  const Model model = experiment.made.task->build_model();
  const std::optional<Example> batch = data_for(experiment).train->iterator().next();
  const auto module = std::dynamic_pointer_cast<LayerModule>(model.module().copies().front());
  const auto named = std::dynamic_pointer_cast<models::NamedModule>(model.module().copies().front());
  if (!module && !named) return "a Sequential, which has no blocks";
  std::set<const torch::autograd::Node*> nodes;
  const torch::Tensor output = named ? named->forward(batch->inputs).front().second : module->forward(batch->x);
  std::vector<const torch::autograd::Node*> open = {output.grad_fn().get()};
  while (!open.empty()) {
    const torch::autograd::Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !nodes.insert(node).second) continue;
    for (const auto& edge : node->next_edges()) open.push_back(edge.function.get());
  }
  return std::to_string(nodes.size());
}

namespace {

const std::map<std::string, std::string>& values_of_runtime() {
  static const std::map<std::string, std::string> values = {
      {"runtime.distribution_strategy", "one_device"},
      {"runtime.num_replicas", "2"},
      {"runtime.mesh", "batch=2"},
      {"runtime.all_reduce_alg", "reduction_to_one_device"},
      {"runtime.worker_hosts", "a:1"},
      {"runtime.task_index", "0"},
      {"runtime.tpu", "local"},
      {"runtime.xla_plugin", "cpu"},
      {"runtime.xla_options", "cpu_device_count=2"},
      {"runtime.matmul_precision", "high"},
      {"runtime.secret_file", "secret"},
      {"runtime.tls_ca", "ca.pem"},
      {"runtime.tls_cert", "task.pem"},
      {"runtime.tls_key", "task.key"},
      {"runtime.coordination", "etcd://127.0.0.1:2379"},
      {"runtime.consistency", "synchronous"},
      {"runtime.mixed_precision_dtype", "bfloat16"},
      {"runtime.loss_scale", "48"},
  };
  return values;
}

}  // namespace

const std::map<std::string, std::string>& other_values() {
  static const std::map<std::string, std::string> values = {
      {"task.train_input_partition_dims", "[1, 2, 1, 1]"},
      {"task.eval_input_partition_dims", "[1, 2, 1, 1]"},
      {"task.train_data.shuffle_buffer_size", "2"},
      {"task.train_data.global_batch_size", "3"},
      {"task.validation_data.global_batch_size", "2"},
      {"task.train_data.randaug_magnitude", "5"},
      {"task.train_data.aug_type.randaug.magnitude", "5"},
      {"task.model.norm_activation.activation", "tanh"},
      {"task.model.norm_activation.norm_momentum", "0.5"},
      {"task.model.norm_activation.norm_epsilon", "0.01"},
      {"task.model.backbone.vit.patch_size", "8"},
      {"trainer.optimizer_config.optimizer.adamw.weight_decay_rate", "0.7"},
      {"trainer.optimizer_config.optimizer.adamw.exclude_from_weight_decay", "[weight]"},
      {"trainer.optimizer_config.optimizer.lamb.exclude_from_weight_decay", "[weight]"},
      {"trainer.optimizer_config.optimizer.lamb.exclude_from_layer_adaptation", "[weight]"},
      {"trainer.optimizer_config.optimizer.lamb.weight_decay_rate", "0.7"},
      {"trainer.optimizer_config.optimizer.lars.exclude_from_weight_decay", "[weight]"},
      {"trainer.optimizer_config.optimizer.lars.exclude_from_layer_adaptation", "[weight]"},
      {"trainer.optimizer_config.optimizer.adafactor.epsilon_2", "10"},
      {"trainer.optimizer_config.learning_rate.stepwise.offset", "1000"},
      {"trainer.optimizer_config.learning_rate.step_cosine_with_offset.boundaries", "[0, 3]"},
      {"trainer.optimizer_config.learning_rate.step_cosine_with_offset.values", "[0.1, 0.02]"},
      {"trainer.validation_steps", "2"},
      {"task.model.input_mean", "[0.1, 0.2, 0.3]"},
      {"task.model.input_stddev", "[0.5, 0.6, 0.7]"},
      {"task.losses.class_weights", "[1, 2, 3, 4]"},
      {"task.train_data.suffixes", "[.md]"},
      {"task.model.num_attention_heads", "4"},
      {"task.model.encoder.bert.num_attention_heads", "4"},
      {"task.model.encoder.bert.hidden_activation", "relu"},
      {"task.model.mlm_activation", "relu"},
      {"task.model.vocab_sizes", "[12, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]"},
      {"task.model.bottom_mlp", "[6, 4]"},
      {"task.model.top_mlp", "[4, 1]"},
      {"task.train_data.masking_rate", "0.9"},
      {"task.validation_data.masking_rate", "0.9"},
      {"task.train_data.short_seq_prob", "1"},
      {"task.validation_data.short_seq_prob", "1"},
      {"task.model.lora.target_modules", "[gate_proj]"},
      {"task.model.backbone.resnet.model_id", "34"},
      {"task.model.backbone.resnet_cifar.model_id", "14"},
      {"task.model.backbone.efficientnet.model_id", "b1"},
      {"task.model.backbone.vit.model_name", "vit-s16"},
      {"task.evaluation.top_k", "3"},
      {"trainer.best_checkpoint_eval_metric", "loss"},
      {"trainer.best_checkpoint_metric_comp", "lower"},
      {"trainer.optimizer_config.optimizer.exclude_from_weight_decay", "[weight]"},
      {"trainer.optimizer_config.learning_rate.stepwise.boundaries", "[3]"},
      {"trainer.optimizer_config.learning_rate.stepwise.values", "[0.1, 0.02]"},
  };
  static const std::map<std::string, std::string> all = [] {
    std::map<std::string, std::string> both = values;
    both.insert(values_of_runtime().begin(), values_of_runtime().end());
    return both;
  }();
  return all;
}

}  // namespace cohort::testing
