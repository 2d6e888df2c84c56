// Images in a folder with one subfolder for each class.
#include <ATen/Functions.h>

#include <algorithm>
#include <atomic>

#include "base/fail.h"
#include "base/log.h"
#include "cohort/data/datasets.h"
#include "data/images/decode.h"
#include "data/node.h"
#include "data/readers/picture_files.h"

namespace cohort::datasets {

namespace {

struct File {
  std::filesystem::path path;
  int64_t label = 0;
};

// Returns the dataset of pictures for a dataset of file numbers.
Dataset read_all(const Dataset& numbers, const std::shared_ptr<const std::vector<File>>& files,
                 const ImageFolderOptions& options) {
  const auto read = [files, decode = options.decode](const Example& number) {
    const File& file = files->at(static_cast<std::size_t>(number.x.item<int64_t>()));
    const std::string name = file.path.string();
    return Example{.x = decode_image(read_picture(file.path, decode), decode, name),
                   .y = at::scalar_tensor(file.label, torch::kLong)};
  };
  if (!options.skip_damaged) return numbers.map(read, options.threads);
  const auto skipped = std::make_shared<std::atomic<int64_t>>(0);
  const auto skip = [skipped](const Error& error) {
    log().warn("{}; it is left out ({} so far)", error.what(), ++*skipped);
    return Example{};
  };
  const auto read_or_skip = [read, skip](const Example& number) {
    try {
      return read(number);
    } catch (const DataLoss& error) {
      return skip(error);
    } catch (const InvalidArgument& error) {  // the size is refused; the options were checked before
      return skip(error);
    }
  };
  return numbers.map(read_or_skip, options.threads).filter([](const Example& example) { return example.x.defined(); });
}

}  // namespace

ImageFolder image_folder(const std::filesystem::path& folder, const ImageFolderOptions& options) {
  require_held_out("image_folder", options.held_out);
  images::check_options(options.decode);
  const auto files = std::make_shared<std::vector<File>>();
  std::vector<std::string> names;
  for (const auto& place : sorted_entries(folder)) {
    if (!std::filesystem::is_directory(place)) continue;
    const auto before = files->size();
    for (const auto& file : sorted_entries(place)) {
      if (is_picture(file)) files->push_back({.path = file, .label = static_cast<int64_t>(names.size())});
    }
    if (files->size() > before) names.push_back(place.filename().string());
  }
  if (files->empty()) {
    fail<NotFound>("[data] ", folder.string(), ": has no folders with JPEG or PNG files, one for each class");
  }
  const auto count = static_cast<int64_t>(files->size());
  const auto [train, test] = hold_out(count, options.held_out, options.seed);
  Dataset numbers = Dataset::from_tensor_slices(train);
  if (options.shuffle) numbers = numbers.shuffle(std::max<int64_t>(1, train.size(0)), {.seed = options.seed});
  // Workers divide the numbers, so that each of them reads and decodes its own files only.
  const auto divided = [](const Dataset& all) { return Dataset(make_files(all.shared_node())); };
  return {.train = read_all(divided(numbers), files, options),
          .test = read_all(divided(Dataset::from_tensor_slices(test)), files, options),
          .class_names = std::move(names)};
}

}  // namespace cohort::datasets
