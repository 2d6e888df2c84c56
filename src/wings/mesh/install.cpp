// Gives the core what this wing has.
#include "base/extension.h"
#include "strategy/parameter_layout.h"
#include "wings/mesh/models/mesh_flags.h"
#include "wings/mesh/strategy/mesh_plan.h"
#include "wings/mesh/strategy/space/divided.h"
#include "wings/mesh/train/layer_forms.h"

namespace cohort {

void install_mesh() {
  extend(mesh_flags());
  extend(make_meshes());
  extend(ModelDivider{divide_model});
  extend(InputDivider{divide_inputs_along});
  extend(DividedMaker{.divide = space::divide, .join = space::join_parts});
  install_layer_forms();
}

}  // namespace cohort
