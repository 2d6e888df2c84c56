#include "wings/keras/train/vocabularies.h"

#include <algorithm>
#include <charconv>

namespace cohort {

namespace {

constexpr const char* kAssets = "assets/";

torch::Tensor integers_of(const std::string& text, const FilePlace& place) {
  std::vector<int64_t> list;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, number);
    if (error != std::errc() || stop != text.data() + end) {
      place.damaged("line ", list.size() + 1, " is ", brief(text.substr(begin, end - begin)), ", wanted an integer");
    }
    list.push_back(number);
    begin = end + 1;
  }
  return torch::tensor(list, torch::kLong);
}

// Returns the words behind the mask and the place holders of unknown words, if the vocabulary begins with these.
std::vector<int64_t> without_special(std::vector<int64_t> words, const Json& config) {
  std::vector<int64_t> special;
  const Json mask = config.value("mask_token", Json());
  if (mask.is_number_integer() && config.value("output_mode", Json("int")) == "int") special.push_back(mask);
  const Json unknown = config.value("oov_token", Json(-1)), count = config.value("num_oov_indices", Json(1));
  if (!unknown.is_number_integer() || !count.is_number_integer()) return words;  // the layer says what is wrong
  const auto wanted = static_cast<double>(special.size()) + count.get<double>();
  if (!(wanted >= 0.0 && wanted <= static_cast<double>(words.size()))) return words;
  special.resize(static_cast<std::size_t>(wanted), unknown.get<int64_t>());
  const auto end = words.begin() + static_cast<std::ptrdiff_t>(special.size());
  if (std::equal(special.begin(), special.end(), words.begin())) words.erase(words.begin(), end);
  return words;
}

}  // namespace

FileTensors read_vocabularies(const std::map<std::string, std::string>& entries, const FilePlace& place) {
  FileTensors list;
  for (const auto& [name, text] : entries) list[name] = integers_of(text, place / name);
  return list;
}

Json with_vocabulary(Json object, const FileTensors& file, const std::string& group, std::vector<std::string>& used) {
  const auto found = file.find(kAssets + group + "/vocabulary.txt");
  if (found == file.end() || object.value("class_name", Json()) != "IntegerLookup") return object;
  Json& config = object["config"];
  if (!config.is_object() || !config.value("vocabulary", Json()).is_null()) return object;
  const auto numbers = found->second.accessor<int64_t, 1>();
  std::vector<int64_t> words;
  for (int64_t i = 0; i < numbers.size(0); ++i) words.push_back(numbers[i]);
  config["vocabulary"] = without_special(std::move(words), config);
  used.push_back(found->first);
  return object;
}

void require_used(const FileTensors& file, const std::vector<std::string>& used, const FilePlace& place) {
  for (auto item = file.lower_bound(kAssets); item != file.end() && item->first.rfind(kAssets, 0) == 0; ++item) {
    const bool known = std::find(used.begin(), used.end(), item->first) != used.end();
    if (!known) (place / item->first).damaged("belongs to no IntegerLookup of the model");
  }
}

}  // namespace cohort
