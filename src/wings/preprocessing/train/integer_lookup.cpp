// IntegerLookup: a search in the sorted vocabulary, by operations that all devices have. What it learns from is copied
// by a pointer from tensors on the CPU.
#include "wings/preprocessing/train/integer_lookup.h"

#include <ATen/Functions.h>

#include "wings/preprocessing/train/adapting.h"
#include "wings/preprocessing/train/categories.h"
#include "wings/preprocessing/train/farm_hash.h"
#include "wings/preprocessing/train/hashed.h"

namespace cohort {

namespace {

constexpr std::string_view kIntegerLookup = "IntegerLookup";

LookupRules<int64_t> rules_of(const IntegerLookupOptions& options) {
  return {.max_tokens = options.max_tokens,
          .num_oov_indices = options.num_oov_indices,
          .mask_token = options.mask_token,
          .oov_token = options.oov_token,
          .invert = options.invert,
          .output_mode = options.output_mode,
          .pad_to_max_tokens = options.pad_to_max_tokens};
}

class IntegerLookupModule final : public LayerModule {
 public:
  IntegerLookupModule(const IntegerLookupOptions& options, const Vocabulary<int64_t>& vocabulary,
                      const BuildContext& context)
      : name_(context.name),
        rank_(static_cast<int64_t>(context.input.size()) + 1),
        options_(options),
        rules_(rules_of(options)),
        hash_(kIntegerLookup, options.salt),
        depth_(depth_of(rules_, vocabulary)),
        dtype_(context.dtype),
        tokens_(at::tensor(vocabulary.tokens, torch::kLong)),
        sorted_(std::get<0>(at::tensor(vocabulary.tokens, torch::kLong).sort())),
        order_(at::tensor(vocabulary.tokens, torch::kLong).argsort()),
        weights_(at::tensor(vocabulary.idf_weights, dtype_)) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    if (x.dim() != rank_) fail_called(name_, kIntegerLookup, x, c10::str(rank_, " dimensions"));
    const torch::Tensor integers = x.to(torch::kLong);
    if (options_.invert) return token_of(integers);
    const torch::Tensor indices = index_of(integers);
    if (options_.output_mode != OutputMode::kTfIdf) return encoded(indices, options_.output_mode, depth_, dtype_);
    return encoded(indices, OutputMode::kCount, depth_, dtype_) * weights_.beside(x);
  }

 private:
  torch::Tensor index_of(const torch::Tensor& integers) const {
    const torch::Tensor& sorted = sorted_.beside(integers);
    const torch::Tensor place = at::searchsorted(sorted, integers.contiguous()).clamp_max(sorted.size(0) - 1);
    const auto taken = [&](const torch::Tensor& list) { return list.index_select(0, place.flatten()).view_as(place); };
    const torch::Tensor known = taken(sorted).eq(integers);
    torch::Tensor index =
        at::where(known, taken(order_.beside(integers)) + rules_.first_token(), index_without(integers));
    if (options_.mask_token.has_value()) {
      const int64_t masked = options_.output_mode == OutputMode::kInt ? 0 : kLeftOut;
      index = index.masked_fill(integers.eq(*options_.mask_token), masked);
    }
    if (options_.num_oov_indices == 0) require_known(integers, known);
    return index;
  }

  // Returns the indices that integers have if they are not in the vocabulary.
  torch::Tensor index_without(const torch::Tensor& integers) const {
    const int64_t first = rules_.first_oov(), count = options_.num_oov_indices;
    if (count < 2) return at::full_like(integers, first);
    if (options_.oov_method == OovMethod::kFloorMod) return integers.remainder(count) + first;
    return hashed(integers, [&](int64_t token) { return first + hash_.bin(token, count); });
  }

  void require_known(const torch::Tensor& integers, const torch::Tensor& known) const {
    torch::Tensor wrong = known.logical_not();
    if (options_.mask_token.has_value()) wrong = wrong.logical_and(integers.ne(*options_.mask_token));
    if (!wrong.any().item<bool>()) return;
    fail_called(name_, kIntegerLookup, integers,
                c10::str("integers of the vocabulary, since num_oov_indices is 0; there is ",
                         integers.masked_select(wrong)[0].item<int64_t>()));
  }

  torch::Tensor token_of(const torch::Tensor& indices) const {
    const torch::Tensor& tokens = tokens_.beside(indices);
    const torch::Tensor place = indices - rules_.first_token();
    const torch::Tensor known = place.ge(0).logical_and(place.lt(tokens.size(0)));
    const torch::Tensor inside = place.clamp(0, tokens.size(0) - 1);
    torch::Tensor found = tokens.index_select(0, inside.flatten()).view_as(inside);
    found = found.masked_fill(known.logical_not(), options_.oov_token);
    return options_.mask_token.has_value() ? found.masked_fill(indices.eq(0), *options_.mask_token) : found;
  }

  std::string name_;
  int64_t rank_;
  IntegerLookupOptions options_;
  LookupRules<int64_t> rules_;
  TokenHash hash_;
  int64_t depth_;
  torch::ScalarType dtype_;
  LayerConstant tokens_;
  LayerConstant sorted_;
  LayerConstant order_;  // the places of the sorted tokens in the vocabulary
  LayerConstant weights_;
};

class IntegerLookupGathering final : public Gathering {
 public:
  IntegerLookupGathering(IntegerLookupOptions options, std::string who)
      : options_(std::move(options)), who_(std::move(who)) {}

  // Each example is a document.
  void add(const torch::Tensor& batch) override {
    const torch::Tensor rows = batch.to(torch::kLong).reshape({batch.size(0), -1}).contiguous();
    const auto size = static_cast<std::size_t>(rows.size(1));
    const int64_t* const integers = rows.data_ptr<int64_t>();
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows.size(0)); ++row) {
      counts_.add({integers + row * size, size});
    }
  }
  std::shared_ptr<const LayerKind> learned() const override {
    Vocabulary<int64_t> vocabulary = counts_.most_frequent(rules_of(options_));
    if (vocabulary.tokens.empty()) fail_adapt(who_, kIntegerLookup, "the data have no tokens but the special ones");
    return integer_lookup_of({.options = options_, .learned = std::move(vocabulary)}).shared_kind();
  }

 private:
  IntegerLookupOptions options_;
  std::string who_;
  TokenCounts<int64_t> counts_;
};

class IntegerLookupKind final : public AdaptedKind {
 public:
  explicit IntegerLookupKind(const IntegerLookupParts& parts) : options_(parts.options), vocabulary_(parts.learned) {
    const LookupRules<int64_t> rules = rules_of(options_);
    check_rules(kIntegerLookup, rules);
    static_cast<void>(TokenHash(kIntegerLookup, options_.salt));
    if (!options_.salt.empty() && options_.oov_method != OovMethod::kFarmHash) {
      fail_option(kIntegerLookup, "salt is for oov_method kFarmHash only");
    }
    if (options_.vocabulary.empty() && !options_.idf_weights.empty()) {
      fail_option(kIntegerLookup, "idf_weights are those of a vocabulary, which is not given");
    }
    if (options_.vocabulary.empty()) return;
    vocabulary_ = given_vocabulary(kIntegerLookup, rules, options_.vocabulary, options_.idf_weights);
    if (vocabulary_->tokens.empty()) fail_option(kIntegerLookup, "the vocabulary has special tokens only");
  }
  std::string_view type() const override { return kIntegerLookup; }
  std::string_view base_name() const override { return "integer_lookup"; }
  Shape output_shape(const BuildContext& context) const override {
    if (!vocabulary_.has_value()) fail_unadapted(context.name, kIntegerLookup, "vocabulary");
    return encoded_shape(context, type(), options_.output_mode, depth_of(rules_of(options_), *vocabulary_));
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<IntegerLookupModule>(options_, *vocabulary_, context);
  }
  std::unique_ptr<Gathering> gather(const std::string& who) const override {
    if (!options_.vocabulary.empty()) fail_given(who, kIntegerLookup, "a vocabulary");
    return std::make_unique<IntegerLookupGathering>(options_, who);
  }

 private:
  IntegerLookupOptions options_;
  std::optional<Vocabulary<int64_t>> vocabulary_;
};

}  // namespace

AdaptedLayer integer_lookup_of(const IntegerLookupParts& parts) {
  return AdaptedLayer(Layer(made_with<IntegerLookupKind>(parts, parts), parts.options.name));
}

AdaptedLayer IntegerLookup(const IntegerLookupOptions& options) {
  return integer_lookup_of({.options = options});
}

}  // namespace cohort
