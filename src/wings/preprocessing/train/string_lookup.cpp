// StringLookup, and hashes of texts. Indices are written by a pointer into tensors on the CPU.
#include "wings/preprocessing/train/string_lookup.h"

#include <ATen/Functions.h>

#include "wings/preprocessing/train/categories.h"

namespace cohort {

namespace {

constexpr std::string_view kStringLookup = "StringLookup";

LookupRules<std::string> rules_of(const StringLookupOptions& options) {
  return {.max_tokens = options.max_tokens,
          .num_oov_indices = options.num_oov_indices,
          .mask_token = options.mask_token,
          .oov_token = options.oov_token,
          .invert = false,
          .output_mode = options.output_mode,
          .pad_to_max_tokens = options.pad_to_max_tokens};
}

torch::Tensor integers_of(std::size_t size, const std::function<int64_t(std::size_t)>& at_place) {
  torch::Tensor list = at::empty({static_cast<int64_t>(size)}, torch::kLong);
  int64_t* const to = list.data_ptr<int64_t>();
  for (std::size_t i = 0; i < size; ++i) to[i] = at_place(i);
  return list;
}

}  // namespace

StringLookup::State::State(std::string_view who, const StringLookupOptions& given)
    : type(who), options(given), rules(rules_of(given)), hash(who, given.salt) {
  check_rules(type, rules);
  if (options.vocabulary.empty() && !options.idf_weights.empty()) {
    fail_option(type, "idf_weights are those of a vocabulary, which is not given");
  }
  if (!options.vocabulary.empty()) {
    set_vocabulary(given_vocabulary(type, rules, options.vocabulary, options.idf_weights));
  }
}

void StringLookup::State::set_vocabulary(Vocabulary<std::string> learned) {
  indices.clear();
  for (const std::string& token : learned.tokens) {
    indices.emplace(token, rules.first_token() + static_cast<int64_t>(indices.size()));
  }
  vocabulary = std::move(learned);
}

const Vocabulary<std::string>& StringLookup::State::known() const {
  if (vocabulary.has_value()) return *vocabulary;
  fail<FailedPrecondition>("[layers] ", type, ": it knows no vocabulary; call adapt() before, or give it");
}

int64_t StringLookup::State::index_of(const std::string& token) const {
  if (token == options.mask_token) return options.output_mode == OutputMode::kInt ? 0 : kLeftOut;
  const auto found = indices.find(token);
  if (found != indices.end()) return found->second;
  if (options.num_oov_indices == 1) return rules.first_oov();
  if (options.num_oov_indices > 1) return rules.first_oov() + hash.bin(token, options.num_oov_indices);
  fail<InvalidArgument>("[layers] ", type, ": the token \"", token,
                        "\" is not in the vocabulary, which num_oov_indices = 0 wants");
}

torch::Tensor StringLookup::State::form_of(const torch::Tensor& all) const {
  if (options.output_mode != OutputMode::kTfIdf) {
    return encoded(all, options.output_mode, depth_of(rules, known()), torch::kFloat);
  }
  return encoded(all, OutputMode::kCount, depth_of(rules, known()), torch::kFloat) *
         at::tensor(known().idf_weights, torch::kFloat);
}

std::shared_ptr<const StringLookup::State> StringLookup::State::with(
    const std::function<void(TokenCounts<std::string>&)>& count) const {
  if (!options.vocabulary.empty()) {
    fail<FailedPrecondition>("[layers] ", type, ": adapt: it was made with a vocabulary, so it has nothing to learn");
  }
  TokenCounts<std::string> counts;
  count(counts);
  Vocabulary<std::string> learned = counts.most_frequent(rules);
  if (learned.tokens.empty()) {
    fail<InvalidArgument>("[layers] ", type, ": adapt: the data have no tokens but the special ones");
  }
  auto next = std::make_shared<State>(type, options);
  next->set_vocabulary(std::move(learned));
  return next;
}

StringLookup::StringLookup(const StringLookupOptions& options)
    : state_(std::make_shared<State>(kStringLookup, options)) {}

void StringLookup::adapt(const std::vector<std::string>& tokens) {
  state_ = state_->with([&](TokenCounts<std::string>& counts) {
    for (const std::string& token : tokens) counts.add({&token, 1});
  });
}

void StringLookup::adapt_documents(const std::vector<std::vector<std::string>>& documents) {
  state_ = state_->with([&](TokenCounts<std::string>& counts) {
    for (const auto& document : documents) counts.add(document);
  });
}

torch::Tensor StringLookup::operator()(const std::vector<std::string>& tokens) const {
  static_cast<void>(state_->known());
  return state_->form_of(integers_of(tokens.size(), [&](std::size_t i) { return state_->index_of(tokens[i]); }));
}

torch::Tensor StringLookup::batch(const std::vector<std::vector<std::string>>& examples) const {
  static_cast<void>(state_->known());
  const std::size_t size = examples.empty() ? 0 : examples.front().size();
  for (const auto& example : examples) {
    if (example.size() == size) continue;
    fail<InvalidArgument>("[layers] ", state_->type, ": an example has ", example.size(), " tokens, wanted ", size,
                          " as the first one");
  }
  const torch::Tensor all = integers_of(examples.size() * size,
                                        [&](std::size_t i) { return state_->index_of(examples[i / size][i % size]); });
  return state_->form_of(all.view({static_cast<int64_t>(examples.size()), static_cast<int64_t>(size)}));
}

std::vector<std::string> StringLookup::tokens(const torch::Tensor& indices) const {
  if (!indices.defined() || !at::isIntegralType(indices.scalar_type(), /*includeBool=*/false)) {
    fail_called("tokens()", state_->type, indices, "integers");
  }
  const std::vector<std::string> all = vocabulary();
  const torch::Tensor own = indices.to(torch::kLong).cpu().contiguous();
  const int64_t* const from = own.data_ptr<int64_t>();
  std::vector<std::string> list;
  for (int64_t i = 0; i < own.numel(); ++i) {
    const bool known = from[i] >= 0 && from[i] < static_cast<int64_t>(all.size());
    list.push_back(known ? all[static_cast<std::size_t>(from[i])] : state_->options.oov_token);
  }
  return list;
}

std::vector<std::string> StringLookup::vocabulary() const {
  const Vocabulary<std::string>& own = state_->known();
  const LookupRules<std::string>& rules = state_->rules;
  std::vector<std::string> all(static_cast<std::size_t>(rules.first_oov()), rules.mask_token.value_or(""));
  all.insert(all.end(), static_cast<std::size_t>(rules.num_oov_indices), rules.oov_token);
  all.insert(all.end(), own.tokens.begin(), own.tokens.end());
  return all;
}

torch::Tensor hash_texts(const std::vector<std::string>& texts, const TextHashingOptions& options) {
  constexpr std::string_view kHashTexts = "hash_texts";
  check_positive(kHashTexts, "num_bins", options.num_bins);
  const TokenHash hash(kHashTexts, options.salt);
  // Bin 0 is that of the masked text alone, if there is another one.
  const bool masks = options.mask_value.has_value() && options.num_bins > 1;
  return integers_of(texts.size(), [&](std::size_t i) -> int64_t {
    if (!masks) return hash.bin(texts[i], options.num_bins);
    return texts[i] == *options.mask_value ? 0 : 1 + hash.bin(texts[i], options.num_bins - 1);
  });
}

torch::Tensor text_fingerprints(const std::vector<std::string>& texts) {
  return integers_of(texts.size(), [&](std::size_t i) { return static_cast<int64_t>(farm_fingerprint(texts[i])); });
}

}  // namespace cohort
