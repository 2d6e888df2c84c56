// Any two files in the place of dataset_info.json and features.json describe a data set, whose splits have as many
// examples as their shards, or are refused with an error of ours. The files are any text, or a description in which
// something was changed: numbers, kinds of values, names, and nesting of up to a million levels.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cohort/data/tfds.h"
#include "cohort/error.h"
#include "tests/fuzz/entry.h"
#include "tests/fuzz/numbers.h"

namespace cohort::fuzz::tfds_fuzzer {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kOdd = 12;

std::string text(Numbers& numbers) {
  static const char* const texts[] = {"train",
                                      "",
                                      "{SPLIT}",
                                      "{DATASET}{NUM_SHARDS}",
                                      "../x",
                                      "x.Image",
                                      "9223372036854775807",
                                      "-1",
                                      "1e9",
                                      "tensorflow_datasets.core.features.text.Text"};
  if (numbers.below(kOdd) == 1) return std::string(numbers.count(20), 'x');
  return texts[numbers.below(static_cast<int>(std::size(texts)))];
}

// Returns any value.
Json any(Numbers& numbers, int depth = 0) {
  constexpr int kDeepest = 6;
  switch (numbers.below(depth < kDeepest ? 8 : 6)) {
    case 0:
      return nullptr;
    case 1:
      return numbers.below(2) == 0;
    case 2:
      return numbers.any();
    case 3:
      return static_cast<uint64_t>(-1) - static_cast<uint64_t>(numbers.below(3));
    case 4:
      return static_cast<double>(numbers.any()) * 1e200;
    case 5:
      return text(numbers);
    case 6: {
      Json list = Json::array();
      for (std::size_t i = numbers.count(); i > 0; --i)
        list.push_back(numbers.below(2) == 0 ? Json(4) : any(numbers, depth + 1));
      return list;
    }
    default:
      return {{text(numbers), any(numbers, depth + 1)}, {"name", any(numbers, depth + 1)}};
  }
}

// Returns what belongs there, or now and then anything.
Json maybe(Numbers& numbers, Json value) {
  return numbers.below(kOdd) == 1 ? any(numbers) : value;
}

Json info(Numbers& numbers) {
  Json splits = Json::array();
  for (std::size_t i = numbers.count(8); i > 0; --i) {
    Json lengths = Json::array();
    for (std::size_t shard = numbers.count(); shard > 0; --shard)
      lengths.push_back(maybe(numbers, std::to_string(numbers.any())));
    Json split = {{"name", maybe(numbers, "train" + std::to_string(i))}, {"shardLengths", maybe(numbers, lengths)}};
    if (numbers.below(4) == 0) split["filepathTemplate"] = maybe(numbers, text(numbers));
    splits.push_back(maybe(numbers, split));
  }
  Json keys = Json::array();
  for (const char* key : {"image", "label"}) keys.push_back(maybe(numbers, {{"featureKey", maybe(numbers, key)}}));
  return maybe(numbers,
               {{"name", maybe(numbers, "n")},
                {"version", maybe(numbers, "1.0.0")},
                {"fileFormat", maybe(numbers, "tfrecord")},
                {"splits", maybe(numbers, splits)},
                {"supervisedKeys", maybe(numbers, {{"tuple", maybe(numbers, {{"items", maybe(numbers, keys)}})}})}});
}

Json features(Numbers& numbers) {
  const Json classes = {{"numClasses", maybe(numbers, std::to_string(numbers.any()))}};
  const Json all = {{"image", maybe(numbers, {{"pythonClassName", maybe(numbers, "features.Image")}})},
                    {"label", maybe(numbers, {{"pythonClassName", maybe(numbers, "features.ClassLabel")},
                                              {"classLabel", maybe(numbers, classes)}})}};
  return maybe(numbers, {{"featuresDict", maybe(numbers, {{"features", maybe(numbers, all)}})}});
}

// Returns the text of a file: some bytes are lost, doubled or changed, or there is no end to brackets.
std::string damaged(Numbers& numbers, std::string file) {
  if (numbers.below(kOdd) != 1 || file.empty()) return file;
  const std::size_t place = static_cast<std::size_t>(numbers.any()) % file.size();
  switch (numbers.below(4)) {
    case 0:
      return file.substr(0, place);
    case 1:
      return file.insert(place, std::string(numbers.count(20), numbers.below(2) == 0 ? '[' : '\\'));
    case 2: {
      const std::size_t levels = numbers.count(20);
      return file.replace(place, 1, std::string(levels, '[') + std::string(levels, ']'));
    }
    default:
      file[place] = static_cast<char>(numbers.below(256));
      return file;
  }
}

const std::filesystem::path& folder() {
  static const std::filesystem::path path = [] {
    std::filesystem::path made = std::filesystem::temp_directory_path() / ("cohort-fuzz-" + std::to_string(::getpid()));
    std::filesystem::create_directories(made);
    return made;
  }();
  return path;
}

void write(const char* name, const std::string& text) {
  std::ofstream(folder() / name, std::ios::binary) << text;
}

void read() {
  try {
    const cohort::TFDSFolder described(folder());
    for (const auto& [name, size] : described.splits()) {
      cohort::fuzz::require(size >= 0, "a split has less than no examples");
      for (const char* const part : {"", "[:50%]", "[-1:]", "[1:9223372036854775807]"}) {
        try {
          const int64_t count = described.split(name + part).cardinality();
          cohort::fuzz::require(count > 0 && count <= size, "a part has other examples than its split");
        } catch (const cohort::Error&) {
        }
      }
    }
    (void)described.class_names();
    cohort::fuzz::require(described.num_classes() >= 0, "there are less than no classes");
  } catch (const cohort::Error&) {
  }
}

}  // namespace

COHORT_FUZZER_ENTRY(tfds)(const uint8_t* data, std::size_t size) {
  Numbers numbers(data, size);
  if (numbers.below(4) == 1) {  // any text
    const std::string bytes(reinterpret_cast<const char*>(data), size);
    write("dataset_info.json", bytes.substr(0, size / 2));
    write("features.json", bytes.substr(size / 2));
  } else {
    write("dataset_info.json", damaged(numbers, info(numbers).dump(-1, ' ', false, Json::error_handler_t::replace)));
    write("features.json", damaged(numbers, features(numbers).dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  read();
  return 0;
}

}  // namespace cohort::fuzz::tfds_fuzzer
