# SPDX-License-Identifier: Apache-2.0
#
# Builds for 64-bit Arm with Debian's cross compiler and runs what it built under qemu-user
# (apt-get install g++-aarch64-linux-gnu qemu-user). Headers of Eigen, nlohmann/json and Catch2 are the
# machine's own: they hold no code of its processor.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
