#include "wings/pipeline/strategy/stand_in_line.h"

namespace cohort {

std::vector<torch::Tensor> StandInLine::all_gather(const torch::Tensor& tensor) {
  return std::vector<torch::Tensor>(static_cast<std::size_t>(size_), tensor);
}

torch::Tensor StandInLine::reduce_scatter(const torch::Tensor& tensor, ReduceOp /*op*/) {
  return tensor.narrow(0, 0, tensor.size(0) / size_);
}

std::vector<torch::Tensor> StandInLine::all_to_all(std::span<const torch::Tensor> parts) {
  return std::vector<torch::Tensor>(static_cast<std::size_t>(size_), parts[static_cast<std::size_t>(rank_)]);
}

std::unique_ptr<Communicator> StandInLine::split(int color, int /*key*/) {
  return color < 0 ? nullptr : std::make_unique<StandInLine>(rank_, size_);
}

}  // namespace cohort
