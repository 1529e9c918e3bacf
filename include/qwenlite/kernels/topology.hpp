// SPDX-License-Identifier: Apache-2.0
//
// How many threads make sense here: the physical cores that this process may use, cut down to the CPU time
// its container gets. One thread more than either is slower, not faster.
//
// Everything is read from files below a root directory ("" for this machine), so saved trees can be tested.
// A file that is missing or does not parse says nothing; nothing here throws on content.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/kernels/process.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace topology {

/// Removes and returns what stands before the next `separator`, or everything.
[[nodiscard]] inline std::string_view take_field(std::string_view& text, char separator) noexcept {
  const std::size_t at = text.find(separator);
  const std::string_view field = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return field;
}

/// A whole decimal number, white space around it allowed; nothing if there is more or less.
[[nodiscard]] inline std::optional<std::int64_t> parse_integer(std::string_view text) noexcept {
  constexpr std::string_view blank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return std::nullopt;
  text = text.substr(first, text.find_last_not_of(blank) - first + 1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The CPUs of a list such as "0-3,8,10-11" in ascending order; empty if it is malformed.
[[nodiscard]] inline std::vector<int> parse_cpu_list(std::string_view text) {
  constexpr std::int64_t most = 1 << 20;  // far above any machine; keeps "0-999999999" from filling memory
  std::vector<int> cpus;
  while (!text.empty()) {
    std::string_view last_text = take_field(text, ',');
    const bool is_range = last_text.find('-') != std::string_view::npos;
    const auto first = parse_integer(is_range ? take_field(last_text, '-') : last_text);
    const auto last = parse_integer(last_text);
    if (!first || !last || *first < 0 || *last < *first || *last >= most) return {};
    for (std::int64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
    if (static_cast<std::int64_t>(cpus.size()) > most) return {};
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

/// Whole CPUs in `quota` microseconds of every `period`, at least 1; nothing for no limit or nonsense.
[[nodiscard]] inline std::optional<int> whole_cpus(std::optional<std::int64_t> quota,
                                                   std::optional<std::int64_t> period) noexcept {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<int>(std::clamp<std::int64_t>(*quota / *period, 1, 1 << 20));
}

/// The limit in a version 2 `cpu.max`: "max 100000" (none), "150000 100000" (1).
[[nodiscard]] inline std::optional<int> parse_cpu_max(std::string_view text) noexcept {
  const auto quota = parse_integer(take_field(text, ' '));
  return whole_cpus(quota, parse_integer(text));
}

/// The limit in a version 1 pair of `cpu.cfs_quota_us` ("-1": none) and `cpu.cfs_period_us`.
[[nodiscard]] inline std::optional<int> parse_cfs(std::string_view quota, std::string_view period) noexcept {
  return whole_cpus(parse_integer(quota), parse_integer(period));
}

/// Where a hierarchy of control groups is mounted, and which group of it stands there.
struct CgroupMount {
  bool version2 = false;
  std::string group;      ///< "/" or, in a container without a namespace of its own, "/docker/4f2a"
  std::string directory;  ///< "/sys/fs/cgroup"
};

/// Undoes the octal escapes of /proc/self/mountinfo: "\040" is a space.
[[nodiscard]] inline std::string unescape_mount(std::string_view text) {
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      const int code = (text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0');
      out += static_cast<char>(static_cast<unsigned char>(code & 0xFF));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// Whether a comma-separated list contains `word`.
[[nodiscard]] inline bool list_contains(std::string_view list, std::string_view word) noexcept {
  while (!list.empty()) {
    if (take_field(list, ',') == word) return true;
  }
  return false;
}

/// The hierarchies that limit CPU time, from the text of /proc/self/mountinfo. Its lines read
/// "36 35 0:30 GROUP DIRECTORY OPTIONS [TAGS...] - TYPE SOURCE SUPER_OPTIONS".
[[nodiscard]] inline std::vector<CgroupMount> parse_cgroup_mounts(std::string_view mountinfo) {
  std::vector<CgroupMount> mounts;
  while (!mountinfo.empty()) {
    std::string_view left = take_field(mountinfo, '\n');
    const std::size_t dash = left.find(" - ");
    if (dash == std::string_view::npos) continue;
    std::string_view right = left.substr(dash + 3);
    const std::string_view type = take_field(right, ' ');
    static_cast<void>(take_field(right, ' '));  // the source says nothing
    if (type != "cgroup2" && !(type == "cgroup" && list_contains(right, "cpu"))) continue;
    for (int i = 0; i < 3; ++i) static_cast<void>(take_field(left, ' '));
    std::string group = unescape_mount(take_field(left, ' '));
    mounts.push_back({type == "cgroup2", std::move(group), unescape_mount(take_field(left, ' '))});
  }
  return mounts;
}

/// The group of this process, from the text of /proc/self/cgroup ("0::/user.slice", "4:cpu,cpuacct:/a").
[[nodiscard]] inline std::optional<std::string> parse_own_cgroup(std::string_view text, bool version2) {
  while (!text.empty()) {
    std::string_view line = take_field(text, '\n');
    const std::string_view hierarchy = take_field(line, ':');
    const std::string_view controllers = take_field(line, ':');
    if (!line.starts_with('/')) continue;
    if (version2 ? hierarchy == "0" && controllers.empty() : list_contains(controllers, "cpu")) {
      return std::string(line);
    }
  }
  return std::nullopt;
}

/// The text of a small file (these have no size beforehand); empty if it cannot be read.
[[nodiscard]] inline std::string read_system_file(const std::string& path) {
  constexpr std::size_t most = std::size_t{4} << 20U;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char part[4096];
  while (file && text.size() < most) {
    file.read(part, sizeof part);
    text.append(part, static_cast<std::size_t>(file.gcount()));
  }
  return text;
}

/// The limit that one group's directory states.
[[nodiscard]] inline std::optional<int> read_group_limit(const std::string& directory, bool version2) {
  if (version2) return parse_cpu_max(read_system_file(directory + "/cpu.max"));
  return parse_cfs(read_system_file(directory + "/cpu.cfs_quota_us"),
                   read_system_file(directory + "/cpu.cfs_period_us"));
}

/// The smallest limit from the mount down to `group`: a child may not use more than any of its parents.
[[nodiscard]] inline std::optional<int> smallest_limit(const CgroupMount& mount, std::string_view group,
                                                       const std::string& root) {
  if (mount.group != "/" && (std::string(group) + '/').starts_with(mount.group + '/')) {
    group.remove_prefix(mount.group.size());
  }
  std::string directory = root + mount.directory;
  std::optional<int> smallest = read_group_limit(directory, mount.version2);
  while (!group.empty()) {
    const std::string_view name = take_field(group, '/');
    if (name == "..") break;  // a group outside of this namespace: its directory is not visible here
    if (name.empty()) continue;
    directory.append("/").append(name);
    const std::optional<int> limit = read_group_limit(directory, mount.version2);
    if (limit && (!smallest || *limit < *smallest)) smallest = limit;
  }
  return smallest;
}

/// Whole CPUs that the control groups of this process allow, at least 1; nothing if they set no limit.
[[nodiscard]] inline std::optional<int> cgroup_cpu_limit(const std::string& root = "") {
  const std::string own = read_system_file(root + "/proc/self/cgroup");
  std::vector<CgroupMount> mounts = parse_cgroup_mounts(read_system_file(root + "/proc/self/mountinfo"));
  if (mounts.empty()) {  // hidden by a sandbox: the usual places
    mounts = {{true, "/", "/sys/fs/cgroup"}, {false, "/", "/sys/fs/cgroup/cpu"}};
  }
  std::optional<int> smallest;
  for (const CgroupMount& mount : mounts) {
    const std::string group = parse_own_cgroup(own, mount.version2).value_or("/");
    const std::optional<int> limit = smallest_limit(mount, group, root);
    if (limit && (!smallest || *limit < *smallest)) smallest = limit;
  }
  return smallest;
}

/// How many physical cores the logical `cpus` stand on. A CPU without readable topology counts as a core.
[[nodiscard]] inline int count_cores(const std::vector<int>& cpus, const std::string& root = "") {
  std::vector<int> first_siblings;
  for (const int cpu : cpus) {
    const std::vector<int> siblings = parse_cpu_list(read_system_file(
        root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list"));
    const bool plausible = std::binary_search(siblings.begin(), siblings.end(), cpu);
    first_siblings.push_back(plausible ? siblings.front() : cpu);
  }
  std::sort(first_siblings.begin(), first_siblings.end());
  const auto end = std::unique(first_siblings.begin(), first_siblings.end());
  return static_cast<int>(end - first_siblings.begin());
}

}  // namespace topology

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
