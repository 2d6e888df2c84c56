#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "device/backend.h"
#include "tests/support/errors.h"

namespace cohort::backends_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

TEST(Backends, TheHostsComesFirst) {
  ASSERT_FALSE(device_backends().empty());
  const DeviceBackend& host = *device_backends().front();
  EXPECT_EQ(host.type(), "CPU");
  EXPECT_EQ(host.count(), 1);
  EXPECT_EQ(host.device(0), torch::Device(torch::kCPU));
  EXPECT_TRUE(host.is_host());
  EXPECT_FALSE(host.records());
  EXPECT_EQ(&backend_of(torch::kCPU), &host);
  EXPECT_EQ(find_backend("CPU"), &host);
  EXPECT_EQ(find_backend("ABACUS"), nullptr);
}

TEST(Backends, OneThatIsNotThereIsNamed) {
  EXPECT_THAT(error_of<Unimplemented>([] { backend_of(torch::Device("mps:0")); }),
              HasSubstr("there is no back end for mps:0 in this build, only for CPU"));
}

TEST(Backends, TheHostTellsItsMemory) {
  const MemoryInfo memory = memory_info("/CPU:0");
  EXPECT_GT(memory.total, 0);
  EXPECT_GT(memory.available, 0);
  EXPECT_LE(memory.available, memory.total);
  EXPECT_GT(memory.in_use, 0);
  EXPECT_GE(memory.peak, memory.in_use - (1 << 20));  // the two are read one after the other
  const torch::Tensor more = torch::ones({64 << 18});
  EXPECT_GE(memory_info("/CPU:0").in_use, memory.in_use + (60 << 20)) << more.numel();
  EXPECT_THROW(memory_info("/CPU:99"), NotFound);
}

TEST(Backends, AGeneratorBeginsWithLibTorchsSeed) {
  torch::manual_seed(17);
  at::Generator generator = backend_of(torch::kCPU).make_generator(torch::kCPU);
  EXPECT_EQ(generator.current_seed(), 17U);
  EXPECT_TRUE(torch::equal(torch::rand({4}, generator), torch::rand({4})));
}

TEST(Backends, OnTheHostACopyIsTheTensorItself) {
  const auto stream = backend_of(torch::kCPU).make_stream(torch::kCPU);
  const torch::Tensor tensor = torch::rand({3});
  const torch::Tensor copy = stream->copy(tensor);
  stream->record()->wait({&copy, 1});
  EXPECT_TRUE(copy.is_same(tensor));
}

TEST(Backends, OnlyOtherDevicesTrainInHalfPrecision) {
  EXPECT_FALSE(backend_of(torch::kCPU).trains_in(torch::kHalf));
  EXPECT_TRUE(backend_of(torch::kCPU).trains_in(torch::kBFloat16));
}

}  // namespace
}  // namespace cohort::backends_test
