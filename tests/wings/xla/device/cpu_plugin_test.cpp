// XLA's own plugin for CPUs, from loading to several replicas of several partitions.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/xla.h"
#include "tests/wings/xla/device/programs.h"

namespace cohort::cpu_plugin_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

class CpuPlugin : public testing::XlaCpuTest {};

TEST_F(CpuPlugin, TellsItsDevices) {
  const XlaClientPtr four = client(4);
  EXPECT_EQ(four->platform(), "cpu");
  EXPECT_EQ(four->process(), 0);
  EXPECT_THAT(four->local_devices(), ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(four->devices().size(), 4U);
  EXPECT_EQ(four->device(2).kind, "cpu");
  EXPECT_FALSE(four->platform_version().empty());
  EXPECT_THAT(four->default_devices(2, 2), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(four->memory(0), std::nullopt);
  EXPECT_THAT(error_of<NotFound>([&] { four->device(7); }), HasSubstr("there is no device 7, only 0, 1, 2, 3"));
  EXPECT_GT(plugin_->attributes().count("stablehlo_current_version"), 0U);
}

TEST_F(CpuPlugin, RunsAProgram) {
  const XlaClientPtr one = client(1);
  const XlaExecutablePtr program = one->compile(xla_programs::kMatmul);
  const torch::Tensor a = torch::rand({2, 3});
  const torch::Tensor b = torch::rand({3, 2});
  const torch::Tensor c = torch::rand({2, 2});
  const XlaLaunch launch = program->launch({{one->to_device(a, 0), one->to_device(b, 0), one->to_device(c, 0)}});
  launch.done.wait();
  EXPECT_TRUE(launch.done.ready());
  EXPECT_TRUE(torch::allclose(launch.outputs[0][0].to_host(), a.mm(b) + c));
  EXPECT_EQ(program->program().name(), "matmul");
  const XlaSignature& signature = *program->program().signature();
  EXPECT_THAT(signature.parameters, ElementsAre(XlaShape{XlaType::kF32, {2, 3}}, XlaShape{XlaType::kF32, {3, 2}},
                                                XlaShape{XlaType::kF32, {2, 2}}));
  EXPECT_THAT(signature.outputs, ElementsAre(XlaShape{XlaType::kF32, {2, 2}}));
  EXPECT_THAT(signature.donated, ElementsAre(false, false, false));
}

TEST_F(CpuPlugin, CarriesEveryDtypeThereAndBack) {
  const XlaClientPtr one = client(1);
  for (const torch::ScalarType dtype :
       {torch::kBool, torch::kInt8, torch::kInt16, torch::kInt32, torch::kInt64, torch::kUInt8, torch::kFloat16,
        torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kComplexFloat, torch::kComplexDouble}) {
    const torch::Tensor tensor = torch::randn({3, 5}).mul(10).to(dtype);
    const torch::Tensor turned = tensor.t();
    for (const XlaHostMemory memory : {XlaHostMemory::kCopied, XlaHostMemory::kKept, XlaHostMemory::kShared}) {
      EXPECT_TRUE(torch::equal(one->upload(tensor, 0, memory).buffer.to_host(), tensor)) << dtype;
      const XlaBuffer buffer = one->upload(turned, 0, memory).buffer;
      EXPECT_TRUE(torch::equal(buffer.to_host(), turned)) << dtype;
      EXPECT_EQ(buffer.shape(), (XlaShape{xla_type(dtype), {5, 3}}));
    }
  }
  const torch::Tensor scalar = torch::tensor(3.5);
  EXPECT_TRUE(torch::equal(one->to_device(scalar, 0).to_host(), scalar));
  const torch::Tensor empty = torch::empty({0, 4});
  EXPECT_EQ(one->to_device(empty, 0).to_host().sizes(), empty.sizes());
  const XlaBuffer bits = one->to_device(torch::tensor({int64_t{-1}}), 0, XlaType::kU64);
  EXPECT_EQ(bits.shape().to_text(), "ui64[1]");
  EXPECT_EQ(bits.to_host().item<int64_t>(), -1);
}

TEST_F(CpuPlugin, SharesMemoryOnlyWhereItIsAsked) {
  const XlaClientPtr one = client(1);
  const torch::Tensor tensor = torch::ones({1 << 16});
  ASSERT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64, 0U);
  XlaUpload shared = one->upload(tensor, 0, XlaHostMemory::kShared);
  EXPECT_EQ(shared.buffer.address(), reinterpret_cast<std::uintptr_t>(tensor.data_ptr()));
  EXPECT_FALSE(shared.host_done.ready());
  shared.buffer = XlaBuffer();
  shared.host_done.wait();
  const XlaUpload kept = one->upload(tensor, 0, XlaHostMemory::kKept);
  kept.host_done.wait();
  tensor.zero_();
  EXPECT_EQ(kept.buffer.to_host().sum().item<float>(), 1 << 16);
  const XlaBuffer copied = one->to_device(tensor, 0);
  tensor.fill_(5);
  EXPECT_EQ(copied.to_host().sum().item<float>(), 0);
}

TEST_F(CpuPlugin, CopiesBetweenDevices) {
  const XlaClientPtr two = client(2);
  const torch::Tensor tensor = torch::rand({7});
  const XlaBuffer there = two->to_device(tensor, 0).copy_to(1);
  EXPECT_EQ(there.device(), 1);
  EXPECT_TRUE(torch::equal(there.to_host(), tensor));
  EXPECT_THAT(error_of<InvalidArgument>([&] { there.copy_to(1); }), HasSubstr("wanted another device"));
}

TEST_F(CpuPlugin, ReplicasSumAndDonate) {
  for (const int replicas : {1, 2, 4, 8}) {
    const XlaClientPtr all = client(replicas);
    const XlaExecutablePtr program = all->compile(xla_programs::step(replicas), {.num_replicas = replicas});
    EXPECT_THAT(program->program().signature()->donated, ElementsAre(true, true, false));
    XlaLists state(replicas);
    for (int r = 0; r < replicas; ++r) {
      state[r] = {all->to_device(torch::zeros({4}), r), all->to_device(torch::tensor(int64_t{0}), r)};
    }
    const std::uintptr_t address = state[0][0].address();
    constexpr int kSteps = 100;
    for (int step = 0; step < kSteps; ++step) {  // the launches queue up
      XlaLists arguments = state;
      for (int r = 0; r < replicas; ++r) arguments[r].push_back(all->to_device(torch::full({4}, r + 1.0F), r));
      state = program->launch(arguments).outputs;
      EXPECT_TRUE(arguments[0][0].deleted());
      EXPECT_FALSE(arguments[0][2].deleted());
    }
    const float each = static_cast<float>(replicas * (replicas + 1)) / 2;
    for (int r = 0; r < replicas; ++r) {
      EXPECT_TRUE(torch::equal(state[r][0].to_host(), torch::full({4}, kSteps * each))) << replicas;
      EXPECT_EQ(state[r][1].to_host().item<int64_t>(), kSteps);
    }
    EXPECT_EQ(state[0][0].address(), address);
  }
}

TEST_F(CpuPlugin, DividesAConvolution) {
  const torch::Tensor x = torch::randn({1, 2, 8, 8});
  const torch::Tensor w = torch::randn({3, 2, 3, 3});
  const torch::Tensor wanted = torch::conv2d(x, w, {}, 1, 1);
  for (const int parts : {2, 4}) {
    for (const bool shardy : {true, false}) {
      const XlaClientPtr all = client(parts);
      const XlaExecutablePtr program =
          all->compile(xla_programs::divided_convolution(parts, shardy), {.num_partitions = parts, .shardy = shardy});
      EXPECT_EQ(program->program().signature()->parameters[0].sizes, (std::vector<int64_t>{1, 2, 8 / parts, 8}));
      XlaLists arguments(parts);
      const std::vector<torch::Tensor> pieces = x.chunk(parts, 2);
      for (int p = 0; p < parts; ++p) arguments[p] = {all->to_device(pieces[p], p), all->to_device(w, p)};
      std::vector<torch::Tensor> results;
      for (const auto& outputs : program->launch(arguments).outputs) results.push_back(outputs[0].to_host());
      EXPECT_TRUE(torch::allclose(torch::cat(results, 2), wanted, 1e-4, 1e-5)) << parts << shardy;
      const std::vector<XlaCollective> collectives = program->program().collectives();
      ASSERT_EQ(collectives.size(), 1U) << program->program().hlo_text();
      EXPECT_EQ(collectives[0].name, "collective-permute");  // the halos
      EXPECT_EQ(collectives[0].count, 2);
      EXPECT_EQ(collectives[0].bytes, 2 * 2 * 8 * 4);  // a row of both channels from above and from below
    }
  }
}

TEST_F(CpuPlugin, ReplicasOfTwoOnDevicesOfOnesOwn) {
  const XlaClientPtr four = client(4);
  const XlaExecutablePtr program =
      four->compile(xla_programs::kReplicasOfTwo, {.num_replicas = 2, .num_partitions = 2, .devices = {3, 1, 2, 0}});
  ASSERT_EQ(program->slots().size(), 4U);
  XlaLists arguments;
  std::vector<torch::Tensor> halves(2, torch::zeros({2, 3}));
  for (const XlaSlot& slot : program->slots()) {
    EXPECT_EQ(slot.device, (std::vector<int>{3, 1, 2, 0}[slot.replica * 2 + slot.partition]));
    const torch::Tensor x = torch::rand({2, 3});
    halves[slot.partition] = halves[slot.partition] + x;
    arguments.push_back({four->to_device(x, slot.device)});
  }
  const XlaLaunch launch = program->launch(arguments);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(torch::allclose(launch.outputs[i][0].to_host(), halves[program->slots()[i].partition]));
    EXPECT_TRUE(torch::allclose(launch.outputs[i][1].to_host(), torch::cat(halves).sum(0)));
  }
}

TEST_F(CpuPlugin, RefusesALaunchBeforeItBegins) {
  const XlaClientPtr two = client(2);
  const XlaExecutablePtr program = two->compile(xla_programs::step(2), {.num_replicas = 2});
  const auto arguments = [&](int replica) {
    return std::vector{two->to_device(torch::zeros({4}), replica), two->to_device(torch::tensor(int64_t{0}), replica),
                       two->to_device(torch::ones({4}), replica)};
  };
  const auto refusal = [&](const std::function<void(XlaLists&)>& spoil) {
    XlaLists lists = {arguments(0), arguments(1)};
    spoil(lists);
    return error_of<InvalidArgument>([&] { program->launch(lists); });
  };
  EXPECT_THAT(refusal([](XlaLists& lists) { lists.pop_back(); }), HasSubstr("arguments for 1 device(s), wanted 2"));
  EXPECT_THAT(refusal([](XlaLists& lists) { lists[1].pop_back(); }),
              HasSubstr("replica 1, partition 0 has 2 argument(s), wanted 3"));
  EXPECT_THAT(refusal([&](XlaLists& lists) { lists[1][2] = two->to_device(torch::ones({5}), 1); }),
              HasSubstr("argument 2 of replica 1, partition 0 is f32[5], wanted f32[4]"));
  EXPECT_THAT(refusal([&](XlaLists& lists) { lists[1][2] = two->to_device(torch::ones({4}, torch::kDouble), 1); }),
              HasSubstr("is f64[4], wanted f32[4]"));
  EXPECT_THAT(refusal([&](XlaLists& lists) { lists[1][2] = lists[0][2]; }), HasSubstr("is on device 0, wanted 1"));
  EXPECT_THAT(refusal([&](XlaLists& lists) { lists[1][2] = lists[1][0]; }), HasSubstr("is there twice"));
  EXPECT_THAT(refusal([&](XlaLists& lists) { lists[0][1] = XlaBuffer(); }), HasSubstr("stands for no array"));
  EXPECT_THAT(refusal([&](XlaLists& lists) { lists[0][0] = client(2)->to_device(torch::zeros({4}), 0); }),
              HasSubstr("is another client's"));
  const XlaLists gone = {arguments(0), arguments(1)};
  gone[1][2].erase();
  EXPECT_THAT(error_of<FailedPrecondition>([&] { program->launch(gone); }),
              HasSubstr("argument 2 of replica 1, partition 0 (f32[4]) was donated to a launch or erased"));
  EXPECT_FALSE(gone[0][0].deleted());  // a launch that does not begin takes nothing
  const XlaLists good = {arguments(0), arguments(1)};
  program->launch(good).done.wait();
  EXPECT_THAT(error_of<FailedPrecondition>([&] { program->launch(good); }), HasSubstr("was donated to a launch"));
  EXPECT_THAT(error_of<FailedPrecondition>([&] { good[0][0].to_host(); }), HasSubstr("cannot be copied to the host"));
}

TEST_F(CpuPlugin, AWrongTextIsNamedByItsLine) {
  const XlaClientPtr one = client(1);
  std::string text = xla_programs::kMatmul;
  text.replace(text.find("stablehlo.add"), 13, "stablehlo.ad");
  const std::string message = error_of<InvalidArgument>([&] { one->compile(text); });
  EXPECT_THAT(message, HasSubstr("[xla] the plugin cpu: PJRT_Client_Compile failed"));
  EXPECT_THAT(message, HasSubstr("line 4 of the program is:     %1 = stablehlo.ad %0, %c")) << message;
  EXPECT_THAT(error_of<InvalidArgument>([&] { one->compile(xla_programs::step(2)); }),
              HasSubstr("the program says mhlo.num_replicas = 2, but the options of its compilation 1"));
  EXPECT_THAT(error_of<NotFound>([&] { one->compile(xla_programs::kMatmul, {.devices = {3}}); }),
              HasSubstr("there is no device 3"));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                one->compile(xla_programs::kMatmul, {.devices = {0, 1}});
              }),
              HasSubstr("2 devices are named for 1 replica(s) of 1 partition(s), wanted 1"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { one->compile(xla_programs::kMatmul, {.num_replicas = 0}); }),
              HasSubstr("a program for 0 replica(s)"));
}

TEST_F(CpuPlugin, TellsWhatAProgramCosts) {
  const XlaClientPtr one = client(1);
  const XlaExecutablePtr program = one->compile(xla_programs::kMatmul);
  const XlaCost cost = program->program().cost();
  ASSERT_TRUE(cost.flops);
  EXPECT_EQ(*cost.flops, 2 * 2 * 3 * 2 + 4);
  const std::optional<XlaProgramMemory> memory = program->program().memory();
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->arguments, (6 + 6 + 4) * 4);
  EXPECT_EQ(memory->outputs, 4 * 4);
  EXPECT_GE(memory->peak, 4 * 4);
  const std::string text = program->program().hlo_text();
  EXPECT_THAT(text, HasSubstr("ENTRY %main"));
  EXPECT_THAT(text, HasSubstr("= f32[2,3] parameter(0)"));
  EXPECT_GE(program->program().operations().at("parameter"), 3);
  EXPECT_TRUE(program->program().collectives().empty());
}

TEST_F(CpuPlugin, LoadsAProgramFromItsBytes) {
  const XlaClientPtr two = client(2);
  const XlaCompileOptions options{.num_replicas = 2, .devices = {1, 0}};
  const std::string bytes = two->compile(xla_programs::step(2), options)->program().serialize();
  const XlaExecutablePtr program = two->load(bytes, options);
  EXPECT_THAT(program->program().signature()->donated, ElementsAre(true, true, false));
  EXPECT_EQ(program->slots()[0].device, 1);
  XlaLists arguments;
  for (const XlaSlot& slot : program->slots()) {
    arguments.push_back({two->to_device(torch::zeros({4}), slot.device),
                         two->to_device(torch::tensor(int64_t{4}), slot.device),
                         two->to_device(torch::full({4}, 1.5F), slot.device)});
  }
  const XlaLaunch launch = program->launch(arguments);
  EXPECT_TRUE(torch::equal(launch.outputs[1][0].to_host(), torch::full({4}, 3.0F)));
  EXPECT_EQ(launch.outputs[0][1].to_host().item<int64_t>(), 5);
  EXPECT_THAT(error_of<FailedPrecondition>([&] { two->load(bytes); }), HasSubstr("is for 2 replica(s) of 1"));
  EXPECT_THROW(two->load("nonsense"), Error);
}

TEST_F(CpuPlugin, ATensorThatIsNoDenseOneOfTheHostIsRefused) {
  const XlaClientPtr one = client(1);
  EXPECT_THAT(error_of<InvalidArgument>([&] { one->to_device(torch::Tensor(), 0); }), HasSubstr("is not defined"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { one->to_device(torch::zeros({2}, torch::kMeta), 0); }),
              HasSubstr("is on meta"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { one->to_device(torch::zeros({2}), 0, XlaType::kU64); }),
              HasSubstr("cannot become ui64"));
  EXPECT_THROW(one->to_device(torch::zeros({2}), 9), NotFound);
}

}  // namespace
}  // namespace cohort::cpu_plugin_test
