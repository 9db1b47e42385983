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

async function compare(text) {
  const other = prefs.mode === 'off' ? (model()?.foretoken?.modes?.find((mode) => mode === 'auto') || 'auto') : prefs.mode;
  const panes = [new Pane('off', prefs.output), new Pane(other, prefs.output)];
  $('compare-intro').hidden = true;
  $('echo').replaceChildren(h('b', {}, 'Prompt '), text, prefs.output === 'text' ? '' : ` · ${OUTPUTS[prefs.output].name}`);
  $('echo').hidden = false;
  $('verdict').replaceChildren();
  $('panes').replaceChildren(...panes.map((pane) => pane.element));
  $('panes').hidden = false;
  tree.close();
  abort = new AbortController();
  setRunning(true);
  // The scope of none: the second run must not find what the first one wrote.
  const options = { cache_scope: '', seed: seed(), ...constraint() };
  const messages = [...systemTurn(), { role: 'user', content: text }];
  for (const pane of panes) {
    const reply = await pane.run(messages, options, abort.signal);
    if (reply.error || reply.finish === 'stopped') break;
  }
  abort = null;
  setRunning(false);
  if (panes[1].reply && !panes[1].reply.error && panes[1].reply.finish !== 'stopped') verdict(panes.map((pane) => pane.reply));
}

function verdict([plain, drafted]) {
  const same = plain.tokens.length === drafted.tokens.length && plain.tokens.every((token, i) => token.id === drafted.tokens[i].id) && plain.text === drafted.text;
  const ratio = plain.seconds / Math.max(drafted.seconds, 1e-3);
  const slowest = Math.max(plain.seconds, drafted.seconds, 1e-3);
  const lane = (reply, fast) => {
    const bar = h('i', { class: fast ? 'fast' : false });
    bar.style.width = `${100 * reply.seconds / slowest}%`;
    return [h('span', { class: 'name' }, reply.mode), h('span', { class: 'track' }, bar), h('span', { class: 'num' }, `${reply.seconds.toFixed(2)} s`)];
  };
  $('verdict').replaceChildren(h('div', { class: 'verdict' },
    h('strong', {}, ratio >= 1 ? `${ratio.toFixed(2)} times as fast` : `${(1 / ratio).toFixed(2)} times as slow`), ' with ', h('code', {}, drafted.mode), '. ',
    same ? h('span', { class: 'same' }, `The same ${plain.tokens.length} tokens, one by one.`) : h('span', { class: 'differs' }, 'The outputs differ.'),
    h('div', { class: 'race' }, lane(plain, false), lane(drafted, true))));
  $('scroll').scrollTop = 0;
}

function stop() { if (abort) abort.abort(); }

