#include "step/update/cut_lines.h"

#include <ATen/Functions.h>

namespace cohort {

CutLines::CutLines(const StrategyCore& core, const FlatParameters& flat) : core_(core), flat_(flat) {
  for (int r = 0; r < core.num_local_replicas(); ++r) {
    auto& lines = lines_.emplace_back();
    std::vector<CutAxis>& axes = axes_.emplace_back();
    for (const Axis& axis : core.topology().axes()) {
      Communicator& line = core.group(axis.name, r);
      lines[axis.name] = [&line](torch::Tensor& numbers) { line.all_reduce({&numbers, 1}, ReduceOp::kSum); };
      std::vector<char> is_cut(flat.parameters().size(), 0);
      for (std::size_t p = 0; p < is_cut.size(); ++p) {
        const ParameterCut* cut = flat.layout().find(flat.parameters()[p].name);
        is_cut[p] = static_cast<char>(cut != nullptr && cut->axis == axis.name);
      }
      const torch::Tensor cuts = torch::from_blob(is_cut.data(), {static_cast<int64_t>(is_cut.size())}, torch::kChar);
      if (!cuts.any().item<bool>()) continue;
      const torch::Device device = flat.groups().front().copies[static_cast<std::size_t>(r)].device();
      axes.push_back({axis.name, cuts.to(torch::kBool).to(device)});
    }
  }
}

TensorUpdate::Cut CutLines::cut_of(int local_id, std::size_t parameter) const {
  const ParameterCut* cut = flat_.layout().find(flat_.parameters()[parameter].name);
  if (cut == nullptr) return {};
  return {.add_up = &lines_[static_cast<std::size_t>(local_id)].at(cut->axis), .dim = cut->dim, .parts = cut->parts};
}

void CutLines::add_up(int local_id, torch::Tensor& numbers) const {
  for (const CutAxis& axis : axes_[static_cast<std::size_t>(local_id)]) {
    torch::Tensor whole = numbers.clone();
    lines_[static_cast<std::size_t>(local_id)].at(axis.name)(whole);
    const torch::Tensor rows = whole.view({-1, axis.is_cut.numel()});
    numbers = at::where(axis.is_cut, rows, numbers.view(rows.sizes())).view(numbers.sizes());
  }
}

}  // namespace cohort
