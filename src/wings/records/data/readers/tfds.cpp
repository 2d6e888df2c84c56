#include "cohort/data/tfds.h"

#include <ATen/Functions.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/extension.h"
#include "base/fail.h"
#include "base/number_in.h"
#include "cohort/data/tf_example.h"
#include "data/picture_coder.h"
#include "data/readers/label.h"
#include "data/readers/skip_damaged.h"
#include "device/host_memory.h"
#include "wings/records/data/readers/split_spec.h"
#include "wings/records/data/sources/records.h"

namespace cohort {

namespace {

using Json = nlohmann::json;

constexpr const char* kInfo = "dataset_info.json";
constexpr const char* kFeatures = "features.json";

Json read_json(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) fail<NotFound>("[data] ", file.string(), ": cannot be opened");
  Json json = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  fail<DataLoss>("[data] ", file.string(), ": is no JSON object");
}

// Returns the folder with the description: the folder itself, or the only version below it.
std::filesystem::path find_folder(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / kInfo)) return folder;
  std::vector<std::filesystem::path> versions;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (std::filesystem::exists(entry.path() / kInfo)) versions.push_back(entry.path());
  }
  if (versions.size() == 1) return versions.front();
  fail<NotFound>("[data] ", folder.string(), ": ",
                 versions.empty() ? "there is no " : "there are several versions with a ", kInfo);
}

// Returns a number of examples or classes. Protobuf's JSON writes 64-bit numbers as text. A number above 2^63 becomes a
// negative one, which is refused as well.
int64_t count_of(const Json& json) {
  constexpr const char* kWhat = "[data] a number of a TFDS description";
  int64_t count = -1;
  if (json.is_string()) count = number_in<int64_t>(json.get<std::string>(), kWhat);
  if (json.is_number_integer()) count = json.get<int64_t>();
  if (count >= 0) return count;
  constexpr std::size_t kShown = 40;
  fail<DataLoss>(kWhat, " is ", json.dump().substr(0, kShown), ", wanted an integer of 0 or more");
}

// Returns the last part of a name such as "tensorflow_datasets.core.features.image_feature.Image".
std::string class_of(const Json& feature) {
  const std::string full = feature.value("pythonClassName", "");
  return full.substr(full.rfind('.') + 1);
}

struct Shards {
  std::vector<int64_t> lengths;
  std::string file_template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}";
};

std::string filled(std::string text, const std::map<std::string, std::string>& values) {
  for (const auto& [name, value] : values) {
    const std::string place = "{" + name + "}";
    for (std::size_t at = text.find(place); at != std::string::npos; at = text.find(place, at + value.size())) {
      text.replace(at, place.size(), value);
    }
  }
  return text;
}

std::string numbered(const char* format, std::size_t index, std::size_t count) {
  char text[64];
  std::snprintf(text, sizeof text, format, index, count);
  return text;
}

// Turns the value of a feature into a tensor.
class Column {
 public:
  Column(std::string key, const Json& feature) : key_(std::move(key)), class_(class_of(feature)) {
    if (class_ == "Image")
      coder_ = &extension_of<PictureCoder>("vision", c10::str("[data] the feature \"", key_, "\" is an Image"));
    if (class_ == "Image" || class_ == "ClassLabel") return;
    if (class_ == "Tensor" || class_ == "Scalar") return;
    fail<Unimplemented>("[data] the feature \"", key_, "\" is a ", class_, "; Image, ClassLabel, Tensor and Scalar ",
                        "are read");
  }

  // Returns the value in a record. `source` names the record in errors.
  torch::Tensor read(const TFExample& example, const DecodeOptions& decode, const std::string& source) const {
    if (class_ == "Image") return coder_->decode(example.bytes(key_), decode, source + ": " + key_);
    if (class_ == "ClassLabel") return at::tensor(example.int64(key_), torch::kLong).squeeze();
    const bool whole = example.kind(key_) == TFExample::Kind::kInt64s;
    const torch::Tensor values = whole ? example.int64_list(key_) : example.float_list(key_);
    return values.numel() == 1 ? values.squeeze(0) : values;
  }

 private:
  std::string key_;
  std::string class_;
  const PictureCoder* coder_ = nullptr;  // of an Image
};

}  // namespace

class TFDSFolder::Impl {
 public:
  explicit Impl(const std::filesystem::path& given) : folder(find_folder(given)) {
    try {
      read_info(read_json(folder / kInfo));
      read_features(read_json(folder / kFeatures));
    } catch (const Json::exception& error) {
      fail<DataLoss>("[data] ", folder.string(), ": its description is damaged: ", error.what());
    }
  }

  std::vector<RecordRange> ranges_of(const SplitPart& part) const {
    const Shards& all = shards.at(part.split);
    std::vector<RecordRange> ranges;
    int64_t begin = 0;
    for (std::size_t i = 0; i < all.lengths.size(); ++i) {
      const int64_t first = std::max<int64_t>(part.first - begin, 0);
      const int64_t last = std::min<int64_t>(part.last - begin, all.lengths[i]);
      begin += all.lengths[i];
      if (first < last) ranges.push_back({.file = file_of(part.split, i), .first = first, .count = last - first});
    }
    return ranges;
  }

  const Column& column(std::size_t index) const {
    if (index < columns.size()) return columns[index];
    fail<InvalidArgument>("[data] ", folder.string(),
                          ": the data set has no supervised keys, which say what x and y are");
  }

  std::filesystem::path folder;
  std::string name;
  std::string version;
  std::map<std::string, int64_t> sizes;
  std::map<std::string, Shards> shards;
  std::vector<std::string> keys;  // the keys of x and y
  std::vector<Column> columns;
  std::vector<std::string> classes;
  int64_t num_classes = 0;

 private:
  void read_info(const Json& info) {
    name = info.at("name");
    version = info.value("version", "");
    format_ = info.value("fileFormat", "tfrecord");
    if (format_ != "tfrecord") {
      fail<Unimplemented>("[data] ", folder.string(), ": its shards are of the format ", format_, ", tfrecord is read");
    }
    for (const Json& split : info.at("splits")) {
      Shards own;
      for (const Json& length : split.at("shardLengths")) own.lengths.push_back(count_of(length));
      own.file_template = split.value("filepathTemplate", own.file_template);
      const std::string split_name = split.at("name");
      if (sizes.contains(split_name))
        fail<DataLoss>("[data] ", folder.string(), ": \"", split_name, "\" is there twice");
      int64_t& size = sizes[split_name];
      for (const int64_t length : own.lengths) {
        if (!__builtin_add_overflow(size, length, &size)) continue;
        fail<DataLoss>("[data] ", folder.string(), ": \"", split_name, "\" has more examples than can be counted");
      }
      shards[split_name] = std::move(own);
    }
    if (!info.contains("supervisedKeys")) return;
    for (const Json& item : info["supervisedKeys"].at("tuple").at("items")) keys.push_back(item.at("featureKey"));
  }

  void read_features(const Json& features) {
    const Json& all = features.at("featuresDict").at("features");
    for (const std::string& key : keys) {
      const Json& feature = all.at(key);
      columns.emplace_back(key, feature);
      if (class_of(feature) != "ClassLabel") continue;
      num_classes = count_of(feature.at("classLabel").at("numClasses"));
      std::ifstream names(folder / (key + ".labels.txt"));
      for (std::string line; std::getline(names, line);) classes.push_back(line);
    }
  }

  std::filesystem::path file_of(const std::string& split, std::size_t shard) const {
    const Shards& all = shards.at(split);
    const std::size_t count = all.lengths.size();
    return folder / filled(all.file_template, {{"DATASET", name},
                                               {"SPLIT", split},
                                               {"FILEFORMAT", format_},
                                               {"SHARD_X_OF_Y", numbered("%05zu-of-%05zu", shard, count)},
                                               {"SHARD_INDEX", numbered("%05zu", shard, 0)},
                                               {"NUM_SHARDS", numbered("%05zu", count, 0)}});
  }

  std::string format_;
};

TFDSFolder::TFDSFolder(const std::filesystem::path& folder) : impl_(std::make_shared<const Impl>(folder)) {}

const std::string& TFDSFolder::name() const {
  return impl_->name;
}
const std::string& TFDSFolder::version() const {
  return impl_->version;
}
const std::map<std::string, int64_t>& TFDSFolder::splits() const {
  return impl_->sizes;
}
const std::vector<std::string>& TFDSFolder::class_names() const {
  return impl_->classes;
}
int64_t TFDSFolder::num_classes() const {
  return impl_->num_classes;
}

Dataset TFDSFolder::split(std::string_view spec, const TFDSOptions& options) const {
  std::vector<RecordRange> ranges;
  for (const SplitPart& part : parse_split(spec, impl_->sizes)) {
    for (RecordRange& range : impl_->ranges_of(part)) ranges.push_back(std::move(range));
  }
  (void)impl_->column(1);
  std::vector<std::string> files;
  for (const RecordRange& range : ranges) files.push_back(range.file.string());
  const SkipDamaged undamaged(options.records.skip_damaged);
  const auto read = [impl = impl_, undamaged, decode = options.decode, classes = options.num_classes,
                     files = std::move(files)](const Example& record) {
    const auto place = record.more.at(0).accessor<int64_t, 1>();
    const std::string source = c10::str(files.at(static_cast<std::size_t>(place[0])), ", record at byte ", place[1]);
    const auto example = undamaged([&] { return TFExample::parse(host_text(record.x), source); });
    if (!example) return Example{};
    const torch::Tensor label = impl->column(1).read(*example, decode, source);
    require_label(label, classes, source);
    const auto input = undamaged([&] { return impl->column(0).read(*example, decode, source); });
    return input ? Example{.x = *input, .y = label} : Example{};
  };
  const Dataset records(make_records(std::move(ranges), options.records, /*places=*/true));
  return undamaged.without_empty(records.map(read, options.threads));
}

}  // namespace cohort
