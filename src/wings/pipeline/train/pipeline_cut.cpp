#include "wings/pipeline/train/pipeline_cut.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <sstream>

#include "base/cpu_threads.h"
#include "base/fail.h"
#include "train/layers/stage.h"
#include "wings/pipeline/strategy/pipeline_plan.h"

namespace cohort {

namespace {

constexpr int64_t kExamples = 4;  // for which the layers are measured
constexpr int kTries = 3;         // of which the fastest counts

std::vector<std::string> names_of(const SequentialModule& module) {
  std::vector<std::string> names;
  for (const auto& child : module.named_children()) names.push_back(child.key());
  return names;
}

// Returns the seconds of a forward and a backward pass, and what the layer computes.
std::pair<double, torch::Tensor> measured(LayerModule& layer, const torch::Tensor& x) {
  double best = std::numeric_limits<double>::infinity();
  torch::Tensor y;
  for (int i = 0; i < kTries; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const torch::Tensor input = x.detach().set_requires_grad(x.is_floating_point());
    y = layer.forward(input);
    if (y.requires_grad()) y.sum().backward();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  for (torch::Tensor& parameter : layer.parameters()) parameter.mutable_grad() = torch::Tensor();
  return {best, y.detach()};
}

// In evaluation mode nothing is drawn, and no statistics change.
std::vector<double> costs_of(const StrategyCore& core, SequentialModule& module, const BuildContext& context) {
  const torch::AutoGradMode with_gradients(true);
  const IntraOpThreads threads(core.threads_per_replica());
  std::vector<int64_t> sizes = context.input;
  sizes.insert(sizes.begin(), kExamples);
  torch::Tensor x =
      torch::zeros(sizes, torch::dtype(context.input_dtype).device(core.plan().devices.front().torch_device));
  if (x.is_floating_point()) x.fill_(0.5);
  const bool training = module.is_training();
  module.eval();
  std::vector<double> costs;
  for (const auto& layer : module.layers()) {
    auto [seconds, y] = measured(*layer, x);
    costs.push_back(seconds);
    x = y;
  }
  module.train(training);
  return costs;
}

// Layers of which each replica has a part compute within a run only, so that their parameters stand for their time.
std::vector<double> sizes_of(const SequentialModule& module) {
  std::vector<double> costs;
  for (const auto& layer : module.layers()) {
    costs.push_back(1.0);
    for (const torch::Tensor& parameter : layer->parameters()) costs.back() += static_cast<double>(parameter.numel());
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

void cut_for_pipeline(const std::string& speaker, const StrategyCore& core,
                      const std::vector<SequentialModule*>& copies, const BuildContext& context) {
  const PipelineExtras& extras = core.plan().extras.of<PipelineExtras>();
  const auto chunks = static_cast<std::size_t>(extras.chunks);
  if (chunks == 1) return;
  const std::vector<std::string> names = names_of(*copies.front());
  std::vector<std::string> marks;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::dynamic_pointer_cast<StageModule>(copies.front()->layers()[i])) marks.push_back(names[i]);
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
    cut = cut_by_cost(divided ? sizes_of(*copies.front()) : costs_of(core, *copies.front(), context), chunks);
    cut = chiefs_cut(core, cut);
  }
  for (SequentialModule* copy : copies) copy->set_cut(cut);
}

}  // namespace cohort
