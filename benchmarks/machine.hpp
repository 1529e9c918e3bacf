// SPDX-License-Identifier: Apache-2.0
//
// Which machine and build a figure belongs to, and how much memory a process has used at most.
#pragma once

#include <cctype>
#include <fstream>
#include <string>
#include <sys/utsname.h>
#include <vector>

#include <qwenlite/kernels/cpu_count.hpp>
#include <qwenlite/kernels/dispatch.hpp>

namespace bench {

struct Machine {
  std::string cpu;                ///< as /proc/cpuinfo names it
  std::vector<std::string> isas;  ///< kernel tables that run here, weakest first
  qwenlite::DefaultThreads threads = qwenlite::default_threads();
  double memory_gb = 0;
  std::string system;    ///< kernel and its release
  std::string compiler;  ///< of this program
};

/// The value after "key ... : " in a file of such lines, or nothing.
[[nodiscard]] inline std::string value_in(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    std::size_t at = line.find(':');
    if (at == std::string::npos) continue;
    while (++at < line.size() && std::isspace(static_cast<unsigned char>(line[at])) != 0) {
    }
    return line.substr(at);
  }
  return {};
}

[[nodiscard]] inline Machine this_machine() {
  Machine m;
  m.cpu = value_in("/proc/cpuinfo", "model name");
  if (m.cpu.empty()) m.cpu = "unknown";
  for (const auto* table : qwenlite::kernels::supported()) m.isas.emplace_back(table->name);
  const std::string memory = value_in("/proc/meminfo", "MemTotal");
  m.memory_gb = memory.empty() ? 0 : std::stod(memory) * 1024 / 1e9;
  utsname system{};
  if (uname(&system) == 0) m.system = std::string(system.sysname) + " " + system.release;
#if defined(__clang__)
  m.compiler = "clang " __clang_version__;
#else
  m.compiler = "gcc " __VERSION__;
#endif
  return m;
}

/// Most bytes this process has had in memory so far, mapped files included; 0 where the system does not say.
[[nodiscard]] inline qwenlite::Index peak_rss_bytes() {
  const std::string kilobytes = value_in("/proc/self/status", "VmHWM");
  return kilobytes.empty() ? 0 : static_cast<qwenlite::Index>(std::stoll(kilobytes)) * 1024;
}

/// Lets peak_rss_bytes() begin anew; false where the system cannot.
inline bool reset_peak_rss() {
  std::ofstream out("/proc/self/clear_refs");
  out << "5";
  out.flush();
  return out.good();
}

}  // namespace bench
