// Gives the core what this wing has.
#include "base/extension.h"
#include "wings/xla/device/backend.h"
#include "wings/xla/function/recorded.h"
#include "wings/xla/models/plugin_flags.h"
#include "wings/xla/record/recorder.h"
#include "wings/xla/step/recorded.h"
#include "wings/xla/train/moving_average.h"
#include "wings/xla/train/stablehlo_model.h"

namespace cohort {

void install_xla() {
  extend(tpu_row());
  extend(xla_row());
  extend(plugin_flags());
  extend(BackendMaker{.make = make_xla_backend});
  extend(SoftPlacement{.set = record::set_soft_placement});
  extend(ExchangeMaker{.path = GradientPath::kRecorded, .make = make_recorded_exchange});
  extend(RecordedFunctionMaker{.make = make_function_on_xla});
  extend(AverageRecorder{.record = record_average});
  extend(stablehlo_writer());
}

}  // namespace cohort
