// ParameterShards: parameters of a mirrored module that the replicas share (stage 3 of ShardingOptions). They lie in
// units, a run of memory each, of which a replica keeps its slice alone. An operation that is given a parameter, or a
// view of one that autograd has saved, finds the unit's memory filled: it is gathered in front of the operation, and
// others are freed. The storage stays the same, so that parameters, views and autograd's graph know nothing of it.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/slices.h"
#include "cohort/communicator.h"

namespace cohort {

class DeviceStream;
class StrategyCore;

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

class ParameterShards : public std::enable_shared_from_this<ParameterShards> {
 public:
  // The owners of a unit's slices are the replicas along the axis of the strategy's ShardingOptions. `options` are the
  // dtype and device of each unit on each local replica, [unit][replica]. Slices begin as zeros, on that device or,
  // where a replica offloads its states, in the host's memory. Making it is a collective of all replicas where gathers
  // overlap with work.
  using UnitOptions = std::vector<std::vector<torch::TensorOptions>>;
  ParameterShards(std::shared_ptr<StrategyCore> core, std::vector<ParameterUnit> units, UnitOptions options);
  ParameterShards(const ParameterShards&) = delete;
  ParameterShards& operator=(const ParameterShards&) = delete;
  ~ParameterShards();

  // Returns the shards that a tensor is a part of; null if it is not shared.
  static ParameterShards* of(const torch::Tensor& tensor);
  // Returns a module's parameter with all of its elements, a tensor of its own: `wholes` keeps the units that are there
  // already. A collective of all workers, outside run(), that takes the parameters in the same order.
  using Wholes = std::map<std::pair<const ParameterShards*, std::size_t>, torch::Tensor>;
  static torch::Tensor whole(const torch::Tensor& parameter, Wholes& wholes);

  const std::vector<ParameterUnit>& units() const { return units_; }
  // Makes the flat tensor of a unit, of which a local replica's parameters are views. Called once for each.
  torch::Tensor make_flat(std::size_t unit, int local_id);
  // Returns the slice that a local replica has of a unit.
  const torch::Tensor& shard(std::size_t unit, int local_id) const { return replica(local_id).shards[unit]; }
  // Returns the part of a unit's flat tensor that is a parameter.
  static torch::Tensor view(const torch::Tensor& flat, c10::IntArrayRef shape, c10::IntArrayRef strides,
                            int64_t offset);
  // Returns what tells a unit's storage from others.
  static const void* home(const torch::Tensor& parameter);
  // Returns what a parameter's replica has of it, which are elements of it as it lies in memory; nothing if that is
  // empty. The values are the replica's own memory.
  struct OwnPart {
    Slice elements;
    torch::Tensor values;
  };
  std::optional<OwnPart> own_part(const torch::Tensor& parameter) const;
  // Gives it these values. Outside run().
  void fill_own_part(const torch::Tensor& parameter, const torch::Tensor& values);

  // Gives a replica's slice its part of a value of the parameter. Outside run().
  void fill(const torch::Tensor& parameter, const torch::Tensor& value);
  // Does the same, and keeps the value for spread_from_chief() until parameters are gathered again.
  void load(const torch::Tensor& parameter, const torch::Tensor& value);
  // Gives all replicas' slices their parts of these values, [unit]. Outside run().
  void set(const std::vector<torch::Tensor>& values);
  // Gives all slices on all workers what was loaded on the chief since the last operation. A collective of all workers.
  void spread_from_chief();

  // Fills the memory of these units of a local replica, which stays until unpin(). Inside run(): a collective of the
  // replicas that share, unless they reach each other's memory. FailedPrecondition: outside run(), where it would be
  // one of all workers.
  void pin(std::span<const std::size_t> units, int local_id);
  void unpin(std::span<const std::size_t> units, int local_id);
  // Frees a unit's memory if nobody uses it: its gradients are complete.
  void release(std::size_t unit, int local_id);

  // The slices of a replica may be changed between these two, which are collectives of the replicas that share.
  void begin_update(int local_id);
  void end_update(int local_id);

  // The storage of a unit is gone, and with it the parameters that were its views.
  void forget(std::size_t unit, int local_id);

  // Returns the bytes of a replica's slices, and the most that it had gathered on its device at once in its last step.
  int64_t shard_bytes(int local_id) const;
  int64_t peak_bytes(int local_id) const;

 private:
  friend struct SharedPlace;

  // A unit that is on its way.
  struct Coming {
    std::size_t unit = 0;
    Work<std::vector<torch::Tensor>> work;
  };
  struct Member {
    std::vector<torch::Tensor> shards;        // [unit]
    std::unique_ptr<DeviceStream> stream;     // of the device that copies from them; null where they lie there
    std::vector<torch::Tensor> memory;        // [unit]: undefined where it is not there
    std::vector<c10::StorageImpl*> storages;  // [unit]: null when the parameters are gone
    std::vector<int> pins;                    // [unit]
    std::vector<std::size_t> there;           // units whose memory is filled, the latest last
    std::optional<Coming> coming;
    std::vector<std::size_t> last;                         // the last two units that were gathered
    std::map<std::vector<std::size_t>, std::size_t> next;  // what came after such two
    int64_t bytes = 0;                                     // of the memory that is there
    int64_t peak = 0;
    int64_t last_peak = 0;
  };

  Member& replica(int local_id) { return members_[static_cast<std::size_t>(local_id)]; }
  const Member& replica(int local_id) const { return members_[static_cast<std::size_t>(local_id)]; }
  Communicator& line(int local_id) const;
  int owner(int local_id) const { return line(local_id).rank(); }
  void require_run(std::size_t unit, int local_id) const;
  void gather(std::size_t unit, int local_id);
  std::vector<torch::Tensor> slices(std::size_t unit, int local_id);
  torch::Tensor shard_to_send(std::size_t unit, int local_id) const;
  const torch::TensorOptions& options_of(std::size_t unit, int local_id) const;
  void wait_for_copies() const;
  void begin_next(int local_id);
  void drop_coming(Member& member) const;
  void make_room(int local_id);
  void free(Member& member, std::size_t unit) const;
  void put(std::size_t unit, int local_id, int64_t offset, const torch::Tensor& run);
  torch::Tensor whole(std::size_t unit) const;

  std::shared_ptr<StrategyCore> core_;
  std::vector<ParameterUnit> units_;
  UnitOptions options_;
  std::vector<Member> members_;               // [replica]
  std::vector<std::vector<int>> neighbours_;  // [replica][owner]: local replicas; empty where others are elsewhere
  std::unique_ptr<Communicator> own_end_;     // of gathers that travel while others are used; null where none do
  std::map<std::pair<std::size_t, int64_t>, torch::Tensor> loaded_;  // by unit and offset
};

}  // namespace cohort
