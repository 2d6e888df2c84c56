// What a function asks of a device that records its work. The recorder, the program and the call are stand-ins.
#include "wings/function/recorded.h"

#include <c10/core/Storage.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <sstream>

#include "cohort/error.h"
#include "cohort/function.h"
#include "tests/support/errors.h"
#include "tests/support/extensions.h"

namespace cohort::recorder_test {
namespace {

using testing::expect_error;
using testing::Extensions;

// The programs that recorders have made, and what they were given.
struct Noted {
  int calls = 0;
  int programs = 0;
  std::size_t tensors = 0;
  std::optional<FunctionCost> cost;
};
Noted noted;  // the maker is a plain function

class Program final : public FunctionProgram {
 public:
  std::string text(const std::string& name) const override { return "the program of " + name; }
  std::optional<FunctionCost> cost() const override { return noted.cost; }
};

// Runs the function, and counts.
class Recorder final : public RecordedFunction {
 public:
  void call(detail::FunctionCall& call, const FunctionArguments& arguments, bool /*joint*/) override {
    ++noted.calls;
    noted.tensors = arguments.tensors.size();
    call.run();
  }
  std::shared_ptr<const FunctionProgram> program(detail::FunctionCall& /*call*/,
                                                 const FunctionArguments& /*arguments*/) override {
    ++noted.programs;
    return std::make_shared<Program>();
  }
};

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest() { noted = {}; }

  Extensions<RecordedFunctionMaker> recorders_{
      {{.make = [](const FunctionOptions&) -> std::unique_ptr<RecordedFunction> {
        return std::make_unique<Recorder>();
      }}}};
};

// An empty tensor of a device that records, which nothing computes with.
torch::Tensor recorded_tensor() {
  const torch::Device device(torch::kXLA, 0);
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, device), nullptr, false);
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::XLA),
                                                  caffe2::TypeMeta::Make<float>());
}

TEST_F(RecorderTest, GetsTheCallsWhoseTensorsAreOnItsDevice) {
  int runs = 0;
  const auto step = function(
      [&](const torch::Tensor& x, int64_t /*number*/) {
        ++runs;
        return x;
      },
      {.name = "step"});
  (void)step(torch::ones({2}), 1);
  EXPECT_EQ(noted.calls, 0) << "the host runs it as it is";
  (void)step(recorded_tensor(), 1);
  (void)step(recorded_tensor(), 2);
  EXPECT_EQ(noted.calls, 2);
  EXPECT_EQ(noted.tensors, 1U);
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(step.experimental_get_tracing_count(), 3);
}

TEST_F(RecorderTest, TheProgramOfASignatureIsShownWithItsCost) {
  const auto step = function([](const torch::Tensor& x) { return x; }, {.name = "step"});
  const ConcreteFunction concrete = step.get_concrete_function(recorded_tensor());
  EXPECT_EQ(noted.programs, 1);
  EXPECT_EQ(noted.calls, 0) << "nothing is run";
  EXPECT_EQ(concrete.text(), "the program of step");
  expect_error<FailedPrecondition>([&] { (void)concrete.cost(); }, "no plugin is open to compile it");
  noted.cost = FunctionCost{.flops = 12.0, .bytes_accessed = {}, .peak_bytes = 34};
  EXPECT_EQ(concrete.cost().flops, 12.0);
  std::ostringstream text;
  text << concrete;
  EXPECT_EQ(text.str(), concrete.signature() +
                            "\nfloating-point operations: 12\nmost memory at one time: 34 bytes\nthe program of step");
}

// A call that no template made: a text, two tensors of which one is not there, and an object.
class HandmadeCall final : public detail::FunctionCall {
 public:
  const char* types() const override { return "handmade"; }
  void visit_arguments(detail::FunctionVisitor& visitor) override {
    visitor.enter("argument", 0);
    visitor.value("\"text\"");
    visitor.leave();
    visitor.enter("argument", 1);
    visitor.tensor(there);
    visitor.leave();
    visitor.enter("argument", 2);
    visitor.enter("member", 0);
    visitor.tensor(absent);
    visitor.leave();
    visitor.leave();
    visitor.enter("argument", 3);
    visitor.object(object.get(), object);
    visitor.leave();
  }
  void run() override { ++runs; }
  void visit_result(detail::FunctionVisitor& /*visitor*/) override {}
  std::any result() const override { return {}; }
  void set_result(const std::any& /*result*/) override {}

  torch::Tensor there = torch::ones({2});
  torch::Tensor absent;
  std::shared_ptr<int> object = std::make_shared<int>(5);
  int runs = 0;
};

TEST(FunctionArguments, AreWhatACallShows) {
  HandmadeCall call;
  const FunctionArguments arguments = arguments_of(call, "step");
  EXPECT_EQ(arguments.signature.types, "handmade");
  ASSERT_EQ(arguments.signature.arguments.size(), 4U);
  EXPECT_EQ(arguments.signature.arguments[0].value, "\"text\"");
  EXPECT_EQ(arguments.signature.arguments[1].shape, std::vector<int64_t>{2});
  EXPECT_EQ(arguments.signature.arguments[2].dtype, torch::ScalarType::Undefined);
  EXPECT_EQ(arguments.tensors.size(), 1U) << "the one that is there";
  ASSERT_EQ(arguments.objects.size(), 1U);
  EXPECT_EQ(arguments.objects[0].get(), call.object.get());
  EXPECT_FALSE(arguments.records);
  EXPECT_EQ(place_of(call, 0), "argument 0");
  EXPECT_EQ(place_of(call, 2), "argument 2.member");
}

TEST(FunctionArguments, CallsThatShowTheSameAreOneSignature) {
  const auto state = detail::make_function_state({.name = "step"}, "handmade");
  HandmadeCall call;
  detail::call_function(*state, call);
  detail::call_function(*state, call);
  EXPECT_EQ(detail::tracing_count(*state), 1);
  call.object = std::make_shared<int>(5);  // the signature keeps the other one, so that the address is another
  detail::call_function(*state, call);
  EXPECT_EQ(detail::tracing_count(*state), 2);
  EXPECT_EQ(call.runs, 3);
}

}  // namespace
}  // namespace cohort::recorder_test
