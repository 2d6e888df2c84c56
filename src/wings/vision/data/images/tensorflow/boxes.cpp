// Model Garden's geometry of pictures with boxes. Corners are computed in single precision and cut to whole pixels
// where it cuts them, because the next pixel is another box.
#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/fail.h"
#include "cohort/data/auto_augment.h"
#include "wings/vision/data/images/tensorflow/pictures.h"

namespace cohort::augment {

namespace {

constexpr float kGap = 0.05F;

struct Box {
  float top = 0.0F, left = 0.0F, bottom = 0.0F, right = 0.0F;
};

struct BoxCorner {
  float y = 0.0F, x = 0.0F;
};

float whole(float value) {
  return std::trunc(value);
}

void require_boxes(const char* what, const BoxedImage& of) {
  images::require_bytes(what, of.image);
  const torch::Tensor& boxes = of.boxes;
  if (boxes.defined() && boxes.scalar_type() == torch::kFloat && boxes.dim() == 2 && boxes.size(1) == 4) return;
  fail<InvalidArgument>("[image] ", what, ": wanted boxes, float32 [boxes, 4], got ",
                        boxes.defined() ? c10::str(boxes.scalar_type(), boxes.sizes()) : "none");
}

// Cuts a box off at the borders. One without height or width gets some at the border.
Box inside(Box box) {
  const auto clip = [](float& least, float& most) {
    least = std::clamp(least, 0.0F, 1.0F);
    most = std::clamp(most, 0.0F, 1.0F);
    if (most - least != 0.0F) return;
    most = std::max(most, kGap);
    least = std::min(least, 1.0F - kGap);
  };
  clip(box.top, box.bottom);
  clip(box.left, box.right);
  return box;
}

// Applies a function to every box, given the height and the width of the picture.
template <typename Move>
torch::Tensor moved(const BoxedImage& of, const Move& move) {
  torch::Tensor boxes = of.boxes.contiguous().clone();
  const auto height = static_cast<float>(images::rows_of(of.image));
  const auto width = static_cast<float>(images::columns_of(of.image));
  for (int64_t i = 0; i < boxes.size(0); ++i) {
    const torch::Tensor row = boxes[i];
    const auto at = [&](int64_t column) { return row[column].item<float>(); };
    const Box box = inside(move(Box{at(0), at(1), at(2), at(3)}, height, width));
    row.copy_(at::tensor({box.top, box.left, box.bottom, box.right}));
  }
  return boxes;
}

// Returns the corners of a box in whole pixels, by a function of each; the smallest box that has all of them.
template <typename Map>
Box around(const std::array<BoxCorner, 4>& corners, const Map& map) {
  BoxCorner least, most;
  for (std::size_t i = 0; i < corners.size(); ++i) {
    const BoxCorner mapped = map(corners[i]);
    const BoxCorner at{whole(mapped.y), whole(mapped.x)};
    least = i == 0 ? at : BoxCorner{std::min(least.y, at.y), std::min(least.x, at.x)};
    most = i == 0 ? at : BoxCorner{std::max(most.y, at.y), std::max(most.x, at.x)};
  }
  return {least.y, least.x, most.y, most.x};
}

std::array<BoxCorner, 4> corners_of(const Box& box) {
  return {BoxCorner{box.top, box.left}, {box.top, box.right}, {box.bottom, box.left}, {box.bottom, box.right}};
}

Box in_pixels(const Box& box, float height, float width) {
  return {whole(height * box.top), whole(width * box.left), whole(height * box.bottom), whole(width * box.right)};
}

Box in_shares(const Box& box, float height, float width) {
  return {box.top / height, box.left / width, box.bottom / height, box.right / width};
}

}  // namespace

BoxedImage rotate_with_bboxes(const BoxedImage& of, double degrees) {
  require_boxes("rotate_with_bboxes", of);
  const auto angle = static_cast<float>(degrees) * static_cast<float>(3.14159265358979323846 / 180.0);
  const float cosine = std::cos(angle);
  const float sine = std::sin(angle);
  // About the middle, with y upwards.
  const auto turn = [&](const Box& box, float height, float width) {
    const Box middle{-whole(height * (box.top - 0.5F)), whole(width * (box.left - 0.5F)),
                     -whole(height * (box.bottom - 0.5F)), whole(width * (box.right - 0.5F))};
    const Box turned = around(corners_of(middle), [&](const BoxCorner& p) {
      return BoxCorner{cosine * p.y + sine * p.x, -sine * p.y + cosine * p.x};
    });
    return Box{-(turned.bottom / height - 0.5F), turned.left / width + 0.5F, -(turned.top / height - 0.5F),
               turned.right / width + 0.5F};
  };
  return {.image = rotate(of.image, degrees), .boxes = moved(of, turn)};
}

BoxedImage shear_with_bboxes(const BoxedImage& of, double level, bool shear_horizontal) {
  require_boxes("shear_with_bboxes", of);
  const auto by = static_cast<float>(level);
  const auto shear = [&](const Box& box, float height, float width) {
    const Box sheared = around(corners_of(in_pixels(box, height, width)), [&](const BoxCorner& p) {
      return shear_horizontal ? BoxCorner{p.y, p.x - by * p.y} : BoxCorner{p.y - by * p.x, p.x};
    });
    return in_shares(sheared, height, width);
  };
  return {.image = shear_horizontal ? shear_x(of.image, level) : shear_y(of.image, level), .boxes = moved(of, shear)};
}

BoxedImage translate_bbox(const BoxedImage& of, double pixels, bool shift_horizontal) {
  require_boxes("translate_bbox", of);
  const float by = whole(static_cast<float>(pixels));
  const auto shift = [&](const Box& box, float height, float width) {
    Box at = in_pixels(box, height, width);
    float& least = shift_horizontal ? at.left : at.top;
    float& most = shift_horizontal ? at.right : at.bottom;
    least = std::max(0.0F, least - by);
    most = std::min(shift_horizontal ? width : height, most - by);
    return in_shares(at, height, width);
  };
  return {.image = shift_horizontal ? translate_x(of.image, pixels) : translate_y(of.image, pixels),
          .boxes = moved(of, shift)};
}

BoxedImage translate_y_only_bboxes(const BoxedImage& of, double probability, double pixels, at::Generator generator) {
  require_boxes("translate_y_only_bboxes", of);
  const auto height = static_cast<float>(images::rows_of(of.image));
  const auto width = static_cast<float>(images::columns_of(of.image));
  BoxedImage result{.image = of.image.clone(), .boxes = of.boxes};
  // Boxes may lie one above the other, so their order is drawn.
  const torch::Tensor order = at::randperm(of.boxes.size(0), generator);
  for (int64_t i = 0; i < order.numel(); ++i) {
    if (images::draw_uniform(0.0, 1.0, generator) >= probability / 3.0) continue;
    const torch::Tensor row = of.boxes[order[i].item<int64_t>()];
    const auto pixel = [&](int64_t column, float size) {
      return static_cast<int64_t>(whole(size * row[column].item<float>()));
    };
    const int64_t top = pixel(0, height), left = pixel(1, width);
    const int64_t bottom = std::min(pixel(2, height), images::rows_of(of.image) - 1);
    const int64_t right = std::min(pixel(3, width), images::columns_of(of.image) - 1);
    if (top < 0 || left < 0 || top > bottom || left > right) continue;
    const torch::Tensor content = result.image.slice(0, top, bottom + 1).slice(1, left, right + 1);
    content.copy_(translate_y(content.contiguous(), pixels));
  }
  return result;
}

}  // namespace cohort::augment
