// oneDNN adds up a bias's gradient slowly where the channels come last, LibTorch's pooling keeps 64-bit places and
// fills its gradient with zeros first, and each of bias, ReLU and pooling is a pass over the largest tensors of a
// model. Here oneDNN only convolves. One pass of vector code (ops/kernels) forward and one backward do the rest. They
// take pointers to plain CPU tensors with the channels last. The result of a convolution before a pooling is not kept:
// bias and ReLU come after the pooling. The largest of sums with one bias is the sum of the largest, bit for bit, and
// the same holds for ReLU and for the gradients.
#include "ops/fused_convolution.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/libtorch_compat.h"
#include "base/parallel.h"
#include "ops/channels_last.h"
#include "ops/kernels/kernels.h"
#include "ops/max_pool.h"
#include "ops/plain_operation.h"
#include "ops/plain_tensor.h"

namespace cohort {

namespace {

using channels_last::channels_at;
using torch::autograd::variable_list;

constexpr at::MemoryFormat kLast = at::MemoryFormat::ChannelsLast;

// The arguments of at::convolution beside its tensors.
struct Geometry {
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;

  torch::Tensor convolve(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) const {
    return at::convolution(x, weight, bias, stride, padding, dilation, /*transposed=*/false, {0, 0}, groups);
  }
  auto gradients(const torch::Tensor& gradient, const torch::Tensor& x, const torch::Tensor& weight,
                 std::array<bool, 2> wanted) const {
    return at::convolution_backward(gradient, x, weight, at::OptionalIntArrayRef(), stride, padding, dilation,
                                    /*transposed=*/false, {0, 0}, groups, {wanted[0], wanted[1], false});
  }
};

// The elements of images with the channels last in bands of so many, of which each may be another thread's.
class Bands {
 public:
  explicit Bands(const torch::Tensor& images)
      : channels_(images.size(1)), rows_(images.numel() / channels_), number_((rows_ + kRows - 1) / kRows) {}

  int64_t number() const { return number_; }

  // Calls fn(band, its first element, its elements).
  template <typename Fn>
  void each(const Fn& fn) const {
    parallel_for(
        number_, std::max<int64_t>(1, channels_last::kGrain / (kRows * channels_)), [&](int64_t begin, int64_t end) {
          for (int64_t band = begin; band < end; ++band) {
            const int64_t first = band * kRows;
            fn(band, first,
               kernels::Columns{.rows = std::min(kRows, rows_ - first), .columns = channels_, .stride = channels_});
          }
        });
  }

 private:
  static constexpr int64_t kRows = 1024;

  int64_t channels_, rows_, number_;
};

// Returns a matrix of some sums of every channel, not yet computed.
torch::Tensor sums_of(const torch::Tensor& images, int64_t rows) {
  return at::empty({rows, images.size(1)}, images.options().memory_format(at::MemoryFormat::Contiguous));
}

// Calls fn(first, number) for pieces of some images, of which each takes so many bytes: all that is done with a piece
// is done while it lies in a cache.
template <typename Fn>
void each_piece(int64_t images, int64_t bytes, const Fn& fn) {
  const int64_t cache = at::get_num_threads() * (int64_t{1} << 22);  // next to a core, or its share of a common one
  const int64_t pieces = std::min(images, (images * bytes + cache - 1) / cache);
  const int64_t each = (images + pieces - 1) / pieces;
  for (int64_t first = 0; first < images; first += each) fn(first, std::min(each, images - first));
}

int64_t bytes_of(torch::IntArrayRef sizes, const torch::Tensor& like) {
  return c10::multiply_integers(sizes) * static_cast<int64_t>(like.element_size());
}

torch::Tensor images_of(const torch::Tensor& images, int64_t first, int64_t number) {
  if (!images.defined() || number == images.size(0)) return images;
  return images.narrow(0, first, number);
}

class FusedConvolutionBackward final : public torch::autograd::Node {
 public:
  FusedConvolutionBackward(torch::autograd::edge_list&& edges, const torch::Tensor& x, const torch::Tensor& weight,
                           Geometry geometry, bool relu)
      : Node(std::move(edges)),
        x_(x, /*is_output=*/false),
        weight_(weight, /*is_output=*/false),
        geometry_(std::move(geometry)),
        relu_(relu) {}

  // Saves the result of a ReLU without its place in the graph: only its zeros count, which have no gradient.
  void save(const torch::Tensor& y) {
    if (relu_) y_ = torch::autograd::SavedVariable(y.tensor_data(), /*is_output=*/false);
  }
  void save(const MaxPool& pooling, const torch::Tensor& places) {
    pooling_ = pooling;
    places_ = torch::autograd::SavedVariable(places, /*is_output=*/false);
  }

  variable_list apply(variable_list&& gradients) override {
    torch::Tensor gradient = std::move(gradients.front());
    if (!gradient.defined()) return variable_list(3);
    const torch::Tensor x = x_.unpack();
    const torch::Tensor weight = weight_.unpack();
    const torch::Tensor y = y_.unpack();
    const torch::Tensor places = places_.unpack();
    if (at::GradMode::is_enabled() || !is_plain_strided(gradient)) return by_operations(gradient, x, weight, y, places);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (!gradient.is_contiguous(kLast)) gradient = gradient.contiguous(kLast);
    if (pooling_) return pooled(gradient, x, weight, y, places);
    const auto [passed, sums] = rectified(gradient, y);
    auto [of_x, of_weight, none] = geometry_.gradients(passed, x, weight, wanted());
    return {std::move(of_x), std::move(of_weight), of_bias(sums)};
  }

  void release_variables() override {
    x_.reset_data();
    weight_.reset_data();
    y_.reset_data();
    places_.reset_data();
  }
  std::string name() const override { return "FusedConvolutionBackward"; }

 private:
  static constexpr std::size_t kBias = 2;  // among the inputs

  std::array<bool, 2> wanted() const { return {task_should_compute_output(0), task_should_compute_output(1)}; }

  // Returns the gradient before the ReLU, if there is one, and the bias's, a row a band.
  static std::pair<torch::Tensor, torch::Tensor> rectified(const torch::Tensor& gradient, const torch::Tensor& y) {
    const torch::Tensor passed = !y.defined() || is_own(gradient) ? gradient : at::empty_like(gradient);
    const Bands bands(gradient);
    const torch::Tensor sums = sums_of(gradient, bands.number());
    bands.each([&](int64_t band, int64_t first, const kernels::Columns& size) {
      kernels::bias_gradient(channels_at(passed, first), channels_at(gradient, first),
                             y.defined() ? channels_at(y, first) : nullptr, channels_at(sums, band), size,
                             gradient.scalar_type());
    });
    return {passed, sums};
  }

  torch::Tensor of_bias(const torch::Tensor& sums) {
    if (!task_should_compute_output(kBias)) return {};
    torch::Tensor bias = at::empty({sums.size(1)}, sums.options());
    kernels::bias_gradient(nullptr, sums.data_ptr(), nullptr, bias.data_ptr(),
                           {.rows = sums.size(0), .columns = sums.size(1), .stride = sums.size(1)}, sums.scalar_type());
    return bias;
  }

  variable_list pooled(const torch::Tensor& gradient, const torch::Tensor& x, const torch::Tensor& weight,
                       const torch::Tensor& y, const torch::Tensor& places) {
    const torch::Tensor sums = sums_of(gradient, gradient.size(0));
    variable_list made(3);
    each_piece(x.size(0), bytes_of(pooling_->image_sizes(1), x), [&](int64_t first, int64_t number) {
      const torch::Tensor passed = channels_last::empty(pooling_->image_sizes(number), gradient.options());
      pooling_->store_gradients(passed, images_of(sums, first, number), images_of(gradient, first, number),
                                images_of(y, first, number), images_of(places, first, number));
      auto [of_x, of_weight, none] = geometry_.gradients(passed, images_of(x, first, number), weight, wanted());
      join(made[0], of_x, x, first);
      made[1] = made[1].defined() ? made[1].add_(of_weight) : of_weight;
    });
    made[kBias] = of_bias(sums);
    return made;
  }

  // Puts the gradient by a piece of the images into that by all of them.
  static void join(torch::Tensor& all, const torch::Tensor& piece, const torch::Tensor& x, int64_t first) {
    if (!piece.defined()) return;
    if (piece.size(0) == x.size(0)) {
      all = piece;
      return;
    }
    if (!all.defined()) all = channels_last::empty(x.sizes(), piece.options());
    all.narrow(0, first, piece.size(0)).copy_(piece);
  }

  // Computes the same by operations that have gradients themselves.
  variable_list by_operations(const torch::Tensor& gradient, const torch::Tensor& x, const torch::Tensor& weight,
                              const torch::Tensor& y, const torch::Tensor& places) {
    torch::Tensor passed = y.defined() ? at::threshold_backward(gradient, y, 0) : gradient;
    const torch::Tensor of_bias = task_should_compute_output(kBias) ? passed.sum({0, 2, 3}) : torch::Tensor();
    if (pooling_) passed = pooling_->gradient_by_operations(passed, places);
    const auto [of_x, of_weight, none] = geometry_.gradients(passed, x, weight, wanted());
    return {of_x, of_weight, of_bias};
  }

  torch::autograd::SavedVariable x_, weight_, y_, places_;
  Geometry geometry_;
  bool relu_;
  std::optional<MaxPool> pooling_;
};

// Returns whether a convolution along one dimension pads both ends alike, and it and what follows it have an output.
bool fits(const WindowShape& window, const WindowShape* pooling, int64_t image) {
  const auto [before, after] = window.pads(image);
  const int64_t output = window.output(image);
  return before == after && (pooling == nullptr ? output : pooling->output(output)) > 0;
}

bool fits(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, const Window2& window,
          int64_t groups, const AfterConvolution& after) {
  const c10::ScalarType dtype = weight.scalar_type();
  const bool gains = bias.defined() || after.relu || after.pooling != nullptr;
  return gains && (after.pooling == nullptr || MaxPool::fits(*after.pooling)) && kernels::has_kernels(dtype) &&
         x.dim() == 4 && x.scalar_type() == dtype && x.numel() > 0 &&
         (dtype == torch::kFloat || dtype == torch::kDouble || is_safe_in_half(x, window, groups)) &&
         (!bias.defined() || (bias.scalar_type() == dtype && bias.numel() == weight.size(0))) &&
         (x.suggest_memory_format() == kLast || weight.suggest_memory_format() == kLast) &&
         fits(window.height, after.pooling == nullptr ? nullptr : &after.pooling->height, x.size(2)) &&
         fits(window.width, after.pooling == nullptr ? nullptr : &after.pooling->width, x.size(3));
}

// Adds the bias, if there is one, and computes the relu, in place.
void rectify(const torch::Tensor& y, const torch::Tensor& bias) {
  if (!bias.defined()) {
    torch::Tensor whole = y;
    at::relu_(whole);
    return;
  }
  Bands(y).each([&](int64_t /*band*/, int64_t first, const kernels::Columns& size) {
    kernels::add_bias(channels_at(y, first), bias.data_ptr(), size, /*relu=*/true, y.scalar_type());
  });
}

// Returns the result and where in their windows its elements lie.
std::pair<torch::Tensor, torch::Tensor> convolve_and_pool(const Geometry& geometry, const MaxPool& pooling,
                                                          const torch::Tensor& x, const torch::Tensor& weight,
                                                          const torch::Tensor& bias, bool relu) {
  const torch::Tensor y = channels_last::empty(pooling.result_sizes(x.size(0)), x.options());
  const torch::Tensor places = channels_last::empty(pooling.result_sizes(x.size(0)), x.options().dtype(torch::kByte));
  each_piece(x.size(0), bytes_of(pooling.image_sizes(1), x), [&](int64_t first, int64_t number) {
    const torch::Tensor images = geometry.convolve(images_of(x, first, number), weight, {}).contiguous(kLast);
    pooling.store(images_of(y, first, number), images_of(places, first, number), images, bias, relu);
  });
  return {y, places};
}

}  // namespace

torch::Tensor fused_convolution(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                                const Window2& window, int64_t groups, const AfterConvolution& after) {
  if (!fits(x, weight, bias, window, groups, after)) return {};
  const PlainOperation operation(PlainOperation::Strided(), x, weight, bias);
  if (!operation.begins()) return {};
  Geometry geometry{.stride = {window.height.stride, window.width.stride},
                    .padding = {window.height.pads(x.size(2)).first, window.width.pads(x.size(3)).first},
                    .dilation = {window.height.dilation, window.width.dilation},
                    .groups = groups};
  torch::Tensor y, places;
  std::optional<MaxPool> pooling;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (after.pooling != nullptr) {
      pooling.emplace(*after.pooling, torch::IntArrayRef({x.size(0), weight.size(0), window.height.output(x.size(2)),
                                                          window.width.output(x.size(3))}));
      std::tie(y, places) = convolve_and_pool(geometry, *pooling, x, weight, bias, after.relu);
    } else {
      y = geometry.convolve(x, weight, after.relu ? torch::Tensor() : bias).contiguous(kLast);
      if (after.relu) rectify(y, bias);
    }
  }
  if (!torch::autograd::compute_requires_grad(x, weight, bias)) return y;
  auto node = compat::make_grad_fn<FusedConvolutionBackward>(torch::autograd::collect_next_edges(x, weight, bias), x,
                                                             weight, std::move(geometry), after.relu);
  torch::autograd::set_history(y, node);
  node->save(y);
  if (pooling) node->save(*pooling, places);
  return y;
}

}  // namespace cohort
