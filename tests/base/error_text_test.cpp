#include "base/error_text.h"

#include <c10/util/Logging.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <new>

#include "cohort/error.h"

namespace cohort::error_text_test {
namespace {

template <typename Fn>
std::string text_of(const Fn& fn) {
  try {
    fn();
  } catch (const std::exception& error) {
    return error_text(error);
  }
  return "no error";
}

TEST(ErrorText, OursAreAsTheyAre) {
  EXPECT_EQ(text_of([] { throw NotFound("[data] x is not there"); }), "[data] x is not there");
}

TEST(ErrorText, LibTorchsHaveNoStackTrace) {
  const std::string text = text_of([] { (void)torch::zeros({2, 3}).mm(torch::zeros({2, 3})); });
  // Newer versions say which operation it was.
  EXPECT_TRUE(text == "[libtorch] mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)" ||
              text == "[libtorch] mm: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)")
      << text;
}

TEST(ErrorText, FailedChecksHaveNoPlaceInTheSource) {
  const std::string text = text_of([] { CAFFE_ENFORCE(1 == 2, "you tried to allocate 5 bytes. Error 12"); });
  EXPECT_EQ(text, "[libtorch] you tried to allocate 5 bytes. Error 12");
}

TEST(ErrorText, OutOfMemoryIsSaidInWords) {
  EXPECT_EQ(text_of([] { throw std::bad_alloc(); }), "[memory] there is not enough memory");
}

}  // namespace
}  // namespace cohort::error_text_test
