// Signatures: when they are the same, what accepts what, what they become where sizes differ, and the input_signature.
#include "wings/function/signature.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort {
namespace signature_test {
namespace {

using testing::error_of;
using testing::expect_error;

ArgumentType value(const std::string& text) {
  ArgumentType type;
  type.value = text;
  return type;
}

Signature signature(std::vector<ArgumentType> arguments) {
  Signature all;
  all.arguments = std::move(arguments);
  return all;
}

ArgumentType floats(std::optional<std::vector<int64_t>> shape) {
  return type_of(TensorSpec{.shape = std::move(shape)}, torch::kCPU);
}

TEST(SignatureTest, HasShapesDtypesDevicesAndValues) {
  const Signature one = signature({type_of(torch::ones({3, 2})), value("7")});
  EXPECT_EQ(to_string(one), "f32[3, 2] cpu, 7");
  EXPECT_EQ(one, signature({type_of(torch::zeros({3, 2})), value("7")}));
  const std::vector<Signature> others{
      signature({type_of(torch::ones({2, 3})), value("7")}),
      signature({type_of(torch::ones({3, 2}, torch::kDouble)), value("7")}),
      signature({type_of(torch::ones({3, 2}, torch::kMeta)), value("7")}),
      signature({type_of(torch::ones({3, 2}).requires_grad_()), value("7")}),
      signature({type_of(torch::ones({3, 2})), value("8")}),
      signature({type_of(torch::ones({3, 2}))}),
      signature({type_of(torch::Tensor()), value("7")}),
  };
  for (const Signature& other : others) {
    EXPECT_NE(one, other) << to_string(other);
    EXPECT_NE(to_key(one), to_key(other));
    EXPECT_FALSE(one.accepts(other)) << to_string(other);
  }
  Signature no_grad = one;
  no_grad.grad_mode = false;
  EXPECT_FALSE(one.accepts(no_grad));
  EXPECT_EQ(to_string(no_grad), "f32[3, 2] cpu, 7, no_grad");
}

TEST(SignatureTest, AcceptsSizesThatItDoesNotName) {
  const Signature any_rows = signature({floats({{kAnySize, 3}})});
  EXPECT_TRUE(any_rows.accepts(signature({floats({{5, 3}})})));
  EXPECT_TRUE(any_rows.accepts(signature({floats({{kAnySize, 3}})})));
  EXPECT_FALSE(any_rows.accepts(signature({floats({{5, 4}})})));
  EXPECT_FALSE(any_rows.accepts(signature({floats({{3}})})));
  EXPECT_FALSE(any_rows.accepts(signature({floats(std::nullopt)})));
  EXPECT_TRUE(signature({floats(std::nullopt)}).accepts(any_rows));
  EXPECT_FALSE(signature({floats({{5, 3}})}).accepts(any_rows));
  EXPECT_FALSE(any_rows.is_static());
  EXPECT_FALSE(signature({floats(std::nullopt)}).is_static());
  EXPECT_TRUE(signature({floats({{5, 3}}), value("1"), type_of(torch::Tensor())}).is_static());
}

TEST(SignatureTest, RelaxesWhereSizesDiffer) {
  const auto both = [](std::optional<std::vector<int64_t>> a, std::optional<std::vector<int64_t>> b) {
    return to_string(*relaxed(signature({floats(std::move(a))}), signature({floats(std::move(b))})));
  };
  EXPECT_EQ(both({{5, 3}}, {{7, 3}}), "f32[?, 3] cpu");
  EXPECT_EQ(both({{5, 3}}, {{5, 3}}), "f32[5, 3] cpu");
  EXPECT_EQ(both({{kAnySize, 3}}, {{5, 4}}), "f32[?, ?] cpu");
  EXPECT_EQ(both({{5, 3}}, {{5}}), "f32[...] cpu");
  EXPECT_EQ(both(std::nullopt, {{5}}), "f32[...] cpu");
  EXPECT_FALSE(relaxed(signature({value("1")}), signature({value("2")})));
  EXPECT_FALSE(relaxed(signature({floats({{2}})}), signature({type_of(torch::ones({2}, torch::kDouble))})));
  EXPECT_FALSE(relaxed(signature({floats({{2}})}), signature({floats({{2}}), value("1")})));
}

TEST(SignatureTest, TellsWhatDiffers) {
  EXPECT_EQ(difference(signature({floats({{2}})}), signature({floats({{3}})})),
            "f32[3] cpu came, and f32[2] cpu before");
  EXPECT_EQ(difference(signature({value("1")}), signature({value("2")})), "2 came, and 1 before");
}

TEST(SignatureTest, FitsTheInputSignatureOrNamesWhatCame) {
  const std::vector<TensorSpec> specs{{.shape = {{kAnySize, 3}}, .name = "x"}, {.dtype = torch::kLong}};
  const auto fitted = [&](std::vector<ArgumentType> arguments) {
    Signature all = signature(std::move(arguments));
    fit(
        all, specs, [](std::size_t i) { return "argument " + std::to_string(i); }, "step");
    return to_string(all);
  };
  const ArgumentType labels = type_of(torch::zeros({4}, torch::kLong));
  EXPECT_EQ(fitted({floats({{4, 3}}), labels}), "f32[?, 3] cpu, i64[...] cpu");
  EXPECT_EQ(error_of<InvalidArgument>([&] {
              fitted({floats({{4, 2}}), labels});
            }),
            "[function] step: argument 0 is f32[4, 2] cpu, but the input_signature wants f32[?, 3] (x)");
  EXPECT_EQ(error_of<InvalidArgument>([&] {
              fitted({floats({{4, 3}}), floats({{4}})});
            }),
            "[function] step: argument 1 is f32[4] cpu, but the input_signature wants i64[...]");
  EXPECT_EQ(
      error_of<InvalidArgument>([&] {
        fitted({floats({{4, 3}})});
      }),
      "[function] step: 1 tensors came (f32[4, 3] cpu), but the input_signature wants 2 (f32[?, 3] (x), i64[...])");
  expect_error<InvalidArgument>(
      [&] {
        fitted({floats({{4, 3}}), labels, value("0.5")});
      },
      "argument 2 is the value 0.5, but there is an input_signature");
  expect_error<InvalidArgument>(
      [] {
        check_specs({{.shape = {{2, -2}}}}, "step");
      },
      "the input_signature's tensor 0 has the size -2");
}

}  // namespace
}  // namespace signature_test
}  // namespace cohort
