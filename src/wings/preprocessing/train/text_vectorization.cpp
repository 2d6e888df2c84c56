// TextVectorization. Indices are written by a pointer into tensors on the CPU.
#include "cohort/train/text_vectorization.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <string_view>

#include "wings/preprocessing/train/categories.h"
#include "wings/preprocessing/train/string_lookup.h"

namespace cohort {

namespace {

constexpr std::string_view kTextVectorization = "TextVectorization";

StringLookupOptions lookup_options(const TextVectorizationOptions& options) {
  return {.max_tokens = options.max_tokens,
          .mask_token = "",
          .vocabulary = options.vocabulary,
          .idf_weights = options.idf_weights,
          .output_mode = options.output_mode,
          .pad_to_max_tokens = options.pad_to_max_tokens};
}

std::string standardized(const std::string& text, Standardize how) {
  constexpr std::string_view kPunctuation = "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'";
  const bool lower = how == Standardize::kLower || how == Standardize::kLowerAndStripPunctuation;
  const bool strip = how == Standardize::kStripPunctuation || how == Standardize::kLowerAndStripPunctuation;
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    if (strip && kPunctuation.find(c) != std::string_view::npos) continue;
    result += lower && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return result;
}

std::vector<std::string> words_of(const std::string& text) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  std::vector<std::string> words;
  std::size_t begin = text.find_first_not_of(kSpaces);
  while (begin != std::string::npos) {
    const std::size_t end = std::min(text.find_first_of(kSpaces, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kSpaces, end);
  }
  return words;
}

// Returns the bytes of the character of UTF-8 that begins here; 0: there is none.
std::size_t character_size(std::string_view text) {
  const auto byte = [text](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto follow = [&](std::size_t count) {
    for (std::size_t i = 1; i <= count; ++i) {
      if ((byte(i) & 0xC0U) != 0x80U) return std::size_t{0};
    }
    return count + 1;
  };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80U) return 1;
  if (first >= 0xC2U && first <= 0xDFU) return follow(1);
  // Neither forms that are too long, nor surrogates, nor numbers above U+10FFFF.
  if (first >= 0xE0U && first <= 0xEFU) {
    const bool wrong = (first == 0xE0U && second < 0xA0U) || (first == 0xEDU && second > 0x9FU);
    return wrong ? 0 : follow(2);
  }
  if (first >= 0xF0U && first <= 0xF4U) {
    const bool wrong = (first == 0xF0U && second < 0x90U) || (first == 0xF4U && second > 0x8FU);
    return wrong ? 0 : follow(3);
  }
  return 0;
}

std::vector<std::string> characters_of(const std::string& text) {
  std::vector<std::string> characters;
  for (std::size_t place = 0; place < text.size();) {
    const std::size_t size = character_size(std::string_view(text).substr(place));
    if (size == 0) {
      fail<InvalidArgument>("[layers] ", kTextVectorization, ": byte ", place, " of a text of ", text.size(),
                            " bytes begins no character, wanted UTF-8 for split = kCharacter");
    }
    characters.push_back(text.substr(place, size));
    place += size;
  }
  return characters;
}

// Returns the tokens beside each other, `count` at a time.
void append_neighbours(const std::vector<std::string>& tokens, std::size_t count, std::vector<std::string>& list) {
  for (std::size_t first = 0; first + count <= tokens.size(); ++first) {
    std::string joined = tokens[first];
    for (std::size_t i = 1; i < count; ++i) joined.append(" ").append(tokens[first + i]);
    list.push_back(std::move(joined));
  }
}

}  // namespace

TextVectorization::TextVectorization(const TextVectorizationOptions& options) : options_(options) {
  check_mode(kTextVectorization, options.output_mode,
             {OutputMode::kInt, OutputMode::kMultiHot, OutputMode::kCount, OutputMode::kTfIdf});
  for (const int64_t count : options.ngrams) check_positive(kTextVectorization, "each of ngrams", count);
  if (options.output_sequence_length.has_value()) {
    check_positive(kTextVectorization, "output_sequence_length", *options.output_sequence_length);
    if (options.output_mode != OutputMode::kInt) {
      fail_option(kTextVectorization, "output_sequence_length is for the output_mode int only");
    }
  }
  lookup_.state_ = std::make_shared<StringLookup::State>(kTextVectorization, lookup_options(options));
}

void TextVectorization::adapt(const std::vector<std::string>& texts) {
  auto next = texts.begin();
  adapt([&]() { return next == texts.end() ? std::nullopt : std::optional<std::string>(*next++); });
}

void TextVectorization::adapt(const std::function<std::optional<std::string>()>& next_text) {
  lookup_.state_ = lookup_.state_->with([&](TokenCounts<std::string>& counts) {
    while (const std::optional<std::string> text = next_text()) counts.add(split(*text));
  });
}

std::vector<std::string> TextVectorization::split(const std::string& text) const {
  const std::string plain = standardized(text, options_.standardize);
  std::vector<std::string> tokens = options_.split == SplitText::kNone         ? std::vector<std::string>{plain}
                                    : options_.split == SplitText::kWhitespace ? words_of(plain)
                                                                               : characters_of(plain);
  if (options_.ngrams.empty()) return tokens;
  std::vector<std::string> list;
  for (const int64_t count : options_.ngrams) append_neighbours(tokens, static_cast<std::size_t>(count), list);
  return list;
}

torch::Tensor TextVectorization::operator()(const std::vector<std::string>& texts) const {
  const StringLookup::State& state = *lookup_.state_;
  static_cast<void>(state.known());
  std::vector<std::vector<std::string>> rows;
  std::size_t longest = 0;
  for (const std::string& text : texts) longest = std::max(longest, rows.emplace_back(split(text)).size());
  const bool integers = options_.output_mode == OutputMode::kInt;
  const int64_t width = options_.output_sequence_length.value_or(static_cast<int64_t>(longest));
  const torch::Tensor all =
      at::full({static_cast<int64_t>(texts.size()), width}, integers ? 0 : kLeftOut, torch::kLong);
  int64_t* row = all.data_ptr<int64_t>();
  for (const std::vector<std::string>& tokens : rows) {
    const std::size_t size = std::min(tokens.size(), static_cast<std::size_t>(width));
    for (std::size_t i = 0; i < size; ++i) row[i] = state.index_of(tokens[i]);
    row += width;
  }
  return state.form_of(all);
}

std::vector<std::string> TextVectorization::vocabulary() const {
  return lookup_.vocabulary();
}

}  // namespace cohort
