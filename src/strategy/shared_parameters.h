// SharedParameters: parameters of a mirrored module of which each replica keeps slices alone (stage 3 of
// ShardingOptions). They lie in units, each of which is a run of memory. The wing that shares parameters derives from
// it; the core finds it by a parameter's storage.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/slices.h"

namespace cohort {

// A unit: parameters of one dtype, one after the other, and the cuts between the slices of those who share them.
struct ParameterUnit {
  // A parameter in its place.
  struct Part {
    std::string name;
    int64_t offset = 0;
    int64_t size = 0;
  };
  int64_t size = 0;  // elements
  std::vector<int64_t> cuts;
  std::vector<Part> parts;

  Slice slice(int owner) const {
    return {cuts[static_cast<std::size_t>(owner)], cuts[static_cast<std::size_t>(owner) + 1]};
  }
};

class SharedParameters {
 public:
  virtual ~SharedParameters() = default;
  SharedParameters(const SharedParameters&) = delete;
  SharedParameters& operator=(const SharedParameters&) = delete;

  // Returns those that a tensor is a part of; null if it is not shared.
  static SharedParameters* of(const torch::Tensor& tensor);
  // Returns what tells a unit's storage from others.
  static const void* home(const torch::Tensor& parameter);
  // Returns a parameter of a local replica with all of its elements, a tensor of its own: `wholes` keeps the units that
  // are there already, [local replica]. A collective of all workers, outside run(), that takes the parameters in the
  // same order.
  using Wholes = std::map<std::pair<const SharedParameters*, std::size_t>, std::vector<torch::Tensor>>;
  static torch::Tensor whole(const torch::Tensor& parameter, Wholes& wholes);

  const std::vector<ParameterUnit>& units() const { return units_; }
  // Makes the flat tensor of a unit, of which a local replica's parameters are views. Called once for each.
  virtual torch::Tensor make_flat(std::size_t unit, int local_id) = 0;
  // Returns the part of a unit's flat tensor that is a parameter.
  virtual torch::Tensor view(const torch::Tensor& flat, c10::IntArrayRef shape, c10::IntArrayRef strides,
                             int64_t offset) const = 0;

  // Returns what a parameter's replica has of it, which are elements of it as it lies in memory; nothing if that is
  // empty. The values are the replica's own memory.
  struct OwnPart {
    Slice elements;
    torch::Tensor values;
  };
  virtual std::optional<OwnPart> own_part(const torch::Tensor& parameter) const = 0;
  // Gives it these values. Outside run().
  virtual void fill_own_part(const torch::Tensor& parameter, const torch::Tensor& values) = 0;
  // Gives a replica's slice its part of a value of the parameter. Outside run().
  virtual void fill(const torch::Tensor& parameter, const torch::Tensor& value) = 0;
  // Does the same, and keeps the value for spread_from_chief() until parameters are gathered again.
  virtual void load(const torch::Tensor& parameter, const torch::Tensor& value) = 0;
  // Does the same with the part of a parameter that the replica's line has (ParameterLayout), for loaded_part().
  virtual void load_part(const torch::Tensor& parameter, const torch::Tensor& part) = 0;
  // Returns what load_part() gave a replica, until parameters are gathered again; undefined: nothing.
  virtual torch::Tensor loaded_part(const torch::Tensor& parameter) const = 0;
  // Gives all slices on all workers what was loaded on the chief since the last operation. A collective of all workers.
  virtual void spread_from_chief() = 0;

  // The context of the pointer of a unit's storage, by which the unit is found.
  struct Place {
    std::shared_ptr<SharedParameters> shared;
    std::size_t unit = 0;
    int local_id = 0;

    // Deletes the context when the storage is gone.
    static void release(void* place);
    // Returns the place of a tensor's storage; null if it is another one.
    static const Place* of(const torch::Tensor& tensor);
  };

 protected:
  explicit SharedParameters(std::vector<ParameterUnit> units) : units_(std::move(units)) {}

  // Returns all elements of a unit, [local replica]. A collective of all workers.
  virtual std::vector<torch::Tensor> whole_unit(std::size_t unit) const = 0;
  // Takes notice that a unit's storage is gone, and with it the parameters that were its views.
  virtual void forget(std::size_t unit, int local_id) = 0;

  std::vector<ParameterUnit> units_;
};

}  // namespace cohort
