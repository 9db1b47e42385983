// ---- Measurements

function plot(svg, values, top) {
  const height = svg.viewBox.baseVal.height || 28;
  if (values.length === 0) { svg.replaceChildren(); return; }
  if (values.length === 1) values = [values[0], values[0]];
  const x = (i) => (100 * i / (values.length - 1)).toFixed(2);
  const y = (value) => (height - 1 - (height - 3) * value / (top || 1)).toFixed(2);
  const line = values.map((value, i) => `${i ? 'L' : 'M'}${x(i)} ${y(value)}`).join('');
  svg.replaceChildren(
    s('path', { class: 'fill', d: `${line}L100 ${height}L0 ${height}Z` }),
    s('path', { class: 'line', d: line }));
}

const BINS = 32;
const live = {
  view: null,
  rows: new Map(),
  solo: '',

  // `view` is what is measured from now on.
  follow(view) {
    this.view = view;
    this.rows.clear();
    $('drafters').replaceChildren();
    this.setSolo('');
    this.draw();
  },

  sample() {
    const reply = this.view?.reply;
    const now = performance.now();
    if (!reply?.first) return;
    if (reply.sampled) {
      reply.rates.push((reply.tokens.length - reply.sampledTokens) * 1000 / (now - reply.sampled));
      if (reply.rates.length > 240) reply.rates.shift();
    }
    reply.sampled = now;
    reply.sampledTokens = reply.tokens.length;
  },

  draw() {
    const reply = this.view && this.view.reply;
    $('drafters-note').hidden = Boolean(reply && reply.tokens.length > 0);
    const number = (value, digits) => (value ? (digits === 1 ? round1(value) : value.toFixed(digits)) : '–');
    $('rate').textContent = number(reply && reply.rate, 1);
    $('length').textContent = number(reply && reply.length, 2);
    $('strip').textContent = reply && reply.rate ? `${round1(reply.rate)} tokens/s · accept length ${reply.length.toFixed(2)}` : '';
    plot($('rate-plot'), reply ? reply.rates : [], reply ? Math.max(...reply.rates, 1) : 1);
    const shares = reply ? reply.shares(BINS) : new Map();
    const lengths = [];
    let top = 0;
    for (const { bins } of shares.values()) {
      bins.forEach((value, i) => { lengths[i] = (lengths[i] || 0) + value; });
      top = Math.max(top, ...bins);
    }
    plot($('length-plot'), lengths, Math.max(...lengths, 1));
    for (const [drafter, share] of shares) this.row(drafter, share, reply.tokens.length, top);
  },

  row(drafter, share, total, top) {
    let row = this.rows.get(drafter);
    if (!row) {
      row = {
        part: h('span', { class: 'part' }),
        plot: s('svg', { viewBox: '0 0 100 28', preserveAspectRatio: 'none', 'aria-hidden': 'true' }),
      };
      row.button = h('button', { type: 'button', class: colour(drafter), 'aria-pressed': 'false', title: drafter, on: { click: () => this.setSolo(this.solo === drafter ? '' : drafter) } },
        h('i', { class: 'chip ' + colour(drafter) }), h('span', { class: 'name' }, title(drafter), h('small', {}, about(drafter))), row.plot, row.part);
      row.item = h('li', {}, row.button);
      this.rows.set(drafter, row);
      const order = [...this.rows.keys()].sort(byOrder);
      $('drafters').insertBefore(row.item, (this.rows.get(order[order.indexOf(drafter) + 1]) || {}).item || null);
    }
    row.part.textContent = percent(share.tokens, total);
    plot(row.plot, share.bins, top);
  },

  // Shows the tokens of one drafter alone; '': all.
  setSolo(drafter) {
    this.solo = drafter;
    for (const [name, row] of this.rows) row.button.setAttribute('aria-pressed', String(name === drafter));
    for (const element of document.querySelectorAll('.reply.solo')) element.classList.remove('solo');
    for (const token of document.querySelectorAll('.t.on')) token.classList.remove('on');
    if (drafter && this.view) {
      const { element, reply } = this.view;
      element.classList.add('solo');
      for (const token of element.querySelectorAll('.t')) token.classList.toggle('on', reply.tokens[token.dataset.i].drafter === drafter);
    }
  },
};

