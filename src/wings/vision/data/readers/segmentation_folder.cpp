// Pictures in the folder "images", and in the folder "masks" a PNG of the same name for each, whose grey values are the
// classes of the pixels.
#include <ATen/Functions.h>

#include <set>

#include "base/fail.h"
#include "cohort/data/datasets.h"
#include "data/node.h"
#include "wings/vision/data/images/decode.h"
#include "wings/vision/data/readers/picture_files.h"

namespace cohort::datasets {

namespace {

struct Pair {
  std::filesystem::path image;
  std::filesystem::path mask;
};

std::vector<Pair> pairs_of(const std::filesystem::path& folder) {
  std::vector<Pair> pairs;
  std::set<std::string> names;
  for (const auto& file : pictures_in(folder / "images")) {
    const std::filesystem::path name = file.lexically_relative(folder / "images").replace_extension();
    if (!names.insert(name.string()).second) {
      fail<InvalidArgument>("[data] ", file.string(), ": there are two pictures called ", name.string(),
                            ", which would have the same mask");
    }
    const std::filesystem::path mask = folder / "masks" / name.string().append(".png");
    if (!std::filesystem::exists(mask)) fail<NotFound>("[data] ", file.string(), ": has no mask ", mask.string());
    pairs.push_back({.image = file, .mask = mask});
  }
  if (pairs.empty()) fail<NotFound>("[data] ", (folder / "images").string(), ": has no JPEG or PNG files");
  return pairs;
}

torch::Tensor read_mask(const std::filesystem::path& file, DecodeOptions decode) {
  decode.channels = 0;  // as the file is
  const torch::Tensor mask = decode_png(read_picture(file, decode), decode, file.string());
  if (mask.size(0) != 1) {
    fail<InvalidArgument>("[data] ", file.string(),
                          ": the mask is in colour, or has a palette, wanted a grey PNG whose values are the classes");
  }
  return mask.squeeze(0).to(torch::kLong);
}

Example read_pair(const Pair& pair, const DecodeOptions& decode) {
  Example made{.x = decode_image(read_picture(pair.image, decode), decode, pair.image.string()),
               .y = read_mask(pair.mask, decode)};
  if (made.x.size(1) == made.y.size(0) && made.x.size(2) == made.y.size(1)) return made;
  fail<InvalidArgument>("[data] ", pair.mask.string(), ": the mask has ", made.y.size(0), " x ", made.y.size(1),
                        " pixels, but its picture ", made.x.size(1), " x ", made.x.size(2));
}

}  // namespace

TrainTest segmentation_folder(const std::filesystem::path& folder, const SegmentationFolderOptions& options) {
  require_held_out("segmentation_folder", options.held_out);
  DecodeOptions decode = options.decode;
  images::check_options(decode);
  if (decode.at_least != 0) {
    fail<InvalidArgument>("[data] segmentation_folder: decode.at_least is ", decode.at_least,
                          ", wanted 0: a mask is not decoded at a smaller size");
  }
  decode.upright = false;  // a mask lies as the pixels of its picture do
  const auto pairs = std::make_shared<const std::vector<Pair>>(pairs_of(folder));
  const auto [train, test] = hold_out(static_cast<int64_t>(pairs->size()), options.held_out, options.seed);
  // Workers divide the numbers, so that each of them reads and decodes its own files only.
  const auto read = [&](const torch::Tensor& numbers) {
    return Dataset(make_files(Dataset::from_tensor_slices(numbers).node()))
        .map(
            [pairs, decode](const Example& number) {
              return read_pair(pairs->at(static_cast<std::size_t>(number.x.item<int64_t>())), decode);
            },
            options.threads);
  };
  return {.train = read(train), .test = read(test)};
}

}  // namespace cohort::datasets
