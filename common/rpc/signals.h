// SIGTERM and SIGINT as something to wait for.
#ifndef FORETOKEN_COMMON_RPC_SIGNALS_H_
#define FORETOKEN_COMMON_RPC_SIGNALS_H_

namespace foretoken::rpc {

// From now on the first SIGTERM or SIGINT is kept for WaitForSignal; a second
// one ends the process as it would have without us.
void CatchSignals();

// Blocks until a signal came; gives its number. CatchSignals must have run.
int WaitForSignal();

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_SIGNALS_H_
