// SPDX-License-Identifier: Apache-2.0
//
// UTF-8 decoding, categories and NFC.
#include <string>
#include <string_view>

#include <qwenlite/text/unicode.hpp>

#include "catch_any.hpp"

namespace unicode = qwenlite::unicode;

namespace {

std::string repaired(std::string_view text) {
  std::string out;
  unicode::append_valid(out, text);
  return out;
}

std::string utf8(std::initializer_list<std::uint32_t> points) {
  std::string out;
  for (const std::uint32_t p : points) unicode::append(out, p);
  return out;
}

}  // namespace

TEST_CASE("code points survive encoding and decoding") {
  for (const std::uint32_t point :
       {0x0U, 0x7FU, 0x80U, 0x7FFU, 0x800U, 0xD7FFU, 0xE000U, 0xFFFFU, 0x10000U, 0x10FFFFU}) {
    const std::string text = utf8({point});
    const unicode::Decoded found = unicode::decode(text, 0);
    CHECK(found.point == point);
    CHECK(found.length == text.size());
    CHECK(found.valid);
  }
}

TEST_CASE("each maximal invalid part becomes one U+FFFD") {
  const std::string mark = "\xEF\xBF\xBD";
  CHECK(repaired("a\x80z") == "a" + mark + "z");
  CHECK(repaired("\xC0\xAF") == mark + mark);                        // overlong
  CHECK(repaired("\xE0\x80\x80") == mark + mark + mark);             // overlong
  CHECK(repaired("\xED\xA0\x80") == mark + mark + mark);             // surrogate
  CHECK(repaired("\xF4\x90\x80\x80") == mark + mark + mark + mark);  // beyond U+10FFFF
  CHECK(repaired("\xF5") == mark);
  CHECK(repaired("\xE4\xB8") == mark);         // cut off: one part
  CHECK(repaired("\xE4\xB8X") == mark + "X");  // interrupted: one part
  CHECK(repaired("\xF0\x9F\x98\xE4\xB8\xAD") == mark + "\xE4\xB8\xAD");
  CHECK(repaired("\xF0\x9F\x98\x80") == "\xF0\x9F\x98\x80");
}

TEST_CASE("a character cut off by the end of the text is told from an invalid one") {
  CHECK_FALSE(unicode::decode("\xF0\x9F\x98", 0).complete);
  CHECK_FALSE(unicode::decode("\xC3", 0).complete);
  CHECK(unicode::decode("\xF0\x9FX", 0).complete);
  CHECK(unicode::decode("\xFF", 0).complete);
  CHECK(unicode::decode("\xE0\x80", 0).complete);
}

TEST_CASE("categories") {
  CHECK(unicode::is_letter('a'));
  CHECK(unicode::is_letter(0x4E2D));
  CHECK(unicode::is_letter(0x20000));
  CHECK(unicode::is_letter(0x2CEB0));
  CHECK(unicode::is_letter(0xAA));
  CHECK(unicode::is_mark(0x0301));
  CHECK(unicode::is_mark(0x093F));
  CHECK(unicode::is_mark(0xE0100));
  CHECK(unicode::is_number('7'));
  CHECK(unicode::is_number(0x0663));
  CHECK(unicode::is_number(0xBD));    // one half
  CHECK(unicode::is_number(0x2167));  // Roman numeral eight
  CHECK(unicode::is_number(0x3007));
  int spaces = 0;
  for (std::uint32_t p = 0; p < 0x110000; ++p) spaces += unicode::is_space(p) ? 1 : 0;
  CHECK(spaces == 25);
  CHECK(unicode::is_space(0x3000));
  CHECK(unicode::is_space(0x85));
  CHECK_FALSE(unicode::is_space(0x200B));
  CHECK_FALSE(unicode::is_space(0x180E));
  CHECK_FALSE(unicode::is_letter('_'));
  CHECK_FALSE(unicode::is_letter(0x1F600));
  CHECK_FALSE(unicode::is_letter(0x110000));
}

TEST_CASE("normalisation form C") {
  CHECK(unicode::nfc("plain text") == "plain text");
  CHECK(unicode::nfc("") == "");
  CHECK(unicode::nfc("cafe\xCC\x81") == "caf\xC3\xA9");
  CHECK(unicode::nfc(utf8({0x1100, 0x1161, 0x1100, 0x1167, 0x11A8})) == utf8({0xAC00, 0xACA9}));
  CHECK(unicode::nfc(utf8({0xAC00, 0x11A8})) == utf8({0xAC01}));
  CHECK(unicode::nfc(utf8({0xAC00, 0x11A7})) == utf8({0xAC00, 0x11A7}));  // U+11A7 is no final
  CHECK(unicode::nfc(utf8({0x212B})) == utf8({0xC5}));
  CHECK(unicode::nfc(utf8({0x0958})) == utf8({0x0915, 0x093C}));  // composition exclusion
  CHECK(unicode::nfc(utf8({'a', 0x0315, 0x0300})) == utf8({0xE0, 0x0315}));
  CHECK(unicode::nfc(utf8({'q', 0x0315, 0x0300})) == utf8({'q', 0x0300, 0x0315}));
  CHECK(unicode::nfc(utf8({0x0344})) == utf8({0x0308, 0x0301}));
  CHECK(unicode::nfc(utf8({'a', 0x0328, 0x0301})) == utf8({0x0105, 0x0301}));
  CHECK(unicode::nfc(utf8({'s', 0x0323, 0x0307})) == utf8({0x1E69}));
  CHECK(unicode::nfc(utf8({'s', 0x0307, 0x0323})) == utf8({0x1E69}));
  CHECK(unicode::nfc(utf8({0x1E0B, 0x0323})) == utf8({0x1E0D, 0x0307}));
  CHECK(unicode::nfc(utf8({'a', 0x0300, 0x0300})) == utf8({0xE0, 0x0300}));
  CHECK(unicode::nfc(utf8({0x0301, 'e', 0x0301})) == utf8({0x0301, 0xE9}));
  CHECK(unicode::nfc(utf8({0x2F800})) == utf8({0x4E3D}));  // compatibility ideograph
  CHECK(unicode::nfc(utf8({0x1D160})) == utf8({0x1D158, 0x1D165, 0x1D16E}));
}

TEST_CASE("marks younger than Unicode 9 keep their place") {
  const std::string text = utf8({'e', 0x0323, 0x1DF9, 0x0316});  // U+1DF9 is of Unicode 14, class 220
  CHECK(unicode::nfc(utf8({'x', 0x0300, 0x09FE, 0x0323})) == utf8({'x', 0x0300, 0x09FE, 0x0323}));
  CHECK(unicode::nfc(text) == utf8({0x1EB9, 0x1DF9, 0x0316}));
}

TEST_CASE("the quick check") {
  CHECK(unicode::is_surely_nfc("ascii"));
  CHECK(unicode::is_surely_nfc("\xE4\xB8\xAD\xE6\x96\x87 caf\xC3\xA9"));
  CHECK(unicode::is_surely_nfc(utf8({0x0915, 0x093F, 0x0924, 0x093E, 0x092C})));
  CHECK_FALSE(unicode::is_surely_nfc("cafe\xCC\x81"));
  CHECK_FALSE(unicode::is_surely_nfc(utf8({'q', 0x0315, 0x0300})));
}

TEST_CASE("a long run of combining marks is sorted, stably") {
  std::string text = "q", above, below;
  for (int i = 0; i < 50000; ++i) {
    text += utf8({i % 2 == 0 ? 0x0300U : 0x0323U});
    (i % 2 == 0 ? above : below) += utf8({i % 2 == 0 ? 0x0300U : 0x0323U});
  }
  CHECK(unicode::nfc(text) == "q" + below + above);
}
