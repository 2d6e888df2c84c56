// The memory that compiled kernels reach.
#pragma once

namespace cohort::kernels {

enum class Reach {
  kNone,  // there are none for such a device
  kHost,  // those of the CPU
  kCuda,  // those of CUDA's cards: on the calling thread's current card and stream, behind its other work
};

// Functions that launch kernels on CUDA's cards. The back end of these defines them.
namespace cuda {
// Returns the stream, a cudaStream_t.
void* current_stream();
// Throws Internal if the error of a launch, a cudaError_t, is one.
void require_launched(int error);
}  // namespace cuda

}  // namespace cohort::kernels
