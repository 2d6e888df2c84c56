// The update kernels: the same bits however a parameter is cut, wherever it lies and whichever instruction set runs.
#include <gtest/gtest.h>

#include <cstring>

#include "ops/kernels/isa.h"
#include "optimizer/kernels/update_table.h"
#include "tests/optimizer/rule_cases.h"
#include "tests/optimizer/rule_runs.h"
#include "wings/optimizers/optimizer/kernels/more_table.h"

namespace cohort::kernels_test {
namespace {

using kernels::Isa;
using testing_support::each_segment;
using testing_support::make_slots;
using testing_support::numbers;

// Every rule in every form; those that take whole parameters cannot be cut.
std::vector<Optimizer> all_rules() {
  std::vector<Optimizer> rules;
  for (const testing_support::Case& each : testing_support::all_cases()) {
    if (!each.optimizer.rule().takes_whole()) rules.push_back(each.optimizer);
  }
  return rules;
}

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return std::memcmp(a.data_ptr(), b.data_ptr(), static_cast<std::size_t>(a.numel()) * a.element_size()) == 0;
}

// A copy whose first element lies `shift` elements past an aligned address.
torch::Tensor shifted(const torch::Tensor& values, int64_t shift) {
  torch::Tensor home = torch::zeros({values.numel() + shift}, values.scalar_type());
  torch::Tensor copy = home.narrow(0, shift, values.numel());
  copy.copy_(values);
  return copy;
}

struct State {
  torch::Tensor parameter;
  std::vector<torch::Tensor> slots;
};

// Three steps with a fixed trust ratio: norms are sums, which may depend on the cuts.
State run(const UpdateRule& rule, torch::ScalarType dtype, int64_t size, const std::vector<int64_t>& cuts,
          int64_t shift) {
  State state{.parameter = shifted(numbers(1, {size}, dtype), shift), .slots = {}};
  for (const torch::Tensor& slot : make_slots(rule, state.parameter)) state.slots.push_back(shifted(slot, shift));
  for (int64_t step = 1; step <= 3; ++step) {
    const torch::Tensor gradient = shifted(numbers(100 * step, {size}, dtype), shift);
    const StepContext context{
        .learning_rate = 0.01, .step = step, .grad_scale = 0.7, .clipvalue = 0.3, .l2 = 0.01, .calls = 2};
    each_segment(state.parameter, gradient, state.slots, {}, 0.37, cuts, [&](const Segment& segment) {
      if (rule.needs_norms()) rule.prepare(segment, context);
      rule.update(segment, context);
    });
  }
  return state;
}

TEST(UpdateKernels, DoNotDependOnTheCuts) {
  constexpr int64_t kLength = 1003;
  std::vector<int64_t> everywhere;
  for (int64_t cut = 1; cut < kLength; ++cut) everywhere.push_back(cut);
  const std::vector<std::vector<int64_t>> all_cuts{{1}, {501}, {16, 32, 512}, {7, 50, 64, 65, 999, 1000}, everywhere};
  for (const Optimizer& optimizer : all_rules()) {
    for (const auto dtype : {torch::kFloat, torch::kDouble}) {
      const State whole = run(optimizer.rule(), dtype, kLength, {}, 0);
      for (const int64_t shift : {0, 1, 5}) {
        for (const auto& cuts : all_cuts) {
          const State other = run(optimizer.rule(), dtype, kLength, cuts, shift);
          EXPECT_TRUE(same_bits(other.parameter, whole.parameter)) << optimizer.name() << ", cut at " << cuts[0];
          for (std::size_t s = 0; s < whole.slots.size(); ++s) {
            EXPECT_TRUE(same_bits(other.slots[s], whole.slots[s])) << optimizer.name() << ", slot " << s;
          }
        }
      }
    }
  }
}

template <typename T>
const kernels::UpdateTable<T, T>& table_of(Isa isa) {
  if constexpr (sizeof(T) == 4) {
    return kernels::update_tables(isa).f32;
  } else {
    return kernels::update_tables(isa).f64;
  }
}

template <typename T>
const kernels::MoreTable<T, T>& more_of(Isa isa) {
  if constexpr (sizeof(T) == 4) {
    return kernels::more_tables(isa).f32;
  } else {
    return kernels::more_tables(isa).f64;
  }
}

template <typename T>
const kernels::PassTable<T>& passes_of(Isa isa) {
  if constexpr (sizeof(T) == 4) {
    return kernels::pass_tables(isa).f32;
  } else {
    return kernels::pass_tables(isa).f64;
  }
}

constexpr int64_t kSize = 517;

// Slots that are squares have no negative elements.
void make_positive(std::vector<torch::Tensor>& arrays) {
  for (std::size_t i = 2; i < arrays.size(); ++i) arrays[i].abs_();
}

template <typename T>
void run_keras_kernels(const kernels::MoreTable<T, T>& table, const std::vector<torch::Tensor>& arrays,
                       const kernels::CommonArgs& in) {
  T* p = arrays[0].data_ptr<T>();
  T* g = arrays[1].data_ptr<T>();
  T* a = arrays[2].data_ptr<T>();
  T* b = arrays[3].data_ptr<T>();
  T* c = arrays[4].data_ptr<T>();
  table.adadelta(p, g, b, c, kSize, in, {.learning_rate = 0.01, .rho = 0.9, .epsilon = 1e-4});
  table.adamax(p, g, a, b, kSize, in, {.beta_1 = 0.9, .beta_2 = 0.99, .step_size = 0.01, .epsilon = 1e-4});
  table.nadam(p, g, a, b, kSize, in,
              {.beta_1 = 0.9, .beta_2 = 0.99, .of_mean = 0.01, .of_gradient = 0.02, .epsilon = 1e-4});
  for (const double exponent : {0.5, 0.7}) {
    table.ftrl(p, g, b, a, kSize, in,
               {.learning_rate = 0.1, .exponent = exponent, .l1 = 0.01, .twice_l2 = 0.1, .twice_shrinkage = 0.1});
  }
  table.lion(p, g, a, kSize, in, {.learning_rate = 0.01, .beta_1 = 0.9, .beta_2 = 0.99});
  table.surround(p, kSize, in);
}

template <typename T>
void run_passes(const kernels::PassTable<T>& table, const std::vector<torch::Tensor>& arrays,
                const kernels::CommonArgs& in) {
  T* p = arrays[0].data_ptr<T>();
  T* g = arrays[1].data_ptr<T>();
  T* a = arrays[2].data_ptr<T>();
  T* b = arrays[3].data_ptr<T>();
  T* c = arrays[4].data_ptr<T>();
  for (const bool nesterov : {false, true}) {
    table.lars(p, g, a, kSize, {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = in.decay, .nesterov = nesterov});
  }
  table.lamb_direction(p, g, a, b, kSize, in,
                       {.beta_1 = 0.9, .beta_2 = 0.99, .scale = 1.1, .epsilon = 1e-6, .weight_decay = in.decay});
  table.subtract(p, g, kSize, 0.01);
  table.read_gradient(p, g, kSize, in);
  table.lars_direction(p, g, a, kSize, in, {.momentum = 0.9, .nesterov = in.decay != 0.0});
  table.add_squares(b, g, kSize);
  table.blend(c, b, kSize, {.keep = 0.9, .share = 0.5, .add = 1e-3});
  table.divide_by_root(g, c, kSize, 0.7);
  table.scale(p, kSize, 0.99);
  table.average(a, p, kSize, 0.9);
}

// Every kernel in each of its forms, one after the other on the same six arrays; returns them.
template <typename T>
std::vector<torch::Tensor> run_all(Isa isa) {
  const kernels::UpdateTable<T, T>& table = table_of<T>(isa);
  std::vector<torch::Tensor> arrays;
  for (int64_t i = 0; i < 6; ++i) {
    torch::Tensor values = numbers(i + 1, {kSize}, c10::CppTypeToScalarType<T>::value);
    arrays.push_back(i < 2 ? values : values.abs());
  }
  // Denormals and zeros keep their IEEE results everywhere.
  for (torch::Tensor& values : arrays)
    values.slice(0, 40, 60).mul_(std::numeric_limits<T>::min()).slice(0, 5, 10).zero_();
  T* p = arrays[0].data_ptr<T>();
  T* g = arrays[1].data_ptr<T>();
  T* a = arrays[2].data_ptr<T>();
  T* b = arrays[3].data_ptr<T>();
  T* c = arrays[4].data_ptr<T>();
  for (const double decay : {0.0, 0.1, 0.2}) {
    kernels::CommonArgs in{.scale = 0.7, .clip = 0.3, .decay = decay, .shrink = 0.99};
    if (decay == 0.2) in.average = arrays[5].data_ptr<T>();
    in.keep_before = in.keep = 0.9;
    table.sgd(p, g, nullptr, kSize, in, {.learning_rate = 0.1});
    for (const bool nesterov : {false, true}) {
      table.sgd(p, g, a, kSize, in,
                {.learning_rate = 0.1, .momentum = 0.9, .keep = 0.9, .fresh = 0.8, .nesterov = nesterov});
    }
    make_positive(arrays);
    for (T* largest : {static_cast<T*>(nullptr), c}) {
      table.adam(p, g, a, b, largest, kSize, in,
                 {.beta_1 = 0.9, .beta_2 = 0.99, .step_size = 0.01, .epsilon = 1e-8, .shrink = 0.99});
    }
    const kernels::RmspropArgs rmsprop{
        .learning_rate = 0.01, .fresh_rate = 0.9, .rho = 0.9, .momentum = 0.9, .inside = 1e-3, .epsilon = 1e-4};
    table.rmsprop(p, g, b, nullptr, nullptr, kSize, in, rmsprop);
    table.rmsprop(p, g, b, nullptr, c, kSize, in, rmsprop);
    table.rmsprop(p, g, b, a, nullptr, kSize, in, rmsprop);
    table.rmsprop(p, g, b, a, c, kSize, in, rmsprop);
    table.adagrad(p, g, b, kSize, in, {.learning_rate = 0.01, .inside = 1e-3, .epsilon = 1e-10});
    make_positive(arrays);
    run_keras_kernels(more_of<T>(isa), arrays, in);
    run_passes(passes_of<T>(isa), arrays, in);
    make_positive(arrays);
  }
  return arrays;
}

template <typename T>
void expect_one_result() {
  const std::vector<torch::Tensor> wanted = run_all<T>(Isa::kBaseline);
  for (const torch::Tensor& values : wanted) ASSERT_TRUE(torch::isfinite(values).all().item<bool>());
  for (const Isa isa : kernels::kIsas) {
    if (!kernels::runs(isa)) continue;
    const std::vector<torch::Tensor> got = run_all<T>(isa);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(same_bits(got[i], wanted[i])) << kernels::name(isa) << ", " << i;
  }
}

TEST(UpdateKernels, DoNotDependOnTheInstructionSet) {
  expect_one_result<float>();
  expect_one_result<double>();
}

// What is cast to half precision: all numbers of it, those halfway between and beside them, and what is beyond.
torch::Tensor to_be_cast(torch::ScalarType dtype) {
  const torch::Tensor all = torch::arange(-32768, 32768).to(torch::kShort).view(dtype).to(torch::kFloat);
  const torch::Tensor finite = all.masked_select(all.isfinite());
  const torch::Tensor middles =
      (finite.to(torch::kDouble) * (1 + std::exp2(dtype == torch::kHalf ? -11 : -8))).to(torch::kFloat);
  return torch::cat({all, middles, middles * (1 + 1e-6F), middles * (1 - 1e-6F), finite * 3e-7F, finite * 1e30F});
}

// A master whose rounding the parameter is stays, and others become the parameter.
template <typename P>
void expect_casts(const kernels::CastTable<P>& table, torch::ScalarType dtype) {
  const torch::Tensor wide = to_be_cast(dtype);
  const torch::Tensor half = torch::zeros_like(wide, dtype);
  table.narrow(static_cast<P*>(half.data_ptr()), wide.data_ptr<float>(), wide.numel());
  EXPECT_TRUE(torch::allclose(half, wide.to(dtype), 0, 0, /*equal_nan=*/true));
  const torch::Tensor again = torch::zeros_like(wide);
  table.widen(again.data_ptr<float>(), static_cast<const P*>(half.data_ptr()), wide.numel());
  EXPECT_TRUE(torch::allclose(again, half.to(torch::kFloat), 0, 0, /*equal_nan=*/true));
  torch::Tensor master = wide.clone();
  table.follow(master.data_ptr<float>(), static_cast<const P*>(half.data_ptr()), wide.numel());
  EXPECT_TRUE(torch::allclose(master, wide, 0, 0, /*equal_nan=*/true));
  master.add_(1).mul_(2);
  const torch::Tensor stays = master.to(dtype).eq(half);
  const torch::Tensor wanted = at::where(stays, master, half.to(torch::kFloat));
  table.follow(master.data_ptr<float>(), static_cast<const P*>(half.data_ptr()), wide.numel());
  EXPECT_TRUE(torch::allclose(master, wanted, 0, 0, /*equal_nan=*/true));
}

TEST(Casts, AreLibTorchsOnEveryInstructionSet) {
  for (const Isa isa : kernels::kIsas) {
    if (!kernels::runs(isa)) continue;
    SCOPED_TRACE(kernels::name(isa));
    expect_casts(kernels::cast_tables(isa).f16, torch::kHalf);
    expect_casts(kernels::cast_tables(isa).bf16, torch::kBFloat16);
  }
}

}  // namespace
}  // namespace cohort::kernels_test
