// A part is made for the shape that comes to it: the constructor sends a probe of zeros through what there is so far.
#include "tests/differ/net.h"

namespace cohort::differ {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;

constexpr int64_t kEmbedded = 6;

Tensor activate(int64_t which, bool in_place, Tensor x) {
  switch (which) {
    case 1:
      return in_place ? torch::relu_(x) : torch::relu(x);
    case 2:
      return torch::gelu(x);
    case 3:
      return in_place ? torch::silu_(x) : torch::silu(x);
    case 4:
      return in_place ? x.tanh_() : torch::tanh(x);
    case 5:
      return in_place ? x.sigmoid_() : torch::sigmoid(x);
    case 6:
      return F::softplus(x);
    case 7:
      return in_place ? torch::elu_(x) : torch::elu(x);
    case 8:
      return F::mish(x);
    case 9:
      return torch::hardswish(x);
    case 10:
      return in_place ? torch::leaky_relu_(x, 0.1) : torch::leaky_relu(x, 0.1);
    case 11:
      return torch::log_sigmoid(x);
    default:
      return torch::softmax(x, 1);
  }
}

Tensor pool(int64_t which, at::IntArrayRef kernel, const Tensor& x) {
  const std::vector<int64_t> window = {std::min(kernel[0], x.size(2)), std::min(kernel[1], x.size(3))};
  switch (which % 5) {
    case 0:
      return torch::max_pool2d(x, window, /*stride=*/{1, 2});
    case 1:
      return torch::avg_pool2d(x, window, /*stride=*/{1, 1}, {0, 0}, false, /*count_include_pad=*/false);
    case 2:
      return torch::adaptive_avg_pool2d(x, window);
    case 3:
      return std::get<0>(torch::adaptive_max_pool2d(x, window));
    default:
      return x.mean({2, 3}, /*keepdim=*/true);
  }
}

}  // namespace

NetImpl::NetImpl(const NetSpec& spec, bool plain) : spec_(spec), plain_(plain) {
  if (spec.input.kind == Input::kTokens) {
    embedding_ = register_module(
        "embedding",
        torch::nn::Embedding(torch::nn::EmbeddingOptions(Input::kWords, kEmbedded).sparse(spec.input.sparse)));
    embedding_->to(torch::kDouble);
  }
  const torch::NoGradGuard none;
  Tensor probe = spec.input.draw(2, torch::kDouble);
  if (embedding_) probe = embedding_->forward(probe);
  for (const Part& part : spec.parts) {
    made_.push_back({part, {}, {}});
    make(made_.back(), probe);
    probe = apply(made_.back(), probe.clone());
  }
  head_ = register_module("head", torch::nn::Linear(probe.numel() / probe.size(0), kNetClasses));
  to(torch::kDouble);
}

void NetImpl::own(Made& made, std::shared_ptr<torch::nn::Module> module) {
  module->to(torch::kDouble);
  for (auto& parameter : module->parameters()) {
    parameter.set_requires_grad(!made.part.frozen);
    if (parameter.dim() == 4 && made.part.channels_last && !plain_) {
      parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
    }
  }
  register_module(c10::str("part_", made_.size() - 1, "_", made.modules.size()), module);
  made.modules.push_back(std::move(module));
}

Tensor NetImpl::own(Made& made, at::IntArrayRef sizes) {
  const std::string name = c10::str("part_", made_.size() - 1, "_own_", made.parameters.size());
  made.parameters.push_back(register_parameter(name, 0.5 * torch::randn(sizes, torch::kDouble), !made.part.frozen));
  return made.parameters.back();
}

void NetImpl::make(Made& made, const Tensor& probe) {
  const Part& part = made.part;
  const bool images = probe.dim() == 4;
  const int64_t last = probe.size(-1);
  const int64_t channels = probe.size(1);
  const int64_t groups = part.grouped && channels % 2 == 0 ? channels / 2 : 1;
  const auto convolution = [&](int64_t out, int64_t dilation) {
    const int64_t kernel[2] = {std::min(part.kernel[0], (probe.size(2) + dilation - 1) / dilation),
                               std::min(part.kernel[1], (probe.size(3) + dilation - 1) / dilation)};
    return std::make_shared<torch::nn::Conv2dImpl>(torch::nn::Conv2dOptions(channels, out, {kernel[0], kernel[1]})
                                                       .stride(1 + part.stride % 2)
                                                       .dilation(dilation)
                                                       .padding({kernel[0] / 2 * dilation, 0})
                                                       .groups(groups)
                                                       .bias(part.bias));
  };
  switch (part.kind) {
    case PartKind::kLinear:
      return own(made, std::make_shared<torch::nn::LinearImpl>(
                           torch::nn::LinearOptions(last, 2 * part.width).bias(part.bias)));
    case PartKind::kConv:
      if (images) own(made, convolution(2 * part.width * groups, part.dilation));
      return;
    case PartKind::kTransposed:
      if (!images || probe.size(2) * probe.size(3) > 100) return;
      return own(made, std::make_shared<torch::nn::ConvTranspose2dImpl>(
                           torch::nn::ConvTranspose2dOptions(channels, 2 * part.width, {part.kernel[0], part.kernel[1]})
                               .stride(1 + part.stride % 2)
                               .bias(part.bias)));
    case PartKind::kLayerNorm:
      return own(made, std::make_shared<torch::nn::LayerNormImpl>(torch::nn::LayerNormOptions({last})));
    case PartKind::kGroupNorm:
      return own(made, std::make_shared<torch::nn::GroupNormImpl>(torch::nn::GroupNormOptions(groups, channels)));
    case PartKind::kBranches:
      if (!images) return;
      own(made, convolution(2 * part.width * groups, 1));
      return own(made, convolution(2 * groups, 1));
    case PartKind::kResidual:
    case PartKind::kTwice:
      return own(made, std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(last, last).bias(part.bias)));
    case PartKind::kTied:
      own(made, {2 * part.width, last});
      return;
    case PartKind::kUnused:
      own(made, {2 * part.width, 3});
      return;
    case PartKind::kScale:
      own(made, {last});
      return;
    case PartKind::kGru:
      if (probe.dim() != 3) return;
      return own(made,
                 std::make_shared<torch::nn::GRUImpl>(torch::nn::GRUOptions(last, 2 * part.width).batch_first(true)));
    default:
      return;
  }
}

Tensor NetImpl::convolve(Made& made, const Tensor& x) {
  if (made.modules.empty()) return x;
  if (made.part.kind == PartKind::kTransposed) return made.modules[0]->as<torch::nn::ConvTranspose2dImpl>()->forward(x);
  Tensor y = made.modules[0]->as<torch::nn::Conv2dImpl>()->forward(x);
  if (made.part.kind == PartKind::kConv) return y;
  return torch::cat({y, torch::tanh(made.modules[1]->as<torch::nn::Conv2dImpl>()->forward(x))}, 1);
}

Tensor NetImpl::apply(Made& made, const Tensor& x) {
  const Part& part = made.part;
  const auto linear = [&](const Tensor& in) { return made.modules[0]->as<torch::nn::LinearImpl>()->forward(in); };
  switch (part.kind) {
    case PartKind::kLinear:
      return linear(x);
    case PartKind::kConv:
    case PartKind::kTransposed:
    case PartKind::kBranches:
      return convolve(made, x);
    case PartKind::kActivation:  // in place on a product of its own: the gradient of the part before needs what came
      return activate(part.stride, part.in_place && !plain_, part.in_place ? x * 0.5 : x);
    case PartKind::kPool:
      return x.dim() == 4 ? pool(part.stride, part.kernel, x) : x;
    case PartKind::kLayerNorm:
      return made.modules[0]->as<torch::nn::LayerNormImpl>()->forward(x);
    case PartKind::kGroupNorm:
      return made.modules[0]->as<torch::nn::GroupNormImpl>()->forward(x);
    case PartKind::kResidual:
      return x + torch::tanh(linear(x));
    case PartKind::kTwice:
      return linear(torch::tanh(linear(x)));
    case PartKind::kTied:
      return torch::matmul(torch::tanh(torch::matmul(x, made.parameters[0].t())), made.parameters[0]);
    case PartKind::kUpsample:
      if (x.dim() != 4 || x.size(2) * x.size(3) > 100) return x;
      return torch::upsample_nearest2d(x, std::vector<int64_t>{x.size(2) * part.kernel[0], x.size(3) * part.kernel[1]});
    case PartKind::kLayout:
      if (plain_ || x.dim() != 4) return x;
      return x.contiguous(part.channels_last ? torch::MemoryFormat::ChannelsLast : torch::MemoryFormat::Contiguous);
    case PartKind::kScale:
      return x * made.parameters[0];
    case PartKind::kGru:
      return made.modules.empty() ? x : std::get<0>(made.modules[0]->as<torch::nn::GRUImpl>()->forward(x));
    default:
      return x;
  }
}

Tensor NetImpl::forward(Tensor x) {
  if (embedding_) x = embedding_->forward(x);
  for (Made& made : made_) {
    x = apply(made, x);
    if (plain_) x = x.contiguous();
  }
  return head_->forward(x.flatten(1));
}

}  // namespace cohort::differ
