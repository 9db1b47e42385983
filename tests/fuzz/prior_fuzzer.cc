// A static prior out of arbitrary bytes must be refused or safe to read. Half
// of the inputs get a right checksum, so that the checks behind it are reached.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/digest.h"
#include "common/drafting/ngram_counts.h"
#include "common/drafting/prior_builder.h"
#include "common/drafting/prior_format.h"
#include "common/drafting/static_prior.h"

namespace foretoken {
namespace {

// Reads everything that a drafter could reach.
void Walk(const StaticPrior& prior) {
  float sum = 0;
  for (TokenId token = -1; token <= std::min(prior.vocab_size(), 512);
       ++token) {
    sum += prior.Unigram(token);
    StaticPrior::List list = prior.AfterToken(token);
    for (int depth = 0; depth < StaticPrior::kMaxOrder && list.size != 0;
         ++depth) {
      const uint32_t last = list.first + list.size - 1;
      sum += prior.ProbabilityOf(last) + list.backoff;
      static_cast<void>(prior.Find(list, prior.TokenOf(last)));
      static_cast<void>(prior.Find(list, token));
      list = prior.AfterEntry(depth % 2 == 0 ? last : list.first);
    }
  }
  if (!(sum >= 0)) std::abort();
}

const std::string& Valid() {
  static const std::string bytes = [] {
    std::vector<TokenId> corpus;
    for (TokenId i = 0; i < 300; ++i) {
      corpus.push_back(i % 7 == 6 ? kDocumentBorder : i * i % 11);
    }
    PriorBuildOptions options;
    options.order = 4;
    options.vocab_size = 11;
    auto built = BuildPrior(corpus, options);
    if (!built.ok()) std::abort();
    return *std::move(built);
  }();
  return bytes;
}

void Seal(std::string& bytes) {
  if (bytes.size() < sizeof(PriorHeader) + sizeof(Sha256Digest)) return;
  const size_t body = bytes.size() - sizeof(Sha256Digest);
  const Sha256Digest digest =
      Sha256().Update(absl::string_view(bytes.data(), body)).Finish();
  std::memcpy(bytes.data() + body, digest.data(), digest.size());
}

}  // namespace
}  // namespace foretoken

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken;  // NOLINT
  if (size == 0) return 0;
  std::string bytes;
  if ((data[0] & 1) != 0) {
    // A valid prior with edits: pairs of position and new byte.
    bytes = Valid();
    for (size_t i = 1; i + 2 < size; i += 3) {
      const size_t at = (data[i] | size_t{data[i + 1]} << 8) % bytes.size();
      bytes[at] = static_cast<char>(data[i + 2]);
    }
  } else {
    bytes.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  }
  if ((data[0] & 2) != 0) Seal(bytes);
  const auto prior = StaticPrior::FromBytes(
      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "fuzz",
      Sha256Digest{});
  if (prior.ok()) Walk(**prior);
  return 0;
}
