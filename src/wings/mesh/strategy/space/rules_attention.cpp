// LibTorch's own attention, under its names before and since 2.0.
#include <ATen/Functions.h>

#include <cmath>

#include "wings/mesh/strategy/space/attention.h"
#include "wings/mesh/strategy/space/rules.h"

namespace cohort::space {

namespace {

// Queries, keys and values are [examples, steps, size] or [examples, heads, steps, size].
void call_attention(DividedCall& call) {
  const auto flag = [&](const char* name) {
    const auto at = call.find(name);
    return at && call[*at].isBool() && call[*at].toBool();
  };
  const torch::Tensor query = call.tensor(0);
  if (!is_divided(query)) return call_whole(call);
  if (query.dim() != 3 && query.dim() != 4) call.refuse("attention takes 3 or 4 dimensions");
  if (flag("need_attn_weights") || flag("enable_gqa")) {
    call.refuse("it has to return weights (need_attn_weights), or repeats heads (enable_gqa)");
  }
  const auto by_heads = [&](const torch::Tensor& x) { return x.dim() == 4 ? x : x.unsqueeze(1); };
  AttentionArgs args{.query = by_heads(query),
                     .key = by_heads(call.tensor(1)),
                     .value = by_heads(call.tensor(2)),
                     .who = call.short_name(),
                     .scale = 1.0 / std::sqrt(static_cast<double>(query.size(-1))),
                     .causal = flag("is_causal")};
  const auto scale = call.find("scale");
  if (scale && !call[*scale].isNone()) args.scale = call[*scale].toDouble();
  args.dropout = call[call.find("dropout_p").value()].toDouble();
  torch::Tensor mask = call.tensor(call.find("attn_mask").value());
  if (mask.defined()) {
    if (query.dim() == 3 && mask.dim() == 3) mask = mask.unsqueeze(1);
    while (mask.dim() < 4) mask = mask.unsqueeze(0);
    args.masks = {mask};
  }
  const torch::Tensor mixed = attend(args);
  const torch::Tensor result = query.dim() == 4 ? mixed : mixed.squeeze(1);
  // Before 2.0 the weights are the second result; without need_attn_weights there are none.
  if (call.find("need_attn_weights")) return call.finish({result, torch::Tensor()});
  call.finish({result});
}

}  // namespace

void add_attention_rules(Rules& rules) {
  rules["scaled_dot_product_attention"] = rules["_scaled_dot_product_attention"] = call_attention;
}

}  // namespace cohort::space
