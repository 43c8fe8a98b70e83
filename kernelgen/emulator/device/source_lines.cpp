#include "source_lines.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

extern char** environ;

namespace emulator {
namespace {

// What a command prints; "" if it cannot be run.
std::string output_of(const std::vector<std::string>& words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) return "";
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t process = 0;
  const bool failed = posix_spawnp(&process, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t size; (size = read(ends[0], part, sizeof(part))) > 0;) text.append(part, size);
  close(ends[0]);
  if (!failed) waitpid(process, nullptr, 0);
  return text;
}

std::string folder_of_this_file() {
  const std::string file = __FILE__;
  return file.substr(0, file.rfind('/') + 1);
}

// A line as people write it: from the folder of the ops or of the headers on, else the file's name.
std::string shortened(const std::string& line) {
  for (const char* const folder : {"/ops/", "/include/"}) {
    const size_t begin = line.rfind(folder);
    if (begin != std::string::npos) return line.substr(begin + 1);
  }
  return line.substr(line.rfind('/') + 1);
}

// Where people look: not in the emulator's own sources, nor in those of the compiler.
bool is_shown(const std::string& line) {
  static const std::string own = folder_of_this_file(), emulator = own.substr(0, own.rfind('/', own.size() - 2) + 1);
  return !line.starts_with("?") && line.find(":?") == std::string::npos && !line.starts_with(emulator) &&
         line.find("/include/c++/") == std::string::npos;
}

std::map<uint64_t, std::string> lines_of(const std::set<uint64_t>& addresses, const std::string& library) {
  std::vector<std::string> command = {"addr2line", "-a", "-i", "-e", library};
  for (const uint64_t address : addresses) {
    std::ostringstream number;
    number << std::hex << "0x" << address;
    command.push_back(number.str());
  }
  std::map<uint64_t, std::string> lines;
  std::istringstream output(output_of(command));
  uint64_t address = 0;
  for (std::string line; std::getline(output, line);) {
    if (line.starts_with("0x")) {
      address = strtoull(line.c_str(), nullptr, 16);
    } else if (is_shown(line)) {
      lines[address] += "\n    " + shortened(line.substr(0, line.find(" (")));
    }
  }
  return lines;
}

}  // namespace

std::string with_source_lines(const std::string& report) {
  Dl_info library;
  if (!dladdr(reinterpret_cast<void*>(&with_source_lines), &library)) return report;
  const uint64_t base = reinterpret_cast<uint64_t>(library.dli_fbase);
  const auto offset = [&](const std::string& address) {
    return strtoull(address.c_str(), nullptr, 16) - base - 1;  // Before the place that the call returns to.
  };
  static const std::regex pattern(R"( ?\[(0x[0-9a-f]+)\])");
  std::set<uint64_t> addresses;
  for (std::sregex_iterator match(report.begin(), report.end(), pattern), end; match != end; ++match) {
    addresses.insert(offset((*match)[1]));
  }
  if (addresses.empty()) return report;
  const auto lines = lines_of(addresses, library.dli_fname);
  std::string text;
  auto last = report.begin();
  for (std::sregex_iterator match(report.begin(), report.end(), pattern), end; match != end; ++match) {
    text.append(last, (*match)[0].first);
    last = (*match)[0].second;
    const auto line = lines.find(offset((*match)[1]));
    if (line != lines.end()) text += line->second;
  }
  return text.append(last, report.end());
}

}  // namespace emulator
