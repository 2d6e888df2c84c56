// The comparison of a module's copies. What is compared are checksums, so that little has to be sent.
#include <algorithm>
#include <map>
#include <sstream>

#include "base/access.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "cohort/mirrored.h"
#include "device/host_memory.h"
#include "strategy/core.h"
#include "strategy/holders.h"
#include "strategy/module_tensors.h"
#include "strategy/parameter_layout.h"
#include "strategy/shared_parameters.h"

namespace cohort {

namespace {

using Sums = std::vector<uint32_t>;  // of the parameters of one replica

Sums sums_of(const torch::nn::Module& copy, const ParameterLayout& layout, bool staged) {
  Sums sums;
  for (const ModuleTensor& parameter : distinct_parameters(copy)) {
    if (SharedParameters::of(parameter.tensor) != nullptr || layout.find(parameter.name) != nullptr || staged) {
      sums.push_back(0);  // of which there is one copy, or which others have another part of
      continue;
    }
    const torch::Tensor here = parameter.tensor.detach().cpu();
    sums.push_back(crc32c(host_bytes(here.is_non_overlapping_and_dense() ? here : here.contiguous())));
  }
  return sums;
}

// Returns what each replica has, in the order of all replicas.
std::vector<Sums> gather(const StrategyCore& core, const std::vector<Sums>& mine) {
  std::ostringstream text;
  for (const Sums& sums : mine) {
    text << sums.size() << ' ';
    for (const uint32_t sum : sums) text << sum << ' ';
  }
  std::vector<Sums> all;
  for (const std::string& told : core.gather_texts(text.str())) {
    std::istringstream in(told);
    for (std::size_t count = 0; in >> count;) {
      Sums& sums = all.emplace_back();
      for (uint32_t sum = 0; sums.size() < count && in >> sum;) sums.push_back(sum);
    }
  }
  return all;
}

// Returns the replicas that do not have what most of them have; empty: there is no such majority.
std::vector<std::size_t> minority(const std::vector<Sums>& all) {
  std::map<Sums, std::size_t> counts;
  for (const Sums& sums : all) ++counts[sums];
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<std::size_t> others;
  if (2 * most->second <= all.size()) return others;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != most->first) others.push_back(i);
  }
  return others;
}

// `begin` is the number of the first replica among those of all workers.
[[noreturn]] void raise_difference(const StrategyCore& core, const torch::nn::Module& copy,
                                   const std::vector<Sums>& all, std::size_t begin) {
  std::vector<std::size_t> others = minority(all);
  const bool known = !others.empty();
  const std::size_t right = [&] {
    std::size_t i = 0;
    while (std::find(others.begin(), others.end(), i) != others.end()) ++i;
    return i;
  }();
  if (!known) {
    for (std::size_t i = 1; i < all.size(); ++i) {
      if (all[i] != all[right]) others.push_back(i);
    }
  }
  const Sums& first = all[others.front()];
  const auto place = static_cast<std::size_t>(
      std::mismatch(first.begin(), first.end(), all[right].begin(), all[right].end()).first - first.begin());
  const std::vector<ModuleTensor> parameters = distinct_parameters(copy);
  std::string names;
  for (const std::size_t i : others) {
    const auto local = static_cast<std::size_t>(core.num_local_replicas());
    names += c10::str(names.empty() ? "" : ", ", begin + i, " (worker ", (begin + i) / local, ")");
  }
  fail<DataLoss>(
      "[strategy] the parameters of replica ", names, " differ from those of ",
      known ? "most of the other replicas" : c10::str("replica ", begin + right, ", and nobody knows which are right"),
      ", first in \"", place < parameters.size() ? parameters[place].name : "",
      "\": memory or a device is faulty, the machines round in different ways, or the program changes "
      "parameters on one replica alone; go on from a checkpoint of before");
}

}  // namespace

void compare_copies(const MirroredModule& module) {
  if (!module.defined()) fail<InvalidArgument>("[strategy] compare_copies: the handle refers to no module");
  const StrategyCore& core = *Access::core(module);
  if (core.joins()) return;
  std::vector<Sums> mine;
  for (const auto& copy : module.copies()) mine.push_back(sums_of(*copy, *Access::layout(module), has_stages(core)));
  // Workers that make updates of their own differ.
  const bool apart = core.plan().local_sgd.sync_every > 0;
  const std::vector<Sums> all = apart ? mine : gather(core, mine);
  const bool same = std::all_of(all.begin(), all.end(), [&](const Sums& sums) { return sums == all.front(); });
  const auto begin = static_cast<std::size_t>(apart ? core.replica_id(0) : 0);
  if (!same) raise_difference(core, *module.copies().front(), all, begin);
}

}  // namespace cohort
