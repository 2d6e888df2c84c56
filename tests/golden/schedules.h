// Keras' schedules by their names and options.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cohort/schedule.h"

namespace cohort::testing {

// Makes the schedule of this class; throws where it is not there, or an option of it.
Schedule keras_schedule(const std::string& name, const nlohmann::json& options);

}  // namespace cohort::testing
