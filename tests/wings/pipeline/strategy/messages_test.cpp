// Values whose sizes the receiver does not know.
#include "wings/pipeline/strategy/messages.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace cohort::messages_test {
namespace {

StageMessage message_of(int64_t values) {
  StageMessage message{.kind = StageMessage::Kind::kGradient, .microbatch = 3, .chunk = 2};
  message.values = {torch::randn({2, 3}, torch::kDouble).set_requires_grad(true), torch::Tensor(), torch::empty({0, 4}),
                    torch::tensor(5, torch::kLong), torch::randn({4, 3}).t()};
  for (int64_t i = 0; i < values; ++i) message.values.push_back(torch::full({1, 1, 1}, i, torch::kLong));
  return message;
}

void expect_same(const StageMessage& got, const StageMessage& wanted) {
  EXPECT_EQ(got.kind, wanted.kind);
  EXPECT_EQ(got.microbatch, wanted.microbatch);
  EXPECT_EQ(got.chunk, wanted.chunk);
  ASSERT_EQ(got.values.size(), wanted.values.size());
  for (std::size_t i = 0; i < wanted.values.size(); ++i) {
    ASSERT_EQ(got.values[i].defined(), wanted.values[i].defined());
    if (!wanted.values[i].defined()) continue;
    EXPECT_EQ(got.values[i].requires_grad(), wanted.values[i].requires_grad());
    EXPECT_EQ(got.values[i].scalar_type(), wanted.values[i].scalar_type());
    EXPECT_TRUE(torch::equal(got.values[i], wanted.values[i]));
  }
}

TEST(StageMessages, ArriveAsTheyWere) {
  for (const int64_t more : {0, 40}) {  // the head of many values is longer than a head
    const StageMessage sent = message_of(more);
    testing::with_ranks(2, [&](Communicator& line) {
      if (line.rank() == 0) {
        for (int i = 0; i < 2; ++i) {
          for (const Work<>& work : send_message(line, 1, sent)) work.wait();
        }
      } else {
        for (int i = 0; i < 2; ++i) expect_same(receive_message(line, 0, torch::kCPU), sent);
      }
    });
  }
}

TEST(StageMessages, GoToAll) {
  for (const int64_t more : {0, 40}) {
    const StageMessage sent = message_of(more);
    testing::with_ranks(3, [&](Communicator& line) {
      expect_same(broadcast_message(line, 2, torch::kCPU, line.rank() == 2 ? sent : StageMessage()), sent);
    });
  }
}

// Bytes of a peer are checked before they say how much memory there is to be.
TEST(StageMessages, AHeadThatCannotBeIsNamed) {
  testing::with_ranks(2, [&](Communicator& line) {
    if (line.rank() == 0) {
      for (const int64_t size : {int64_t{3}, int64_t{1} << 40}) {
        line.send(torch::full({64}, size, torch::kLong), {.rank = 1, .tag = 1});
      }
    } else {
      for (int i = 0; i < 2; ++i) {
        EXPECT_NE(testing::error_of<DataLoss>([&] { receive_message(line, 0, torch::kCPU); }).find("rank 0"),
                  std::string::npos);
      }
    }
  });
}

}  // namespace
}  // namespace cohort::messages_test
