// Images in a folder with one subfolder for each class.
#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/fail.h"
#include "cohort/data/datasets.h"
#include "data/node.h"
#include "data/readers/skip_damaged.h"
#include "wings/vision/data/images/decode.h"
#include "wings/vision/data/readers/picture_files.h"

namespace cohort::datasets {

namespace {

struct File {
  std::filesystem::path path;
  int64_t label = 0;
};

// Returns the dataset of pictures for a dataset of file numbers.
Dataset read_all(const Dataset& numbers, const std::shared_ptr<const std::vector<File>>& files,
                 const ImageFolderOptions& options) {
  const SkipDamaged undamaged(options.skip_damaged);
  const auto read = [files, undamaged, decode = options.decode](const Example& number) {
    const File& file = files->at(static_cast<std::size_t>(number.x.item<int64_t>()));
    const auto picture =
        undamaged([&] { return decode_image(read_picture(file.path, decode), decode, file.path.string()); });
    return picture ? Example{.x = *picture, .y = at::scalar_tensor(file.label, torch::kLong)} : Example{};
  };
  return undamaged.without_empty(numbers.map(read, options.threads));
}

// The pictures of a class.
struct Class {
  std::string name;
  std::vector<std::filesystem::path> pictures;
};

// Returns the folders that have pictures, by name.
std::vector<Class> classes_in(const std::filesystem::path& folder) {
  std::vector<Class> classes;
  for (const auto& place : sorted_entries(folder)) {
    if (is_hidden(place) || !std::filesystem::is_directory(place)) continue;
    Class made{.name = place.filename().string(), .pictures = pictures_in(place)};
    if (!made.pictures.empty()) classes.push_back(std::move(made));
  }
  if (classes.empty()) {
    fail<NotFound>("[data] ", folder.string(), ": has no folders with JPEG or PNG files, one for each class");
  }
  return classes;
}

// Fails for a folder such as ImageNet's, whose folders "train" and "val" have the folders of the classes.
void refuse_parts(const std::filesystem::path& folder, const std::vector<Class>& classes) {
  const std::set<std::string> parts = {"train", "training", "val", "valid", "validation", "test", "testing", "eval"};
  for (const Class& each : classes) {
    const bool deeper = each.pictures.front().parent_path() != folder / each.name;
    if (!parts.contains(each.name) || !deeper) return;
  }
  fail<InvalidArgument>("[data] ", folder.string(), ": its folders, such as \"", classes.front().name,
                        "\", are parts of a data set and not classes; read each of them by itself");
}

// Returns the files with their labels, which are indices into the names.
std::vector<File> labelled(const std::filesystem::path& folder, const std::vector<Class>& classes,
                           const std::vector<std::string>& names) {
  std::map<std::string, int64_t> numbers;
  for (const std::string& name : names) {
    if (numbers.emplace(name, static_cast<int64_t>(numbers.size())).second) continue;
    fail<InvalidArgument>("[data] image_folder: class_names has \"", name, "\" twice");
  }
  std::vector<File> files;
  for (const Class& each : classes) {
    const auto number = numbers.find(each.name);
    if (number == numbers.end()) {
      fail<InvalidArgument>("[data] ", (folder / each.name).string(), ": class_names does not have this class, only ",
                            c10::Join(", ", names));
    }
    for (const auto& picture : each.pictures) files.push_back({.path = picture, .label = number->second});
  }
  return files;
}

}  // namespace

ImageFolder image_folder(const std::filesystem::path& folder, const ImageFolderOptions& options) {
  require_held_out("image_folder", options.held_out);
  images::check_options(options.decode);
  const std::vector<Class> classes = classes_in(folder);
  refuse_parts(folder, classes);
  std::vector<std::string> names = options.class_names;
  if (names.empty()) {
    for (const Class& each : classes) names.push_back(each.name);
  }
  const auto files = std::make_shared<const std::vector<File>>(labelled(folder, classes, names));
  const auto count = static_cast<int64_t>(files->size());
  const auto [train, test] = hold_out(count, options.held_out, options.seed);
  Dataset numbers = Dataset::from_tensor_slices(train);
  if (options.shuffle) numbers = numbers.shuffle(std::max<int64_t>(1, train.size(0)), {.seed = options.seed});
  // Workers divide the numbers, so that each of them reads and decodes its own files only.
  const auto divided = [](const Dataset& all) { return Dataset(make_files(all.node())); };
  return {.train = read_all(divided(numbers), files, options),
          .test = read_all(divided(Dataset::from_tensor_slices(test)), files, options),
          .class_names = std::move(names)};
}

}  // namespace cohort::datasets
