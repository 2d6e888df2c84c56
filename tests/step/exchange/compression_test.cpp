// Gradients that travel as half types, against a plain computation that rounds in the same way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "cohort/parallel/mesh_strategy.h"
#include "tests/support/errors.h"
#include "tests/support/process_ranks.h"
#include "tests/support/workers.h"

namespace cohort::compression_test {
namespace {

using testing::error_of;
using testing::expect_error;
using testing::has_transport;
using ::testing::HasSubstr;
using testing::with_workers;
using testing::WorkersOptions;

constexpr std::array<int64_t, 3> kSizes = {37, 20'000, 5};  // the second one is large enough to go in slices

// Parameters that begin as zeros.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(torch::ScalarType dtype) {
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      // A child each, so that they can be units.
      auto child = std::make_shared<torch::nn::Module>();
      child->register_parameter("weight", torch::zeros({kSizes[i]}, dtype));
      register_module("part" + std::to_string(i), child);
    }
  }
};
TORCH_MODULE(Net);

std::vector<torch::Tensor> gradients_of(int replica, torch::ScalarType dtype, double scale = 1.0) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(replica + 1));
  std::vector<torch::Tensor> list;
  for (const int64_t size : kSizes) list.push_back(torch::randn({size}, generator, torch::kDouble).to(dtype) * scale);
  return list;
}

// Takes a step down the gradients and returns the sums that it was taken by.
torch::Tensor sums_of(const Strategy& strategy, torch::ScalarType dtype, bool reduced, double scale,
                      ExchangeTimeline* timeline = nullptr) {
  const auto net = strategy.mirror([&] { return Net(dtype); });
  const auto sgd = strategy.optimizer(net, SGD({.learning_rate = 1.0}));
  strategy.run([&](Replica& replica) {
    const std::vector<torch::Tensor> own = gradients_of(replica.id(), dtype, scale);
    if (reduced) return sgd[replica].apply_gradients(gradients_of(0, dtype, scale), /*reduced=*/true);
    torch::Tensor loss = torch::zeros({}, dtype);
    const auto parameters = net[replica]->parameters();
    for (std::size_t i = 0; i < own.size(); ++i) loss = loss + (parameters[i] * own[i]).sum();
    sgd[replica].minimize(loss);
  });
  if (timeline != nullptr) *timeline = sgd.exchange_timeline();
  const auto copies = strategy.run([&](Replica& replica) {
    std::vector<torch::Tensor> flat;
    for (const auto& parameter : net[replica]->parameters()) flat.push_back(-parameter.detach());
    return torch::cat(flat);
  });
  for (const torch::Tensor& copy : copies.values()) EXPECT_TRUE(torch::equal(copy, copies.values().front()));
  return copies.values().front();
}

torch::Tensor rounded(const torch::Tensor& values, torch::ScalarType as) {
  return values.to(as).to(torch::kFloat);
}

// The sums of the same gradients. What a worker's replicas have is added up in memory as it is, or with `by_messages`
// as it travels among them, too.
torch::Tensor expected_sums(int workers, int replicas, torch::ScalarType as, torch::ScalarType dtype, bool by_messages,
                            double scale) {
  torch::Tensor total;
  for (int w = 0; w < workers; ++w) {
    torch::Tensor here;
    for (int r = 0; r < replicas; ++r) {
      torch::Tensor own = torch::cat(gradients_of(w * replicas + r, dtype, scale));
      if (by_messages) own = rounded(own, as);
      here = r == 0 ? own : here + own;
    }
    here = rounded(here, as);
    total = w == 0 ? here : total + here;
  }
  return total.to(as).to(dtype);
}

struct Case {
  std::string compression;
  int workers = 2;
  int replicas = 1;
  int stage = 0;
  bool overlap = false;
  torch::ScalarType dtype = torch::kFloat;
  double scale = 1.0;
  std::string implementation = "ring";
};

class Compression : public ::testing::TestWithParam<Case> {};

// Some of the large ones are beyond float16, and their sums are infinite, as in the plain computation.
TEST_P(Compression, SumsAreThoseOfWhatTravelled) {
  const Case& each = GetParam();
  if (!has_transport(each.implementation)) GTEST_SKIP() << "this build has no " << each.implementation;
  WorkersOptions options{.workers = each.workers, .replicas = each.replicas};
  options.exchange.gradient_compression = each.compression;
  options.communication.overlap = each.overlap;
  options.communication.bytes_per_pack = each.stage < 3 ? 256 : 0;
  options.communication.shared_memory = false;
  options.communication.implementation = each.implementation;
  options.sharding.stage = each.stage;
  if (each.stage == 3) options.sharding.min_unit_bytes = 0;
  const auto as = each.compression == "bfloat16" ? torch::kBFloat16 : torch::kHalf;
  const torch::Tensor expected =
      expected_sums(each.workers, each.replicas, as, each.dtype, /*by_messages=*/each.stage > 0, each.scale);
  std::vector<ExchangeTimeline> timelines(static_cast<std::size_t>(each.workers));
  with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    ExchangeTimeline& timeline = timelines[static_cast<std::size_t>(strategy.worker_rank())];
    EXPECT_TRUE(torch::equal(sums_of(strategy, each.dtype, /*reduced=*/false, each.scale, &timeline), expected));
    const torch::Tensor reduced = sums_of(strategy, each.dtype, /*reduced=*/true, 1.0);
    EXPECT_TRUE(torch::equal(reduced, torch::cat(gradients_of(0, each.dtype)))) << "nothing travels";
  });
  EXPECT_EQ(timelines[0].messages.empty(), !each.overlap && each.stage < 2);
  if (timelines[0].messages.empty()) return;
  int64_t bytes = 0;
  for (const auto& message : timelines[0].messages) bytes += message.bytes;
  const auto elements = std::accumulate(kSizes.begin(), kSizes.end(), int64_t{0});
  EXPECT_GE(bytes, 2 * elements);
  EXPECT_LT(bytes, 2 * elements + 500) << "but for what sizes that do not divide are filled up with";
}

INSTANTIATE_TEST_SUITE_P(
    All, Compression,
    ::testing::Values(Case{"bfloat16"}, Case{"float16"}, Case{"bfloat16", 3, 2}, Case{"float16", 3, 2, 0, true},
                      Case{"bfloat16", 2, 1, 0, true, torch::kDouble},
                      Case{"float16", 2, 1, 0, false, torch::kFloat, 2e4},
                      Case{"bfloat16", 2, 1, 0, false, torch::kFloat, 1e30}, Case{"bfloat16", 2, 1, 1},
                      Case{"float16", 3, 2, 2}, Case{"bfloat16", 3, 1, 2, true}, Case{"float16", 2, 1, 3},
                      // Half types go by messages there, with the same bits.
                      Case{"bfloat16", 3, 2, 0, true, torch::kFloat, 1.0, "gloo"},
                      Case{"float16", 2, 1, 2, false, torch::kFloat, 1.0, "gloo"}),
    [](const auto& info) {
      return c10::str(info.param.compression, "_", info.param.workers, "_workers_", info.param.replicas, "_replicas",
                      info.param.stage > 0 ? c10::str("_stage_", info.param.stage) : "",
                      info.param.overlap ? "_overlapped" : "", info.param.dtype == torch::kDouble ? "_float64" : "",
                      info.param.scale == 1.0 ? "" : "_large", info.param.implementation == "ring" ? "" : "_over_gloo");
    });

// Nothing travels there: the sums are exact.
TEST(CompressionInCommonMemory, RoundsNothing) {
  WorkersOptions options{.workers = 2};
  options.exchange.gradient_compression = "bfloat16";
  for (const bool overlap : {false, true}) {
    options.communication.overlap = overlap;
    options.communication.bytes_per_pack = 256;
    with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
      const torch::Tensor exact =
          torch::cat(gradients_of(0, torch::kFloat)) + torch::cat(gradients_of(1, torch::kFloat));
      EXPECT_TRUE(torch::equal(sums_of(strategy, torch::kFloat, /*reduced=*/false, 1.0), exact));
    });
  }
}

// Replicas of one process that send each other messages.
TEST(CompressionOfReplicas, RoundsWhatEachSends) {
  for (const std::string compression : {"bfloat16", "float16"}) {
    const auto as = compression == "bfloat16" ? torch::kBFloat16 : torch::kHalf;
    for (const int stage : {0, 1, 2, 3}) {
      const MirroredStrategy strategy(
          {.devices = cpu_devices(3),
           .exchange = {.cross_device_ops = "reduction_to_one_device", .gradient_compression = compression},
           .sharding = {.stage = stage}});
      const torch::Tensor expected = expected_sums(3, 1, as, torch::kFloat, /*by_messages=*/true, 1.0);
      EXPECT_TRUE(torch::equal(sums_of(strategy, torch::kFloat, /*reduced=*/false, 1.0), expected)) << stage;
    }
  }
  // Gradients that are of a half type travel as they are.
  const MirroredStrategy strategy({.devices = cpu_devices(2), .exchange = {.gradient_compression = "float16"}});
  const torch::Tensor sums = sums_of(strategy, torch::kBFloat16, /*reduced=*/false, 1e6);
  EXPECT_TRUE(sums.isfinite().all().item<bool>());
}

// Rows of a table are made dense before they travel.
TEST(CompressionOfReplicas, TakesSparseGradients) {
  const MirroredStrategy strategy(
      {.devices = cpu_devices(2),
       .exchange = {.cross_device_ops = "hierarchical_copy", .gradient_compression = "bfloat16"}});
  const auto net = strategy.mirror([] { return Net(torch::kFloat); });
  const auto sgd = strategy.optimizer(net, SGD({.learning_rate = 1.0}));
  const auto own = [](int replica) {
    std::vector<torch::Tensor> gradients = gradients_of(replica, torch::kFloat);
    gradients[0] = gradients[0].masked_fill(torch::arange(kSizes[0]).lt(30), 0.0);
    return gradients;
  };
  strategy.run([&](Replica& replica) {
    std::vector<torch::Tensor> gradients = own(replica.id());
    gradients[0] = gradients[0].to_sparse();
    sgd[replica].apply_gradients(std::move(gradients));
  });
  const torch::Tensor sum = rounded(own(0)[0], torch::kBFloat16) + rounded(own(1)[0], torch::kBFloat16);
  EXPECT_TRUE(torch::equal(-net[0]->parameters()[0], rounded(sum, torch::kBFloat16)));
}

// A sum that is beyond float16 leaves the step out on all workers, and halves the scale.
TEST(CompressionWithALossScale, LeavesOutAStepThatIsTooLarge) {
  WorkersOptions options{.workers = 2};
  options.exchange.gradient_compression = "float16";
  options.communication.shared_memory = false;
  with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    const auto net = strategy.mirror([] { return torch::nn::Linear(torch::nn::LinearOptions(3, 1).bias(false)); });
    const auto sgd = strategy.optimizer(
        net, SGD({.learning_rate = 1.0, .gradient = {.loss_scale = LossScale{.initial_scale = 65536.0}}}));
    const torch::Tensor before = net.state().front().second.clone();
    const auto step = [&] {
      strategy.run([&](Replica& replica) { sgd[replica].minimize(net[replica]->weight.sum()); });
    };
    step();
    EXPECT_TRUE(torch::equal(net.state().front().second, before));
    EXPECT_EQ(sgd.iterations(), 0);
    EXPECT_EQ(sgd.loss_scale(), 32768.0);
    step();  // each 32768, together beyond again
    EXPECT_EQ(sgd.loss_scale(), 16384.0);
    step();
    EXPECT_EQ(sgd.iterations(), 1);
    EXPECT_TRUE(torch::equal(net.state().front().second, before - 2.0));
  });
}

TEST(CompressionRefused, WhereNothingTravels) {
  const auto refuse = [](const Strategy& strategy, const std::string& part) {
    const auto net = strategy.mirror([] { return torch::nn::Linear(4, 4); });
    expect_error<InvalidArgument>([&] { (void)strategy.optimizer(net, SGD()); }, part);
  };
  const ExchangeOptions half{.gradient_compression = "bfloat16"};
  refuse(MirroredStrategy({.devices = cpu_devices(2), .exchange = half}),
         "mirrored: gradient_compression is bfloat16, but there are no messages of gradients: the replicas add them up "
         "in place");
  refuse(MirroredStrategy({.devices = cpu_devices(1), .exchange = half}), "there is one replica");
  refuse(MirroredStrategy({.devices = cpu_devices(2), .exchange = half, .sharding = {.stage = 1}}), "in place");
  refuse(CentralStorageStrategy({.compute_devices = cpu_devices(2), .exchange = half}),
         "central_storage: gradient_compression is bfloat16");
  refuse(MeshStrategy(DeviceMesh({2}, {"sequence"}, cpu_devices(2)), {.exchange = half}),
         "all replicas compute with the same examples");
}

TEST(CompressionRefused, UnknownOrNotTheSame) {
  expect_error<InvalidArgument>(
      [] { MirroredStrategy({.devices = cpu_devices(2), .exchange = {.gradient_compression = "int8"}}); },
      "gradient_compression is \"int8\", wanted none, bfloat16, float16 or power_sgd");
  const ClusterSpec cluster = testing::loopback_workers(2);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&cluster, rank] {
      const auto resolver =
          std::make_shared<SimpleResolver>(SimpleResolverOptions{.cluster = cluster, .task = TaskId{"worker", rank}});
      const std::string error = error_of<InvalidArgument>([&] {
        MultiWorkerMirroredStrategy({.resolver = resolver,
                                     .devices = cpu_devices(1),
                                     .exchange = {.gradient_compression = rank == 0 ? "none" : "float16"}});
      });
      EXPECT_THAT(error, HasSubstr("the workers differ in gradient compression: "));
    });
  }
}

}  // namespace
}  // namespace cohort::compression_test
