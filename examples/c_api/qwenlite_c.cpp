// SPDX-License-Identifier: Apache-2.0
//
// The C interface over the library. No exception leaves a function: `guarded` turns it into the value that
// means failure and what qwenlite_error() and qwenlite_error_code() tell.
#include "qwenlite_c.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <qwenlite/model.hpp>

namespace ql = qwenlite;

struct qwenlite_model {
  explicit qwenlite_model(const ql::Checkpoint& files, const ql::OpenOptions& options)
      : network(ql::open(files, options)), text(std::make_shared<ql::Tokenizer>(files.directory())) {}

  ql::AnyModel network;
  std::shared_ptr<const ql::Tokenizer> text;
};

struct qwenlite_session {
  qwenlite_session(const qwenlite_model& model, ql::Index max_tokens)
      : network(model.network), text(model.text), state(network, {.max_tokens = max_tokens}) {}

  ql::AnyModel network;  // handles: they keep the model alive when its own handle is closed
  std::shared_ptr<const ql::Tokenizer> text;
  ql::AnyModel::Session state;
};

namespace {

thread_local std::array<char, 1024> last_error{};  // noting a failure must not fail
thread_local const char* last_code = "";           // a literal

template <class Result, class Work>
Result guarded(Result failure, const Work& work) noexcept {
  try {
    return work();
  } catch (const ql::Error& e) {
    last_code = ql::name_of(e.code()).data();
    std::snprintf(last_error.data(), last_error.size(), "%s", e.what());
  } catch (const std::exception& e) {
    last_code = "other";
    std::snprintf(last_error.data(), last_error.size(), "%s", e.what());
  } catch (...) {
    last_code = "other";
    std::snprintf(last_error.data(), last_error.size(), "the receiver threw something");
  }
  return failure;
}

/// What a handle or pointer argument points to.
template <class T>
T& given(T* pointer, const char* name) {
  if (pointer == nullptr) throw ql::Error(ql::ErrorCode::bad_argument, name, "NULL", "a valid pointer");
  return *pointer;
}

std::span<const int> given_ids(const int32_t* ids, std::size_t count) {
  if (count > 0) given(ids, "ids");
  return {ids, count};
}

int64_t hand_out(const std::vector<int>& from, int32_t* ids, std::size_t capacity) {
  if (capacity > 0) std::copy_n(from.begin(), std::min(from.size(), capacity), &given(ids, "ids"));
  return std::ssize(from);
}

ql::GenerateOptions to_options(const qwenlite_options& options) {
  if (options.max_new_tokens < 0) {
    throw ql::Error(ql::ErrorCode::bad_argument, "max_new_tokens", options.max_new_tokens,
                    "0 (as many as there is room for) or more");
  }
  ql::GenerateOptions result;
  if (options.max_new_tokens != 0) result.max_new_tokens = options.max_new_tokens;
  if (!(options.temperature < 0)) result.sampling.temperature = options.temperature;
  result.sampling.seed = options.seed;
  return result;
}

}  // namespace

const char* qwenlite_version(void) {
  return ql::version;
}

const char* qwenlite_error(void) {
  return last_error.data();
}

const char* qwenlite_error_code(void) {
  return last_code;
}

qwenlite_model* qwenlite_open(const char* directory, int32_t threads) {
  return guarded<qwenlite_model*>(nullptr, [&] {
    const ql::Checkpoint files(&given(directory, "directory"));
    return new qwenlite_model(files, {.threads = threads});
  });
}

void qwenlite_close(qwenlite_model* model) {
  delete model;
}

int64_t qwenlite_tokenize(const qwenlite_model* model, const char* text, int32_t* ids, size_t capacity) {
  return guarded<int64_t>(
      -1, [&] { return hand_out(given(model, "model").text->encode(&given(text, "text")), ids, capacity); });
}

int64_t qwenlite_tokenize_chat(const qwenlite_model* model, const char* json, int32_t* ids, size_t capacity) {
  return guarded<int64_t>(-1, [&] {
    const ql::Tokenizer& text = *given(model, "model").text;
    const auto family = text.chat_template().family().value_or(ql::ChatFamily::qwen3);
    const ql::ChatRequest chat = ql::parse_chat_request(&given(json, "json"), family);
    return hand_out(text.encode_chat(chat.messages, chat.options), ids, capacity);
  });
}

int64_t qwenlite_detokenize(const qwenlite_model* model, const int32_t* ids, size_t count, char* text,
                            size_t capacity) {
  return guarded<int64_t>(-1, [&] {
    const std::span<const int> wanted = given_ids(ids, count);
    const ql::Index known = given(model, "model").network.token_count();
    for (const int id : wanted) {
      if (id >= 0 && id < known) continue;
      throw ql::Error(ql::ErrorCode::bad_argument, "token id", id, {"0 to ", known - 1});
    }
    const std::string decoded = model->text->decode(wanted);
    if (capacity > 0) {
      const std::size_t length = std::min(decoded.size(), capacity - 1);
      std::copy_n(decoded.c_str(), length, &given(text, "text"));
      text[length] = '\0';
    }
    return std::ssize(decoded);
  });
}

qwenlite_session* qwenlite_session_new(const qwenlite_model* model, int64_t max_tokens) {
  return guarded<qwenlite_session*>(nullptr,
                                    [&] { return new qwenlite_session(given(model, "model"), max_tokens); });
}

void qwenlite_session_free(qwenlite_session* session) {
  delete session;
}

int64_t qwenlite_session_length(const qwenlite_session* session) {
  return guarded<int64_t>(-1, [&] { return given(session, "session").state.length(); });
}

int32_t qwenlite_session_truncate(qwenlite_session* session, int64_t length) {
  return guarded<int32_t>(-1, [&] {
    given(session, "session").state.truncate(length);
    return 0;
  });
}

int32_t qwenlite_next(qwenlite_session* session, const int32_t* ids, size_t count) {
  return guarded<int32_t>(-1, [&] {
    auto& [network, text, state] = given(session, "session");
    const std::span<const float> logits = network.logits(state, given_ids(ids, count));
    const auto tokens = logits.begin() + network.token_count();
    if (std::any_of(logits.begin(), tokens, [](float logit) { return std::isnan(logit); })) {
      throw ql::Error(ql::ErrorCode::numeric, "logits", "NaN", "numbers");
    }
    return static_cast<int32_t>(std::max_element(logits.begin(), tokens) - logits.begin());
  });
}

int64_t qwenlite_generate(qwenlite_session* session, const int32_t* ids, size_t count,
                          const qwenlite_options* options, qwenlite_receiver receiver, void* user) {
  return guarded<int64_t>(-1, [&] {
    auto& [network, text, state] = given(session, "session");
    const qwenlite_options how = options == nullptr ? qwenlite_options{0, -1, 0, nullptr} : *options;
    ql::require(receiver != nullptr, "receiver: found NULL, expected a function");
    ql::TextStream out(*text);
    if (how.stop != nullptr) out = ql::TextStream(*text, {.stop_strings = {how.stop}});

    bool wanted = true;
    const auto pass_on = [&](std::string_view part) {
      if (!part.empty()) wanted = receiver(part.data(), part.size(), user) != 0;
    };
    const auto stats = ql::generate(network, state, given_ids(ids, count), to_options(how), [&](int token) {
      pass_on(out.push(token));
      return wanted && !out.stopped();
    });
    if (wanted) pass_on(out.flush());
    return stats.generated_tokens;
  });
}
