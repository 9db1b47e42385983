// The channel described by a command's flags.
#ifndef FORETOKEN_TOOLS_CLI_SERVER_CHANNEL_H_
#define FORETOKEN_TOOLS_CLI_SERVER_CHANNEL_H_

#include "common/rpc/channel.h"
#include "tools/cli/shared_options.h"

namespace foretoken::cli {

inline rpc::ChannelOptions ChannelOf(const ServerFlags& flags) {
  rpc::ChannelOptions channel;
  channel.insecure = flags.insecure;
  channel.tls_ca = flags.tls_ca;
  channel.tls_cert = flags.tls_cert;
  channel.tls_key = flags.tls_key;
  channel.tls_name = flags.tls_name;
  return channel;
}

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_SERVER_CHANNEL_H_
