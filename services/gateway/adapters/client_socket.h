// ClientSocket: what a connection reads and writes, plain or encrypted
// (tls_socket.h).
//
// Used on the thread of its io_context alone. At most one ReadSome and one
// WriteSome are under way at a time. No callback is called before its function
// has returned, except Handshake's; a callback may hold what owns the socket.
#ifndef FORETOKEN_SERVICES_GATEWAY_ADAPTERS_CLIENT_SOCKET_H_
#define FORETOKEN_SERVICES_GATEWAY_ADAPTERS_CLIENT_SOCKET_H_

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <functional>
#include <memory>

namespace foretoken::gateway::beast_server {

using Socket =
    boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol,
                                     boost::asio::io_context::executor_type>;

class ClientSocket {
 public:
  using Done =
      std::function<void(const boost::system::error_code& error, size_t bytes)>;

  virtual ~ClientSocket() = default;

  // Comes first. Any error ends the connection.
  virtual void Handshake(
      std::function<void(const boost::system::error_code& error)> done) = 0;
  // The client's end, however it comes, is an error.
  virtual void ReadSome(boost::asio::mutable_buffer into, Done done) = 0;
  // `from` stays where it is until `done` is called.
  virtual void WriteSome(boost::asio::const_buffer from, Done done) = 0;
  // Tells the client that nothing more comes. Reading goes on.
  virtual void ShutdownSend() = 0;
  // `whole`: nothing that was to be sent is missing, which a client with TLS is
  // told. Closed once; callbacks still come, with errors.
  virtual void Close(bool whole) = 0;

  // Descriptor on which others may send plain bytes; -1: none.
  virtual int plain_fd() = 0;
};

std::unique_ptr<ClientSocket> MakePlainSocket(Socket socket);

}  // namespace foretoken::gateway::beast_server

#endif  // FORETOKEN_SERVICES_GATEWAY_ADAPTERS_CLIENT_SOCKET_H_
