// Finds out what a folder has (MNIST, CIFAR-10, TensorFlow Datasets, records, a folder for each class) and opens it.
#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "cohort/data/datasets.h"
#include "cohort/data/tfds.h"
#include "models/run/local_place.h"
#include "wings/vision/models/image_data.h"
#include "wings/vision/models/image_records.h"

namespace cohort {

namespace {

bool holds(const std::filesystem::path& folder, std::initializer_list<const char*> beginnings) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    for (const char* beginning : beginnings) {
      if (name.starts_with(beginning)) return true;
    }
  }
  return false;
}

// Returns whether the folder, or a version in it, has what TensorFlow Datasets writes.
bool is_tfds(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "dataset_info.json")) return true;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (std::filesystem::exists(entry.path() / "dataset_info.json")) return true;
  }
  return false;
}

// Returns the data set of TensorFlow Datasets that is the folder itself or one in it.
std::optional<std::filesystem::path> tfds_folder(const std::filesystem::path& folder, const std::string& name) {
  if (!name.empty()) return is_tfds(folder / name) ? std::optional(folder / name) : std::nullopt;
  if (is_tfds(folder)) return folder;
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_directory() && is_tfds(entry.path())) found.push_back(entry.path());
  }
  if (found.size() > 1) {
    fail<InvalidArgument>("[task] ", folder.string(), " has ", found.size(), " data sets, ",
                          found[0].filename().string(), " and others; say which one by task.train_data.tfds_name");
  }
  return found.empty() ? std::nullopt : std::optional(found.front());
}

// The use of a place. If a place has one use, both datasets of its ImageSource are the same.
enum class Use { kBoth, kTrain, kValidation };

struct ImagePlace {
  std::string path;
  std::string tfds_name;
  bool tfds = false;  // it has to be a folder of TensorFlow Datasets
  Use use = Use::kBoth;
  std::vector<std::string> class_names = {};  // the classes of the training data, if they are known
};

ImageSource open_tfds(const std::filesystem::path& folder, const ImageClassificationTask& task,
                      const RuntimeConfig& runtime, Use use) {
  const TFDSFolder made(folder);
  const auto split = [&](const ImageDataConfig& data, std::initializer_list<const char*> usual) {
    std::string name = data.tfds_split;
    for (const char* each : usual) {
      if (name.empty() && made.splits().contains(each)) name = each;
    }
    if (name.empty()) {
      fail<InvalidArgument>("[task] ", folder.string(), " has no split \"", *usual.begin(),
                            "\"; say which one by tfds_split");
    }
    TFDSOptions options;
    options.threads.num_parallel_calls = decoding_threads(runtime);
    options.decode.channels = static_cast<int>(task.model.channels());
    options.num_classes = task.model.num_classes;
    return made.split(name, options);
  };
  const auto train = [&] { return split(task.train_data, {"train"}); };
  const auto validation = [&] { return split(task.validation_data, {"validation", "test"}); };
  return {use == Use::kValidation ? validation() : train(),
          use == Use::kTrain ? train() : validation(),
          made.name() + " of " + folder.string(),
          made.num_classes(),
          /*ready=*/false,
          /*size=*/{},
          made.class_names()};
}

ImageSource open_image_folder(const ImagePlace& place, const ImageClassificationTask& task,
                              const RuntimeConfig& runtime) {
  const ImageDataConfig& data = place.use == Use::kValidation ? task.validation_data : task.train_data;
  datasets::ImageFolderOptions options{.held_out = place.use == Use::kBoth ? *task.train_data.held_out : 0.0,
                                       .shuffle = false,
                                       .skip_damaged = data.skip_damaged,
                                       .class_names = place.class_names};
  options.threads.num_parallel_calls = decoding_threads(runtime);
  options.decode.channels = static_cast<int>(task.model.channels());
  options.decode.at_least = smallest_side(task);
  const datasets::ImageFolder made = datasets::image_folder(place.path, options);
  const auto classes = static_cast<int64_t>(made.class_names.size());
  const bool alone = place.use == Use::kValidation && place.class_names.empty();
  if (alone && classes < task.model.num_classes) {
    fail<InvalidArgument>("[task] ", place.path, " has ", classes, " classes and the model has ",
                          task.model.num_classes,
                          ": which are they? Name the folder of the training data, task.train_data.input_path, whose "
                          "folders say it");
  }
  return {made.train,      place.use == Use::kBoth ? made.test : made.train,
          place.path,      classes,
          /*ready=*/false,
          /*size=*/{},     made.class_names};
}

ImageSource open_cifar10(const std::string& folder) {
  const datasets::TrainTest data = datasets::cifar10(folder);
  return {data.train, data.test, folder, 10, /*ready=*/false, {32, 32}};
}

// Returns digits, floats [28, 28] from 0 to 1: as they are for the models that take them so, else as images.
ImageSource open_digits(const datasets::TrainTest& data, std::string description, const ImageModelConfig& model) {
  if (model.takes_planes() && model.input_size == std::vector<int64_t>{28, 28, 1}) {
    return {data.train, data.test, std::move(description), 10, /*ready=*/true, {28, 28}};
  }
  const auto image = [](Example example) {
    example.x = (example.x * 255.0).round_().to(torch::kByte).unsqueeze(0);
    return example;
  };
  return {data.train.map(image), data.test.map(image), std::move(description), 10, /*ready=*/false, {28, 28}};
}

ImageSource open_folder(const ImagePlace& place, const ImageClassificationTask& task, const RuntimeConfig& runtime) {
  const std::filesystem::path folder = place.path;
  if (!std::filesystem::is_directory(folder)) fail<NotFound>("[task] ", place.path, " is not a folder");
  if (const auto made = tfds_folder(folder, place.tfds_name)) return open_tfds(*made, task, runtime, place.use);
  if (!place.tfds_name.empty() || place.tfds) {
    fail<NotFound>("[task] ", (folder / place.tfds_name).string(),
                   " has no dataset_info.json, wanted a folder of TensorFlow Datasets");
  }
  if (holds(folder, {"data_batch_1.bin", "cifar-10-batches-bin"})) return open_cifar10(place.path);
  if (task.builtin_data == "digits" || holds(folder, {"train-images"}))
    return open_digits(datasets::mnist(folder), place.path, task.model);
  return open_image_folder(place, task, runtime);
}

ImageSource open_place(const ImagePlace& place, const ImageDataConfig& data, const ImageClassificationTask& task,
                       const RuntimeConfig& runtime) {
  if (!names_records(place.path)) return open_folder(place, task, runtime);
  const Dataset records = record_images(place.path, data, task, runtime);
  return {records, records, place.path};
}

void require_places(const std::string& group, const char* flag, const ImageDataConfig& data) {
  require_local("[task] " + group + ".input_path" + flag, data.input_path);
  require_local("[task] " + group + ".tfds_data_dir", data.tfds_data_dir);
}

bool has_own_place(const ImageDataConfig& data) {
  return !data.input_path->empty() || !data.tfds_name->empty() || !data.tfds_data_dir->empty();
}

// Fails if the labels of the two do not mean the same, as far as both know their classes.
void require_same_classes(const ImageSource& train, const ImageSource& validation) {
  const std::vector<std::string>& one = train.class_names;
  const std::vector<std::string>& two = validation.class_names;
  if (one.empty() || two.empty() || one == two) return;
  std::size_t at = 0;
  while (at < std::min(one.size(), two.size()) && one[at] == two[at]) ++at;
  const auto name = [&](const std::vector<std::string>& names) { return at < names.size() ? names[at] : "none"; };
  fail<InvalidArgument>("[task] class ", at, " is \"", name(one), "\" in ", train.description, " and \"", name(two),
                        "\" in ", validation.description, ", wanted the same classes in both");
}

// Fails if a data set is named and nothing says in which folder it lies.
void refuse_name(const char* group, const ImagePlace& place) {
  if (place.tfds_name.empty() || (!place.path.empty() && !names_records(place.path))) return;
  fail<InvalidArgument>("[task] task.", group, ".tfds_name is ", place.tfds_name, ", but ",
                        place.path.empty()
                            ? c10::str("there is no folder: --data_dir (task.train_data.input_path) and task.", group,
                                       ".tfds_data_dir are empty")
                            : c10::str(place.path, " names files of records"),
                        ", wanted a folder that has this data set of TensorFlow Datasets");
}

void refuse_turns(const ImageDataConfig& data, const ImagePlace& place) {
  if ((data.cycle_length == 0 && data.block_length == 1) || names_records(place.path)) return;
  fail<InvalidArgument>("[task] cycle_length is ", data.cycle_length, " and block_length ", data.block_length,
                        ", which are for files of records (input_path=data/train*), not for ",
                        place.path.empty() ? "drawn digits" : place.path);
}

}  // namespace

int64_t smallest_side(const ImageClassificationTask& task) {
  const int64_t larger = std::max(task.model.input_size->at(0), task.model.input_size->at(1));
  return static_cast<int64_t>(std::ceil(static_cast<double>(larger) / task.validation_data.center_crop_fraction));
}

ImageSource open_images(const ImageClassificationTask& task, const RuntimeConfig& runtime, bool training) {
  const ImageDataConfig& data = task.train_data;
  const ImageDataConfig& other = task.validation_data;
  require_places("task.train_data", " (--data_dir)", data);
  require_places("task.validation_data", "", other);
  const bool apart = has_own_place(other);
  const ImagePlace place{.path = data.tfds_data_dir->empty() ? *data.input_path : *data.tfds_data_dir,
                         .tfds_name = data.tfds_name,
                         .tfds = !data.tfds_data_dir->empty(),
                         .use = apart ? Use::kTrain : Use::kBoth};
  refuse_turns(data, place);
  if (training || !place.path.empty() || !apart) refuse_name("train_data", place);
  const std::string& own = other.tfds_data_dir->empty() ? *other.input_path : *other.tfds_data_dir;
  const bool alone = !training && place.path.empty() && !own.empty();  // an evaluation needs no training data
  if (place.path.empty() && !alone) {
    if (task.builtin_data == "digits" && !apart) {
      return open_digits(datasets::drawn_digits({.seed = static_cast<uint64_t>(runtime.seed)}), "drawn digits",
                         task.model);
    }
    fail<InvalidArgument>("[task] there is no data: --data_dir (task.train_data.input_path) is empty");
  }
  if (!apart && names_records(place.path)) {
    fail<InvalidArgument>(
        "[task] task.train_data.input_path is ", place.path,
        ", files to train with; which are to validate with? task.validation_data.input_path is empty");
  }
  if (!apart) return open_place(place, data, task, runtime);
  ImagePlace second{.path = own.empty() ? place.path : own,
                    .tfds_name = other.tfds_name->empty() && own.empty() ? *data.tfds_name : *other.tfds_name,
                    .tfds = !other.tfds_data_dir->empty(),
                    .use = Use::kValidation};
  refuse_turns(other, second);
  refuse_name("validation_data", second);
  if (alone) return open_place(second, other, task, runtime);
  ImageSource made = open_place(place, data, task, runtime);
  second.class_names = made.class_names;
  const ImageSource validation = open_place(second, other, task, runtime);
  if (validation.ready != made.ready) {
    fail<InvalidArgument>("[task] task.train_data has ", made.description, " and task.validation_data ",
                          validation.description, ": data of different kinds");
  }
  require_same_classes(made, validation);
  made.validation = validation.validation;
  if (validation.size != made.size) made.size.clear();
  made.num_classes = std::max(made.num_classes, validation.num_classes);
  made.description += ", validated with " + validation.description;
  return made;
}

}  // namespace cohort
