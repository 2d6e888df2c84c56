// An example is [CLS] text [SEP], or [CLS] text [SEP] next text [SEP]. As in BERT's own preparation (Devlin et al.,
// 2018, A.1): a part of the tokens is to be foretold, of which 80% become [MASK], 10% any token, and 10% stay; half of
// the second texts come from elsewhere, here from another example of the batch, which is as random as the order of the
// data; some examples are shorter, so that the model knows all lengths.
#include "wings/text/models/pretraining_data.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "cohort/data/datasets.h"
#include "device/host_random.h"

namespace cohort {

namespace {

constexpr double kBecomesMask = 0.8;
constexpr double kBecomesAny = 0.9;  // up to here
constexpr int64_t kBytes = 256;

// The random numbers of a batch, from 0 to below 1.
struct Draws {
  torch::Tensor lengths;      // [examples, 2]: whether an example is short, and how short
  torch::Tensor seconds;      // [examples, 2]: whether the second text is another's, and whose
  torch::Tensor order;        // [examples, tokens]: the smallest ones are hidden
  torch::Tensor changes;      // [examples, tokens]: what becomes of a hidden token
  torch::Tensor replacement;  // [examples, tokens]: the token that it becomes

  Draws(int64_t examples, int64_t tokens, at::Generator generator) {
    const auto draw = [&](int64_t columns) { return at::rand({examples, columns}, generator, torch::kDouble); };
    lengths = draw(2);
    seconds = draw(2);
    order = draw(tokens);
    changes = draw(tokens);
    replacement = draw(tokens);
  }
};

// Returns a number from 0 to below count for a random number from 0 to below 1.
int64_t scaled(double random, int64_t count) {
  return std::min(count - 1, static_cast<int64_t>(random * static_cast<double>(count)));
}

class BatchMaker {
 public:
  BatchMaker(const torch::Tensor& texts, const MaskingPlan& masking, at::Generator generator)
      : masking_(masking),
        examples_(texts.size(0)),
        draws_(examples_, masking.seq_length, std::move(generator)),
        texts_(texts.accessor<uint8_t, 2>()) {
    const auto zeros = [&](int64_t columns) { return at::zeros({examples_, columns}, torch::kLong); };
    words_ = at::full({examples_, masking.seq_length}, kPad, torch::kLong);
    seen_ = zeros(masking.seq_length);
    types_ = zeros(masking.seq_length);
    positions_ = zeros(masking.max_predictions);
    hidden_ = zeros(masking.max_predictions);
    counts_ = at::zeros({examples_, masking.max_predictions}, torch::kBool);
    others_ = at::zeros({examples_}, torch::kLong);
  }

  Example operator()() {
    for (int64_t i = 0; i < examples_; ++i) {
      write(i);
      hide(i);
    }
    Example batch{.inputs = {{"input_word_ids", words_},
                             {"input_mask", seen_},
                             {"input_type_ids", types_},
                             {"masked_lm_positions", positions_}},
                  .targets = {{"mlm_logits", hidden_}},
                  .masks = {{"mlm_logits", counts_}}};
    if (masking_.next_sentence) batch.targets.emplace_back("next_sentence", others_);
    return batch;
  }

 private:
  static double number(const torch::Tensor& draws, int64_t row, int64_t column) {
    return draws.accessor<double, 2>()[row][column];
  }

  void put(int64_t row, int64_t token, int64_t type) {
    const auto column = static_cast<int64_t>(used_++);
    words_.accessor<int64_t, 2>()[row][column] = token;
    seen_.accessor<int64_t, 2>()[row][column] = 1;
    types_.accessor<int64_t, 2>()[row][column] = type;
    if (token < kBytes) candidates_.push_back(column);
  }
  void put_text(int64_t row, int64_t of, int64_t from, int64_t count, int64_t type) {
    for (int64_t k = 0; k < count; ++k) put(row, texts_[of][from + k], type);
    put(row, kSeparate, type);
  }

  void write(int64_t row) {
    const int64_t whole = masking_.text_length();
    const int64_t least = masking_.next_sentence ? 2 : 1;
    const bool is_short = number(draws_.lengths, row, 0) < masking_.short_prob;
    const int64_t length = is_short ? least + scaled(number(draws_.lengths, row, 1), whole - least + 1) : whole;
    used_ = 0;
    candidates_.clear();
    put(row, kClassify, 0);
    if (!masking_.next_sentence) return put_text(row, row, 0, length, 0);
    const int64_t first = (length + 1) / 2;
    put_text(row, row, 0, first, 0);
    const bool is_other = examples_ > 1 && number(draws_.seconds, row, 0) < 0.5;
    const int64_t distance = 1 + scaled(number(draws_.seconds, row, 1), std::max<int64_t>(1, examples_ - 1));
    put_text(row, is_other ? (row + distance) % examples_ : row, first, length - first, 1);
    others_.accessor<int64_t, 1>()[row] = is_other ? 1 : 0;
  }

  // Hides a part of the bytes of the example that was written last.
  void hide(int64_t row) {
    const auto wanted = std::llround(masking_.rate * static_cast<double>(candidates_.size()));
    const auto count = std::min<int64_t>(masking_.max_predictions, std::max<int64_t>(1, wanted));
    const auto end = candidates_.begin() + std::min<int64_t>(count, static_cast<int64_t>(candidates_.size()));
    const auto order = draws_.order.accessor<double, 2>()[row];
    std::partial_sort(candidates_.begin(), end, candidates_.end(),
                      [&](int64_t a, int64_t b) { return order[a] != order[b] ? order[a] < order[b] : a < b; });
    std::sort(candidates_.begin(), end);
    int64_t next = 0;
    for (auto each = candidates_.begin(); each != end; ++each, ++next) {
      int64_t& word = words_.accessor<int64_t, 2>()[row][*each];
      positions_.accessor<int64_t, 2>()[row][next] = *each;
      hidden_.accessor<int64_t, 2>()[row][next] = word;
      counts_.accessor<bool, 2>()[row][next] = true;
      const double change = number(draws_.changes, row, *each);
      if (change < kBecomesMask) {
        word = kMask;
      } else if (change < kBecomesAny) {
        word = scaled(number(draws_.replacement, row, *each), kBytes);
      }
    }
  }

  MaskingPlan masking_;
  int64_t examples_;
  Draws draws_;
  torch::TensorAccessor<uint8_t, 2> texts_;
  torch::Tensor words_, seen_, types_, positions_, hidden_, counts_, others_;
  std::size_t used_ = 0;             // tokens of the example that is written
  std::vector<int64_t> candidates_;  // those of them that are bytes
};

void require_room(const char* key, const BertDataConfig& data) {
  const int64_t least = data.use_next_sentence_label ? 5 : 3;
  if (data.seq_length >= least) return;
  fail<InvalidArgument>(
      "[task] ", key, ".seq_length is ", data.seq_length, ", wanted ", least, " or more: a byte of ",
      data.use_next_sentence_label ? "each of two texts, [CLS] and two [SEP]" : "a text, [CLS] and [SEP]");
}

// Returns a number that depends on the texts alone.
uint64_t fingerprint(const torch::Tensor& texts) {
  const torch::Tensor bytes = texts.flatten().to(torch::kLong);
  constexpr int64_t kFactor = 2'654'435'761;  // Knuth's
  return static_cast<uint64_t>((bytes * (at::arange(bytes.numel(), torch::kLong) * kFactor + 1)).sum().item<int64_t>());
}

}  // namespace

MaskingPlan masking_of(const BertDataConfig& data) {
  return {.seq_length = data.seq_length,
          .max_predictions = data.max_predictions_per_seq,
          .rate = data.masking_rate,
          .short_prob = data.short_seq_prob,
          .next_sentence = data.use_next_sentence_label};
}

Example pretraining_batch(const torch::Tensor& texts, const MaskingPlan& masking, at::Generator generator) {
  return BatchMaker(texts, masking, std::move(generator))();
}

TaskSource open_pretraining_text(const MaskedLanguageModelTask& task, const RuntimeConfig& runtime, bool training) {
  require_room("task.train_data", task.train_data);
  require_room("task.validation_data", task.validation_data);
  const bool in_parts = !task.train_data.input_path->empty() && task.validation_data.input_path->empty();
  if (in_parts && task.train_data.seq_length != task.validation_data.seq_length) {
    fail<InvalidArgument>("[task] task.validation_data.seq_length is ", task.validation_data.seq_length,
                          ", but its text is a part of that of task.train_data, whose seq_length is ",
                          task.train_data.seq_length, "; wanted the same, or a task.validation_data.input_path");
  }
  const auto open = [](const std::string& from, const BertDataConfig& data, double held_out) {
    return datasets::text(
        from,
        {.seq_length = masking_of(data).text_length(), .suffixes = data.suffixes, .held_out = held_out, .seed = 0});
  };
  const auto draw = [&] {
    const auto sums = [&](const BertDataConfig& data) {
      return datasets::drawn_sums(
          {.seq_length = masking_of(data).text_length(), .seed = static_cast<uint64_t>(runtime.seed)});
    };
    return datasets::TrainTest{.train = sums(task.train_data).train, .test = sums(task.validation_data).test};
  };
  return open_source(task, training, {.missing = "there is no text", .builtin = "sums"}, open, draw);
}

Dataset pretraining_batches(const Dataset& texts, const BertDataConfig& data, uint64_t seed, bool same_in_each_pass) {
  const MaskingPlan masking = masking_of(data);
  const Dataset batches = texts.batch(data.global_batch_size, {.drop_remainder = data.drop_remainder});
  if (!same_in_each_pass) {
    return batches.random_map(
        [masking](const Example& batch, at::Generator generator) {
          return pretraining_batch(batch.x, masking, std::move(generator));
        },
        {.seed = seed});
  }
  return batches.map([masking, seed](const Example& batch) {
    return pretraining_batch(batch.x, masking, make_host_generator(seed ^ fingerprint(batch.x)));
  });
}

}  // namespace cohort
