#include "wings/preprocessing/train/adapting.h"

#include "cohort/dataset.h"
#include "cohort/train/layers/preprocessing.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

// Returns what messages call a layer.
std::string called(const Layer& layer) {
  return layer.name().empty() ? std::string(layer.kind().base_name()) : layer.name();
}

std::unique_ptr<Gathering> begin_gathering(const Layer& layer) {
  const auto* const kind = dynamic_cast<const AdaptedKind*>(&layer.kind());
  if (kind != nullptr) return kind->gather(called(layer));
  fail_adapt(called(layer), layer.type(), "this sort of layer learns nothing before training");
}

void add(Gathering& gathering, const Layer& layer, const torch::Tensor& batch) {
  if (!batch.defined() || batch.dim() == 0) {
    fail_adapt(called(layer), layer.type(), "the data are ", batch.defined() ? "a scalar" : "an undefined tensor",
               ", wanted [batch, ...]");
  }
  if (batch.numel() > 0) gathering.add(batch.detach().cpu());
}

}  // namespace

void fail_given(const std::string& who, std::string_view type, std::string_view option) {
  fail<FailedPrecondition>("[layers] ", who, " (", type, "): adapt: the layer was made with ", option,
                           ", so it has nothing to learn");
}

void fail_unadapted(const std::string& who, std::string_view type, std::string_view option) {
  fail<FailedPrecondition>("[layers] ", who, " (", type, "): the layer knows no ", option,
                           "; call adapt() before a model is made of it, or give them");
}

torch::Tensor LayerConstant::beside(const torch::Tensor& like) const {
  if (like.device() == value_.device()) return value_;
  const std::lock_guard lock(mutex_);
  torch::Tensor& copy = copies_[like.device().str()];
  if (!copy.defined()) copy = value_.to(like.device());
  return copy;
}

void AdaptedLayer::adapt(const torch::Tensor& batch) {
  const std::unique_ptr<Gathering> gathering = begin_gathering(*this);
  add(*gathering, *this, batch);
  Layer::operator=(Layer(gathering->learned(), name(), trainable()));
}

void AdaptedLayer::adapt(const Dataset& batches) {
  const std::unique_ptr<Gathering> gathering = begin_gathering(*this);
  const auto require = [&](bool fits, const char* came, const char* wanted) {
    if (!fits) fail_adapt(called(*this), type(), "the dataset ", came, ", wanted ", wanted);
  };
  require(batches.is_batched(), "has elements that are no batches", "batch() at its end");
  require(batches.cardinality() != kInfiniteCardinality, "has no end", "take(), or no repeat()");
  for (const Example& batch : batches) {
    require(batch.inputs.size() < 2, "has several inputs", "map() to the one that the layer gets");
    add(*gathering, *this, batch.input());
  }
  Layer::operator=(Layer(gathering->learned(), name(), trainable()));
}

namespace {

// The module that apply_layer() makes at its first call.
struct AppliedLayer {
  std::once_flag made;
  std::shared_ptr<LayerModule> module;
};

}  // namespace

std::function<torch::Tensor(const torch::Tensor&)> apply_layer(const Layer& layer) {
  return [layer, applied = std::make_shared<AppliedLayer>()](const torch::Tensor& x) {
    if (!x.defined() || x.dim() == 0 || !x.is_cpu()) {
      fail_called(called(layer), layer.type(), x, "[batch, ...] on the CPU");
    }
    std::call_once(applied->made, [&] {
      const torch::ScalarType dtype = x.is_floating_point() ? x.scalar_type() : torch::kFloat;
      const BuildContext context{
          .name = called(layer), .input = x.sizes().slice(1).vec(), .dtype = dtype, .input_dtype = x.scalar_type()};
      static_cast<void>(layer.kind().output_shape(context));
      std::shared_ptr<LayerModule> module = layer.kind().build(context);
      module->eval();
      if (!module->parameters().empty()) {
        fail<InvalidArgument>("[layers] ", called(layer), " (", layer.type(),
                              "): apply_layer: the layer has parameters, wanted one without");
      }
      applied->module = std::move(module);
    });
    const torch::NoGradGuard no_grad;
    return applied->module->forward(x);
  };
}

}  // namespace cohort
