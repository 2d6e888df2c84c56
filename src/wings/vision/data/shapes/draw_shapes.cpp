// Draws shapes for segmentation. The corners are rounded to a sixteenth of a pixel and everything after that is whole
// numbers, so that a platform's last bit in sin() decides about no pixel. It uses no LibTorch and is always optimised
// (CMakeLists.txt).
#include "wings/vision/data/shapes/draw_shapes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace cohort::datasets {

namespace {

constexpr int kUnit = 16;  // units of a pixel

struct GridPoint {
  int64_t x;
  int64_t y;
};
using Colour = std::array<int, 3>;

// A convex region, in units: a polygon whose corners go round in one direction, or a disc.
struct Region {
  std::vector<GridPoint> corners = {};
  GridPoint centre = {0, 0};
  int64_t radius = 0;

  bool holds(GridPoint p) const {
    if (corners.empty()) {
      const int64_t dx = p.x - centre.x;
      const int64_t dy = p.y - centre.y;
      return dx * dx + dy * dy <= radius * radius;
    }
    for (std::size_t i = 0; i < corners.size(); ++i) {
      const GridPoint& a = corners[i];
      const GridPoint& b = corners[(i + 1) % corners.size()];
      if ((b.x - a.x) * (p.y - a.y) - (b.y - a.y) * (p.x - a.x) < 0) return false;
    }
    return true;
  }
};

int64_t units(double pixels) {
  return static_cast<int64_t>(std::floor(pixels * kUnit + 0.5));
}

int between(Random& random, int low, int high) {
  return low + static_cast<int>(random.below(static_cast<uint64_t>(high - low) + 1));
}

Colour colour(Random& random) {
  Colour made{};
  for (int& channel : made) channel = between(random, 30, 225);
  return made;
}

// Returns a colour that differs from another one by 60 levels or more in some channel.
Colour other_colour(const Colour& from, Random& random) {
  constexpr int kLeast = 60;
  for (;;) {
    const Colour made = colour(random);
    for (std::size_t c = 0; c < made.size(); ++c) {
      if (std::abs(made[c] - from[c]) >= kLeast) return made;
    }
  }
}

// The polygon with corners at these angles (in turns) and distances from a centre.
struct Corner {
  double turn;
  double distance;
};
Region polygon(double x, double y, double turned, const std::vector<Corner>& corners) {
  Region region;
  for (const Corner& corner : corners) {
    const double angle = (turned + corner.turn) * 2.0 * std::numbers::pi;
    region.corners.push_back(
        {units(x + corner.distance * std::cos(angle)), units(y + corner.distance * std::sin(angle))});
  }
  return region;
}

// Each statement draws one number: compilers evaluate the arguments of a call in different orders.
Region shape(int label, int height, int width, Random& random) {
  const int side = std::min(height, width);
  const double x = random.uniform(0.0, width);
  const double y = random.uniform(0.0, height);
  const double size = random.uniform(0.12, 0.28) * side;
  if (label == 1) return {.centre = {units(x), units(y)}, .radius = units(size)};
  const double turned = random.uniform();
  if (label == 3) return polygon(x, y, turned, {{0.0, 1.2 * size}, {1.0 / 3, 1.2 * size}, {2.0 / 3, 1.2 * size}});
  const double half = random.uniform(0.09, 0.14);  // an eighth of a turn makes a square
  return polygon(x, y, turned, {{-half, size}, {half, size}, {0.5 - half, size}, {0.5 + half, size}});
}

Region line(int height, int width, Random& random) {
  const double x = random.uniform(0.0, width);
  const double y = random.uniform(0.0, height);
  const double turned = random.uniform();
  const double length = random.uniform(0.2, 0.6) * std::min(height, width);
  constexpr double kThin = 0.01;
  return polygon(x, y, turned, {{-kThin, length}, {kThin, length}, {0.5 - kThin, length}, {0.5 + kThin, length}});
}

class Canvas {
 public:
  Canvas(int height, int width)
      : height_(height), width_(width), colours_(static_cast<std::size_t>(height) * static_cast<std::size_t>(width)) {
    picture_.labels.resize(colours_.size());
  }

  void fill(const Region& region, const Colour& colour, int label) {
    for (std::size_t i = 0; i < colours_.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / width_;
      const auto column = static_cast<int64_t>(i) % width_;
      if (!region.holds({column * kUnit + kUnit / 2, row * kUnit + kUnit / 2})) continue;
      colours_[i] = colour;
      picture_.labels[i] = static_cast<uint8_t>(label);
    }
  }

  // From one colour at the top to another one at the bottom.
  void fill_ground(const Colour& top, const Colour& bottom) {
    for (std::size_t i = 0; i < colours_.size(); ++i) {
      const int row = static_cast<int>(i) / width_;
      for (std::size_t c = 0; c < top.size(); ++c)
        colours_[i][c] = (top[c] * (height_ - row) + bottom[c] * row) / height_;
    }
  }

  ShapesPicture finish(int noise, Random& random) {
    picture_.pixels.resize(3 * colours_.size());
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t i = 0; i < colours_.size(); ++i) {
        const int value = colours_[i][c] + between(random, -noise, noise);
        picture_.pixels[c * colours_.size() + i] = static_cast<uint8_t>(std::clamp(value, 0, 255));
      }
    }
    return std::move(picture_);
  }

 private:
  int height_;
  int width_;
  std::vector<Colour> colours_;
  ShapesPicture picture_;
};

}  // namespace

ShapesPicture draw_shapes(int height, int width, Random& random) {
  Canvas canvas(height, width);
  const Colour top = colour(random);
  const Colour bottom = colour(random);
  canvas.fill_ground(top, bottom);
  Colour ground{};
  for (std::size_t c = 0; c < ground.size(); ++c) ground[c] = (top[c] + bottom[c]) / 2;
  const int lines = between(random, 0, 3);
  for (int i = 0; i < lines; ++i) {
    const Region region = line(height, width, random);
    canvas.fill(region, other_colour(ground, random), 0);
  }
  const int shapes = between(random, 2, 5);
  for (int i = 0; i < shapes; ++i) {
    const int label = between(random, 1, kShapeClasses - 1);
    const Region region = shape(label, height, width, random);
    canvas.fill(region, other_colour(ground, random), label);
  }
  return canvas.finish(between(random, 5, 30), random);
}

}  // namespace cohort::datasets
