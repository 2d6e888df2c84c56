// The kernels of devices, in the host's memory: whole parameters that are updated at once by the norms or means of each
// (LAMB, LARS, Adafactor), and parameters of half precision. The loops are those of CUDA's cards.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "step/update/layers.h"
#include "tests/optimizer/rule_cases.h"
#include "tests/optimizer/rule_runs.h"
#include "wings/optimizers/optimizer/kernels/more_table.h"

namespace cohort::layers_test {
namespace {

using testing_support::Case;
using testing_support::numbers;

// Parameters in flat memory with gaps between them: vectors, one that is empty, matrices of several tiles and strips.
const std::vector<LayerTables::Place> kPlaces = {
    {.begin = 0, .size = 37, .treatment = {}, .shape = {37}},
    {.begin = 48, .size = 8203, .treatment = {}, .shape = {13, 631}},
    {.begin = 8256, .size = 0, .treatment = {}, .shape = {0, 4}},
    {.begin = 8256, .size = 300, .treatment = {.decay = false, .adapt = false}, .shape = {3, 100}},
    {.begin = 8560, .size = 5, .treatment = {.decay = false}, .shape = {5}},
    {.begin = 8576, .size = 2800, .treatment = {}, .shape = {2, 70, 20}}};
constexpr int64_t kFlat = 11376;

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

torch::ScalarType slot_dtype(torch::ScalarType dtype) {
  return dtype == torch::kDouble ? torch::kDouble : torch::kFloat;
}

struct State {
  torch::Tensor values;
  std::vector<torch::Tensor> slots;
  torch::Tensor master = {};
};

State begin(const UpdateRule& rule, torch::ScalarType dtype) {
  State state{.values = numbers(1, {kFlat}, dtype), .slots = {}};
  for (std::size_t s = 0; s < rule.slots().size(); ++s) {
    state.slots.push_back(torch::full({kFlat}, rule.initial_slot_value(s), slot_dtype(dtype)));
  }
  return state;
}

StepContext context_of(int64_t step) {
  return {.learning_rate = 0.01, .step = step, .grad_scale = 0.7, .clipvalue = 0.3, .l2 = 0.01, .calls = 2};
}

// Updates the places from `first` to before `end` at once, as on a card.
void update_places(const UpdateRule& rule, State& state, const torch::Tensor& gradient, const StepContext& context,
                   std::size_t first, std::size_t end, const std::function<void(double* norms)>& join = {}) {
  const LayerTables tables(rule, kPlaces, torch::kCPU);
  const int64_t origin = kPlaces[first].begin;
  const auto place_in = [&](const torch::Tensor& flat) {
    return static_cast<void*>(static_cast<char*>(flat.data_ptr()) + origin * static_cast<int64_t>(flat.element_size()));
  };
  std::vector<void*> slots;
  for (const torch::Tensor& slot : state.slots) slots.push_back(place_in(slot));
  rule.update_layers({.dtype = state.values.scalar_type(),
                      .parameter = place_in(state.values),
                      .gradient = place_in(gradient),
                      .slots = slots.data(),
                      .master = state.master.defined() ? static_cast<float*>(place_in(state.master)) : nullptr},
                     tables.layers(origin, kPlaces[end - 1].begin + kPlaces[end - 1].size), context,
                     join ? [&] { join(tables.norms(first).data_ptr<double>()); } : std::function<void()>());
}

State by_layers(const UpdateRule& rule, torch::ScalarType dtype, bool at_once = true) {
  State state = begin(rule, dtype);
  for (int64_t step = 1; step <= 3; ++step) {
    const torch::Tensor gradient = numbers(100 * step, {kFlat}, dtype);
    if (at_once) {
      update_places(rule, state, gradient, context_of(step), 0, kPlaces.size());
      continue;
    }
    for (std::size_t p = 0; p < kPlaces.size(); ++p) {
      update_places(rule, state, gradient, context_of(step), p, p + 1);
    }
  }
  return state;
}

State by_tensors(const UpdateRule& rule, torch::ScalarType dtype) {
  State state = begin(rule, dtype);
  for (int64_t step = 1; step <= 3; ++step) {
    const torch::Tensor gradient = numbers(100 * step, {kFlat}, dtype);
    for (const LayerTables::Place& place : kPlaces) {
      const auto part = [&](const torch::Tensor& flat) {
        return flat.narrow(0, place.begin, place.size).view(place.shape);
      };
      std::vector<torch::Tensor> slots;
      for (const torch::Tensor& slot : state.slots) slots.push_back(part(slot));
      rule.update(part(state.values), part(gradient), slots, place.treatment, context_of(step));
    }
  }
  return state;
}

std::vector<Case> layer_cases() {
  std::vector<Case> cases;
  for (Case& each : testing_support::all_cases()) {
    if (each.optimizer.rule().one_by_one()) cases.push_back(std::move(each));
  }
  return cases;
}

void expect_near(const State& got, const State& wanted, double tolerance, const std::string& what) {
  const auto distance = [](const torch::Tensor& a, const torch::Tensor& b) {
    const torch::Tensor largest = b.to(torch::kDouble).abs().max();
    return ((a.to(torch::kDouble) - b.to(torch::kDouble)).abs().max() / largest).item<double>();
  };
  EXPECT_LE(distance(got.values, wanted.values), tolerance) << what;
  for (std::size_t s = 0; s < wanted.slots.size(); ++s) {
    EXPECT_LE(distance(got.slots[s], wanted.slots[s]), tolerance) << what << ", slot " << s;
  }
}

TEST(Layers, AgreeWithTensorOperations) {
  ASSERT_GE(layer_cases().size(), 9U);
  for (const Case& each : layer_cases()) {
    const UpdateRule& rule = each.optimizer.rule();
    expect_near(by_layers(rule, torch::kDouble), by_tensors(rule, torch::kDouble), 1e-12, each.name);
    expect_near(by_layers(rule, torch::kFloat), by_tensors(rule, torch::kFloat), 1e-4, each.name);
    // The gradient of tensor operations is scaled and clipped in half precision.
    expect_near(by_layers(rule, torch::kHalf), by_tensors(rule, torch::kHalf), 2e-3, each.name);
    expect_near(by_layers(rule, torch::kBFloat16), by_tensors(rule, torch::kBFloat16), 2e-2, each.name);
  }
}

TEST(Layers, HaveTheSameBitsTogetherAndAlone) {
  for (const Case& each : layer_cases()) {
    const State together = by_layers(each.optimizer.rule(), torch::kFloat);
    const State alone = by_layers(each.optimizer.rule(), torch::kFloat, /*at_once=*/false);
    EXPECT_TRUE(same_bits(together.values, alone.values)) << each.name;
    for (std::size_t s = 0; s < alone.slots.size(); ++s) {
      EXPECT_TRUE(same_bits(together.slots[s], alone.slots[s])) << each.name << ", slot " << s;
    }
  }
}

// What lies between the parameters is not touched, and with only_if = false nothing is.
TEST(Layers, AreLeftAsTheyAre) {
  for (const Case& each : layer_cases()) {
    const UpdateRule& rule = each.optimizer.rule();
    const State before = begin(rule, torch::kFloat);
    const State after = by_layers(rule, torch::kFloat);
    EXPECT_TRUE(torch::equal(before.values.slice(0, 37, 48), after.values.slice(0, 37, 48))) << each.name;
    EXPECT_FALSE(torch::equal(before.values.slice(0, 0, 37), after.values.slice(0, 0, 37))) << each.name;
    State left_out = begin(rule, torch::kFloat);
    StepContext context = context_of(1);
    const bool finite = false;
    context.only_if = &finite;
    update_places(rule, left_out, torch::full({kFlat}, INFINITY), context, 0, kPlaces.size());
    EXPECT_TRUE(same_bits(left_out.values, before.values)) << each.name;
    for (std::size_t s = 0; s < before.slots.size(); ++s) EXPECT_TRUE(same_bits(left_out.slots[s], before.slots[s]));
  }
}

// The factor of clipping comes from the device, and norms may be those of more than what is here.
TEST(Layers, TakeAFactorAndJoinTheirNorms) {
  const Optimizer optimizer = LAMB({.weight_decay = 0.05});
  const torch::Tensor gradient = numbers(7, {kFlat}, torch::kDouble);
  State scaled = begin(optimizer.rule(), torch::kDouble);
  State factored = begin(optimizer.rule(), torch::kDouble);
  State joined = begin(optimizer.rule(), torch::kDouble);
  const double factor = 0.25;
  update_places(optimizer.rule(), scaled, gradient, {.learning_rate = 0.1, .grad_scale = 0.25}, 0, 2);
  update_places(optimizer.rule(), factored, gradient, {.learning_rate = 0.1, .factor = &factor}, 0, 2);
  EXPECT_TRUE(same_bits(scaled.values, factored.values));
  // Four times the norm of the first parameter makes its step twice as long.
  update_places(optimizer.rule(), joined, gradient, {.learning_rate = 0.1, .grad_scale = 0.25}, 0, 2,
                [](double* norms) { norms[0] *= 4.0; });
  const torch::Tensor before = begin(optimizer.rule(), torch::kDouble).values;
  const double shrink = 1.0 - 0.1 * 0.05;  // Keras' decay is no part of the step
  const torch::Tensor once = scaled.values.slice(0, 0, 37) - before.slice(0, 0, 37) * shrink;
  const torch::Tensor twice = joined.values.slice(0, 0, 37) - before.slice(0, 0, 37) * shrink;
  EXPECT_TRUE(torch::allclose(twice, once * 2, 1e-9, 1e-12));
  EXPECT_TRUE(torch::equal(joined.values.slice(0, 48), scaled.values.slice(0, 48)));
}

TEST(Layers, ShowNans) {
  for (const Case& each : layer_cases()) {
    State state = begin(each.optimizer.rule(), torch::kFloat);
    torch::Tensor gradient = numbers(7, {kFlat}, torch::kFloat);
    gradient[5000] = NAN;
    update_places(each.optimizer.rule(), state, gradient, context_of(1), 0, kPlaces.size());
    EXPECT_TRUE(state.values[5000].isnan().item<bool>()) << each.name;
    EXPECT_FALSE(state.values[5].isnan().item<bool>()) << each.name;
  }
}

// ---- Halves.

// A run of elements by the kernels of devices; slots are float32.
void update_run(const UpdateRule& rule, const torch::Tensor& values, const torch::Tensor& gradient,
                const std::vector<torch::Tensor>& slots, const StepContext& context, const torch::Tensor& master = {}) {
  std::vector<void*> pointers;
  for (const torch::Tensor& slot : slots) pointers.push_back(slot.data_ptr());
  rule.update({.dtype = values.scalar_type(),
               .parameter = values.data_ptr(),
               .gradient = gradient.data_ptr(),
               .slots = pointers.data(),
               .master = master.defined() ? master.data_ptr<float>() : nullptr,
               .size = values.numel()},
              context);
}

// The same as the kernels of float32 do between one cast and the other, to the bit.
TEST(Halves, AreUpdatedInFloat) {
  for (const Case& each : testing_support::all_cases()) {
    const UpdateRule& rule = each.optimizer.rule();
    if (rule.one_by_one()) continue;
    for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
      const torch::Tensor half = numbers(5, {333}, dtype);
      const torch::Tensor wide = half.to(torch::kFloat);
      std::vector<torch::Tensor> half_slots = testing_support::make_slots(rule, wide);
      std::vector<torch::Tensor> wide_slots = testing_support::make_slots(rule, wide);
      for (int64_t step = 1; step <= 3; ++step) {
        const torch::Tensor gradient = numbers(100 * step, {333}, dtype);
        update_run(rule, half, gradient, half_slots, context_of(step));
        update_run(rule, wide, gradient.to(torch::kFloat), wide_slots, context_of(step));
        wide.copy_(wide.to(dtype));
      }
      EXPECT_TRUE(torch::equal(half.to(torch::kFloat), wide)) << each.name;
      for (std::size_t s = 0; s < wide_slots.size(); ++s) EXPECT_TRUE(torch::equal(half_slots[s], wide_slots[s]));
    }
  }
}

// A master is what a parameter of float32 would be; the parameter is its rounding. It begins with the parameter.
TEST(Halves, AreRoundingsOfMasters) {
  for (const Case& each : testing_support::all_cases()) {
    const UpdateRule& rule = each.optimizer.rule();
    if (rule.one_by_one()) continue;
    for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
      const torch::Tensor half = numbers(5, {333}, dtype);
      const torch::Tensor wide = half.to(torch::kFloat);
      const torch::Tensor master = torch::zeros({333});
      std::vector<torch::Tensor> half_slots = testing_support::make_slots(rule, wide);
      std::vector<torch::Tensor> wide_slots = testing_support::make_slots(rule, wide);
      for (int64_t step = 1; step <= 8; ++step) {
        const torch::Tensor gradient = numbers(100 * step, {333}, dtype);
        update_run(rule, half, gradient, half_slots, context_of(step), master);
        update_run(rule, wide, gradient.to(torch::kFloat), wide_slots, context_of(step));
        EXPECT_TRUE(torch::equal(half, wide.to(dtype))) << each.name;
      }
      EXPECT_TRUE(same_bits(master, wide)) << each.name;
      for (std::size_t s = 0; s < wide_slots.size(); ++s) EXPECT_TRUE(torch::equal(half_slots[s], wide_slots[s]));
    }
  }
}

TEST(Halves, AreRoundingsOfMastersInLayers) {
  for (const Case& each : layer_cases()) {
    const UpdateRule& rule = each.optimizer.rule();
    for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
      State half = begin(rule, dtype);
      half.master = torch::zeros({kFlat});
      State wide = begin(rule, torch::kFloat);
      wide.values = half.values.to(torch::kFloat);
      for (int64_t step = 1; step <= 3; ++step) {
        const torch::Tensor gradient = numbers(100 * step, {kFlat}, dtype);
        update_places(rule, half, gradient, context_of(step), 1, kPlaces.size());
        update_places(rule, wide, gradient.to(torch::kFloat), context_of(step), 1, kPlaces.size());
      }
      EXPECT_TRUE(torch::equal(half.values, wide.values.to(dtype))) << each.name;
      for (std::size_t s = 0; s < wide.slots.size(); ++s) EXPECT_TRUE(torch::equal(half.slots[s], wide.slots[s]));
      for (std::size_t p = 1; p < kPlaces.size(); ++p) {
        const auto part = [&](const torch::Tensor& flat) { return flat.narrow(0, kPlaces[p].begin, kPlaces[p].size); };
        EXPECT_TRUE(torch::equal(part(half.master), part(wide.values))) << each.name;
      }
    }
  }
}

// All numbers of half precision by way of an average that takes the parameter's place, and back.
template <typename P>
void expect_casts(const kernels::MoreTable<P, float>& table, torch::ScalarType dtype) {
  std::vector<int16_t> all(1 << 16);
  std::iota(all.begin(), all.end(), std::numeric_limits<int16_t>::min());
  const torch::Tensor halves = torch::from_blob(all.data(), {1 << 16}, torch::kShort).clone().view(dtype);
  torch::Tensor wide = torch::zeros({1 << 16});
  const torch::Tensor same = halves.clone();
  table.surround(static_cast<P*>(same.data_ptr()), same.numel(), {.average = wide.data_ptr(), .keep = 0.0});
  const torch::Tensor number = halves.isnan().logical_not();
  const torch::Tensor finite_ones = halves.to(torch::kFloat).isfinite();
  EXPECT_TRUE(torch::equal(wide.masked_select(finite_ones), halves.to(torch::kFloat).masked_select(finite_ones)));
  EXPECT_TRUE(wide.masked_select(halves.isnan()).isnan().all().item<bool>());
  EXPECT_TRUE(torch::equal(same.masked_select(number), halves.masked_select(number)));
  // Halfway between neighbours, a little beside it, and far out on both sides.
  const torch::Tensor finite = wide.masked_select(wide.isfinite());
  const torch::Tensor middles =
      (finite.to(torch::kDouble) * (1 + std::exp2(dtype == torch::kHalf ? -11 : -8))).to(torch::kFloat);
  std::vector<torch::Tensor> list{finite,
                                  middles,
                                  middles * (1 + 1e-6F),
                                  middles * (1 - 1e-6F),
                                  finite * 3e-7F,
                                  finite * 1e30F,
                                  torch::tensor({INFINITY, -INFINITY, 65519.0F, 65520.0F, -65536.0F})};
  torch::Tensor from = torch::cat(list);
  const torch::Tensor to = torch::zeros_like(from).to(dtype);
  table.surround(static_cast<P*>(to.data_ptr()), to.numel(),
                 {.average = from.data_ptr(), .keep = 1.0, .overwrite = true});
  EXPECT_TRUE(torch::equal(to, torch::cat(list).to(dtype)));
}

TEST(Halves, AreCastAsLibTorchDoes) {
  expect_casts(kernels::more_half_tables(kernels::Reach::kHost).f16, torch::kHalf);
  expect_casts(kernels::more_half_tables(kernels::Reach::kHost).bf16, torch::kBFloat16);
}

}  // namespace
}  // namespace cohort::layers_test
