// Gives the core what this wing has.
#include "base/extension.h"
#include "base/named.h"
#include "cohort/data/image.h"
#include "cohort/train/iou.h"
#include "cohort/train/layers/random_images.h"
#include "data/picture_coder.h"
#include "train/layers/layer_row.h"
#include "wings/vision/models/experiments.h"
#include "wings/vision/train/random_image.h"

namespace cohort {

inline constexpr auto option_names(FillMode /*of*/) {
  return std::to_array<std::string_view>({"constant", "nearest", "reflect", "wrap"});
}
inline constexpr auto option_names(WarpInterpolation /*of*/) {
  return std::to_array<std::string_view>({"nearest", "bilinear"});
}

void install_vision() {
  for (const ExperimentGroup& each : vision_experiments()) extend(each);
  for (const TaskKind& each : vision_tasks()) extend(each);
  extend(Named<Metric>{"binary_io_u", [] { return BinaryIoU(); }, "vision"});
  extend(layer_row<RandomFlipOptions>("RandomFlip", RandomFlip));
  extend(layer_row<RandomRotationOptions>("RandomRotation", RandomRotation));
  extend(layer_row<RandomTranslationOptions>("RandomTranslation", RandomTranslation));
  extend(layer_row<RandomZoomOptions>("RandomZoom", RandomZoom));
  extend(layer_row<RandomCropParts>(
      "RandomCrop", [](const RandomCropParts& crop) { return RandomCrop(crop.height, crop.width, crop.name); }));
  extend(layer_row<RandomContrastOptions>("RandomContrast", RandomContrast));
  extend(layer_row<RandomBrightnessOptions>("RandomBrightness", RandomBrightness));
  extend(PictureCoder{.decode = decode_image, .encode_png = encode_png});
}

}  // namespace cohort
