// Vocabularies that IntegerLookup has learned, which Keras writes into entries of their own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "wings/keras/train/model_file.h"

namespace cohort {

// Returns the integers of vocabularies, int64, by the names of their entries. DataLoss: a line is no integer.
FileTensors read_vocabularies(const std::map<std::string, std::string>& entries, const FilePlace& place);

// Returns the object of a layer, with the vocabulary of its group ("layers/integer_lookup") if the layer has learned
// one. Notes the name of the entry in `used`.
Json with_vocabulary(Json object, const FileTensors& file, const std::string& group, std::vector<std::string>& used);

// Fails with DataLoss unless all vocabularies of a file are used.
void require_used(const FileTensors& file, const std::vector<std::string>& used, const FilePlace& place);

}  // namespace cohort
