#include "wings/mesh/strategy/space/ranges.h"

#include <algorithm>

namespace cohort::space {

namespace {

// Division towards minus infinity, of a positive divisor.
int64_t floor_div(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

}  // namespace

Range common(const Range& a, const Range& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

Range part_of(int64_t size, int64_t parts, int64_t part) {
  return {part * size / parts, (part + 1) * size / parts};
}

int64_t Window::outputs(int64_t size) const {
  const int64_t room = size + before + after - reach();
  return room < 0 ? 0 : room / stride + 1;
}

Range Window::inputs(const Range& outputs) const {
  const int64_t begin = outputs.begin * stride - before;
  return {begin, outputs.empty() ? begin : (outputs.end - 1) * stride - before + reach()};
}

Range transposed_inputs(const Window& window, const Range& outputs, int64_t size) {
  if (outputs.empty()) return {};
  const int64_t first = outputs.begin + window.before - (window.reach() - 1);
  const int64_t begin = -floor_div(-first, window.stride);
  const int64_t end = floor_div(outputs.end - 1 + window.before, window.stride) + 1;
  const Range inside = common({begin, end}, {0, size});
  return inside.empty() ? Range{} : inside;
}

Transfers transfers(int64_t size, const std::vector<Range>& needs, int64_t own) {
  const auto parts = static_cast<int64_t>(needs.size());
  const Range mine = part_of(size, parts, own);
  Transfers list;
  for (int64_t other = 0; other < parts; ++other) {
    if (other == own) continue;
    const Range wanted = common(mine, needs[static_cast<std::size_t>(other)]);
    const Range lacking = common(part_of(size, parts, other), needs[static_cast<std::size_t>(own)]);
    if (!wanted.empty()) list.sends.push_back({other, wanted});
    if (!lacking.empty()) list.receives.push_back({other, lacking});
  }
  return list;
}

std::vector<Range> needs_of(int64_t size, int64_t outputs, int64_t parts, const std::function<Range(Range)>& need_of) {
  std::vector<Range> needs;
  for (int64_t part = 0; part < parts; ++part) {
    const Range own = part_of(outputs, parts, part);
    const Range need = own.empty() ? Range{} : common(need_of(own), {0, size});
    needs.push_back(need.empty() ? Range{} : need);
  }
  return needs;
}

}  // namespace cohort::space
