#include "strategy/shared_parameters.h"

#include <ATen/Functions.h>
#include <c10/core/StorageImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/access.h"
#include "cohort/mirrored.h"
#include "cohort/strategy.h"
#include "strategy/module_pieces.h"

namespace cohort::shared_parameters_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Has one unit, of which this replica owns the middle. Its parameters have memory, which nobody fills.
class OneUnit final : public SharedParameters, public std::enable_shared_from_this<OneUnit> {
 public:
  explicit OneUnit(int64_t size)
      : SharedParameters({ParameterUnit{.size = size, .cuts = {0, 2, size - 1, size}, .parts = {}}}),
        values_(torch::arange(size, torch::kFloat)) {}

  torch::Tensor make_flat(std::size_t unit, int local_id) override {
    torch::Tensor memory = torch::full({units()[unit].size}, -1.0F);
    c10::DataPtr pointer(memory.data_ptr(), new Place{shared_from_this(), unit, local_id}, &Place::release,
                         torch::kCPU);
    memories_.push_back(memory);
    c10::Storage storage(c10::Storage::use_byte_size_t(), memory.nbytes(), std::move(pointer), nullptr, false);
    return torch::empty({0}).set_(storage, 0, {units()[unit].size}, {1});
  }
  torch::Tensor view(const torch::Tensor& flat, c10::IntArrayRef shape, c10::IntArrayRef strides,
                     int64_t offset) const override {
    return flat.as_strided(shape, strides, offset);
  }
  std::optional<OwnPart> own_part(const torch::Tensor& parameter) const override {
    const Slice own = units()[0].slice(1);
    const int64_t begin = std::max(own.begin, parameter.storage_offset());
    const int64_t end = std::min(own.end, parameter.storage_offset() + parameter.numel());
    if (begin >= end) return std::nullopt;
    return OwnPart{.elements = {begin - parameter.storage_offset(), end - parameter.storage_offset()},
                   .values = values_.slice(0, begin, end)};
  }
  void fill_own_part(const torch::Tensor& parameter, const torch::Tensor& values) override {
    own_part(parameter)->values.copy_(values);
  }
  void fill(const torch::Tensor& parameter, const torch::Tensor& value) override {
    values_.slice(0, parameter.storage_offset(), parameter.storage_offset() + parameter.numel()).copy_(value.flatten());
  }
  void load(const torch::Tensor& parameter, const torch::Tensor& value) override {
    fill(parameter, value);
    loaded.insert(parameter.storage_offset());
  }
  void load_part(const torch::Tensor& parameter, const torch::Tensor& part) override { fill(parameter, part); }
  torch::Tensor loaded_part(const torch::Tensor& /*parameter*/) const override { return {}; }
  void spread_from_chief() override { ++spread; }

  std::set<int64_t> loaded;  // offsets
  int spread = 0;
  mutable int gathered = 0;
  int forgotten = 0;

 protected:
  std::vector<torch::Tensor> whole_unit(std::size_t /*unit*/) const override {
    ++gathered;
    return {values_.clone()};
  }
  void forget(std::size_t /*unit*/, int /*local_id*/) override { ++forgotten; }

 private:
  torch::Tensor values_;
  std::vector<torch::Tensor> memories_;
};

// Has tensors in memory, and notes which elements are read.
class Given final : public TensorSource {
 public:
  explicit Given(std::map<std::string, torch::Tensor> tensors) : tensors_(std::move(tensors)) {
    for (const auto& [name, tensor] : tensors_) known_[name] = {.dtype = torch::kFloat, .shape = tensor.sizes().vec()};
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }
  const WholeTensor* find(const std::string& name) const override {
    return known_.contains(name) ? &known_.at(name) : nullptr;
  }
  torch::Tensor read(const std::string& name, const Runs& runs, const std::vector<int64_t>& /*order*/) const override {
    read_[name] += runs.length;
    return tensors_.at(name).flatten().slice(0, runs.offset, runs.offset + runs.length);
  }
  const std::map<std::string, int64_t>& elements_read() const { return read_; }

 private:
  std::map<std::string, torch::Tensor> tensors_;
  std::map<std::string, WholeTensor> known_;
  mutable std::map<std::string, int64_t> read_;
};

TEST(SharedParameters, AreFoundByTheStorageOfAParameter) {
  const auto shared = std::make_shared<OneUnit>(6);
  {
    const torch::Tensor flat = shared->make_flat(0, 0);
    const torch::Tensor parameter = shared->view(flat, {2, 2}, {2, 1}, 2);
    EXPECT_EQ(SharedParameters::of(parameter), shared.get());
    EXPECT_EQ(SharedParameters::of(parameter.view({4})), shared.get());
    EXPECT_EQ(SharedParameters::home(parameter), SharedParameters::home(flat));
    EXPECT_EQ(SharedParameters::of(torch::ones({2})), nullptr);
    EXPECT_EQ(SharedParameters::of(torch::Tensor()), nullptr);
  }
  EXPECT_EQ(shared->forgotten, 1);
}

TEST(SharedParameters, GatherAUnitOnce) {
  const auto shared = std::make_shared<OneUnit>(6);
  const torch::Tensor flat = shared->make_flat(0, 0);
  SharedParameters::Wholes wholes;
  const torch::Tensor first = SharedParameters::whole(shared->view(flat, {2}, {1}, 0), wholes);
  const torch::Tensor second = SharedParameters::whole(shared->view(flat, {2, 2}, {2, 1}, 2), wholes);
  EXPECT_TRUE(torch::equal(first, torch::tensor({0.0F, 1.0F})));
  EXPECT_TRUE(torch::equal(second, torch::tensor({{2.0F, 3.0F}, {4.0F, 5.0F}})));
  EXPECT_EQ(shared->gathered, 1);
}

// The core loads, saves and copies such parameters by this interface alone.
TEST(SharedParameters, OfAModuleAreSavedAndLoadedByTheirOwner) {
  const auto shared = std::make_shared<OneUnit>(6);
  const OneDeviceStrategy strategy("/CPU:0");
  const auto net = strategy.mirror([] { return torch::nn::Linear(torch::nn::LinearOptions(2, 2)); });
  const torch::Tensor flat = shared->make_flat(0, 0);
  net[0]->weight.set_data(shared->view(flat, {2, 2}, {2, 1}, 0));
  net[0]->bias.set_data(shared->view(flat, {2}, {1}, 4));
  EXPECT_TRUE(is_divided(net));
  EXPECT_TRUE(torch::equal(net.state()[0].second, torch::tensor({{0.0F, 1.0F}, {2.0F, 3.0F}})));
  const std::vector<TensorPiece> pieces = pieces_of(net);
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].runs.offset, 2);  // of the weight elements 2 and 3, of the bias element 0
  EXPECT_TRUE(torch::equal(pieces[0].values, torch::tensor({2.0F, 3.0F})));
  EXPECT_TRUE(torch::equal(pieces[1].values, torch::tensor({4.0F})));
  net.load_state({{"weight", torch::ones({2, 2})}, {"bias", torch::zeros({2})}});
  EXPECT_THAT(shared->loaded, ElementsAre(0, 4));
  net.copy_from_chief();
  EXPECT_EQ(shared->spread, 1);
  EXPECT_TRUE(torch::equal(net.state()[0].second, torch::ones({2, 2})));
  const Given given({{"weight", torch::full({2, 2}, 7.0F)}, {"bias", torch::full({2}, 8.0F)}});
  load_pieces(net, given);
  EXPECT_THAT(given.elements_read(), ElementsAre(Pair("bias", 1), Pair("weight", 2))) << "of others' parts nothing";
  EXPECT_TRUE(torch::equal(net.state()[0].second, torch::tensor({{1.0F, 1.0F}, {7.0F, 7.0F}})));
}

}  // namespace
}  // namespace cohort::shared_parameters_test
