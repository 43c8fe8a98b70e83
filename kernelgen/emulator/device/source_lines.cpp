#include "source_lines.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
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

// What addr2line prints of addresses: each, and its lines from the innermost function out.
std::string raw_lines_of(const std::set<uint64_t>& addresses, const std::string& library) {
  std::vector<std::string> command = {"addr2line", "-a", "-i", "-e", library};
  for (const uint64_t address : addresses) {
    char number[24];
    snprintf(number, sizeof(number), "0x%" PRIx64, address);
    command.push_back(number);
  }
  return output_of(command);
}

// The lines of addresses in this library, and of those asked for before: a process often reports the same places again,
// and addr2line reads all that is known of the library each time.
const std::map<uint64_t, std::string>& lines_of(const std::set<uint64_t>& addresses, const std::string& library) {
  static std::map<uint64_t, std::string> lines;
  std::set<uint64_t> unknown;
  for (const uint64_t address : addresses) {
    if (lines.try_emplace(address).second) unknown.insert(address);
  }
  const std::string output = unknown.empty() ? "" : raw_lines_of(unknown, library);
  uint64_t address = 0;
  for (size_t begin = 0, end; (end = output.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = output.substr(begin, end - begin);
    if (line.starts_with("0x")) {
      address = strtoull(line.c_str(), nullptr, 16);
    } else if (is_shown(line)) {
      lines[address] += "\n    " + shortened(line.substr(0, line.find(" (")));
    }
  }
  return lines;
}

// A place in the code as reports hold it, "[0x7f12ab]", and where it is in the text, with a space before it.
struct Mark {
  size_t begin, end;
  uint64_t address;
};

std::vector<Mark> marks_in(const std::string& report) {
  std::vector<Mark> marks;
  for (size_t begin = 0; (begin = report.find("[0x", begin)) != std::string::npos;) {
    char* end = nullptr;
    const uint64_t address = strtoull(report.c_str() + begin + 1, &end, 16);
    const size_t first = begin && report[begin - 1] == ' ' ? begin - 1 : begin;
    if (*end == ']') marks.push_back({first, size_t(end + 1 - report.c_str()), address});
    begin = end - report.c_str();
  }
  return marks;
}

}  // namespace

std::string with_source_lines(const std::string& report) {
  Dl_info library;
  if (!dladdr(reinterpret_cast<void*>(&with_source_lines), &library)) return report;
  const uint64_t base = reinterpret_cast<uint64_t>(library.dli_fbase);
  // Before the place that the call returns to.
  const auto offset_of = [&](const Mark& mark) { return mark.address - base - 1; };
  const std::vector<Mark> marks = marks_in(report);
  if (marks.empty()) return report;
  std::set<uint64_t> addresses;
  for (const Mark& mark : marks) addresses.insert(offset_of(mark));
  const auto& lines = lines_of(addresses, library.dli_fname);
  std::string text;
  size_t last = 0;
  for (const Mark& mark : marks) {
    text += report.substr(last, mark.begin - last);
    last = mark.end;
    const auto line = lines.find(offset_of(mark));
    if (line != lines.end()) text += line->second;
  }
  return text + report.substr(last);
}

bool is_in_toolkit(const void* place) {
  static std::map<const void*, bool> known;
  const auto [entry, is_new] = known.try_emplace(place, false);
  Dl_info library;
  if (!is_new || !dladdr(place, &library)) return entry->second;
  const uint64_t base = reinterpret_cast<uint64_t>(library.dli_fbase);
  const std::string output = raw_lines_of({reinterpret_cast<uint64_t>(place) - base - 1}, library.dli_fname);
  const size_t begin = output.find('\n') + 1;
  const std::string innermost = output.substr(begin, output.find('\n', begin) - begin);
  for (const char* const folder : {"/cccl/", "/cub/", "/thrust/", "/cuda/std/", "/cooperative_groups/"}) {
    entry->second = entry->second || innermost.find(folder) != std::string::npos;
  }
  return entry->second;
}

}  // namespace emulator
