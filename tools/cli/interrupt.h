// Ctrl-C as a wish to stop early: the first SIGINT is noted, a second one has
// its default effect.
#ifndef FORETOKEN_TOOLS_CLI_INTERRUPT_H_
#define FORETOKEN_TOOLS_CLI_INTERRUPT_H_

namespace foretoken::cli {

// Begins to note it, and forgets what was noted.
void CatchInterrupt();
// Gives SIGINT its default effect back.
void ReleaseInterrupt();
// Whether it was noted. From any thread.
bool Interrupted();

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_INTERRUPT_H_
