// ParameterLayout: which parameters of a mirrored module the replicas have parts of, and how a whole becomes parts and
// parts a whole. A replica is named by its local number.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/device_mesh.h"
#include "cohort/parallel/axes.h"
#include "strategy/core.h"

namespace cohort {

// A parameter that is cut into equal parts, one for each replica of a line along an axis.
struct ParameterCut {
  std::string axis;
  int64_t dim = 0;   // the dimension that is cut
  int parts = 1;     // the size of the axis
  int64_t runs = 1;  // of the dimension, each of which is cut by itself: parameters that are several
  // Whether lines along the axis go through several processes, so that no process has all parts.
  bool crosses = false;
};

class ParameterLayout {
 public:
  // Nothing is cut.
  ParameterLayout() = default;
  // Takes the cuts by the names of the parameters.
  ParameterLayout(std::shared_ptr<const StrategyCore> core, std::map<std::string, ParameterCut> cuts)
      : core_(std::move(core)), cuts_(std::move(cuts)) {}

  // Returns the cut of a parameter, by the first of its names; null for one that every replica has whole.
  const ParameterCut* find(const std::string& parameter) const;
  bool cuts_any() const { return !cuts_.empty(); }
  // Returns the cuts by the names of the parameters.
  const std::map<std::string, ParameterCut>& cuts() const { return cuts_; }

  // Returns the sizes of a whole of which a replica's part has these.
  std::vector<int64_t> whole_sizes(const std::string& parameter, torch::IntArrayRef part) const;
  // Returns a replica's part of a tensor of a whole parameter's shape: all of it if nothing is cut.
  torch::Tensor part(const std::string& parameter, const torch::Tensor& whole, int local_id) const;
  // Returns a whole of the parts that `part_of` returns for local replicas; that of replica 0 itself if nothing is cut.
  // Where no process has all parts it is a collective of all workers, in cross-replica context.
  torch::Tensor whole(const std::string& parameter, const std::function<torch::Tensor(int local_id)>& part_of) const;
  // Returns the chief's whole, on all workers: a collective of them.
  torch::Tensor chiefs_whole(const std::string& parameter,
                             const std::function<torch::Tensor(int local_id)>& part_of) const;
  // Returns whether no process has all parts of some parameter.
  bool crosses_processes() const;

 private:
  static torch::Tensor in_runs(const torch::Tensor& parts, const ParameterCut& cut);

  std::shared_ptr<const StrategyCore> core_;
  std::map<std::string, ParameterCut> cuts_;
};

// Says in a plan that replicas have parts of parameters, as a layout has them on a mesh. InvalidArgument: an axis of
// one does not fit the other; see MeshOptions::layout. The wing that divides models adds one (base/extension.h).
struct ModelDivider {
  void (*divide)(StrategyPlan& plan, const DeviceMesh& mesh, const LayoutMap& layout);
};

}  // namespace cohort
