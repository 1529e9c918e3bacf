// SPDX-License-Identifier: Apache-2.0
//
// Conversations with AnyModel for programs that link the target qwenlite_instances.
#include <qwenlite/chat.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

template class ChatSession<AnyModel>;

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
