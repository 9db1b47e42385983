// Waiting for SIGTERM or SIGINT.
#ifndef FORETOKEN_COMMON_RPC_SIGNALS_H_
#define FORETOKEN_COMMON_RPC_SIGNALS_H_

namespace foretoken::rpc {

// From now on the first SIGTERM or SIGINT is kept for WaitForSignal; a second
// one has its default effect and ends the process.
void CatchSignals();

// Blocks until a signal arrives; returns its number. Call CatchSignals first.
int WaitForSignal();

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_SIGNALS_H_
