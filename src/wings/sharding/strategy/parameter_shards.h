// ParameterShards: parameters of a mirrored module that the replicas share (stage 3 of ShardingOptions). They lie in
// units, a run of memory each, of which a replica keeps its slice alone. An operation that is given a parameter, or a
// view of one that autograd has saved, finds the unit's memory filled: it is gathered in front of the operation, and
// others are freed. The storage stays the same, so that parameters, views and autograd's graph know nothing of it.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "cohort/communicator.h"
#include "strategy/shared_parameters.h"

namespace cohort {

class DeviceStream;
class StrategyCore;

class ParameterShards final : public SharedParameters, public std::enable_shared_from_this<ParameterShards> {
 public:
  // The owners of a unit's slices are the replicas along the axis of the strategy's ShardingOptions. `options` are the
  // dtype and device of each unit on each local replica, [unit][replica]. Slices begin as zeros, on that device or,
  // where a replica offloads its states, in the host's memory. Making it is a collective of all replicas where gathers
  // overlap with work.
  using UnitOptions = std::vector<std::vector<torch::TensorOptions>>;
  ParameterShards(std::shared_ptr<StrategyCore> core, std::vector<ParameterUnit> units, UnitOptions options);
  ~ParameterShards() override;

  torch::Tensor make_flat(std::size_t unit, int local_id) override;
  torch::Tensor view(const torch::Tensor& flat, c10::IntArrayRef shape, c10::IntArrayRef strides,
                     int64_t offset) const override;
  std::optional<OwnPart> own_part(const torch::Tensor& parameter) const override;
  void fill_own_part(const torch::Tensor& parameter, const torch::Tensor& values) override;
  void fill(const torch::Tensor& parameter, const torch::Tensor& value) override;
  void load(const torch::Tensor& parameter, const torch::Tensor& value) override;
  void load_part(const torch::Tensor& parameter, const torch::Tensor& part) override;
  torch::Tensor loaded_part(const torch::Tensor& parameter) const override;
  void spread_from_chief() override;

  // Returns the slice that a local replica has of a unit.
  const torch::Tensor& shard(std::size_t unit, int local_id) const { return replica(local_id).shards[unit]; }
  // Gives a replica's slices their parts of these values, [unit]. Outside run().
  void set(int local_id, const std::vector<torch::Tensor>& values);

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

  // Returns the bytes of a replica's slices, and the most that it had gathered on its device at once in its last step.
  int64_t shard_bytes(int local_id) const;
  int64_t peak_bytes(int local_id) const;

 private:
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
  std::vector<torch::Tensor> whole_unit(std::size_t unit) const override;
  void forget(std::size_t unit, int local_id) override;

  std::shared_ptr<StrategyCore> core_;
  UnitOptions options_;
  std::vector<Member> members_;               // [replica]
  std::vector<std::vector<int>> neighbours_;  // [replica][owner]: local replicas; empty where others are elsewhere
  std::unique_ptr<Communicator> own_end_;     // of gathers that travel while others are used; null where none do
  std::map<std::pair<std::size_t, int64_t>, torch::Tensor> loaded_;              // by unit and offset
  std::map<std::tuple<int, std::size_t, int64_t>, torch::Tensor> loaded_parts_;  // by replica, unit and offset
};

}  // namespace cohort
