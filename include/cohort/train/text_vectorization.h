// Texts become numbers before they reach a model: tensors have no texts, so these are no layers.
//
//   TextVectorization vectorize({.max_tokens = 10'000, .output_sequence_length = 40});
//   vectorize.adapt(lines);
//   torch::Tensor ids = vectorize(lines);  // [lines, 40]
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/train/layers/preprocessing.h"

namespace cohort {

struct StringLookupOptions {
  std::optional<int64_t> max_tokens = {};      // the size of the vocabulary with its special tokens, at most
  int64_t num_oov_indices = 1;                 // indices of tokens that are not in it, by a hash; 0: these are an error
  std::optional<std::string> mask_token = {};  // index 0 of kInt; left out of the other forms
  std::string oov_token = "[UNK]";             // the name of tokens that are not in it
  std::vector<std::string> vocabulary = {};    // with or without the special tokens in front; empty: adapt()
  std::vector<double> idf_weights = {};        // of the vocabulary, for kTfIdf
  OutputMode output_mode = OutputMode::kInt;   // any
  bool pad_to_max_tokens = false;              // the forms with a dimension of all tokens have max_tokens
  std::vector<int64_t> salt = {};              // one or two numbers for SipHash64; empty: FarmHash64
};
// Makes indices of tokens, as IntegerLookup does of integers; forms of categories are float32. A value; calls of one
// are thread-safe.
class StringLookup {
 public:
  // InvalidArgument: options make no sense.
  explicit StringLookup(const StringLookupOptions& options = {});

  // Learns the vocabulary, and forgets what was learned before; each token is a document of its own. InvalidArgument:
  // there are none but special tokens. FailedPrecondition: the vocabulary was given.
  void adapt(const std::vector<std::string>& tokens);
  // The same from documents of several tokens each.
  void adapt_documents(const std::vector<std::vector<std::string>>& documents);

  // Returns the indices of tokens, int64 [tokens], or their form: one-hot [tokens, depth], the others [depth].
  // FailedPrecondition: not adapted. InvalidArgument: num_oov_indices is 0 and a token is not there.
  torch::Tensor operator()(const std::vector<std::string>& tokens) const;
  // The same for several examples of equally many tokens: int64 [examples, tokens], or one-hot [examples, tokens,
  // depth] (of one token [examples, depth]), or [examples, depth]. InvalidArgument: the numbers differ.
  torch::Tensor batch(const std::vector<std::vector<std::string>>& examples) const;
  // Returns the tokens of indices, in their order; those of no token are oov_token.
  std::vector<std::string> tokens(const torch::Tensor& indices) const;
  // Returns all tokens by their indices, the special ones included.
  std::vector<std::string> vocabulary() const;

 private:
  friend class TextVectorization;
  struct State;
  std::shared_ptr<const State> state_;
};

// What becomes of a text before it is split: its letters of ASCII become small ones, its punctuation of ASCII goes.
enum class Standardize { kNone, kLower, kStripPunctuation, kLowerAndStripPunctuation };
// How a text becomes tokens: at spaces of ASCII, at each character of UTF-8, or not at all.
enum class SplitText { kNone, kWhitespace, kCharacter };

struct TextVectorizationOptions {
  std::optional<int64_t> max_tokens = {};  // the size of the vocabulary with its special tokens, at most
  Standardize standardize = Standardize::kLowerAndStripPunctuation;  // what is left of a text
  SplitText split = SplitText::kWhitespace;                          // what its tokens are
  std::vector<int64_t> ngrams = {};           // the numbers of neighbouring tokens that are one; empty: single tokens
  OutputMode output_mode = OutputMode::kInt;  // any but kOneHot
  std::optional<int64_t> output_sequence_length = {};  // cut and padded to it, for kInt; unset: the longest text's
  bool pad_to_max_tokens = false;                      // the forms with a dimension of all tokens have max_tokens
  std::vector<std::string> vocabulary = {};  // with or without the special tokens "" and "[UNK]"; empty: adapt()
  std::vector<double> idf_weights = {};      // of the vocabulary, for kTfIdf
};
// Makes indices of texts: 0 behind their ends, 1 for tokens that are not in the vocabulary. A value; calls of one are
// thread-safe.
class TextVectorization {
 public:
  // InvalidArgument: options make no sense.
  explicit TextVectorization(const TextVectorizationOptions& options = {});

  // Learns the vocabulary, and forgets what was learned before; each text is a document. InvalidArgument: there are no
  // tokens, or split = kCharacter and a text is no UTF-8. FailedPrecondition: the vocabulary was given.
  void adapt(const std::vector<std::string>& texts);
  // The same from texts one by one, until there is none.
  void adapt(const std::function<std::optional<std::string>()>& next_text);

  // Returns int64 [texts, tokens], or the form of categories, float32 [texts, depth]. FailedPrecondition: not adapted.
  // InvalidArgument: as adapt().
  torch::Tensor operator()(const std::vector<std::string>& texts) const;
  // Returns the tokens of a text.
  std::vector<std::string> split(const std::string& text) const;
  // Returns all tokens by their indices, the special ones included.
  std::vector<std::string> vocabulary() const;

 private:
  TextVectorizationOptions options_;
  StringLookup lookup_;
};

struct TextHashingOptions {
  int64_t num_bins = 0;                        // the number of bins; needed
  std::optional<std::string> mask_value = {};  // the text of bin 0, which no other one gets
  std::vector<int64_t> salt = {};              // one or two numbers for SipHash64; empty: FarmHash64
};
// Returns the numbers of bins of texts by a hash, int64 [texts] (Keras' Hashing of strings). encode_categories() makes
// other forms of them. InvalidArgument: options make no sense.
torch::Tensor hash_texts(const std::vector<std::string>& texts, const TextHashingOptions& options);

// Returns FarmHash's Fingerprint64 of texts, int64 [texts]: a feature for hashed_crossing().
torch::Tensor text_fingerprints(const std::vector<std::string>& texts);

}  // namespace cohort
