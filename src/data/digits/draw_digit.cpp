// Draws digits as strokes of a pen, which are moved at random. Every random number comes from Random, and pixels have
// 256 levels, as MNIST's do: a platform's last bit in sin() or in a fused multiply-add is rounded away. It uses no
// LibTorch and is always optimised (CMakeLists.txt), because every training without data of its own begins with 24,000
// digits. The loops over pixels have no branches, so that compilers make vectors of them.
#include "data/digits/draw_digit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

namespace cohort::datasets {

namespace {

struct StrokePoint {
  double x;
  double y;
};
using Stroke = std::vector<StrokePoint>;
using Glyph = std::vector<Stroke>;

// Returns a part of an ellipse, from one angle to another (in degrees, clockwise from the right, y downwards).
Stroke arc(StrokePoint centre, double rx, double ry, double from, double to) {
  constexpr int kSteps = 14;
  Stroke stroke;
  for (int i = 0; i <= kSteps; ++i) {
    const double angle = (from + (to - from) * i / kSteps) * std::numbers::pi / 180.0;
    stroke.push_back({centre.x + rx * std::cos(angle), centre.y + ry * std::sin(angle)});
  }
  return stroke;
}

Stroke joined(Stroke first, const Stroke& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Returns the shape of a digit, in a box of [-1, 1] by [-1.4, 1.4]. Several digits can be written in two ways.
Glyph glyph(int digit, bool other_way) {
  switch (digit) {
    case 0:
      return {arc({0, 0}, other_way ? 0.55 : 0.8, 1.2, 0, 360)};
    case 1:
      return other_way ? Glyph{{{-0.4, -0.8}, {0.1, -1.2}, {0.1, 1.2}}, {{-0.4, 1.2}, {0.6, 1.2}}}
                       : Glyph{{{0, -1.2}, {0, 1.2}}};
    case 2:
      return {joined(arc({0, -0.6}, 0.7, 0.6, 190, 380), {{0.2, 0.4}, {-0.7, 1.2}, {0.8, 1.2}})};
    case 3:
      return other_way ? Glyph{joined({{-0.6, -1.2}, {0.6, -1.2}, {0, -0.2}}, arc({0, 0.5}, 0.7, 0.7, -90, 150))}
                       : Glyph{arc({0, -0.6}, 0.6, 0.6, 200, 450), arc({0, 0.6}, 0.7, 0.65, -90, 160)};
    case 4:
      return other_way ? Glyph{{{-0.6, -1.2}, {-0.6, 0.1}, {0.6, 0.1}}, {{0.5, -1.2}, {0.5, 1.2}}}
                       : Glyph{{{0.4, 1.2}, {0.4, -1.2}, {-0.8, 0.4}, {0.8, 0.4}}};
    case 5:
      return {joined({{0.7, -1.2}, {-0.5, -1.2}, {-0.6, -0.2}}, arc({0, 0.45}, 0.75, 0.75, -130, 140))};
    case 6:
      return {joined(arc({0.5, 0.3}, 1.1, 1.5, 260, 180), arc({0, 0.55}, 0.62, 0.65, 180, 540))};
    case 7:
      return other_way ? Glyph{{{-0.7, -1.2}, {0.7, -1.2}, {-0.2, 1.2}}, {{-0.4, 0.0}, {0.6, 0.0}}}
                       : Glyph{{{-0.7, -1.2}, {0.7, -1.2}, {-0.1, 1.2}}};
    case 8:
      return {arc({0, -0.6}, 0.55, 0.58, 0, 360), arc({0, 0.6}, 0.68, 0.62, 0, 360)};
    default:
      return {joined(arc({0, -0.5}, 0.62, 0.65, 0, 360), {{0.55, 0.2}, {other_way ? 0.5 : 0.1, 1.25}})};
  }
}

// Lays ink along a segment: full inside the pen's radius, fading over one pixel.
void draw_segment(DigitImage& image, StrokePoint a, StrokePoint b, double radius, double ink) {
  const double reach = radius + 0.5;
  // The first and the last pixel whose middle may be within reach.
  const auto first = [&](double edge) { return std::max(0, static_cast<int>(edge - reach - 0.5)); };
  const auto last = [&](double edge) { return std::min(kDigitSide - 1, static_cast<int>(edge + reach)); };
  const int left = first(std::min(a.x, b.x));
  const int right = last(std::max(a.x, b.x));
  const int bottom = last(std::max(a.y, b.y));
  const double dx = b.x - a.x;
  const double dy = b.y - a.y;
  const double square = dx * dx + dy * dy;
  const double divisor = square > 0 ? square : 1;  // for a point, whose t is 0
  for (int y = first(std::min(a.y, b.y)); y <= bottom; ++y) {
    float* const row = image.data() + static_cast<std::ptrdiff_t>(y) * kDigitSide;
    const double above = y + 0.5 - a.y;
    for (int x = left; x <= right; ++x) {  // without a branch, so that it is done for several pixels at once
      const double before = x + 0.5 - a.x;
      const double t = std::min(std::max((before * dx + above * dy) / divisor, 0.0), 1.0);
      const double ex = before - t * dx;
      const double ey = above - t * dy;
      const double covered = std::min(std::max(reach - std::sqrt(ex * ex + ey * ey), 0.0), 1.0);
      row[x] = std::max(row[x], static_cast<float>(ink * covered));
    }
  }
}

// A random map from the glyph's box to the image: turned, slanted, stretched, shifted.
struct Affine {
  double xx, xy, yx, yy, dx, dy;

  explicit Affine(Random& random) {
    const double angle = random.uniform(-0.40, 0.40);
    const double slant = random.uniform(-0.35, 0.35);
    const double width = random.uniform(5.0, 8.6);
    const double height = random.uniform(5.0, 8.6);
    xx = width * std::cos(angle);
    xy = height * (slant * std::cos(angle) - std::sin(angle));
    yx = width * std::sin(angle);
    yy = height * (slant * std::sin(angle) + std::cos(angle));
    dx = 14.0 + random.uniform(-3.2, 3.2);
    dy = 14.0 + random.uniform(-2.6, 2.6);
  }
  StrokePoint operator()(StrokePoint p) const { return {xx * p.x + xy * p.y + dx, yx * p.x + yy * p.y + dy}; }
};

void draw_strays(DigitImage& image, Random& random) {
  const auto count = static_cast<int>(random.below(3));
  for (int i = 0; i < count; ++i) {
    const StrokePoint a{random.uniform(0, kDigitSide), random.uniform(0, kDigitSide)};
    const StrokePoint b{a.x + random.uniform(-5, 5), a.y + random.uniform(-5, 5)};
    // Each statement draws one number: compilers evaluate the arguments of a call in different orders.
    const double radius = random.uniform(0.3, 0.8);
    const double ink = random.uniform(0.3, 0.8);
    draw_segment(image, a, b, radius, ink);
  }
}

std::array<float, 256> levels_of_ink() {
  std::array<float, 256> levels{};
  for (std::size_t i = 0; i < levels.size(); ++i) levels[i] = static_cast<float>(static_cast<double>(i) / 255.0);
  return levels;
}

}  // namespace

DigitImage draw_digit(int digit, Random& random) {
  static const std::array<float, 256> levels = levels_of_ink();
  DigitImage image{};
  const Affine map(random);
  const double radius = random.uniform(0.6, 1.9);
  const double ink = random.uniform(0.6, 1.0);
  constexpr double kWobble = 0.11;
  for (const Stroke& stroke : glyph(digit, random.below(2) == 1)) {
    std::vector<StrokePoint> points;
    for (const StrokePoint& p : stroke) {
      points.push_back(map({p.x + random.uniform(-kWobble, kWobble), p.y + random.uniform(-kWobble, kWobble)}));
    }
    for (std::size_t i = 1; i < points.size(); ++i) draw_segment(image, points[i - 1], points[i], radius, ink);
  }
  draw_strays(image, random);
  for (float& pixel : image) {
    const double value = pixel + random.uniform(-0.12, 0.12);
    const int level = std::clamp(static_cast<int>(value * 255.0 + 0.5), 0, 255);
    pixel = levels[static_cast<std::size_t>(level)];
  }
  return image;
}

}  // namespace cohort::datasets
