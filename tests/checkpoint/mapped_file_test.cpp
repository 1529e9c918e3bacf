// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <qwenlite/checkpoint/mapped_file.hpp>

#include "checkpoint/fixtures.hpp"

using namespace fixtures;
using namespace qwenlite;

TEST_CASE("what is no regular file is refused without waiting") {
  const TemporaryDirectory place;
  const fs::path pipe = place.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const ReadMode mode : {ReadMode::map, ReadMode::read}) {
    expect_error(ErrorCode::io, {"pipe'", "found a named pipe, expected a regular file"},
                 [&] { MappedFile(pipe, mode); });
    expect_error(ErrorCode::io, {place.path().string(), "found a directory, expected a regular file"},
                 [&] { MappedFile(place.path(), mode); });
    expect_error(ErrorCode::io, {"missing", "cannot open"},
                 [&] { MappedFile(place.path() / "missing", mode); });
  }
}

TEST_CASE("sizes: empty, at the limit, above it") {
  const TemporaryDirectory place;
  const fs::path empty = place.write("empty", "");
  const fs::path five = place.write("five", "12345");
  for (const ReadMode mode : {ReadMode::map, ReadMode::read}) {
    CHECK(MappedFile(empty, mode).bytes().empty());
    CHECK(MappedFile(five, mode, 5).bytes().size() == 5);
    expect_error(ErrorCode::bad_file, {"five", "5 bytes", "at most 4"}, [&] { MappedFile(five, mode, 4); });
  }
  CHECK(MappedFile(five, ReadMode::map).bytes_mapped() == 5);
  CHECK(MappedFile(five, ReadMode::read).bytes_mapped() == 0);
}

TEST_CASE("moving hands the bytes on") {
  const TemporaryDirectory place;
  const fs::path five = place.write("five", "12345");
  MappedFile first(five);
  const std::byte* data = first.bytes().data();
  MappedFile second(std::move(first));
  CHECK(second.bytes().data() == data);
  MappedFile third;
  third = std::move(second);
  CHECK(third.bytes().data() == data);
  CHECK(copy(third.bytes()) == to_bytes("12345"));
}

TEST_CASE("an output file appears when it is complete and leaves nothing behind otherwise") {
  const TemporaryDirectory place;
  const fs::path target = place.write("out", "old");
  {
    OutputFile unfinished(target);
    unfinished.write(to_bytes("new"));
  }
  CHECK(copy(MappedFile(target).bytes()) == to_bytes("old"));
  {
    OutputFile finished(target);
    finished.write(to_bytes("ne"));
    finished.write(to_bytes("wer"));
    CHECK(copy(MappedFile(target).bytes()) == to_bytes("old"));
    finished.commit();
  }
  CHECK(copy(MappedFile(target).bytes()) == to_bytes("newer"));
  CHECK(std::distance(fs::directory_iterator(place.path()), fs::directory_iterator()) == 1);
  expect_error(ErrorCode::io, {"none/out", "cannot create"},
               [&] { OutputFile(place.path() / "none" / "out"); });
}
