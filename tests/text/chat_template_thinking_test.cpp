// SPDX-License-Identifier: Apache-2.0
//
// Whether a model thinks when nobody says: the two published templates of Qwen3.5 differ in that alone.
#include <qwenlite/text/chat_template.hpp>

#include "catch_any.hpp"
#include "text/small_tokenizer.hpp"

namespace ql = qwenlite;

namespace {

/// How a prompt ends after "<|im_start|>assistant\n".
std::string opening(const ql::ChatTemplate& chat_template, std::optional<bool> thinking) {
  const std::string prompt = chat_template.render({{"user", "Hello"}}, {.enable_thinking = thinking});
  const std::string start = "<|im_start|>assistant\n";
  return prompt.substr(prompt.rfind(start) + start.size());
}

const std::string open_block = "<think>\n";
const std::string closed_block = "<think>\n\n</think>\n\n";

}  // namespace

TEST_CASE("families think by themselves or not") {
  CHECK(ql::ChatTemplate(ql::ChatFamily::qwen3).thinks());
  CHECK_FALSE(ql::ChatTemplate(ql::ChatFamily::qwen3_5).thinks());
  CHECK(opening(ql::ChatTemplate(ql::ChatFamily::qwen3_5), {}) == closed_block);
  CHECK(opening(ql::ChatTemplate(ql::ChatFamily::qwen3_5), true) == open_block);
}

TEST_CASE("the template of the larger Qwen3.5 thinks unless told not to") {
  const auto shared = shared_directory("tokenizers/qwen3.5/chat_template.jinja");
  if (!shared) return;
  const std::string small_models = file_text(*shared / "tokenizers/qwen3.5/chat_template.jinja");
  CHECK_FALSE(ql::ChatTemplate::recognise(small_models).thinks());
  const std::string last_switch = "    {%- if enable_thinking is defined and enable_thinking is ";
  const std::string large_models = small_models.substr(0, small_models.rfind(last_switch)) + last_switch +
                                   "false %}\n"
                                   "        {{- '<think>\\n\\n</think>\\n\\n' }}\n"
                                   "    {%- else %}\n"
                                   "        {{- '<think>\\n' }}\n"
                                   "    {%- endif %}\n"
                                   "{%- endif %}";
  const ql::ChatTemplate large = ql::ChatTemplate::recognise(large_models);
  REQUIRE(large.family() == ql::ChatFamily::qwen3_5);
  CHECK(large.thinks());
  CHECK(opening(large, {}) == open_block);
  CHECK(opening(large, true) == open_block);
  CHECK(opening(large, false) == closed_block);
}
