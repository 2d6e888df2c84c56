// What a StringLookup knows, which TextVectorization uses, too.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "cohort/train/text_vectorization.h"
#include "wings/preprocessing/train/farm_hash.h"
#include "wings/preprocessing/train/vocabulary.h"

namespace cohort {

struct StringLookup::State {
  // `who` is the class, for messages, and lives as long as the program.
  State(std::string_view who, const StringLookupOptions& given);

  void set_vocabulary(Vocabulary<std::string> learned);
  // Returns the vocabulary. FailedPrecondition: there is none.
  const Vocabulary<std::string>& known() const;
  // Returns the index of a token, or kLeftOut.
  int64_t index_of(const std::string& token) const;
  // Returns the form of indices, [tokens] or [examples, tokens].
  torch::Tensor form_of(const torch::Tensor& all) const;
  // Returns the same with a vocabulary of what count() adds.
  std::shared_ptr<const State> with(const std::function<void(TokenCounts<std::string>&)>& count) const;

  std::string_view type;
  StringLookupOptions options;
  LookupRules<std::string> rules;
  TokenHash hash;
  std::optional<Vocabulary<std::string>> vocabulary;
  std::unordered_map<std::string, int64_t> indices;
};

}  // namespace cohort
