// Images in a folder with one subfolder for each class.
#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cmath>

#include "base/fail.h"
#include "base/log.h"
#include "cohort/data/datasets.h"
#include "data/images/decode.h"
#include "data/node.h"
#include "data/readers/byte_source.h"
#include "device/host_random.h"

namespace cohort::datasets {

namespace {

struct File {
  std::filesystem::path path;
  int64_t label = 0;
};

bool is_image(const std::filesystem::path& file) {
  std::string extension = file.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  constexpr std::array kExtensions = {".jpg", ".jpeg", ".png"};
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

std::vector<std::filesystem::path> sorted_entries(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> list;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) list.push_back(entry.path());
  if (error) fail<NotFound>("[data] ", folder.string(), ": cannot be listed: ", error.message());
  std::sort(list.begin(), list.end());
  return list;
}

// Returns the bytes of a file that can be a picture. DataLoss: it is a folder, a pipe, a dangling link, or far too
// large.
std::string read_file(const std::filesystem::path& file, const DecodeOptions& decode) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) {
    fail<DataLoss>("[data] ", file.string(), ": is ",
                   std::filesystem::exists(file, ignored) ? "no file" : "a link to nowhere", ", wanted a JPEG or PNG");
  }
  const auto source = open_bytes(file, Compression::kNone);
  const int64_t size = source->left().value_or(0);
  constexpr int64_t kMostBytesOfPixel = 16;  // PNG: 8, and what it takes to say that nothing could be compressed
  if (size / kMostBytesOfPixel > decode.most_pixels) {
    fail<DataLoss>("[data] ", file.string(), ": ", size, " bytes, wanted a picture of at most ", decode.most_pixels,
                   " pixels");
  }
  std::string bytes(static_cast<std::size_t>(size), '\0');
  bytes.resize(source->read(bytes.data(), bytes.size()));
  return bytes;
}

// Returns the dataset of pictures for a dataset of file numbers.
Dataset read_all(const Dataset& numbers, const std::shared_ptr<const std::vector<File>>& files,
                 const ImageFolderOptions& options) {
  const auto read = [files, decode = options.decode](const Example& number) {
    const File& file = files->at(static_cast<std::size_t>(number.x.item<int64_t>()));
    const std::string name = file.path.string();
    return Example{.x = decode_image(read_file(file.path, decode), decode, name),
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
  if (!(options.held_out >= 0.0 && options.held_out < 1.0)) {
    fail<InvalidArgument>("[data] image_folder: held_out is ", options.held_out, ", wanted 0 or more and below 1");
  }
  images::check_options(options.decode);
  const auto files = std::make_shared<std::vector<File>>();
  std::vector<std::string> names;
  for (const auto& place : sorted_entries(folder)) {
    if (!std::filesystem::is_directory(place)) continue;
    const auto before = files->size();
    for (const auto& file : sorted_entries(place)) {
      if (is_image(file)) files->push_back({.path = file, .label = static_cast<int64_t>(names.size())});
    }
    if (files->size() > before) names.push_back(place.filename().string());
  }
  if (files->empty()) {
    fail<NotFound>("[data] ", folder.string(), ": has no folders with JPEG or PNG files, one for each class");
  }
  const auto count = static_cast<int64_t>(files->size());
  const auto held_out = static_cast<int64_t>(std::llround(static_cast<double>(count) * options.held_out));
  const torch::Tensor order = at::randperm(count, make_host_generator(options.seed), torch::kLong);
  const torch::Tensor test = std::get<0>(order.slice(0, 0, held_out).sort());
  const torch::Tensor train = std::get<0>(order.slice(0, held_out).sort());
  Dataset numbers = Dataset::from_tensor_slices(train);
  if (options.shuffle) numbers = numbers.shuffle(std::max<int64_t>(1, count - held_out), {.seed = options.seed});
  // Workers divide the numbers, so that each of them reads and decodes its own files only.
  const auto divided = [](const Dataset& all) { return Dataset(make_files(all.shared_node())); };
  return {.train = read_all(divided(numbers), files, options),
          .test = read_all(divided(Dataset::from_tensor_slices(test)), files, options),
          .class_names = std::move(names)};
}

}  // namespace cohort::datasets
