// A ClientSocket that encrypts.
//
// OpenSSL reads from and writes to the socket itself, without buffers of its
// own in between: what the client has not taken yet stays where it is counted,
// in records of at most 16 KiB. The client's end without close_notify is its
// end like any other.
#ifndef FORETOKEN_SERVICES_GATEWAY_ADAPTERS_TLS_SOCKET_H_
#define FORETOKEN_SERVICES_GATEWAY_ADAPTERS_TLS_SOCKET_H_

#include <memory>
#include <string>

#include "services/gateway/adapters/client_socket.h"
#include "services/gateway/adapters/tls_sessions.h"

namespace foretoken::gateway::beast_server {

// `refusal` is sent, as it is, to a client whose first bytes are those of an
// HTTP request. Null: there is no memory for it.
std::unique_ptr<ClientSocket> MakeTlsSocket(Socket socket, Ssl ssl,
                                            std::string refusal);

}  // namespace foretoken::gateway::beast_server

#endif  // FORETOKEN_SERVICES_GATEWAY_ADAPTERS_TLS_SOCKET_H_
