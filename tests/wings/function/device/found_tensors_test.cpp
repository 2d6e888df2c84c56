#include "wings/function/device/found_tensors.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

namespace cohort::found_tensors_test {
namespace {

bool is_noticed(const torch::Tensor& tensor, const std::function<void()>& change) {
  FoundTensors found;
  found.keep(tensor);
  EXPECT_TRUE(found.are_as_they_were());
  change();
  return !found.are_as_they_were();
}

TEST(FoundTensors, NoticesOtherShapesAndMemory) {
  torch::Tensor x = torch::ones({4});
  const torch::Tensor memory = x.detach();
  EXPECT_FALSE(is_noticed(x, [&] { x.fill_(2.0); }));
  EXPECT_TRUE(is_noticed(x, [&] { x.resize_({3}); }));
  EXPECT_TRUE(is_noticed(x, [&] { x.set_data(torch::ones({3})); }));
  EXPECT_TRUE(is_noticed(x, [&] { x.set_data(x.to(torch::kDouble)); }));
  EXPECT_TRUE(is_noticed(x, [&] { x.unsqueeze_(1); }));
  EXPECT_FALSE(is_noticed(x, [&] { x = torch::Tensor(); })) << "nobody has it any more";
}

TEST(FoundTensors, NoticesMemoryThatIsGoneOrElsewhere) {
  torch::Tensor x = torch::ones({4});
  FoundTensors found;
  found.need(x.storage());
  EXPECT_TRUE(found.are_as_they_were());
  torch::Tensor view = x.detach();
  view.resize_({1000});
  EXPECT_FALSE(found.are_as_they_were());
  FoundTensors again;
  again.need(x.storage());
  EXPECT_TRUE(again.are_as_they_were());
  x = view = torch::Tensor();
  EXPECT_FALSE(again.are_as_they_were());
}

TEST(FoundTensors, NoticesOtherValues) {
  torch::Tensor x = torch::ones({2, 3});
  FoundTensors row;
  row.need_values(x.select(1, 1));
  x.select(1, 0).fill_(2.0);
  EXPECT_TRUE(row.are_as_they_were());
  x.select(1, 1).fill_(0.0 / 0.0);
  EXPECT_FALSE(row.are_as_they_were());
  FoundTensors of_none;
  of_none.need_values(x);
  EXPECT_TRUE(of_none.are_as_they_were()) << "no number is another one";
  x = torch::Tensor();
  EXPECT_FALSE(of_none.are_as_they_were());
}

}  // namespace
}  // namespace cohort::found_tensors_test
