// Training steps of a U-Net on one image, in parts or on one thread.
#include <iostream>

#include "bench.h"
#include "cohort/mirrored.h"
#include "cohort/models/zoo.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"

namespace cohort::bench {

namespace {

constexpr int64_t kEdge = 512;

// A step with an image in so many parts of rows, each on a thread.
class SegmentationStep {
 public:
  SegmentationStep(int parts, int64_t filters)
      : strategy_({.devices = cpu_devices(parts),
                   .exchange = {.threads_per_replica = 1},
                   .input_partition_dims = {1, 1, parts, 1}}),
        parts_(parts),
        net_(strategy_.mirror([&] { return models::unet({.num_classes = 2, .filters = filters}); })),
        adam_(strategy_.optimizer(net_, Adam())) {}

  void operator()(const torch::Tensor& image, const torch::Tensor& labels) {
    strategy_.run([&](Replica& replica) {
      const torch::Tensor x =
          parts_ == 1 ? image : strategy_.experimental_split_to_logical_devices(image, {1, 1, parts_, 1});
      adam_[replica].minimize(torch::cross_entropy_loss(net_[replica]->forward(x), labels));
    });
  }

 private:
  MirroredStrategy strategy_;
  int64_t parts_;
  Mirrored<std::shared_ptr<LayerModule>> net_;
  MirroredOptimizer adam_;
};

}  // namespace

void run_space(int parts, int64_t filters, double seconds) {
  torch::manual_seed(1);
  const torch::Tensor image = torch::randn({1, 3, kEdge, kEdge});
  const torch::Tensor labels = torch::randint(2, {1, kEdge, kEdge}, torch::kLong);
  SegmentationStep step(parts, filters);
  const double time = median_time(seconds, [&] { step(image, labels); });
  std::cout << "{\"space\": \"unet " << kEdge << "\", \"filters\": " << filters << ", \"parts\": " << parts
            << ", \"us\": " << time * 1e6 << ", \"samples_per_second\": " << 1.0 / time << "}\n";
}

}  // namespace cohort::bench
