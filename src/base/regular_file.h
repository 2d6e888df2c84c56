// Files whose names somebody else may have taken for something else: a pipe, at which an open waits for another
// process, or a link to a file that is not this program's. Errors open with `[speaker]` and name the file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace cohort {

// Opens a file for reading and returns its descriptor; -1 and errno if that fails. FailedPrecondition: it is a folder,
// a pipe or a device.
int open_regular_file(const std::filesystem::path& file, std::string_view speaker);

// Returns the bytes of such a file; nothing if there is none. Unavailable: it cannot be read.
std::optional<std::string> read_regular_file(const std::filesystem::path& file, std::string_view speaker);
// The same for a pipe, too, whose writer it waits for.
std::optional<std::string> read_file_or_pipe(const std::filesystem::path& file, std::string_view speaker);

// Opens a file of this program's own by these flags of open(2) and returns its descriptor; -1 and errno if that fails.
// FailedPrecondition: it is a link, which would write to another place, or not a file.
int open_own_file(const std::filesystem::path& file, int flags, std::string_view speaker);
// Fails as open_own_file() would.
void require_own_file(const std::filesystem::path& file, std::string_view speaker);

}  // namespace cohort
