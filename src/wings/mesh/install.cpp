// What this wing gives the core.
#include "base/extension.h"
#include "wings/mesh/models/mesh_flags.h"

namespace cohort {

void install_mesh() {
  extend(mesh_flags());
  extend(make_meshes());
}

}  // namespace cohort
