// The place of a worker among the workers of its machine, and the GPUs that belong to it.
#pragma once

#include <vector>

#include "cohort/cluster/cluster_resolver.h"

namespace cohort {

struct LocalPlace {
  int rank = 0;
  int size = 1;  // workers on this machine; 0: the launcher does not say
};

// Reads what the launcher told: LOCAL_RANK and LOCAL_WORLD_SIZE (torchrun, cohort launch), the variables of Open MPI,
// of MPICH and its relatives, of MVAPICH and of Cray's PALS, or of a Slurm step. If there are none the worker is the
// only one. InvalidArgument names the variable that is wrong.
LocalPlace local_place(const Environment& variables = process_environment());

// Returns which GPUs a worker uses, as indices among the "visible" ones of its process. "wanted" are used by each
// worker; 0: an even part of them. Worker r takes those from r * wanted on. Where no more than it wants are visible its
// launcher has given it GPUs of its own (CUDA_VISIBLE_DEVICES), and it takes the first. InvalidArgument: there are GPUs
// for some of the workers only.
std::vector<int> gpus_of_worker(int visible, int wanted, const LocalPlace& place);

}  // namespace cohort
