// cohort_bench: one measurement a call, so that the driver (run.py) can alternate it with PyTorch's.
#include <CLI/CLI.hpp>

#include "bench.h"

namespace {

// What the host does for devices that record their work.
void add_recorded(CLI::App& app, const double& seconds) {
  CLI::App& recording = *app.add_subcommand("recording", "recording a step for a device of XLA, forward and backward");
  const auto model = std::make_shared<std::string>("resnet50");
  recording.add_option("--model", *model, "mlp, cnn, resnet50, vit_tiny or transformer")->capture_default_str();
  recording.callback([&seconds, model] { cohort::bench::run_recording(*model, seconds); });
  CLI::App& launch = *app.add_subcommand("launch", "beginning a small program on a device of XLA");
  const auto plugin = std::make_shared<std::string>("cpu");
  const auto launches = std::make_shared<int>(1000);
  launch.add_option("--plugin", *plugin, "as --xla_plugin takes it")->capture_default_str();
  launch.add_option("--launches", *launches, "one behind the other")->capture_default_str();
  launch.callback([plugin, launches] { cohort::bench::run_launch(*plugin, *launches); });
}

// What fit() adds to a step.
void add_fit(CLI::App& app, const double& seconds) {
  CLI::App& fit = *app.add_subcommand("fit", "a step of fit() beside one of a bare run, the MLP's");
  const auto replicas = std::make_shared<int>(2);
  const auto together = std::make_shared<int64_t>(50);
  fit.add_option("--replicas", *replicas, "replicas of one thread")->capture_default_str();
  fit.add_option("--steps_per_execution", *together, "steps between two calls of callbacks")->capture_default_str();
  fit.callback([&seconds, replicas, together] { cohort::bench::run_fit(*replicas, *together, seconds); });
}

// A network on an image in parts.
void add_space(CLI::App& app, const double& seconds) {
  CLI::App& space = *app.add_subcommand("space", "training steps of a U-Net on an image of 512 x 512 in parts of rows");
  const auto parts = std::make_shared<int>(2);
  const auto filters = std::make_shared<int64_t>(16);
  space.add_option("--parts", *parts, "each on a thread")->capture_default_str();
  space.add_option("--filters", *filters, "channels of the first level")->capture_default_str();
  space.callback([&seconds, parts, filters] { cohort::bench::run_space(*parts, *filters, seconds); });
}

// Where a step's time goes, which benchmarks/profile_step.py reads.
void add_profile(CLI::App& app, const double& seconds) {
  add_fit(app, seconds);
  add_space(app, seconds);
  CLI::App& profile = *app.add_subcommand("profile", "where the time of a training step on CPUs goes");
  const auto model = std::make_shared<std::string>("mlp");
  const auto replicas = std::make_shared<int>(2);
  profile.add_option("--model", *model, "mlp, cnn, resnet50, vit_tiny or transformer")->capture_default_str();
  profile.add_option("--replicas", *replicas, "replicas of one thread")->capture_default_str();
  profile.callback([&seconds, model, replicas] { cohort::bench::run_profile(*model, *replicas, seconds); });
}

// A model that is divided among stages.
void add_pipeline(CLI::App& app, const double& seconds) {
  CLI::App& pipeline = *app.add_subcommand("pipeline", "training steps of the transformer as a pipeline of two stages");
  const auto schedule = std::make_shared<std::string>("1f1b");
  const auto microbatches = std::make_shared<int>(8);
  pipeline
      .add_option("schedule", *schedule,
                  "gpipe, 1f1b, interleaved, zero_bubble_h1, or 1 or 2: one replica of so many threads; accumulated: "
                  "one of one thread that trains one microbatch after the other")
      ->capture_default_str();
  pipeline.add_option("--microbatches", *microbatches, "the parts of a batch of 16")->capture_default_str();
  pipeline.callback(
      [&seconds, schedule, microbatches] { cohort::bench::run_pipeline(*schedule, *microbatches, seconds); });
}

// Calls between tasks, secured as the environment says.
void add_calls(CLI::App& app, const double& seconds) {
  CLI::App& calls =
      *app.add_subcommand("calls", "calls between two tasks: large frames there and back, and small ones");
  const auto address = std::make_shared<std::string>();
  const auto serves = std::make_shared<bool>(false);
  calls.add_option("address", *address, "host:port of the task that answers")->required();
  calls.add_flag("--serve", *serves, "this is the task that answers, until its standard input ends");
  calls.callback([&seconds, address, serves] {
    if (*serves) return cohort::bench::run_calls_server(*address);
    cohort::bench::run_calls(*address, seconds);
  });
}

// Training steps of one process, or of one of several workers.
void add_steps(CLI::App& app, const double& seconds) {
  const auto model = std::make_shared<std::string>("mlp");
  const auto add_model = [&](CLI::App& to) {
    to.add_option("--model", *model,
                  "mlp, cnn, resnet50, vit_tiny, transformer, block (a transformer of one wide layer), decoder or unet")
        ->capture_default_str();
  };
  CLI::App& step = *app.add_subcommand("step", "training steps");
  const auto devices = std::make_shared<cohort::bench::StepDevices>();
  add_model(step);
  step.add_option("--replicas", devices->replicas, "replicas")->capture_default_str();
  CLI::Option* const gpus = step.add_flag("--gpus", devices->gpus, "the replicas on GPUs, one each");
  step.add_flag("--graphs", devices->graphs, "the steps are graphs of their GPUs")->needs(gpus);
  CLI::Option* const plugin = step.add_option("--xla_plugin", devices->xla_plugin,
                                              "the replicas on devices of a plugin, as cohort train takes it");
  plugin->excludes(gpus);
  step.add_option("--model_parallel", devices->model_parallel,
                  "CPUs that share the parameters of a replica of block or transformer")
      ->excludes(gpus)
      ->excludes(plugin)
      ->capture_default_str();
  step.add_option("--threads", devices->threads, "threads a replica on the CPU; 0: the cores divided by the replicas")
      ->capture_default_str();
  step.callback([&seconds, model, devices] { cohort::bench::run_step(*model, *devices, seconds); });
  CLI::App& worker_step = *app.add_subcommand("worker_step", "training steps of one of several workers");
  const auto worker = std::make_shared<cohort::bench::WorkerOptions>();
  add_model(worker_step);
  worker_step.add_option("--overlap", worker->overlap,
                         "whether gradients leave during backward; as the library decides");
  worker_step.add_option("--shared_memory", worker->shared_memory, "whether workers of one machine share memory")
      ->capture_default_str();
  CLI::Option* const stage =
      worker_step.add_option("--sharding_stage", worker->sharding_stage, "states that the workers share")
          ->capture_default_str();
  worker_step
      .add_option("--axis", worker->axis,
                  "what two workers divide in place of the batch: model (transformer, block), sequence (decoder) or "
                  "space (unet)")
      ->check(CLI::IsMember({"model", "sequence", "space"}))
      ->excludes(stage);
  worker_step.add_option("--interface", worker->interface, "of the network, whose bytes are counted");
  worker_step.callback([&seconds, model, worker] { cohort::bench::run_worker_step(*model, seconds, *worker); });
}

// Training steps on one GPU.
void add_card_step(CLI::App& app, const double& seconds) {
  CLI::App& step =
      *app.add_subcommand("card_step", "training steps on one GPU: time, the host's part, memory, launches");
  const auto model = std::make_shared<std::string>("mlp");
  const auto options = std::make_shared<cohort::bench::CardStepOptions>();
  step.add_option("--model", *model, "mlp, resnet50_224, resnet50_224_last, vit_b or decoder_100m")
      ->capture_default_str();
  step.add_option("--precision", options->precision, "fp32, tf32 or bf16")
      ->check(CLI::IsMember({"fp32", "tf32", "bf16"}))
      ->capture_default_str();
  step.add_option("--batch", options->batch, "examples")->capture_default_str();
  step.add_flag("--graphs", options->graphs, "the steps are graphs of the GPU");
  step.add_flag("--cpu", options->on_cpu, "the CPU instead of a GPU");
  step.callback([&seconds, model, options] { cohort::bench::run_card_step(*model, *options, seconds); });
}

void add_others(CLI::App& app, const double& seconds) {
  add_card_step(app, seconds);
  add_steps(app, seconds);
  add_profile(app, seconds);
  add_pipeline(app, seconds);
  add_recorded(app, seconds);
  add_calls(app, seconds);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Cohort's benchmarks; each prints JSON lines", "cohort_bench");
  app.require_subcommand(1);
  double seconds = 2.0;
  app.add_option("--seconds", seconds, "time for each measurement")->capture_default_str();
  CLI::App& empty = *app.add_subcommand("empty", "strategy.run of an empty function");
  int replicas = 2;
  empty.add_option("--replicas", replicas, "CPU replicas")->capture_default_str();
  const CLI::App& all_reduce = *app.add_subcommand("all_reduce", "the local all-reduce beside a copy loop");
  const CLI::App& input = *app.add_subcommand("input", "the input pipeline");
  CLI::App& images = *app.add_subcommand("images", "photographs in folders: decoded, resized, normalised, batched");
  std::string folder;
  int decoders = 2;
  images.add_option("folder", folder, "with a folder of images for each class")->required();
  images.add_option("--decoders", decoders, "threads")->capture_default_str();
  const CLI::App& tfrecord = *app.add_subcommand("tfrecord", "reading TFRecords from the page cache");
  const CLI::App& precision = *app.add_subcommand("precision", "ResNet-50 in bfloat16 beside float32");
  const CLI::App& checkpoint = *app.add_subcommand("checkpoint", "what saving 1 GB costs");
  const CLI::App& start =
      *app.add_subcommand("worker_start", "one of several workers starts, meets the others and ends");
  CLI::App& worker_all_reduce = *app.add_subcommand("worker_all_reduce", "the all-reduce over all workers, by one");
  std::string algorithm = "auto";
  worker_all_reduce.add_option("--algorithm", algorithm, "of CommunicationOptions")->capture_default_str();
  CLI::App& worker_collectives =
      *app.add_subcommand("worker_collectives", "the collectives of a back end over all workers, by one");
  std::string implementation = "auto";
  worker_collectives.add_option("--implementation", implementation, "of CommunicationOptions")->capture_default_str();
  CLI::App& servers = *app.add_subcommand("parameter_server", "a task of a parameter-server cluster");
  std::string what = "dense";
  servers.add_option("what", what, "dense, rows, recommender, arithmetic, mlp or bag")->capture_default_str();
  add_others(app, seconds);
  CLI11_PARSE(app, argc, argv);
  if (empty.parsed()) cohort::bench::run_empty(replicas, seconds);
  if (all_reduce.parsed()) cohort::bench::run_all_reduce(seconds);
  if (worker_all_reduce.parsed()) cohort::bench::run_worker_all_reduce(algorithm);
  if (worker_collectives.parsed()) cohort::bench::run_worker_collectives(implementation);
  if (input.parsed()) cohort::bench::run_input(seconds);
  if (images.parsed()) cohort::bench::run_images(folder, decoders);
  if (tfrecord.parsed()) cohort::bench::run_tfrecord();
  if (precision.parsed()) cohort::bench::run_precision(seconds);
  if (checkpoint.parsed()) cohort::bench::run_checkpoint();
  if (start.parsed()) cohort::bench::run_worker_start();
  if (servers.parsed()) cohort::bench::run_parameter_server(what, seconds);
}
