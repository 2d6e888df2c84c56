// Pooling: each part computes its own outputs, from its rows and those of its neighbours that the windows see.
#include <ATen/Functions.h>

#include <limits>

#include "wings/mesh/strategy/space/rules.h"
#include "wings/mesh/strategy/space/windows.h"

namespace cohort::space {

namespace {

// The windows of a pooling, whose arguments are kernel_size, stride and padding.
std::vector<Window> windows_of(DividedCall& call, int64_t rank) {
  const std::vector<int64_t> kernel = spread(call[1].toIntVector(), rank);
  std::vector<int64_t> stride = call[2].toIntVector();
  stride = stride.empty() ? kernel : spread(stride, rank);
  const std::vector<int64_t> padding = spread(call[3].toIntVector(), rank);
  const auto dilation = call.find("dilation");
  const std::vector<int64_t> dilations =
      dilation ? spread(call[*dilation].toIntVector(), rank) : std::vector<int64_t>(static_cast<std::size_t>(rank), 1);
  std::vector<Window> windows;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) {
    windows.push_back({kernel[i], stride[i], dilations[i], padding[i], padding[i]});
  }
  return windows;
}

Windowed windowed(DividedCall& call, const std::vector<Window>& windows) {
  const torch::Tensor x = call.tensor(0);
  const bool ceils = call[call.find("ceil_mode").value()].toBool();
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const int64_t dim = x.dim() - static_cast<int64_t>(windows.size() - i);
    const Window& window = windows[i];
    const int64_t room = x.size(dim) + window.before + window.after - window.reach();
    if (ceils && room > 0 && room % window.stride != 0) {
      call.refuse(c10::str("ceil_mode, where dimension ", dim, " is not used up by its windows, is not cut; a padding ",
                           "at the end would fit"));
    }
  }
  return fetch_windows(call, x, windows);
}

void call_max_pool(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  const std::vector<Window> windows = windows_of(call, x.dim() - 2);
  const Windowed input = windowed(call, windows);
  Layout layout = input.outputs;
  if (input.empty()) return call.finish({make_divided(empty_part(layout.local_sizes(), {input.part}), layout)});
  const auto [part, padding] = input.padded(-std::numeric_limits<double>::infinity());
  call[0] = part;
  call[3] = padding;
  call.forward();
  call.finish({make_divided(input.cropped(call.tensor(0)), layout)});
}

// The number of elements by which each of these outputs' sums is divided, along one dimension.
torch::Tensor counts(const Window& window, int64_t size, const Range& outputs, bool pads) {
  std::vector<double> list;
  for (int64_t out = outputs.begin; out < outputs.end; ++out) {
    const Range inputs = window.inputs({out, out + 1});
    const Range counted = pads ? common(inputs, {-window.before, size + window.after}) : common(inputs, {0, size});
    list.push_back(static_cast<double>(counted.size()));
  }
  return torch::tensor(list, torch::kDouble);
}

// Sums of windows, divided by numbers that are found from where the outputs lie in the whole.
void call_average_pool(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  const int64_t rank = x.dim() - 2;
  const std::vector<Window> windows = windows_of(call, rank);
  const bool pads = call[5].toBool();
  const c10::IValue divisor = call[6];
  const Windowed input = windowed(call, windows);
  const Layout& layout = input.outputs;
  if (input.empty()) return call.finish({make_divided(empty_part(layout.local_sizes(), {input.part}), layout)});
  const auto [part, padding] = input.padded(0.0);
  call[0] = part;
  call[3] = padding;
  call[4] = false;
  call[5] = true;
  call[6] = int64_t{1};
  call.forward();
  torch::Tensor y = input.cropped(call.tensor(0));
  if (divisor.isInt()) {
    y = y / divisor.toInt();
  } else {
    torch::Tensor number = torch::ones({}, torch::kDouble);
    for (std::size_t i = 0; i < windows.size(); ++i) {
      const auto dim = static_cast<int64_t>(i) + 2;
      number = number.unsqueeze(-1) * counts(windows[i], x.size(dim), layout.own(dim), pads);
    }
    y = y / number.to(y.options());
  }
  call.finish({make_divided(y, layout)});
}

}  // namespace

void add_window_rules(Rules& rules) {
  rules["max_pool2d"] = rules["max_pool1d"] = call_max_pool;
  rules["avg_pool2d"] = call_average_pool;
}

}  // namespace cohort::space
