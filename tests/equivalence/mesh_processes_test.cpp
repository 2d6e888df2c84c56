// Models of which processes have parts, which `cohort launch` starts, against one device: parameters, words and
// positions, tables, shared states beside the batch, and images.
#include "cohort/models/layouts.h"
#include "tests/equivalence/mesh_workers.h"
#include "tests/equivalence/recommender_runs.h"
#include "tests/equivalence/sequence_runs.h"
#include "tests/equivalence/space_runs.h"

namespace cohort::equivalence::mesh_processes_test {
namespace {

using mesh_runs::mesh_of;

constexpr mesh_runs::Workers kLine = {.workers = 2, .devices = 1, .batch = 1, .model = 2};
constexpr mesh_runs::Workers kBesideTheBatch = {.workers = 2, .devices = 2, .batch = 2, .model = 2};
constexpr mesh_runs::Workers kLineOfThree = {.workers = 3, .devices = 1, .batch = 1, .model = 3};

MultiWorkerMeshStrategy over_processes(const DeviceMesh& mesh, const MeshOptions& options, int processes = 2) {
  const MultiWorkerMeshStrategy strategy(mesh, options);
  EXPECT_EQ(strategy.num_workers(), processes) << "cohort launch --nproc starts this test";
  return strategy;
}

void expect_layers_like_one_device(const std::vector<std::pair<int, mesh_runs::Workers>>& runs) {
  const std::vector<mesh_runs::Net> nets = mesh_runs::nets();
  for (const auto& [which, shape] : runs) {
    const mesh_runs::Net& net = nets[static_cast<std::size_t>(which)];
    SCOPED_TRACE(c10::str(net.name, " on ", mesh_of(shape).to_string()));
    const Optimizer adam = Adam({.learning_rate = 0.02, .gradient = {.global_clipnorm = 0.5}});
    const Outcome wanted = mesh_runs::under(OneDeviceStrategy("/CPU:0"), net, adam);
    const Strategy strategy = over_processes(mesh_of(shape), {.layout = net.layout}, shape.workers);
    expect_like(mesh_runs::under(strategy, net, adam), wanted);
  }
}

TEST(MeshInProcesses, LayersLearnAsOnOneDevice) {
  expect_layers_like_one_device({{0, kLine}, {2, kLine}, {3, kBesideTheBatch}});
}

TEST(MeshInThreeProcesses, LayersLearnAsOnOneDevice) {
  expect_layers_like_one_device({{3, kLineOfThree}, {4, kLineOfThree}, {5, kLineOfThree}});
}

using Cuts = layouts::RecommenderLayoutOptions;

void expect_tables_like_one_device(const std::vector<std::pair<Cuts, mesh_runs::Workers>>& runs) {
  const recommender_runs::Learned wanted = recommender_runs::in_parts(OneDeviceStrategy("/CPU:0"));
  for (const auto& [cuts, shape] : runs) {
    SCOPED_TRACE(c10::str(cuts.cuts_vocabulary ? "rows" : "columns", " on ", mesh_of(shape).to_string()));
    const Strategy strategy =
        over_processes(mesh_of(shape), {.layout = recommender_runs::layout_of(cuts)}, shape.workers);
    expect_like(recommender_runs::in_parts(strategy), wanted);
  }
}

// Columns or rows of each table, and of the dense layers in turn.
TEST(MeshInProcesses, TablesLearnAsOnOneDevice) {
  expect_tables_like_one_device({{{.cuts_mlps = true}, kBesideTheBatch}, {{.cuts_vocabulary = true}, kLine}});
}

TEST(MeshInThreeProcesses, TablesLearnAsOnOneDevice) {
  expect_tables_like_one_device({{{}, kLineOfThree}, {{.cuts_vocabulary = true, .cuts_mlps = true}, kLineOfThree}});
}

// Each process has some words of the embeddings and logits, and some positions of what lies between the products.
TEST(MeshInProcesses, ATransformerLearnsAsOnOneDevice) {
  const models::DecoderOptions options = sequence_runs::of_even_words();
  const sequence_runs::Net net{"decoder", [options] { return sequence_runs::small_decoder(options); }};
  const Outcome wanted = sequence_runs::under(OneDeviceStrategy("/CPU:0"), net);
  const MeshOptions parts{.layout = layouts::transformer(options, "model", /*cuts_vocabulary=*/true),
                          .sequence_parallel = true};
  expect_like(sequence_runs::under(over_processes(mesh_of(kLine), parts), net), wanted);
}

// Two processes of two replicas: parameters are shared within each of them, or between the two.
TEST(MeshInProcesses, ParametersSharedAlongOneOfTwoAxesLearnAsOnOneDevice) {
  const mesh_runs::Net net = mesh_runs::nets()[3];
  const Optimizer adam = Adam({.learning_rate = 0.02});
  const Outcome wanted = mesh_runs::under(OneDeviceStrategy("/CPU:0"), net, adam);
  for (const char* axis : {"replica", "batch"}) {
    SCOPED_TRACE(axis);
    const MultiWorkerMirroredStrategy strategy(
        {.sharding = {.stage = 3, .axis = axis, .min_unit_bytes = 0},
         .mesh = DeviceMesh({2, 2}, {"replica", "batch"}, devices_of_workers(2, 2))});
    ASSERT_EQ(strategy.num_workers(), 2);
    expect_like(mesh_runs::under(strategy, net, adam), wanted);
  }
}

// Each process has both parts of parameters; the states of each are shared between the two.
TEST(MeshInProcesses, SharedStatesOfPartsLearnAsOnOneDevice) {
  const mesh_runs::Net net = mesh_runs::nets()[3];
  const Optimizer adam = Adam({.learning_rate = 0.02, .gradient = {.global_clipnorm = 0.5}});
  const Outcome wanted = mesh_runs::under(OneDeviceStrategy("/CPU:0"), net, adam);
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    const Strategy strategy =
        over_processes(mesh_of(kBesideTheBatch), {.layout = net.layout, .sharding = mesh_runs::shared_states(stage)});
    expect_like(mesh_runs::under(strategy, net, adam), wanted);
  }
}

// Numbers of parameters that three do not divide.
TEST(MeshInThreeProcesses, SharedStatesLearnAsOnOneDevice) {
  const mesh_runs::Net net = mesh_runs::nets()[0];
  const Optimizer adam = Adam({.learning_rate = 0.02, .gradient = {.global_clipnorm = 0.5}});
  const Outcome wanted = mesh_runs::under(OneDeviceStrategy("/CPU:0"), net, adam);
  for (const ShardingOptions& sharding :
       {ShardingOptions{.stage = 1}, ShardingOptions{.stage = 2}, ShardingOptions{.stage = 3, .min_unit_bytes = 0}}) {
    SCOPED_TRACE(sharding.stage);
    const MultiWorkerMirroredStrategy strategy({.sharding = sharding});
    ASSERT_EQ(strategy.num_workers(), 3) << "cohort launch --nproc=3 starts this test";
    expect_like(mesh_runs::under(strategy, net, adam), wanted);
  }
}

TEST(MeshInProcesses, ImagesInPartsLearnAsOnOneDevice) {
  const std::vector<space_runs::Net> nets = space_runs::nets();
  const std::vector<int64_t> quarters = {1, 1, 2, 2}, halves = {1, 1, 2, 1};
  for (std::size_t i = 0; i < nets.size(); ++i) {
    const std::vector<int64_t>& parts = i == 0 ? quarters : halves;
    SCOPED_TRACE(c10::str(nets[i].name, " in ", parts));
    const int devices = i == 0 ? 2 : 1;  // of each process
    const DeviceMesh mesh({2 * devices}, {"space"}, devices_of_workers(2, devices));
    const Outcome wanted = space_runs::under(OneDeviceStrategy("/CPU:0"), nets[i]);
    expect_like(space_runs::under(over_processes(mesh, {.input_partition_dims = parts}), nets[i]), wanted);
  }
}

TEST(MeshInThreeProcesses, ImagesInPartsLearnAsOnOneDevice) {
  const DeviceMesh mesh({3}, {"space"}, devices_of_workers(3, 1));
  const space_runs::Net net = space_runs::nets()[1];
  const Outcome wanted = space_runs::under(OneDeviceStrategy("/CPU:0"), net);
  expect_like(space_runs::under(over_processes(mesh, {.input_partition_dims = {1, 1, 1, 3}}, 3), net), wanted);
}

}  // namespace
}  // namespace cohort::equivalence::mesh_processes_test
