// The flags of the mesh that replicas are laid out on, and what is made of them.
#pragma once

#include "models/command/mesh_makers.h"
#include "models/command/strategy_table.h"

namespace cohort {

// InvalidArgument: the mesh is no list such as batch=2,model=2; --sequence_attention is unknown, or set without an axis
// of sequences; --sequence_parallel, --vocab_parallel or --mlp_parallel is set without an axis that divides parameters;
// an axis is to divide images, and the task does not say how.
FlagsOfWing mesh_flags();
MeshMaker make_meshes();

}  // namespace cohort
