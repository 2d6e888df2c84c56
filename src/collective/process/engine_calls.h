// The operations of a group on tensors of the host: by the engine that its transport has, which gets no more at once
// than it can count, else by messages.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "collective/algorithms/exchange.h"
#include "collective/engine.h"
#include "collective/transport.h"

namespace cohort {

// Tensors are contiguous, on the CPU. Sums of a dtype that the engine does not add up go by messages.
void sum_on_host(Transport& transport, torch::Tensor& flat, Levels levels);
void broadcast_on_host(Transport& transport, const torch::Tensor& tensor, int root);
torch::Tensor sum_pieces_on_host(Transport& transport, const std::vector<torch::Tensor>& pieces, Levels levels);
std::vector<torch::Tensor> gather_on_host(Transport& transport, const torch::Tensor& own,
                                          const std::vector<int64_t>& rows, Levels levels);

// These do what the exchanges of the same arguments do (algorithms/exchange.h), but for the order of sums, which is the
// engine's. `most` is the limit of a call, in bytes.
void engine_sum(Engine& engine, const torch::Tensor& flat, int64_t most = Engine::kMostBytes);
void engine_broadcast(Engine& engine, const torch::Tensor& tensor, int root, int64_t most = Engine::kMostBytes);
// `rank` is this one.
torch::Tensor engine_pieces(Engine& engine, const std::vector<torch::Tensor>& pieces, int rank,
                            int64_t most = Engine::kMostBytes);
// The tensors are parts of one.
std::vector<torch::Tensor> engine_gather(Engine& engine, const torch::Tensor& own, const std::vector<int64_t>& rows,
                                         int64_t most = Engine::kMostBytes);

}  // namespace cohort
