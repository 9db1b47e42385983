// ---- A reply and what is measured of it

const MAX_ROUNDS = 8192;

class Reply {
  constructor(mode, output = 'text') {
    this.mode = mode;
    this.output = output;
    this.text = '';    // the thinking, then the content
    this.thought = 0;  // length of the thinking
    this.tokens = [];  // {id, text, drafter, start}: start is an offset into `text`
    this.placed = 0;   // tokens whose start is known
    this.at = 0;       // where the next one begins
    this.lost = false;
    this.rounds = [];
    this.roundEnds = [];  // index into the output after each round
    this.rates = [];
    this.begun = performance.now();
    this.first = 0;
    this.last = 0;
    this.summary = null;
    this.finish = '';
    this.error = '';
    this.running = true;
  }

  take(chunk) {
    if (chunk.error) throw new Refusal(String(chunk.error.message || 'The stream broke off.'), 0);
    const choice = (chunk.choices || [])[0];
    const delta = (choice && choice.delta) || {};
    const thinking = String(delta.reasoning_content || '');
    // Thinking ends where content begins: any that comes later is content.
    if (this.thought === this.text.length) this.thought += thinking.length;
    if (delta.content && !thinking) this.at = Math.max(this.at, this.thought);
    const content = thinking + (delta.content || '');
    const extra = chunk.foretoken || {};
    const now = performance.now();
    if (content || extra.tokens) {
      this.first ||= now;
      this.last = now;
      this.place(content, extra.tokens || []);
    }
    // A number in the last chunk.
    for (const round of Array.isArray(extra.rounds) ? extra.rounds : []) {
      if (this.rounds.length === MAX_ROUNDS) break;
      const before = this.roundEnds.at(-1) ?? 1;  // prefill wrote the first token
      this.rounds.push(round);
      this.roundEnds.push(before + round.committed.length);
    }
    if (choice && choice.finish_reason) this.finish = choice.finish_reason;
    if (extra.timings) this.summary = extra;
  }

  // Appends `content` and finds where each token begins. Text may be held back
  // for longer than its tokens, which then wait for it; a token whose text is not
  // what follows has an empty place.
  place(content, tokens) {
    this.text += content;
    for (const { id, text, drafter } of tokens) {
      this.tokens.push({ id, text: String(text ?? ''), drafter: String(drafter), start: Infinity });
    }
    for (; this.placed < this.tokens.length; ++this.placed) {
      const token = this.tokens[this.placed];
      const rest = this.text.slice(this.at, this.at + token.text.length);
      if (rest.length < token.text.length && token.text.startsWith(rest)) return;
      token.start = this.at;
      if (rest === token.text) this.at += rest.length; else this.lost = true;
    }
    if (this.lost) this.at = this.text.length;  // go on behind what does not fit
    this.lost = false;
  }
  end() {
    this.running = false;
    for (; this.placed < this.tokens.length; ++this.placed) this.tokens[this.placed].start = this.text.length;
  }

  get thinking() { return this.text.slice(0, this.thought); }
  get content() { return this.text.slice(this.thought); }

  // The index of the token that wrote the character at `offset`.
  tokenAt(offset) {
    let low = 0, high = this.tokens.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.tokens[middle].start <= offset) low = middle + 1; else high = middle;
    }
    return low - 1;
  }
  // The round that committed a token; -1: prefill.
  roundOf(index) { return index < 1 ? -1 : this.roundEnds.findIndex((end) => index < end); }
  roundStart(round) { return round === 0 ? 1 : this.roundEnds[round - 1]; }

  get rate() {
    if (this.summary && this.summary.timings.decode_tokens_per_s > 0) return this.summary.timings.decode_tokens_per_s;
    const seconds = (this.last - this.first) / 1000;
    return this.tokens.length > 1 && seconds > 0 ? (this.tokens.length - 1) / seconds : 0;
  }
  // Every round ends with one token of the model's own; prefill has another.
  get length() {
    if (this.summary) return this.summary.accept_length;
    const own = this.tokens.reduce((sum, token) => sum + (token.drafter === 'target'), 0);
    return own > 1 ? (this.tokens.length - 1) / (own - 1) : 0;
  }
  get seconds() {
    return ((this.running ? performance.now() : this.last || this.begun) - this.begun) / 1000;
  }

  // Tokens by drafter, with those per round in at most `bins` equal parts.
  shares(bins) {
    const shares = new Map();
    const rounds = Math.max(1, this.tokens.reduce((sum, token) => sum + (token.drafter === 'target'), 0));
    const count = Math.min(bins, rounds);
    const sizes = new Array(count).fill(0);
    let round = 0;
    for (const token of this.tokens) {
      const bin = Math.min(count - 1, Math.floor(round * count / rounds));
      let share = shares.get(token.drafter);
      if (!share) shares.set(token.drafter, share = { tokens: 0, bins: new Array(count).fill(0) });
      ++share.tokens;
      ++share.bins[bin];
      if (token.drafter === 'target') { ++round; ++sizes[bin]; }
    }
    for (const share of shares.values()) share.bins = share.bins.map((value, i) => value / Math.max(1, sizes[i]));
    return new Map([...shares].sort(([a], [b]) => byOrder(a, b)));
  }
}

// Runs one request to its end; `step` is called after every chunk. Resolves also
// for a reply that was stopped or refused: see finish and error.
async function run(reply, messages, options, signal, step) {
  const body = {
    model: model() ? model().id : prefs.model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
    temperature: prefs.temperature,
    speculation: reply.mode,
    foretoken: { tokens: true, rounds: true },
    ...options,
  };
  if (prefs.top_p < 1) body.top_p = prefs.top_p;
  if (prefs.max_tokens > 0) body.max_tokens = prefs.max_tokens;
  try {
    const response = await fetch('/v1/chat/completions', {
      method: 'POST', signal, headers: { 'content-type': 'application/json', ...headers() }, body: JSON.stringify(body),
    });
    if (!response.ok) throw await refusal(response);
    await events(response, (chunk) => { reply.take(chunk); step(); });
    if (!reply.finish) reply.error = 'The stream ended early.';
  } catch (error) {
    if (error.name === 'AbortError') reply.finish = 'stopped';
    else reply.error = error instanceof Refusal ? error.message : 'The connection to the server broke.';
    if (error instanceof Refusal && /^(response_format|structured_outputs)\b/.test(error.param)) {
      complain(error.message.replace(error.param + ': ', ''));
      // The user can send the prompt again after mending the constraint.
      if ($('prompt').value === '') $('prompt').value = messages.at(-1).content;
      fitPrompt();
    }
    if (!(error instanceof Refusal) && error.name !== 'AbortError') console.warn(error);
  }
  reply.end();
  step();
}

