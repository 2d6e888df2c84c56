// Texts as numbers: what they are split into, what is learned of them, and errors.
#include "cohort/train/text_vectorization.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::text_vectorization_test {
namespace {

using testing::expect_error;
using torch::Tensor;
using Texts = std::vector<std::string>;

Tensor integers(std::vector<int64_t> list) {
  return torch::tensor(list, torch::kLong);
}

TEST(StringLookupTest, LearnsTokensByTheirNumber) {
  StringLookup lookup({.max_tokens = 4, .mask_token = ""});
  expect_error<FailedPrecondition>([&] { lookup({"a"}); }, "StringLookup: it knows no vocabulary");
  const StringLookup before = lookup;
  lookup.adapt({"b", "a", "c", "", "b", "[UNK]", "c", "b"});
  EXPECT_EQ(lookup.vocabulary(), (Texts{"", "[UNK]", "b", "c"}));
  EXPECT_TRUE(torch::equal(lookup({"a", "b", "", "c"}), integers({1, 2, 0, 3})));
  EXPECT_EQ(lookup.tokens(integers({0, 2, 3, 1, 4, -1})), (Texts{"", "b", "c", "[UNK]", "[UNK]", "[UNK]"}));
  EXPECT_THROW(before.vocabulary(), FailedPrecondition);
  lookup.adapt({"z"});
  EXPECT_EQ(lookup.vocabulary().size(), 3U);
}

TEST(StringLookupTest, DocumentsHaveTheirWeights) {
  StringLookup lookup({.output_mode = OutputMode::kTfIdf, .pad_to_max_tokens = false});
  lookup.adapt_documents({{"a", "a"}, {"a", "b"}, {}});
  const double a = std::log(1 + 3 / 3.0), b = std::log(1 + 3 / 2.0);
  const Tensor got = lookup.batch({{"a", "a"}, {"x", "b"}});
  EXPECT_TRUE(torch::allclose(got, torch::tensor({{0.0, 2 * a, 0.0}, {(a + b) / 2, 0.0, b}}).to(torch::kFloat)));
  EXPECT_EQ(lookup.batch({}).sizes(), (torch::IntArrayRef{0, 3}));
}

TEST(StringLookupTest, SaysWhatDoesNotFit) {
  expect_error<InvalidArgument>([] { StringLookup({.vocabulary = {"a", "a"}}); }, "the token a twice");
  expect_error<InvalidArgument>([] { StringLookup({.vocabulary = {"a"}, .salt = {1, 2, 3}}); }, "salt has one or two");
  StringLookup strict({.num_oov_indices = 0, .vocabulary = {"a"}});
  expect_error<InvalidArgument>([&] { strict({"a", "q"}); }, "the token \"q\" is not in the vocabulary");
  expect_error<FailedPrecondition>([&] { strict.adapt({"q"}); }, "was made with a vocabulary");
  expect_error<InvalidArgument>([&] { strict.batch({{"a"}, {"a", "a"}}); }, "an example has 2 tokens, wanted 1");
  expect_error<InvalidArgument>([&] { strict.tokens(torch::ones({2})); }, "wanted integers");
  StringLookup empty;
  expect_error<InvalidArgument>([&] { empty.adapt({"[UNK]"}); }, "no tokens but the special ones");
}

TEST(TextVectorizationTest, SplitsTexts) {
  const TextVectorization words;
  EXPECT_EQ(words.split("  Don't\tSTOP,\n\xC3\x9C!  "), (Texts{"dont", "stop", "\xC3\x9C"}));
  EXPECT_EQ(TextVectorization({.standardize = Standardize::kNone, .split = SplitText::kNone}).split("A b."),
            (Texts{"A b."}));
  EXPECT_EQ(TextVectorization({.split = SplitText::kCharacter}).split("A\xF0\x9F\x99\x82."),
            (Texts{"a", "\xF0\x9F\x99\x82"}));
  EXPECT_EQ(TextVectorization({.ngrams = {1, 3}}).split("a b c"), (Texts{"a", "b", "c", "a b c"}));
  EXPECT_TRUE(TextVectorization({.ngrams = {3}}).split("a b").empty());
}

TEST(TextVectorizationTest, ReadsTextsOneByOne) {
  TextVectorization vectorize({.output_sequence_length = 3});
  const Texts texts = {"b a", "a", "c a b"};
  std::size_t next = 0;
  vectorize.adapt([&]() { return next < texts.size() ? std::optional<std::string>(texts[next++]) : std::nullopt; });
  EXPECT_EQ(vectorize.vocabulary(), (Texts{"", "[UNK]", "a", "b", "c"}));
  EXPECT_TRUE(torch::equal(vectorize({"a z b a", "", "c"}), integers({2, 1, 3, 0, 0, 0, 4, 0, 0}).view({3, 3})));
  EXPECT_EQ(TextVectorization({.vocabulary = {"a"}})({}).sizes(), (torch::IntArrayRef{0, 0}));
}

TEST(TextVectorizationTest, SaysWhatDoesNotFit) {
  const TextVectorization characters({.split = SplitText::kCharacter, .vocabulary = {"a"}});
  // Cut off, too long a form, a surrogate, beyond the last number.
  for (const char* const text : {"ab\xC3", "ab\xC0\x80", "ab\xED\xA0\x80", "ab\xF4\x90\x80\x80"}) {
    expect_error<InvalidArgument>([&] { characters({text}); }, "byte 2 of a text of");
  }
  expect_error<InvalidArgument>([] { TextVectorization({.output_mode = OutputMode::kOneHot}); }, "is one_hot");
  expect_error<InvalidArgument>([] { TextVectorization({.ngrams = {0}}); }, "each of ngrams must be positive");
  expect_error<InvalidArgument>(
      [] { TextVectorization({.output_mode = OutputMode::kCount, .output_sequence_length = 2}); }, "int only");
  expect_error<FailedPrecondition>([] { TextVectorization()({"a"}); }, "TextVectorization: it knows no vocabulary");
  TextVectorization empty;
  expect_error<InvalidArgument>([&] { empty.adapt(Texts{"", "..."}); }, "adapt: the data have no tokens");
}

TEST(TextHashingTest, KeepsABinForTheMaskedText) {
  const Texts texts = {"a", "b", "", "c", "d", "e"};
  const Tensor bins = hash_texts(texts, {.num_bins = 3, .mask_value = ""});
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(bins[i].item<int64_t>() == 0, i == 2) << i;
  expect_error<InvalidArgument>([&] { hash_texts(texts, {}); }, "num_bins must be positive, got 0");
}

}  // namespace
}  // namespace cohort::text_vectorization_test
