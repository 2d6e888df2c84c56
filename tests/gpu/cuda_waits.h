// Waits of the host for CUDA's cards, as LibTorch sees them.
#pragma once

namespace cohort::gpu {

// From now on an operation that makes the host wait for a card of CUDA throws; or, with false, it does so no more.
// Without CUDA nothing happens.
void refuse_cuda_waits(bool refuse);

}  // namespace cohort::gpu
