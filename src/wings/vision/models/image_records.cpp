#include "wings/vision/models/image_records.h"

#include <ATen/Functions.h>
#include <glob.h>

#include <algorithm>

#include "base/fail.h"
#include "cohort/data/image.h"
#include "cohort/data/tf_example.h"
#include "data/readers/label.h"
#include "data/readers/skip_damaged.h"
#include "device/host_memory.h"
#include "wings/records/data/sources/records.h"
#include "wings/vision/models/image_data.h"

namespace cohort {

namespace {

constexpr int64_t kUsualCycle = 10;  // as in Model Garden

std::vector<std::string> patterns_of(const std::string& input_path) {
  std::vector<std::string> patterns;
  for (std::size_t begin = 0; begin <= input_path.size();) {
    const std::size_t comma = std::min(input_path.find(',', begin), input_path.size());
    std::string pattern = input_path.substr(begin, comma - begin);
    pattern.erase(0, pattern.find_first_not_of(' '));
    pattern.erase(pattern.find_last_not_of(' ') + 1);
    if (!pattern.empty()) patterns.push_back(std::move(pattern));
    begin = comma + 1;
  }
  return patterns;
}

// Returns the files in the order of the patterns, those of each pattern in the order of their names.
std::vector<std::filesystem::path> files_of(const std::string& input_path) {
  std::vector<std::filesystem::path> files;
  for (const std::string& pattern : patterns_of(input_path)) {
    ::glob_t found{};
    const int status = ::glob(pattern.c_str(), 0, nullptr, &found);
    for (std::size_t i = 0; status == 0 && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    if (status != 0) fail<NotFound>("[task] input_path has ", pattern, ", which no file fits");
  }
  return files;
}

// Returns the example of a record. DataLoss: it is none, or has no features at all, as a record of no bytes.
TFExample parsed(std::string_view record, const std::string& source) {
  TFExample example = TFExample::parse(record, source);
  if (example.names().empty()) fail<DataLoss>("[data] ", source, ": the example has no features");
  return example;
}

}  // namespace

bool names_records(const std::string& input_path) {
  std::error_code ignored;
  if (input_path.empty() || std::filesystem::is_directory(input_path, ignored)) return false;
  return input_path.find_first_of("*?[,") != std::string::npos || input_path.find("://") != std::string::npos ||
         std::filesystem::is_regular_file(input_path, ignored);
}

Dataset record_images(const std::string& input_path, const ImageDataConfig& data, const ImageClassificationTask& task,
                      const RuntimeConfig& runtime) {
  const std::vector<std::filesystem::path> files = files_of(input_path);
  const auto count = static_cast<int64_t>(files.size());
  Dataset numbers = Dataset::range(count);
  if (data.is_training) numbers = numbers.shuffle(count, {.seed = seed_of(data, runtime)});
  const auto open = [files, skip = data.skip_damaged.get()](const Example& number) {
    const auto file = number.x.item<int64_t>();
    return Dataset(make_records({{.file = files.at(static_cast<std::size_t>(file))}}, {.skip_damaged = skip},
                                /*places=*/true))
        .map([file](Example record) {
          const auto place = record.more.at(0).accessor<int64_t, 1>();
          record.more[0] = at::tensor({file, place[1]}, torch::kLong);
          return record;
        });
  };
  const SkipDamaged undamaged(data.skip_damaged.get());
  const auto read =
      [files, undamaged, image = data.image_field_key.get(), label = data.label_field_key.get(),
       decode = DecodeOptions{.channels = static_cast<int>(task.model.channels()), .at_least = smallest_side(task)},
       classes = task.model.num_classes.get()](const Example& record) {
        const auto place = record.more.at(0).accessor<int64_t, 1>();
        const std::string source =
            c10::str(files.at(static_cast<std::size_t>(place[0])).string(), ", record at byte ", place[1]);
        const auto example = undamaged([&] { return parsed(host_text(record.x), source); });
        if (!example) return Example{};
        const torch::Tensor y = at::tensor(example->int64(label), torch::kLong).squeeze();
        require_label(y, classes, source);
        const std::string_view bytes = example->bytes(image);
        const auto x = undamaged([&] { return decode_image(bytes, decode, source); });
        return x ? Example{.x = *x, .y = y} : Example{};
      };
  const Dataset records =
      numbers
          .interleave(open, {.cycle_length = std::min(data.cycle_length > 0 ? *data.cycle_length : kUsualCycle, count),
                             .block_length = data.block_length})
          .map(read, {.num_parallel_calls = decoding_threads(runtime)});
  return undamaged.without_empty(records);
}

}  // namespace cohort
