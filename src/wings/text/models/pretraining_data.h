// The examples of masked language modelling, made of text whose tokens are bytes.
#pragma once

#include <cstdint>

#include "cohort/dataset.h"
#include "cohort/models/masked_language_model.h"
#include "models/tasks/task_source.h"

namespace cohort {

// Tokens that are no bytes.
enum SpecialToken : int64_t { kPad = 256, kClassify = 257, kSeparate = 258, kMask = 259 };
static_assert(kMask + 1 == kByteTokens);

// What becomes of a batch of texts.
struct MaskingPlan {
  int64_t seq_length = 512;      // tokens of an example, with those that are no bytes
  int64_t max_predictions = 76;  // the most tokens of an example that are hidden
  double rate = 0.15;            // part of the bytes that is hidden
  double short_prob = 0.1;       // part of the examples that is shorter
  bool next_sentence = true;     // an example has two texts, of which the second may be another's

  // Returns the bytes of a whole example.
  int64_t text_length() const { return seq_length - (next_sentence ? 3 : 2); }
};

// Returns how the data's examples are made.
MaskingPlan masking_of(const BertDataConfig& data);

// Makes examples of texts, uint8 [examples, text_length()], by random numbers of the generator. The inputs of
// models::bert(), int64; the targets mlm_logits, int64 [examples, max_predictions], with a mask of those that are
// there, and next_sentence, int64 [examples], 1 if the second text is another's.
Example pretraining_batch(const torch::Tensor& texts, const MaskingPlan& masking, at::Generator generator);

// Opens the text, x: uint8 [bytes of a whole example] of either data; see open_source(). InvalidArgument: examples have
// no room for any, too.
TaskSource open_pretraining_text(const MaskedLanguageModelTask& task, const RuntimeConfig& runtime, bool training);

// Returns batches of examples, made anew in each pass by the seed; for validation always the same ones.
Dataset pretraining_batches(const Dataset& texts, const BertDataConfig& data, uint64_t seed, bool same_in_each_pass);

}  // namespace cohort
