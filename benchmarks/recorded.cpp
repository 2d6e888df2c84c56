// What the host does for devices that record their work: recording a step, and beginning a program.
#include <iostream>

#include "bench.h"
#include "wings/xla/device/find_plugin.h"
#include "wings/xla/device/runner.h"
#include "wings/xla/record/recorder.h"

namespace cohort::bench {

namespace {

const torch::Device kDevice(torch::kXLA, 0);

// Returns the gradients of one step, recorded.
std::vector<torch::Tensor> record_step(torch::nn::Sequential& net, const torch::Tensor& x, const torch::Tensor& y) {
  std::vector<torch::Tensor> parameters = net->parameters();
  return torch::autograd::grad({torch::cross_entropy_loss(net->forward(x), y)}, parameters);
}

}  // namespace

// Nothing runs what is recorded, so this needs no plugin.
void run_recording(const std::string& model, double seconds) {
  record::install_recorder({.devices = 1});
  torch::manual_seed(1);
  torch::nn::Sequential net = make_model(model);
  for (torch::Tensor& each : net->parameters()) record::move_in_place(each, kDevice);
  for (torch::Tensor& each : net->buffers()) record::move_in_place(each, kDevice);
  const torch::Tensor x = make_input(model, batch_per_replica(model)).to(kDevice);
  const torch::Tensor y = torch::randint(kClasses, {batch_per_replica(model)}, torch::kLong).to(kDevice);
  // Each step begins with the same moving statistics, as if the step before had run.
  const std::vector<torch::Tensor> statistics = net->buffers();
  std::vector<record::Value> before;
  for (const torch::Tensor& each : statistics) before.push_back(record::value_of(each));
  std::size_t operations = 0;
  const double time = median_time(seconds, [&] {
    std::vector<torch::Tensor> results = record_step(net, x, y);
    results.insert(results.end(), statistics.begin(), statistics.end());
    operations = record::recording_of(kDevice).capture(results).program->operations().size();
    for (std::size_t i = 0; i < statistics.size(); ++i) record::assign(statistics[i], before[i]);
  });
  std::cout << "{\"recording\": \"" << model << "\", \"operations\": " << operations << ", \"us\": " << time * 1e6
            << "}\n";
}

// A program of a few numbers, whose memory goes round: what is left is what it costs to begin it.
void run_launch(const std::string& plugin, int launches) {
  const XlaClientPtr client = XlaClient::create(XlaPlugin::load(find_xla_plugin(plugin, "cohort_bench")),
                                                {.options = {{"cpu_device_count", int64_t{1}}}});
  record::install_recorder({.devices = 1});
  const auto runner = make_xla_runner(client);
  record::set_runner(runner);
  const torch::Tensor start = torch::ones({4}).to(kDevice);
  record::Value before = record::value_of(start);
  torch::Tensor sum = start + 1.0;
  const record::Captured step = record::recording_of(kDevice).capture({&sum, 1}, {&before, 1});
  std::vector<std::shared_ptr<record::DeviceData>> values{runner->place(torch::ones({4}), 0)};
  std::vector<std::shared_ptr<record::DeviceData>> numbers;
  for (const torch::Tensor& each : step.scalars) numbers.push_back(runner->place(each, 0));
  const auto begin_one = [&] {
    std::vector<std::shared_ptr<record::DeviceData>> inputs = values;
    inputs.insert(inputs.end(), numbers.begin(), numbers.end());
    const double begin = now();
    values = runner->run(step.program, inputs, 0);
    return now() - begin;
  };
  begin_one();  // compiles
  std::vector<double> times;
  const double begin = now();
  for (int i = 0; i < launches; ++i) times.push_back(begin_one());
  const double queued = now() - begin;
  const torch::Tensor result = runner->fetch(*values.front(), record::value_of(sum).type());
  const double all = now() - begin;
  std::cout << "{\"launch\": " << launches << ", \"us\": " << median(times) * 1e6 << ", \"queued_us\": " << queued * 1e6
            << ", \"done_us\": " << all * 1e6 << ", \"result\": " << result[0].item<double>() << "}\n";
  record::set_runner(nullptr);
}

}  // namespace cohort::bench
