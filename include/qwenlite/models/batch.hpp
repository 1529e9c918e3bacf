// SPDX-License-Identifier: Apache-2.0
//
// Batch: new tokens of several sessions, of any lengths, for one forward, and its results.
//
// All rows of a batch are processed in parts of at most `chunk` rows, cut without regard to sequences;
// bits of a sequence depend neither on the cuts nor on its neighbours. Buffers are kept between forwards:
// repeating one of the same size allocates nothing. One caller at a time.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <qwenlite/models/rotary.hpp>
#include <qwenlite/models/workspace.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

template <class Network>
class Session;

/// A member that tells whether its object still has its contents: not once it was moved from.
class Presence {
 public:
  Presence() = default;
  Presence(Presence&& other) noexcept : here_(std::exchange(other.here_, false)) {}
  Presence& operator=(Presence&& other) noexcept {
    here_ = std::exchange(other.here_, false);
    return *this;
  }
  ~Presence() = default;

  /// Throws `bad_argument`: "`what` was moved from", unless it is still there.
  void check(const char* what) const {
    if (!here_) throw Error(ErrorCode::bad_argument, {what, " was moved from"});
  }

 private:
  bool here_ = true;
};

/// Which tokens of a sequence get results.
enum class Logits : std::uint8_t { none, last, all };

/// Room to make beforehand (a batch grows when it needs more), and the kind of results.
struct BatchOptions {
  Index sequences = 1;
  Index max_tokens = 1;  ///< of the longest session
  bool logits = true;    ///< keep logits of the tokens asked for
  bool hidden = false;   ///< keep hidden states of the tokens asked for, after the final norm
};

/// Rows of a batch that pass through the layers together.
struct BatchPart {
  Index row = 0;           ///< rows [row, row + rows) of the batch
  Index rows = 0;          ///< at most `chunk`
  Index first_result = 0;  ///< those of its rows that get results, counted over the batch
  Index results = 0;
};

/// Tokens of several sessions for one forward, and its results.
template <class Network>
class Batch {
 public:
  using Session = qwenlite::Session<Network>;
  using Kv = typename Network::Kv;
  using State = typename Network::State;

  /// An empty batch. Throws `bad_argument` unless the sizes are positive.
  explicit Batch(const Network& network, const BatchOptions& options = {});

  /// Adds `tokens` as the continuation of a session; returns the number of the item.
  /// Throws `bad_argument` for no tokens, an id out of range, a session of another model or one already in
  /// the batch; `context_full` when the session has no room. The session must stay as it is (and where it
  /// is) until the forward is done.
  Index add(Session& session, std::span<const int> tokens, Logits which = Logits::last);

  /// With results for chosen tokens: ascending indices into `tokens`.
  Index add(Session& session, std::span<const int> tokens, std::span<const Index> which);

  /// Removes all items and results. Needed between two forwards.
  void clear() noexcept;

  /// Which kinds of results the next forward keeps. Throws `bad_argument` between a forward and clear().
  void keep(bool logits, bool hidden) {
    require(!done_, "a batch must be cleared before other results are chosen");
    keep_logits_ = logits;
    keep_hidden_ = hidden;
  }

  /// Shows intermediate results to `sink` from now on; null stops it. The sink must outlive its use.
  void observe(const TraceSink* sink) noexcept { trace_ = sink; }

  /// Number of items.
  [[nodiscard]] Index size() const noexcept { return static_cast<Index>(items_.size()); }

  /// Results of an item after the forward: [tokens asked for, vocab_size] and [.., hidden_size]. Valid
  /// until clear(). Throws `bad_argument` before the forward, and for a kind that it did not keep; an item
  /// added with Logits::none has no rows.
  [[nodiscard]] ConstMatrix<float> logits(Index item) const {
    const Item& at = finished(item, keep_logits_);
    return read_only(workspace_.logits(at.first_result, at.results));
  }
  [[nodiscard]] ConstMatrix<float> hidden(Index item) const {
    const Item& at = finished(item, keep_hidden_);
    return read_only(workspace_.hidden(at.first_result, at.results));
  }

  [[nodiscard]] const Network& network() const noexcept { return network_; }
  /// Bytes of scratch memory and results.
  [[nodiscard]] Index bytes() const noexcept {
    return workspace_.bytes() + static_cast<Index>(tokens_.capacity() * sizeof(int)) +
           static_cast<Index>(results_.capacity() * sizeof(Index));
  }

 private:
  friend Network;

  struct Item {
    Session* session = nullptr;
    Index row = 0;       // its rows are [row, row + rows)
    Index rows = 0;      // new tokens; with a policy that retains nothing, the history before them too
    Index position = 0;  // of its first row in the sequence
    Index first_result = 0;
    Index results = 0;
  };

  Item& add_rows(Session& session, std::span<const int> tokens);
  void check(const Session& session, std::span<const int> tokens) const;
  [[nodiscard]] const Item& finished(Index item, bool kept) const;

  // The steps of a forward, for Network.
  void begin();
  [[nodiscard]] bool wants_results() const noexcept { return !results_.empty(); }
  [[nodiscard]] Index parts() const noexcept { return ceil_div(rows(), chunk()); }
  [[nodiscard]] BatchPart part(Index index) const noexcept;
  [[nodiscard]] std::span<const int> tokens(const BatchPart& part) const noexcept;
  [[nodiscard]] Matrix<float> stream(const BatchPart& part) const noexcept;
  void turn(const BatchPart& part, const Rotary& rotary) noexcept;
  [[nodiscard]] Pass<Kv, State> pass(const BatchPart& part);
  [[nodiscard]] Matrix<float> gather(const BatchPart& part) const noexcept;
  void commit(const BatchPart& part);

  [[nodiscard]] Index rows() const noexcept { return static_cast<Index>(tokens_.size()); }
  [[nodiscard]] Index chunk() const noexcept { return network_.chunk(); }
  [[nodiscard]] Index first_stream_row(const BatchPart& part) const noexcept {
    return Kv::retains ? 0 : part.row;
  }
  template <class F>
  void for_each_piece(const BatchPart& part, const F& f) const;

  Network network_;
  bool keep_logits_;
  bool keep_hidden_;
  bool done_ = false;
  Presence presence_;
  const TraceSink* trace_ = nullptr;
  std::vector<Item> items_;
  std::vector<int> tokens_;     // of all rows
  std::vector<Index> results_;  // rows that get results, ascending
  std::vector<Piece<Kv>> pieces_;
  std::vector<Memory<Kv, State>> memories_;
  Workspace workspace_;
};

// ------------------------------------------------------------------------------------ adding sequences

template <class Network>
Batch<Network>::Batch(const Network& network, const BatchOptions& options)
    : network_(network),
      keep_logits_(options.logits),
      keep_hidden_(options.hidden),
      workspace_(network.ops(), network.sizes()) {
  require(options.sequences > 0 && options.max_tokens > 0, "sizes of a batch must be positive");
  const Index rows = std::min(chunk(), options.max_tokens);
  workspace_.grow({.rows = rows,
                   .stream_rows = Kv::retains ? rows : options.max_tokens,
                   .sequences = options.sequences,
                   .max_tokens = options.max_tokens});
  workspace_.grow_results(options.sequences, keep_logits_ ? options.sequences : 0,
                          keep_hidden_ ? options.sequences : 0);
  tokens_.reserve(static_cast<std::size_t>(options.max_tokens));
  results_.reserve(static_cast<std::size_t>(options.sequences));
}

template <class Network>
Index Batch<Network>::add(Session& session, std::span<const int> tokens, Logits which) {
  const auto count = static_cast<Index>(tokens.size());
  const Index first = which == Logits::all ? 0 : which == Logits::last ? count - 1 : count;
  Item& item = add_rows(session, tokens);
  for (Index i = first; i < count; ++i) results_.push_back(item.row + item.rows - count + i);
  item.results = count - first;
  return size() - 1;
}

template <class Network>
Index Batch<Network>::add(Session& session, std::span<const int> tokens, std::span<const Index> which) {
  const auto count = static_cast<Index>(tokens.size());
  Index last = -1;
  for (const Index i : which) {
    require(i > last && i < count, "tokens with results: indices must ascend and lie within the tokens");
    last = i;
  }
  Item& item = add_rows(session, tokens);
  for (const Index i : which) results_.push_back(item.row + item.rows - count + i);
  item.results = static_cast<Index>(which.size());
  return size() - 1;
}

/// Checks everything, then adds the rows of an item that has no results yet.
template <class Network>
typename Batch<Network>::Item& Batch<Network>::add_rows(Session& session, std::span<const int> tokens) {
  check(session, tokens);
  Item item;
  item.session = &session;
  item.row = rows();
  item.position = session.length();
  item.first_result = static_cast<Index>(results_.size());
  if constexpr (!Kv::retains) {
    item.position = 0;
    tokens_.insert(tokens_.end(), session.tokens().begin(), session.tokens().end());
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  item.rows = rows() - item.row;
  items_.push_back(item);
  return items_.back();
}

template <class Network>
void Batch<Network>::check(const Session& session, std::span<const int> tokens) const {
  presence_.check("the batch");
  session.presence_.check("the session");
  require(!done_, "a batch must be cleared before it is used again");
  require(!tokens.empty(), "a forward needs at least one token");
  require(session.network_.same_as(network_), "the session belongs to another model");
  for (const Item& item : items_) require(item.session != &session, "the session is already in this batch");
  const Index vocab_size = network_.vocab_size();
  for (const int id : tokens) {
    if (id >= 0 && id < vocab_size) continue;
    throw Error(ErrorCode::bad_argument, "token id", id, {"0 to ", vocab_size - 1});
  }
  const Index needed = session.length() + static_cast<Index>(tokens.size());
  if (needed <= session.max_tokens()) return;
  throw Error(ErrorCode::context_full, "context of the session", {needed, " tokens"},
              {"at most ", session.max_tokens(), " (max_tokens)"});
}

template <class Network>
void Batch<Network>::clear() noexcept {
  items_.clear();
  tokens_.clear();
  results_.clear();
  done_ = false;
}

template <class Network>
const typename Batch<Network>::Item& Batch<Network>::finished(Index item, bool kept) const {
  require(item >= 0 && item < size(), "results: no such item in the batch");
  require(done_ && kept, "results: not computed (no forward yet, or of a kind that was not asked for)");
  return items_[static_cast<std::size_t>(item)];
}

// ------------------------------------------------------------------------------- the steps of a forward

/// Makes room. After this, nothing but an observer or a check of kernels (OpenOptions::check) throws.
template <class Network>
void Batch<Network>::begin() {
  presence_.check("the batch");
  require(!done_, "a batch must be cleared before it is used again");
  WorkspaceLimits needed{.rows = std::min(rows(), chunk()), .sequences = size()};
  needed.stream_rows = Kv::retains ? needed.rows : rows();
  for (const Item& item : items_) {
    item.session->presence_.check("a session of the batch");
    const Index before = item.position + item.rows - item.session->max_tokens();
    require(before <= 0 && (!Kv::retains || item.position == item.session->length()),
            "a session changed between add() and forward()");
    needed.max_tokens = std::max(needed.max_tokens, item.session->max_tokens());
  }
  workspace_.grow(needed);
  const auto results = static_cast<Index>(results_.size());
  workspace_.grow_results(std::min(results, needed.rows), keep_logits_ ? results : 0,
                          keep_hidden_ ? results : 0);
  pieces_.reserve(items_.size());
  memories_.reserve(items_.size());
  done_ = true;
}

template <class Network>
BatchPart Batch<Network>::part(Index index) const noexcept {
  const Index row = index * chunk();
  const Index end = std::min(rows(), row + chunk());
  const auto first = std::lower_bound(results_.begin(), results_.end(), row);
  const auto last = std::lower_bound(first, results_.end(), end);
  return {row, end - row, first - results_.begin(), last - first};
}

template <class Network>
std::span<const int> Batch<Network>::tokens(const BatchPart& part) const noexcept {
  return std::span(tokens_).subspan(static_cast<std::size_t>(part.row), static_cast<std::size_t>(part.rows));
}

/// The residual stream of a part [rows, hidden_size].
template <class Network>
Matrix<float> Batch<Network>::stream(const BatchPart& part) const noexcept {
  return workspace_.stream(first_stream_row(part), part.rows);
}

/// Calls f(item, piece) for each sequence with rows in the part; the piece counts rows from the part's first.
template <class Network>
template <class F>
void Batch<Network>::for_each_piece(const BatchPart& part, const F& f) const {
  for (const Item& item : items_) {
    const Index first = std::max(item.row, part.row);
    const Index end = std::min(item.row + item.rows, part.row + part.rows);
    if (first >= end) continue;
    f(item, Piece<Kv>{.cache = &item.session->kv_,
                      .row = first - part.row,
                      .count = end - first,
                      .position = item.position + first - item.row});
  }
}

/// Computes the rotary angles of a part.
template <class Network>
void Batch<Network>::turn(const BatchPart& part, const Rotary& rotary) noexcept {
  const Index row = first_stream_row(part);
  for_each_piece(part, [&](const Item&, const Piece<Kv>& piece) {
    rotary.fill(piece.position, piece.count, workspace_.cos(row + piece.row),
                workspace_.sin(row + piece.row));
  });
}

template <class Network>
Pass<typename Network::Kv, typename Network::State> Batch<Network>::pass(const BatchPart& part) {
  pieces_.clear();
  memories_.clear();
  for_each_piece(part, [&](const Item& item, const Piece<Kv>& piece) {
    pieces_.push_back(piece);
    memories_.push_back({&item.session->kv_, &item.session->state_});
  });
  const Index row = first_stream_row(part);
  return {.ops = network_.ops(),
          .scratch = workspace_.scratch(),
          .activations = workspace_.activations(),
          .angles = {workspace_.cos(row), workspace_.sin(row), network_.sizes().rotary_half},
          .pieces = pieces_,
          .memories = memories_,
          .delta = workspace_.delta_scratch(),
          .trace = trace_};
}

/// Copies the rows of a part that get results out of the stream: [part.results, hidden_size].
template <class Network>
Matrix<float> Batch<Network>::gather(const BatchPart& part) const noexcept {
  const Matrix<float> from = stream(part);
  Matrix<float> to = workspace_.selected(part.results);
  for (Index i = 0; i < part.results; ++i) {
    const Index row = results_[static_cast<std::size_t>(part.first_result + i)] - part.row;
    std::copy_n(from.data() + row * from.outerStride(), from.cols(), to.data() + i * to.outerStride());
  }
  return to;
}

/// All layers are done with the part: its tokens now belong to their sessions.
template <class Network>
void Batch<Network>::commit(const BatchPart& part) {
  for_each_piece(part, [&](const Item& item, const Piece<Kv>& piece) {
    Session& session = *item.session;
    const Index end = piece.position + piece.count;
    session.kv_.advance(piece.count);
    session.state_.advance(piece.count);
    for (Index position = session.length(); position < end; ++position) {  // without a cache: the new ones
      session.tokens_.push_back(tokens_[static_cast<std::size_t>(item.row + position - item.position)]);
    }
    session.snapshots_.keep_now_and_then(session.state_, session.length());
  });
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
