// ---- Off, then another mode

class Pane {
  constructor(mode, output) {
    this.mode = mode;
    this.output = output;
    this.clock = h('span', { class: 'clock', 'aria-label': 'Seconds' });
    this.state = h('span', { class: 'state num' }, 'waits');
    this.slot = h('div');
    this.element = h('article', { class: 'pane', 'aria-label': `Mode ${mode}` }, h('header', {}, h('h3', {}, mode), this.state, this.clock), this.slot);
    this.tick(0);
  }
  tick(seconds) { this.clock.replaceChildren(seconds.toFixed(2), h('small', {}, ' s')); }
  async run(messages, options, signal) {
    this.reply = new Reply(this.mode, this.output);
    this.view = new ReplyView(this.reply, true);
    this.slot.replaceChildren(this.view.element);
    this.element.classList.add('running');
    live.follow(this.view);
    const timer = setInterval(() => this.update(), 50);
    await run(this.reply, messages, options, signal, () => drawSoon(this.view));
    clearInterval(timer);
    this.element.classList.remove('running');
    this.update();
    drawNow(this.view);
    return this.reply;
  }
  update() {
    this.tick(this.reply.seconds);
    this.state.textContent = this.reply.tokens.length > 0 ? `${this.reply.tokens.length} tokens` + (this.reply.rate ? `, ${round1(this.reply.rate)}/s` : '') : 'reads the prompt';
  }
}

// Runs `text` twice; `output` and `source` constrain both replies.
async function compare(text, output, source) {
  const other = prefs.mode === 'off' ? (model()?.foretoken?.modes?.find((mode) => mode === 'auto') || 'auto') : prefs.mode;
  const panes = [new Pane('off', output), new Pane(other, output)];
  $('compare-intro').hidden = true;
  $('echo').replaceChildren(h('b', {}, 'Prompt '), text, output === 'text' ? '' : ` · ${OUTPUTS[output].name}`);
  $('echo').hidden = false;
  $('echo').scrollTop = 0;
  $('verdict').replaceChildren();
  $('panes').replaceChildren(...panes.map((pane) => pane.element));
  $('panes').hidden = false;
  tree.close();
  abort = new AbortController();
  setRunning(true);
  // The scope of none: the second run must not find what the first one wrote.
  const options = { cache_scope: '', seed: seed(), ...constraint(output, source) };
  const messages = [...systemTurn(), { role: 'user', content: text }];
  for (const pane of panes) {
    const reply = await pane.run(messages, options, abort.signal);
    if (reply.error || reply.finish === 'stopped') break;
  }
  abort = null;
  setRunning(false);
  if (panes[1].reply && !panes[1].reply.error && panes[1].reply.finish !== 'stopped') verdict(panes.map((pane) => pane.reply));
}

// Compares the times of two runs with the same output, measured from sending the
// prompt to the last token.
function difference(plain, drafted) {
  const [before, after] = [plain, drafted].map(({ seconds }) => Math.max(seconds, 1e-3));
  const faster = after <= before;
  return [
    h('strong', {}, faster ? `${(before / after).toFixed(2)} times as fast` : `${(after / before).toFixed(2)} times as slow`), ' with ', h('code', {}, drafted.mode), ': ',
    h('span', { class: 'saved num' }, faster ? `${percent(1 - after / before, 1)} of the time saved` : `${percent(after / before - 1, 1)} more time`), '. ',
  ];
}

function verdict([plain, drafted]) {
  const same = plain.tokens.length === drafted.tokens.length && plain.tokens.every((token, i) => token.id === drafted.tokens[i].id) && plain.text === drafted.text;
  const slowest = Math.max(plain.seconds, drafted.seconds, 1e-3);
  const lane = (reply, fast) => {
    const bar = h('i', { class: fast ? 'fast' : false });
    bar.style.width = `${100 * reply.seconds / slowest}%`;
    return [h('span', { class: 'name' }, reply.mode), h('span', { class: 'track' }, bar), h('span', { class: 'num' }, `${reply.seconds.toFixed(2)} s`)];
  };
  $('verdict').replaceChildren(h('div', { class: 'verdict' },
    same ? [...difference(plain, drafted), h('span', { class: 'same' }, `The same ${plain.tokens.length} tokens, one by one.`)]
      : [h('strong', { class: 'differs' }, 'The outputs differ.'), ' Their times cannot be compared.'],
    h('div', { class: 'race' }, lane(plain, false), lane(drafted, true))));
  $('scroll').scrollTop = 0;
}

function newComparison() {
  stop();
  tree.close();
  live.follow(null);
  for (const id of ['echo', 'verdict', 'panes']) $(id).replaceChildren();
  $('echo').hidden = $('panes').hidden = true;
  $('compare-intro').hidden = false;
  $('prompt').focus();
}

function stop() { if (abort) abort.abort(); }

