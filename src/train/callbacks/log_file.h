// Files that callbacks append lines to.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace cohort {

// Opens a file for writing. Unavailable: it cannot be opened, or is a pipe without a reader: opening it would wait for
// one. `who` is named in messages.
std::ofstream open_log(const std::filesystem::path& file, std::ios::openmode mode, std::string_view who);

// Writes the text and flushes it. Unavailable: that failed.
void write_log(std::ofstream& stream, const std::string& text, const std::filesystem::path& file, std::string_view who);

}  // namespace cohort
