// Vocabularies of integers and of texts: their special tokens, and what is learned from data.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/train/layers/preprocessing.h"
#include "train/layers/support.h"

namespace cohort {

// The index of what no form counts.
inline constexpr int64_t kLeftOut = -1;

// The options that decide which index a token has: first that of the mask token, then those of tokens that are not in
// the vocabulary, then those of its tokens.
template <typename Token>
struct LookupRules {
  std::optional<int64_t> max_tokens;
  int64_t num_oov_indices;
  std::optional<Token> mask_token;
  Token oov_token;
  bool invert;
  OutputMode output_mode;
  bool pad_to_max_tokens;

  int64_t first_oov() const { return mask_token.has_value() && output_mode == OutputMode::kInt ? 1 : 0; }
  int64_t first_token() const { return first_oov() + num_oov_indices; }
};

template <typename Token>
struct Vocabulary {
  std::vector<Token> tokens;        // without the special ones
  std::vector<double> idf_weights;  // of all indices; empty but for kTfIdf
};

// Returns the number of indices that the forms with a dimension of all tokens have.
template <typename Token>
int64_t depth_of(const LookupRules<Token>& rules, const Vocabulary<Token>& vocabulary) {
  if (rules.pad_to_max_tokens) return *rules.max_tokens;
  return rules.first_token() + static_cast<int64_t>(vocabulary.tokens.size());
}

// Fails with InvalidArgument for options that make no sense.
template <typename Token>
void check_rules(std::string_view type, const LookupRules<Token>& rules) {
  if (rules.max_tokens.has_value() && *rules.max_tokens <= 1) {
    fail_option(type, "max_tokens must be greater than 1, got ", *rules.max_tokens);
  }
  if (rules.num_oov_indices < 0) fail_option(type, "num_oov_indices must be 0 or more, got ", rules.num_oov_indices);
  if (rules.pad_to_max_tokens && !rules.max_tokens.has_value()) {
    fail_option(type, "pad_to_max_tokens needs max_tokens");
  }
  if (rules.invert && rules.output_mode != OutputMode::kInt) {
    fail_option(type, "invert needs the output_mode int");
  }
}

// Puts the weights of special tokens, which are those of an average token, before the others, and zeros behind them.
template <typename Token>
std::vector<double> padded_weights(const LookupRules<Token>& rules, std::vector<double> weights, bool has_special) {
  if (weights.empty()) return weights;
  if (!has_special) {
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    weights.insert(weights.begin(), static_cast<std::size_t>(rules.first_token()),
                   sum / static_cast<double>(weights.size()));
  }
  if (rules.pad_to_max_tokens) weights.resize(static_cast<std::size_t>(*rules.max_tokens), 0.0);
  return weights;
}

// Returns whether a list has all special tokens in front. A file may say that there are any number of them.
template <typename Token>
bool begins_with_special(const LookupRules<Token>& rules, const std::vector<Token>& list) {
  if (static_cast<int64_t>(list.size()) < rules.first_token()) return false;
  const auto oov = list.begin() + rules.first_oov();
  return (rules.first_oov() == 0 || list.front() == *rules.mask_token) &&
         std::all_of(oov, oov + rules.num_oov_indices, [&](const Token& each) { return each == rules.oov_token; });
}

// Makes a vocabulary of a list, which may have all special tokens in front. InvalidArgument: a token is there twice, or
// a special one is elsewhere, there are too many, or the weights do not fit.
template <typename Token>
Vocabulary<Token> given_vocabulary(std::string_view type, const LookupRules<Token>& rules,
                                   const std::vector<Token>& list, const std::vector<double>& weights) {
  if ((rules.output_mode == OutputMode::kTfIdf) == weights.empty()) {
    fail_option(type, "idf_weights and the output_mode tf_idf need each other where a vocabulary is given");
  }
  if (!weights.empty() && weights.size() != list.size()) {
    fail_option(type, "idf_weights has ", weights.size(), " numbers, wanted ", list.size(), " as the vocabulary");
  }
  const bool has_special = begins_with_special(rules, list);
  const std::vector<Token> tokens(list.begin() + (has_special ? rules.first_token() : 0), list.end());
  std::set<Token> seen;
  for (const Token& token : tokens) {
    if (!seen.insert(token).second) fail_option(type, "the vocabulary has the token ", token, " twice");
    const bool reserved = token == rules.mask_token || (rules.invert && token == rules.oov_token);
    if (!reserved) continue;
    fail_option(type, "the vocabulary has the special token ", token,
                " among its tokens; all special tokens stand in front, or none");
  }
  const auto size = rules.first_token() + static_cast<int64_t>(tokens.size());
  if (rules.max_tokens.has_value() && size > *rules.max_tokens) {
    fail_option(type, "the vocabulary has ", size,
                " tokens with the special ones, wanted at most max_tokens = ", *rules.max_tokens);
  }
  return {.tokens = tokens, .idf_weights = padded_weights(rules, weights, has_special)};
}

// Counts tokens, and the documents that have them.
template <typename Token>
class TokenCounts {
 public:
  void add(std::span<const Token> document) {
    ++documents_;
    for (const Token& token : document) {
      Count& count = counts_[token];
      ++count.times;
      count.documents += std::exchange(count.last, documents_) != documents_ ? 1 : 0;
    }
  }

  // Returns the tokens by their number, the larger ones first among equals.
  Vocabulary<Token> most_frequent(const LookupRules<Token>& rules) const {
    std::vector<std::pair<int64_t, Token>> sorted;
    for (const auto& [token, count] : counts_) {
      if (token != rules.mask_token && token != rules.oov_token) sorted.emplace_back(count.times, token);
    }
    std::sort(sorted.rbegin(), sorted.rend());
    if (rules.max_tokens.has_value()) {
      const int64_t most = std::max<int64_t>(*rules.max_tokens - rules.first_token(), 0);
      sorted.resize(std::min(sorted.size(), static_cast<std::size_t>(most)));
    }
    Vocabulary<Token> vocabulary;
    std::vector<double> weights;
    for (const auto& [times, token] : sorted) {
      vocabulary.tokens.push_back(token);
      const auto with = static_cast<double>(counts_.at(token).documents);
      weights.push_back(std::log1p(static_cast<double>(documents_) / (1.0 + with)));
    }
    if (rules.output_mode == OutputMode::kTfIdf) {
      vocabulary.idf_weights = padded_weights(rules, std::move(weights), /*has_special=*/false);
    }
    return vocabulary;
  }

 private:
  struct Count {
    int64_t times = 0;
    int64_t documents = 0;
    int64_t last = 0;  // the number of the last document that had it
  };
  std::unordered_map<Token, Count> counts_;
  int64_t documents_ = 0;
};

}  // namespace cohort
