/* SPDX-License-Identifier: Apache-2.0
 *
 * qwenlite for C, and for every language that can call C: open a checkpoint, turn text into tokens and
 * back, and let the model continue them.
 *
 * Functions that can fail return NULL or a negative number; qwenlite_error() then says what went wrong.
 * Text is UTF-8. A model may be used by several threads, a session by one at a time.
 */
#ifndef QWENLITE_C_H
#define QWENLITE_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default) /* these functions are all that the library exports */

/* Weights and tokenizer; the tokens of one conversation, with what was computed of them. */
typedef struct qwenlite_model qwenlite_model;
typedef struct qwenlite_session qwenlite_session;

/* "0.1.0" */
const char* qwenlite_version(void);

/* What the last failure in this thread was, in one line. Valid until the next one. */
const char* qwenlite_error(void);

/* What kind of failure that was, in one word: "io", "bad_file", "bad_config", "bad_tensor", "unsupported",
 * "bad_argument", "bad_text", "context_full", "numeric" or "cancelled"; "other" for what is none of the
 * library's errors (no memory, say), and empty before the first failure. */
const char* qwenlite_error_code(void);

/* Opens a checkpoint directory. threads 0: as many as the process may use. NULL on failure. */
qwenlite_model* qwenlite_open(const char* directory, int32_t threads);

/* Closes the handle; NULL is allowed. Sessions go on, and keep the model in memory. */
void qwenlite_close(qwenlite_model* model);

/* Writes the token ids of a text, at most capacity of them, and returns how many it has. */
int64_t qwenlite_tokenize(const qwenlite_model* model, const char* text, int32_t* ids, size_t capacity);

/* The same for the prompt of a conversation, given as JSON; all but messages may be absent:
 * {"messages": [{"role": "user", "content": "Hello"}], "enable_thinking": false, "tools": [...]} */
int64_t qwenlite_tokenize_chat(const qwenlite_model* model, const char* json, int32_t* ids, size_t capacity);

/* Writes the text of token ids and a zero byte, at most capacity bytes, and returns the text's length. */
int64_t qwenlite_detokenize(const qwenlite_model* model, const int32_t* ids, size_t count, char* text,
                            size_t capacity);

/* Starts an empty session for at most max_tokens tokens; 0: 4096, or what the model allows if that is
 * less. NULL on failure. */
qwenlite_session* qwenlite_session_new(const qwenlite_model* model, int64_t max_tokens);
void qwenlite_session_free(qwenlite_session* session);

/* Number of tokens in the session. */
int64_t qwenlite_session_length(const qwenlite_session* session);

/* Forgets all tokens after the first `length`; 0 empties the session. Returns 0. */
int32_t qwenlite_session_truncate(qwenlite_session* session, int64_t length);

/* Appends tokens to the session and returns the likeliest token after them: for a loop of your own. */
int32_t qwenlite_next(qwenlite_session* session, const int32_t* ids, size_t count);

typedef struct qwenlite_options {
  int64_t max_new_tokens; /* 0: as many as the session has room for */
  double temperature;     /* 0: always the likeliest token; negative: what the checkpoint suggests */
  uint64_t seed;          /* the same seed gives the same text */
  const char* stop;       /* the text ends before this string; NULL: no such string */
} qwenlite_options;

/* Takes text as it comes; it is valid during the call and ends in no zero byte. 0 ends the reply. */
typedef int32_t (*qwenlite_receiver)(const char* text, size_t length, void* user);

/* Appends tokens to the session and hands the model's reply to the receiver. options NULL: {0, -1, 0,
 * NULL}. Returns the number of tokens generated. They are then in the session too, save the last one when
 * something else than the model ended the reply. */
int64_t qwenlite_generate(qwenlite_session* session, const int32_t* ids, size_t count,
                          const qwenlite_options* options, qwenlite_receiver receiver, void* user);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
