// Files of pictures in a folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cohort/data/datasets.h"
#include "data/readers/folder_entries.h"
#include "data/readers/held_out.h"

namespace cohort::datasets {

// Returns whether the name is that of a JPEG or PNG file.
bool is_picture(const std::filesystem::path& file);

// Returns the pictures of a folder and of the folders in it, those of a folder before those of its folders, by name.
// Leaves out hidden files and folders, and links to folders. NotFound: a folder cannot be listed.
std::vector<std::filesystem::path> pictures_in(const std::filesystem::path& folder);

// Returns the bytes of a file that can be a picture. DataLoss: it is a folder, a pipe, a dangling link, or far too
// large.
std::string read_picture(const std::filesystem::path& file, const DecodeOptions& decode);

}  // namespace cohort::datasets
