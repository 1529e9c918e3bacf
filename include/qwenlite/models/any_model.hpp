// SPDX-License-Identifier: Apache-2.0
//
// AnyOf: one of several networks, chosen at run time by what a checkpoint holds, with the member functions
// of Model. AnyModel is the set that open() chooses from.
//
// The choice is a std::variant visited once per call, so it costs nothing per token; a program that lists
// other networks contains those and no others.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <qwenlite/models/decoder.hpp>
#include <qwenlite/models/qwen3.hpp>
#include <qwenlite/models/qwen3_5.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// One of several networks. Its members, and those of its Session and Batch, are those of Model,
/// qwenlite::Session and qwenlite::Batch, where they are described.
template <class... Networks>
class AnyOf {
 public:
  /// A session of one of the networks.
  class Session {
   public:
    explicit Session(const AnyOf& model, const SessionOptions& options = {})
        : session_(
              model.visit([&](const auto& network) -> Sessions { return network.new_session(options); })) {}

    [[nodiscard]] Index length() const noexcept {
      return visit([](const auto& s) { return s.length(); });
    }
    [[nodiscard]] Index max_tokens() const noexcept {
      return visit([](const auto& s) { return s.max_tokens(); });
    }
    [[nodiscard]] std::span<const int> tokens() const noexcept {
      return visit([](const auto& s) { return s.tokens(); });
    }
    Index truncate(Index n) {
      return std::visit([&](auto& s) { return s.truncate(n); }, session_);
    }
    void remember(Index n) {
      std::visit([n](auto& s) { s.remember(n); }, session_);
    }
    void remember() { remember(length()); }
    [[nodiscard]] bool remembers() const noexcept {
      return visit([](const auto& s) { return s.remembers(); });
    }
    [[nodiscard]] bool retains() const noexcept {
      return visit([](const auto& s) { return s.retains(); });
    }
    [[nodiscard]] Index kv_capacity_bytes() const noexcept {
      return visit([](const auto& s) { return s.kv_capacity_bytes(); });
    }
    [[nodiscard]] Index kv_used_bytes() const noexcept {
      return visit([](const auto& s) { return s.kv_used_bytes(); });
    }
    [[nodiscard]] Index bytes() const noexcept {
      return visit([](const auto& s) { return s.bytes(); });
    }

   private:
    friend class AnyOf;
    using Sessions = std::variant<typename Networks::Session...>;

    template <class F>
    [[nodiscard]] auto visit(const F& f) const noexcept {
      return std::visit(f, session_);
    }
    /// The session as one of `Network`; throws `bad_argument` when it is another's.
    template <class Network>
    [[nodiscard]] typename Network::Session& of(const Network& /*network*/) {
      auto* session = std::get_if<typename Network::Session>(&session_);
      require(session != nullptr, "the session belongs to another model");
      return *session;
    }

    Sessions session_;
  };

  /// A batch of sessions of one network; see qwenlite::Batch.
  class Batch {
   public:
    explicit Batch(const AnyOf& model, const BatchOptions& options = {})
        : batch_(model.visit([&](const auto& network) -> Batches {
            return typename std::remove_cvref_t<decltype(network)>::Batch(network, options);
          })) {}

    Index add(Session& session, std::span<const int> tokens, Logits which = Logits::last) {
      return std::visit([&](auto& batch) { return batch.add(session.of(batch.network()), tokens, which); },
                        batch_);
    }
    Index add(Session& session, std::span<const int> tokens, std::span<const Index> which) {
      return std::visit([&](auto& batch) { return batch.add(session.of(batch.network()), tokens, which); },
                        batch_);
    }
    void clear() noexcept {
      std::visit([](auto& batch) { batch.clear(); }, batch_);
    }
    void keep(bool logits, bool hidden) {
      std::visit([&](auto& batch) { batch.keep(logits, hidden); }, batch_);
    }
    [[nodiscard]] Index size() const noexcept {
      return std::visit([](const auto& batch) { return batch.size(); }, batch_);
    }
    [[nodiscard]] ConstMatrix<float> logits(Index item) const {
      return std::visit([&](const auto& batch) { return batch.logits(item); }, batch_);
    }
    [[nodiscard]] ConstMatrix<float> hidden(Index item) const {
      return std::visit([&](const auto& batch) { return batch.hidden(item); }, batch_);
    }

   private:
    friend class AnyOf;
    using Batches = std::variant<typename Networks::Batch...>;
    Batches batch_;
  };

  template <class Network>
  requires(std::is_same_v<Network, Networks> || ...) AnyOf(Network network)  // NOLINT(google-explicit-*)
      : network_(std::move(network)) {}

  [[nodiscard]] Session new_session(const SessionOptions& options = {}) const {
    return Session(*this, options);
  }

  void forward(Batch& batch) const {
    visit([&](const auto& network) {
      auto* own = std::get_if<typename std::remove_cvref_t<decltype(network)>::Batch>(&batch.batch_);
      require(own != nullptr, "the batch belongs to another model");
      network.forward(*own);
    });
  }
  void prefill(Session& session, std::span<const int> tokens) const {
    visit([&](const auto& network) { network.prefill(session.of(network), tokens); });
  }
  std::span<const float> logits(Session& session, std::span<const int> tokens) const {
    return visit([&](const auto& network) { return network.logits(session.of(network), tokens); });
  }
  ConstMatrix<float> logits(Session& session, std::span<const int> tokens, Logits which) const {
    return visit([&](const auto& network) { return network.logits(session.of(network), tokens, which); });
  }
  ConstMatrix<float> logits(Session& session, std::span<const int> tokens,
                            std::span<const Index> which) const {
    return visit([&](const auto& network) { return network.logits(session.of(network), tokens, which); });
  }
  ConstMatrix<float> hidden(Session& session, std::span<const int> tokens,
                            Logits which = Logits::last) const {
    return visit([&](const auto& network) { return network.hidden(session.of(network), tokens, which); });
  }
  void trace(Session& session, std::span<const int> tokens, const TraceSink& sink) const {
    visit([&](const auto& network) { network.trace(session.of(network), tokens, sink); });
  }

  [[nodiscard]] const ModelConfig& config() const noexcept {
    return visit([](const auto& network) -> const ModelConfig& { return network.config(); });
  }
  [[nodiscard]] Index vocab_size() const noexcept {
    return visit([](const auto& network) { return network.vocab_size(); });
  }
  [[nodiscard]] Index token_count() const noexcept {
    return visit([](const auto& network) { return network.token_count(); });
  }
  [[nodiscard]] std::span<const int> stop_ids() const noexcept {
    return visit([](const auto& network) { return network.stop_ids(); });
  }
  [[nodiscard]] GenerationDefaults defaults(std::optional<bool> thinking = {}) const {
    return visit([&](const auto& network) { return network.defaults(thinking); });
  }
  [[nodiscard]] Explanation explain(const SessionOptions& options = {}) const {
    return visit([&](const auto& network) { return network.explain(options); });
  }
  [[nodiscard]] const Ops& ops() const noexcept {
    return visit([](const auto& network) -> const Ops& { return network.ops(); });
  }

  /// Calls f with the network that was chosen.
  template <class F>
  decltype(auto) visit(const F& f) const {
    return std::visit(f, network_);
  }

 private:
  std::variant<Networks...> network_;
};

/// What open() chooses from.
using AnyModel = AnyOf<Model<Qwen3>, Model<Qwen3_5>>;

/// Opens a checkpoint as the first of the networks of `Any` that has the checkpoint's model_type and that
/// `accept` agrees to: a callable bool(std::type_identity<Network>). Throws `unsupported` if there is none.
template <class Any, class Accept>
[[nodiscard]] Any open_as(const Checkpoint& checkpoint, const OpenOptions& options, const Accept& accept) {
  return []<class... Networks>(std::type_identity<AnyOf<Networks...>>, const Checkpoint& files,
                               const OpenOptions& how, const Accept& wanted) {
    std::optional<Any> opened;
    const auto attempt = [&]<class Network>(std::type_identity<Network> network) {
      if (opened || files.config().model_type != Network::Shape::model_type || !wanted(network)) return;
      opened.emplace(Network(files, how));
    };
    (attempt(std::type_identity<Networks>{}), ...);
    if (opened) return *std::move(opened);
    throw Error(ErrorCode::unsupported, "config.json: model_type", files.config().model_type,
                "a family that this program was built for");
  }(std::type_identity<Any>{}, checkpoint, options, accept);
}

/// The same for any of them.
template <class Any>
[[nodiscard]] Any open_as(const Checkpoint& checkpoint, const OpenOptions& options = {}) {
  return open_as<Any>(checkpoint, options, [](const auto&) { return true; });
}

/// Opens any network of this library. The checkpoint may be dropped afterwards. Throws as Model's constructor
/// does, `unsupported` for another family, `bad_argument` for options out of range.
[[nodiscard]] inline AnyModel open(const Checkpoint& checkpoint, const OpenOptions& options = {}) {
  return open_as<AnyModel>(checkpoint, options);
}
[[nodiscard]] inline AnyModel open(const std::filesystem::path& directory, const OpenOptions& options = {}) {
  return open(Checkpoint(directory), options);
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifdef QWENLITE_COMPILED
// Compiled once, in cmake/instances/models.cpp.
namespace qwenlite {
inline namespace QWENLITE_ABI {

extern template struct Decoder<Qwen3>;
extern template class Model<Qwen3>;
extern template class Session<Model<Qwen3>>;
extern template class Batch<Model<Qwen3>>;
extern template struct Decoder<Qwen3_5>;
extern template class Model<Qwen3_5>;
extern template class Session<Model<Qwen3_5>>;
extern template class Batch<Model<Qwen3_5>>;
extern template class AnyOf<Model<Qwen3>, Model<Qwen3_5>>;

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
#endif
