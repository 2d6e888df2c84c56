// Gives the core what this wing has.
#include "base/extension.h"
#include "base/named.h"
#include "cohort/data/image.h"
#include "cohort/train/iou.h"
#include "data/picture_coder.h"
#include "wings/vision/models/experiments.h"

namespace cohort {

void install_vision() {
  for (const ExperimentGroup& each : vision_experiments()) extend(each);
  for (const TaskKind& each : vision_tasks()) extend(each);
  extend(Named<Metric>{"binary_io_u", [] { return BinaryIoU(); }, "vision"});
  extend(PictureCoder{.decode = decode_image, .encode_png = encode_png});
}

}  // namespace cohort
