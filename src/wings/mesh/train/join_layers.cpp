#include <memory>
#include <vector>

#include "cohort/parallel/axes.h"
#include "train/layers/dropout_module.h"
#include "train/layers/layered_module.h"
#include "wings/mesh/train/draw_part.h"
#include "wings/mesh/train/parts_form.h"

namespace cohort {

namespace {

using Parts = PartsForm::Parts;

// Dropout of parts, whose numbers are those of the whole.
class DropoutForm final : public LayerForm {
 public:
  DropoutForm(const DropoutModule& layer, const PartsForm& maker)
      : layer_(layer), axis_(maker.axis()), dim_(maker.dim()) {}
  torch::Tensor forward(const torch::Tensor& x) override { return drop_out_part(x, layer_.rate(), axis_, dim_); }

 private:
  const DropoutModule& layer_;
  std::string axis_;
  int64_t dim_;
};

// A layer of a sequence.
struct Member {
  LayerModule* layer;
  FormedLayer* formed;  // the same; null: it can have no form
  PartsForm* form;      // null: it has none with parts

  explicit Member(LayerModule& module)
      : layer(&module),
        formed(dynamic_cast<FormedLayer*>(layer)),
        form(formed == nullptr ? nullptr : dynamic_cast<PartsForm*>(formed->form())) {}

  Parts parts() const {
    if (form != nullptr) return form->parts();
    const DependsOn part = layer->depends_on();
    return part == DependsOn::kElement   ? Parts::kPasses
           : part == DependsOn::kChannel ? Parts::kPassesChannels
                                         : Parts::kNone;
  }
  // Returns whether the layer passes the parts that the maker makes.
  bool passes_those_of(const PartsForm& maker) const {
    const bool passes = parts() == Parts::kPasses || (parts() == Parts::kPassesChannels && maker.dim() == 1);
    return passes && (form == nullptr || form->axis() == maker.axis());
  }
  bool takes_those_of(const PartsForm& maker) const {
    return parts() == Parts::kTakes && form->axis() == maker.axis() && form->dim() == maker.dim();
  }
  void stay_in_parts(const PartsForm& maker) const {
    if (form != nullptr) form->stay_in_parts();
    if (auto* pooling = dynamic_cast<CountsChannels*>(layer)) pooling->divide_channels(maker.size());
    if (auto* dropout = dynamic_cast<DropoutModule*>(layer)) {
      dropout->take_form(std::make_unique<DropoutForm>(*dropout, maker));
    }
  }
};

void join_sequence(const std::vector<std::shared_ptr<LayerModule>>& layers) {
  std::vector<Member> members;
  for (const auto& layer : layers) members.emplace_back(*layer);
  for (std::size_t first = 0; first < members.size(); ++first) {
    if (members[first].parts() != Parts::kMakes) continue;
    const PartsForm& maker = *members[first].form;
    std::size_t last = first + 1;
    while (last < members.size() && members[last].passes_those_of(maker)) ++last;
    if (last == members.size() || !members[last].takes_those_of(maker)) continue;
    for (std::size_t i = first; i <= last; ++i) members[i].stay_in_parts(maker);
  }
}

}  // namespace

torch::Tensor PartsForm::given(const torch::Tensor& part) const {
  if (in_parts_) return part;
  return ends_ && parts() == Parts::kMakes ? parts_along(part, axis_, dim_) : gather_along(part, axis_, dim_);
}

void join_layers(torch::nn::Module& module) {
  for (const auto& each : module.modules(/*include_self=*/true)) {
    const auto* const layers = dynamic_cast<const LayerChains*>(each.get());
    if (layers == nullptr) continue;
    for (const auto& chain : layers->chains()) join_sequence(chain);
  }
}

}  // namespace cohort
