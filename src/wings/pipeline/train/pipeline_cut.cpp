#include "wings/pipeline/train/pipeline_cut.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <sstream>

#include "base/cpu_threads.h"
#include "base/fail.h"
#include "wings/pipeline/strategy/pipeline_plan.h"
#include "wings/pipeline/train/stage.h"

namespace cohort {

namespace {

constexpr int64_t kExamples = 4;      // for which the layers are measured
constexpr int64_t kUnknownSize = 16;  // dimensions whose size is not known yet
constexpr int kTries = 3;             // of which the fastest counts

// The seconds of a forward and a backward pass, and what they gave.
struct TimedCall {
  double seconds = std::numeric_limits<double>::infinity();
  std::vector<torch::Tensor> outputs = {};
};

TimedCall measured(torch::nn::Module& layer, const std::vector<torch::Tensor>& inputs,
                   const std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>& call) {
  TimedCall best;
  for (int i = 0; i < kTries; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<torch::Tensor> own;
    for (const torch::Tensor& x : inputs) own.push_back(x.detach().set_requires_grad(x.is_floating_point()));
    best.outputs = call(own);
    for (torch::Tensor& y : best.outputs) {
      if (y.requires_grad()) y.sum().backward({}, /*retain_graph=*/true);
      y = y.detach();
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best.seconds = std::min(best.seconds, seconds);
  }
  for (torch::Tensor& parameter : layer.parameters()) parameter.mutable_grad() = torch::Tensor();
  return best;
}

// In evaluation mode nothing is drawn, and no statistics change.
std::vector<double> costs_of(const StrategyCore& core, const LayeredCopy& copy,
                             const std::vector<BuildContext>& inputs) {
  const torch::AutoGradMode with_gradients(true);
  const IntraOpThreads threads(core.threads_per_replica());
  std::vector<torch::Tensor> examples;
  for (const BuildContext& input : inputs) {
    std::vector<int64_t> sizes = {kExamples};
    for (const int64_t size : input.input) sizes.push_back(size < 0 ? kUnknownSize : size);
    const torch::Device device = core.plan().devices.front().torch_device;
    examples.push_back(torch::zeros(sizes, torch::dtype(input.input_dtype).device(device)));
    if (examples.back().is_floating_point()) examples.back().fill_(0.5);
  }
  const bool training = copy.module->is_training();
  copy.module->eval();
  const std::vector<PlacedLayer> places = copy.layers->places();
  std::vector<double> costs(places.size(), 0.0);
  copy.layers->visit(examples, [&](std::size_t place, const auto& values, const auto& call) {
    TimedCall result = measured(*places[place].layer, values, call);
    costs[place] = result.seconds;
    return std::move(result.outputs);
  });
  copy.module->train(training);
  return costs;
}

// Layers of which each replica has a part compute within a run only, so that their parameters stand for their time.
std::vector<double> sizes_of(const LayeredCopy& copy) {
  std::vector<double> costs;
  for (const PlacedLayer& place : copy.layers->places()) {
    costs.push_back(1.0);
    for (const torch::Tensor& parameter : place.layer->parameters()) {
      costs.back() += static_cast<double>(parameter.numel());
    }
  }
  return costs;
}

// Workers measure different times; the chief's count.
std::vector<std::size_t> chiefs_cut(const StrategyCore& core, const std::vector<std::size_t>& cut) {
  std::vector<std::size_t> chiefs;
  std::istringstream text(core.text_from_chief(c10::Join(" ", cut)));
  for (std::size_t layer = 0; text >> layer;) chiefs.push_back(layer);
  if (chiefs.size() == cut.size()) return chiefs;
  fail<DataLoss>("[pipeline] the chief cuts the model at ", chiefs.size(), " layers, this worker at ", cut.size());
}

std::vector<std::size_t> named_cut(const std::string& speaker, const std::vector<std::string>& cut,
                                   const std::vector<std::string>& names) {
  std::vector<std::size_t> first;
  for (const std::string& name : cut) {
    const auto found = std::find(names.begin(), names.end(), name);
    const auto place = static_cast<std::size_t>(found - names.begin());
    const bool ascends = place > (first.empty() ? 0 : first.back());
    if (found == names.end() || !ascends) {
      fail<InvalidArgument>(speaker, "PipelineOptions::cut: \"", name, "\" is ",
                            found == names.end() ? "no layer" : "not behind the beginning of the chunk before",
                            "; the layers are ", c10::Join(", ", names));
    }
    first.push_back(place);
  }
  return first;
}

}  // namespace

std::vector<std::size_t> cut_by_cost(const std::vector<double>& costs, std::size_t parts) {
  const std::size_t count = costs.size();
  constexpr double kNone = std::numeric_limits<double>::infinity();
  // The least cost of the most expensive of so many parts, of the items from one on, and the end of the first of them.
  std::vector<std::vector<double>> best(parts + 1, std::vector<double>(count + 1, kNone));
  std::vector<std::vector<std::size_t>> end(parts + 1, std::vector<std::size_t>(count + 1, count));
  best[0][count] = 0.0;
  for (std::size_t part = 1; part <= parts; ++part) {
    for (std::size_t begin = 0; begin < count; ++begin) {
      double own = 0.0;
      for (std::size_t last = begin; last < count; ++last) {
        own += costs[last];
        const double most = std::max(own, best[part - 1][last + 1]);
        if (most >= best[part][begin]) continue;
        best[part][begin] = most;
        end[part][begin] = last + 1;
      }
    }
  }
  std::vector<std::size_t> first;
  for (std::size_t part = parts, begin = 0; part > 1; --part) first.push_back(begin = end[part][begin]);
  return first;
}

void cut_for_pipeline(const std::string& speaker, const StrategyCore& core, const std::vector<LayeredCopy>& copies,
                      const std::vector<BuildContext>& inputs) {
  const PipelineExtras& extras = core.plan().extras.of<PipelineExtras>();
  const auto chunks = static_cast<std::size_t>(extras.chunks);
  if (chunks == 1) return;
  const LayeredCopy& copy = copies.front();
  std::vector<std::string> names, marks;
  for (const PlacedLayer& place : copy.layers->places()) {
    names.push_back(place.name);
    if (std::dynamic_pointer_cast<StageModule>(place.layer)) marks.push_back(place.name);
  }
  const std::string wanted = c10::str(chunks, " chunks of a schedule for ", core.plan().devices_per_replica, " stages");
  std::vector<std::size_t> cut;
  if (!extras.cut.empty()) {
    if (!marks.empty()) {
      fail<InvalidArgument>(speaker, "PipelineOptions::cut names layers, and the model has Stage() layers, too (",
                            c10::Join(", ", marks), "); give one of them");
    }
    if (extras.cut.size() + 1 != chunks) {
      fail<InvalidArgument>(speaker, "PipelineOptions::cut has ", extras.cut.size(), " names, wanted ", chunks - 1,
                            " for the ", wanted, "; the layers are ", c10::Join(", ", names));
    }
    cut = named_cut(speaker, extras.cut, names);
  } else if (!marks.empty()) {
    if (marks.size() + 1 == chunks) return;  // they cut it themselves
    fail<InvalidArgument>(speaker, "the model has ", marks.size(), " Stage() layers (", c10::Join(", ", marks),
                          "), wanted ", chunks - 1, " for the ", wanted);
  } else {
    if (names.size() < chunks) {
      fail<InvalidArgument>(speaker, "the model has ", names.size(), " layers (", c10::Join(", ", names),
                            "), which cannot be cut into the ", wanted);
    }
    const bool divided = static_cast<bool>(core.plan().divide);
    cut = cut_by_cost(divided ? sizes_of(copy) : costs_of(core, copy, inputs), chunks);
    cut = chiefs_cut(core, cut);
  }
  for (const LayeredCopy& each : copies) each.layers->begin_chunks(cut);
}

}  // namespace cohort
