#include "wings/xla/device/types.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::types_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

TEST(XlaTypes, GoThereAndBack) {
  for (const torch::ScalarType dtype :
       {torch::kBool, torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32, torch::kInt64, torch::kFloat16,
        torch::kBFloat16, torch::kFloat32, torch::kFloat64, torch::kComplexFloat, torch::kComplexDouble}) {
    EXPECT_EQ(torch_type(xla_type(dtype)), dtype);
    EXPECT_EQ(size_of(xla_type(dtype)), static_cast<int64_t>(c10::elementSize(dtype)));
  }
  EXPECT_EQ(torch_type(XlaType::kU32), torch::kInt32);
  EXPECT_EQ(torch_type(XlaType::kU64), torch::kInt64);
  EXPECT_EQ(name_of(XlaType::kBF16), "bf16");
  EXPECT_THAT(error_of<Unimplemented>([] { xla_type(torch::kQInt8); }), HasSubstr("QInt8 have no form in StableHLO"));
  EXPECT_THAT(error_of<Unimplemented>([] { torch_type(XlaType::kInvalid); }), HasSubstr("the element type 0"));
}

TEST(XlaTypes, ShapesTellTheirSize) {
  const XlaShape shape{XlaType::kF64, {2, 3}};
  EXPECT_EQ(shape.to_text(), "f64[2,3]");
  EXPECT_EQ(shape.num_elements(), 6);
  EXPECT_EQ(shape.num_bytes(), 48);
  EXPECT_EQ((XlaShape{XlaType::kPred, {}}).to_text(), "i1[]");
  EXPECT_EQ((XlaShape{XlaType::kPred, {}}).num_elements(), 1);
}

TEST(XlaTypes, OptionsAreReadFromText) {
  EXPECT_EQ(parse_xla_options(""), XlaOptions());
  const XlaOptions options = parse_xla_options("cpu_device_count=4,mesh=[2,2],a=true,b=0.5,c=x=y,d=");
  EXPECT_EQ(options, (XlaOptions{{"cpu_device_count", int64_t{4}},
                                 {"mesh", std::vector<int64_t>{2, 2}},
                                 {"a", true},
                                 {"b", 0.5F},
                                 {"c", std::string("x=y")},
                                 {"d", std::string()}}));
  EXPECT_EQ(to_text(options.at("mesh")), "[2,2]");
  EXPECT_EQ(to_text(options.at("a")), "true");
  EXPECT_EQ(to_text(options.at("b")), "0.5");
  EXPECT_THAT(error_of<InvalidArgument>([] { parse_xla_options("a=1,b"); }), HasSubstr("\"b\" is no name=value"));
  EXPECT_THAT(error_of<InvalidArgument>([] { parse_xla_options("=1"); }), HasSubstr("is no name=value"));
  EXPECT_THAT(error_of<InvalidArgument>([] { parse_xla_options("a=1,a=2"); }), HasSubstr("a is there twice"));
  EXPECT_THAT(error_of<InvalidArgument>([] { parse_xla_options("a=[1,x]"); }), HasSubstr("has \"x\" in it"));
}

}  // namespace
}  // namespace cohort::types_test
