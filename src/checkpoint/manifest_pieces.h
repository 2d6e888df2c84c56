// The part of a manifest that says where the pieces of tensors are.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/manifest_fields.h"

namespace cohort {

nlohmann::json json_of_pieces(const Manifest& manifest);

// Reads Manifest::pieces. DataLoss: they are none; pieces are not those of a whole, or of files that are not there.
void parse_pieces(const ManifestFields& fields, const std::string& source, Coverage coverage, Manifest& manifest);

}  // namespace cohort
