// How the update of a parameter is cut into segments, whatever the rule does with them.
#include "step/update/memory.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "optimizer/update_rule.h"

namespace cohort::memory_test {
namespace {

// Notes the segments that it gets, in the order of their memory.
class Noting final : public UpdateRule {
 public:
  enum class Kind { kByElement, kByNorms, kWhole };
  explicit Noting(Kind kind) : kind_(kind) {}

  const std::string& name() const override { return name_; }
  const std::vector<std::string>& slots() const override { return slots_; }
  std::vector<double> numbers(Treatment /*treatment*/, const StepContext& /*context*/) const override { return {}; }
  bool takes_whole() const override { return kind_ == Kind::kWhole; }
  bool needs_norms() const override { return kind_ == Kind::kByNorms; }
  SquaredNorms prepare(const Segment& segment, const StepContext& /*context*/) const override {
    prepared_ = segment.size;
    return {.parameter = 9.0, .direction = 1.0};
  }
  double trust_ratio(const SquaredNorms& norms) const override { return norms.parameter / norms.direction; }
  void update(const Segment& segment, const StepContext& /*context*/) const override {
    const std::lock_guard lock(mutex_);
    segments_.push_back(segment);
    slots_of_segments_[segment.parameter] = segment.slots[0];
    if (takes_whole()) strides_.assign(segment.strides.begin(), segment.strides.end());
  }
  void update(torch::Tensor parameter, torch::Tensor /*gradient*/, std::span<torch::Tensor> /*slots*/,
              Treatment /*treatment*/, const StepContext& /*context*/) const override {
    ADD_FAILURE() << "memory is updated by segments, got a tensor " << parameter.sizes();
  }

  std::vector<Segment> segments() const {
    std::vector<Segment> sorted = segments_;
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.parameter < b.parameter; });
    return sorted;
  }
  void* slot_of(const Segment& segment) const { return slots_of_segments_.at(segment.parameter); }
  const std::vector<int64_t>& strides() const { return strides_; }
  int64_t prepared() const { return prepared_; }

 private:
  Kind kind_;
  std::string name_ = "noting";
  std::vector<std::string> slots_ = {"slot"};
  mutable std::mutex mutex_;
  mutable std::vector<Segment> segments_;
  mutable std::map<void*, void*> slots_of_segments_;
  mutable std::vector<int64_t> strides_;
  mutable int64_t prepared_ = 0;
};

struct Parameter {
  explicit Parameter(std::vector<int64_t> sizes)
      : shape(std::move(sizes)), value(torch::zeros(shape)), gradient(torch::zeros(shape)), slot(torch::zeros(shape)) {}
  void update(const UpdateRule& rule, Treatment treatment = {}) {
    update_in_chunks(rule, UpdateMemory(value, {slot}), shape, gradient.data_ptr(), treatment, {});
  }
  std::vector<int64_t> shape;
  torch::Tensor value, gradient, slot;
};

TEST(UpdateInChunks, CoversEachElementOnceWithItsGradientAndSlot) {
  Parameter parameter({3 * kUpdateChunk + 5});
  const Noting rule(Noting::Kind::kByElement);
  parameter.update(rule);
  int64_t at = 0;
  for (const Segment& segment : rule.segments()) {
    EXPECT_EQ(segment.parameter, parameter.value.data_ptr<float>() + at);
    EXPECT_EQ(segment.gradient, parameter.gradient.data_ptr<float>() + at);
    EXPECT_EQ(rule.slot_of(segment), parameter.slot.data_ptr<float>() + at);
    EXPECT_LE(segment.size, kUpdateChunk);
    EXPECT_EQ(segment.trust_ratio, 1.0);
    at += segment.size;
  }
  EXPECT_EQ(at, parameter.value.numel());
}

TEST(UpdateInChunks, NormsAreThoseOfTheWholeParameter) {
  for (const bool adapt : {true, false}) {
    Parameter parameter({2 * kUpdateChunk});
    const Noting rule(Noting::Kind::kByNorms);
    parameter.update(rule, {.adapt = adapt});
    EXPECT_EQ(rule.prepared(), parameter.value.numel());
    ASSERT_EQ(rule.segments().size(), 2U);
    for (const Segment& segment : rule.segments()) EXPECT_EQ(segment.trust_ratio, adapt ? 9.0 : 1.0);
  }
}

TEST(UpdateInChunks, ARuleThatTakesWholeParametersGetsTheLayout) {
  Parameter parameter({3, kUpdateChunk, 5});
  const Noting rule(Noting::Kind::kWhole);
  parameter.update(rule);
  ASSERT_EQ(rule.segments().size(), 1U);
  EXPECT_EQ(rule.segments()[0].size, parameter.value.numel());
  EXPECT_EQ(rule.strides(), (std::vector<int64_t>{5 * kUpdateChunk, 5, 1}));
}

}  // namespace
}  // namespace cohort::memory_test
