// Batch norm, whose statistics are those of all parts, and layer norm, whose statistics are of dimensions that are
// whole.
#include <ATen/Functions.h>

#include "strategy/sync_batch_norm.h"
#include "wings/mesh/strategy/space/rules.h"

namespace cohort::space {

namespace {

void call_batch_norm(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  const Layout layout = layout_of(x);
  if (x.dim() < 2 || layout.is_cut(1)) call.refuse("its channels, dimension 1, have to be whole");
  for (const std::size_t i : {1u, 2u}) call[i] = shared(call.tensor(i), layout);
  const bool learns = call[5].toBool();
  if (!learns) {
    call[0] = part_of(x);
    call.forward();
    return call.divide_results(layout);
  }
  const SyncBatchNormArgs args{.weight = call.tensor(1),
                               .bias = call.tensor(2),
                               .running_mean = call.tensor(3),
                               .running_var = call.tensor(4),
                               .momentum = call[6].toDouble(),
                               .epsilon = call[7].toDouble()};
  call.finish({make_divided(sync_batch_norm(part_of(x), args, {layout.grid.line}), layout)});
}

void call_layer_norm(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  if (!is_divided(x)) call.refuse("its weights are cut");
  const Layout layout = layout_of(x);
  const int64_t first = x.dim() - static_cast<int64_t>(call[1].toIntVector().size());
  for (const int64_t dim : layout.cut_dims()) {
    if (dim >= first) call.refuse(c10::str("the dimensions that it norms, from ", first, " on, have to be whole"));
  }
  call[0] = part_of(x);
  for (const char* name : {"weight", "bias"}) {
    if (const auto at = call.find(name)) call[*at] = shared(call.tensor(*at), layout);
  }
  call.forward();
  call.divide_results(layout);
}

}  // namespace

void add_norm_rules(Rules& rules) {
  rules["batch_norm"] = call_batch_norm;
  rules["layer_norm"] = rules["rms_norm"] = call_layer_norm;
}

}  // namespace cohort::space
