// The keys and the files of compiled programs. A file is a line "cohort-xla 1 SIZE CRC32C" and the bytes of the plugin.
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "wings/xla/device/compiler.h"

namespace cohort {

namespace {

constexpr const char* kFirstWord = "cohort-xla";
constexpr int kFormat = 1;

// Returns SHA-256 in hexadecimal digits.
std::string sha256(const std::string& text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) {
    fail<Internal>("[xla] OpenSSL cannot compute SHA-256");
  }
  constexpr const char* kDigits = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex.append({kDigits[digest[i] >> 4], kDigits[digest[i] & 15]});
  return hex;
}

// Appends a part so that no two lists of parts become the same text.
void append_part(std::string& whole, const std::string& part) {
  whole.append(std::to_string(part.size())).append(":").append(part);
}

}  // namespace

std::string program_key(const std::string& text, const XlaCompileOptions& options, const std::string& platform) {
  std::string whole;
  append_part(whole, text);
  append_part(whole, platform);
  append_part(whole, c10::str(options.num_replicas, ",", options.num_partitions, ",", options.shardy));
  append_part(whole, to_text(std::vector<int64_t>(options.devices.begin(), options.devices.end())));
  for (const auto& [name, value] : options.flags) {
    append_part(whole, name);
    append_part(whole, value);
  }
  return sha256(whole);
}

void prepare_program_folder(const std::filesystem::path& directory) {
  std::error_code error;
  const bool made = std::filesystem::create_directories(directory, error);
  if (error) fail<Unavailable>("[xla] the folder of programs ", directory, " cannot be made: ", error.message());
  if (made) std::filesystem::permissions(directory, std::filesystem::perms::owner_all);
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) {
    fail<Unavailable>("[xla] the folder of programs ", directory, " cannot be read: ", std::strerror(errno));
  }
  if (!S_ISDIR(status.st_mode)) fail<InvalidArgument>("[xla] ", directory, " is no folder, wanted one for programs");
  const bool own = status.st_uid == ::geteuid() || status.st_uid == 0;
  if (!own || (status.st_mode & S_IWOTH) != 0) {
    fail<FailedPrecondition>("[xla] the folder of programs ", directory,
                             own ? " may be written to by all" : " is another user's",
                             ", who could run programs here; wanted one of this user's that others cannot write to");
  }
}

void write_program_file(const std::filesystem::path& file, const std::string& bytes) {
  AtomicFile whole(file);
  whole.write(
      c10::str(kFirstWord, " ", kFormat, " ", bytes.size(), " ", crc32c(std::as_bytes(std::span(bytes))), "\n"));
  whole.write(bytes);
  whole.commit();
}

std::string read_program_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) fail<NotFound>("[xla] there is no program in ", file);
  std::string head;
  std::getline(in, head);
  std::istringstream words(head);
  std::string first;
  int format = 0;
  std::size_t size = 0;
  uint32_t checksum = 0;
  words >> first >> format >> size >> checksum;
  if (!words || first != kFirstWord || format != kFormat) {
    fail<DataLoss>("[xla] ", file, " does not begin as a file of a program does");
  }
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  if (bytes.size() != size) fail<DataLoss>("[xla] ", file, " has ", bytes.size(), " bytes of a program, wanted ", size);
  if (crc32c(std::as_bytes(std::span(bytes))) != checksum) {
    fail<DataLoss>("[xla] the bytes of the program in ", file, " do not have its checksum");
  }
  return bytes;
}

}  // namespace cohort
