// One thread calls NCCL for all devices at once, in a group, as NCCL wants it of one that has several; but for sums in
// graphs, which each device's thread captures. CUDA's side streams (device/torch_side_streams.cpp) call at once what is
// begun on them, within the group. NCCL gets pointers into tensors.
#include "wings/cuda/collective/nccl/nccl_link.h"

#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/fail.h"

namespace cohort {

namespace {

void require(ncclResult_t result, const char* call, ncclComm_t communicator = nullptr) {
  if (result == ncclSuccess) return;
  fail<Unavailable>("[collective] nccl: ", call, ": ", ncclGetErrorString(result), "; ",
                    ncclGetLastError(communicator));
}

ncclDataType_t type_of(torch::ScalarType dtype) {
  switch (dtype) {
    case torch::kFloat:
      return ncclFloat32;
    case torch::kDouble:
      return ncclFloat64;
    case torch::kHalf:
      return ncclFloat16;
    case torch::kBFloat16:
      return ncclBfloat16;
    case torch::kLong:
      return ncclInt64;
    case torch::kInt:
      return ncclInt32;
    case torch::kChar:
      return ncclInt8;
    case torch::kByte:
    case torch::kBool:
      return ncclUint8;
    default:
      fail<InvalidArgument>("[collective] nccl: all_reduce does not add up ", c10::toString(dtype));
  }
}

class NcclLink final : public DeviceLink {
 public:
  explicit NcclLink(const std::vector<torch::Device>& devices) : communicators_(devices.size()) {
    std::vector<int> numbers;
    for (const torch::Device device : devices) numbers.push_back(device.index());
    require(ncclCommInitAll(communicators_.data(), static_cast<int>(numbers.size()), numbers.data()),
            "ncclCommInitAll");
  }
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  ~NcclLink() override {
    if (aborted_) return;  // which has freed them
    for (const ncclComm_t communicator : communicators_) ncclCommDestroy(communicator);
  }

  std::string_view name() const override { return "nccl"; }

  void all_reduce(SideStreams& streams, const SumsBeside::Tensors& tensors) override {
    in_group([&] {
      for (std::size_t d = 0; d < tensors.size(); ++d) {
        streams.begin(
            d, [this, d, own = tensors[d]] { add_up(d, own); }, tensors[d]);
      }
    });
  }

  // Each communicator is called by the thread of its device, as NCCL wants it where threads capture.
  void join(std::size_t device, const std::vector<torch::Tensor>& tensors) override {
    in_group([&] { add_up(device, tensors); });
  }

  void all_gather(SideStreams& streams, const std::vector<torch::Tensor>& own,
                  const std::vector<torch::Tensor>& whole) override {
    in_group([&] {
      for (std::size_t d = 0; d < own.size(); ++d) {
        const std::vector<torch::Tensor> used = {own[d], whole[d]};
        const auto gather = [this, d, from = own[d], to = whole[d]] {
          require(ncclAllGather(from.data_ptr(), to.data_ptr(), from.nbytes(), ncclUint8, communicators_[d],
                                c10::cuda::getCurrentCUDAStream(from.device().index())),
                  "ncclAllGather", communicators_[d]);
        };
        streams.begin(d, gather, used);
      }
    });
  }

  std::string error() override {
    for (std::size_t d = 0; d < communicators_.size(); ++d) {
      ncclResult_t result = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(communicators_[d], &result);
      if (asked != ncclSuccess) result = asked;
      if (result == ncclSuccess || result == ncclInProgress) continue;
      return c10::str("communicator ", d, " says ", ncclGetErrorString(result), "; ",
                      ncclGetLastError(communicators_[d]));
    }
    return {};
  }

  // A communicator's abort may wait until those of its peers have begun, or until graphs that have its sums are gone.
  // Hence each has a thread of its own.
  void abort() noexcept override {
    aborted_ = true;  // one who is stuck in a call may still look into the list
    std::vector<std::jthread> threads;
    for (const ncclComm_t communicator : communicators_) {
      threads.emplace_back([communicator] { ncclCommAbort(communicator); });
    }
  }

 private:
  // A group that was begun has to be ended, whatever happens in it.
  static void in_group(const std::function<void()>& calls) {
    require(ncclGroupStart(), "ncclGroupStart");
    try {
      calls();
    } catch (...) {
      ncclGroupEnd();
      throw;
    }
    require(ncclGroupEnd(), "ncclGroupEnd");
  }

  void add_up(std::size_t device, const std::vector<torch::Tensor>& tensors) const {
    for (const torch::Tensor& tensor : tensors) {
      if (tensor.numel() == 0) continue;
      require(ncclAllReduce(tensor.data_ptr(), tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
                            type_of(tensor.scalar_type()), ncclSum, communicators_[device],
                            c10::cuda::getCurrentCUDAStream(tensor.device().index())),
              "ncclAllReduce", communicators_[device]);
    }
  }

  std::vector<ncclComm_t> communicators_;  // [device]
  bool aborted_ = false;                   // said by the thread that aborts, and read when that has ended
};

}  // namespace

std::unique_ptr<DeviceLink> link_by_nccl(const std::vector<torch::Device>& devices) {
  return std::make_unique<NcclLink>(devices);
}

}  // namespace cohort
