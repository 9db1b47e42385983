// ---- The token tree of a round

const ROW = 29, GAP = 30, CHAR = 7.6, MAX_LABEL = 18;

// Columns of a monospaced font; those of East Asia are wide.
const columnsOf = (text) => [...text].reduce((sum, c) => sum + (/[\u1100-\u115f\u2e80-\uffff]|[\ud800-\udbff]/.test(c) ? 2 : 1), 0);

const tree = {
  view: null,
  round: 0,

  // Opens the tree of the round that committed a token, or of round `at`.
  openToken(view, index) {
    $('tip').hidden = true;
    const round = view.reply.roundOf(index);
    if (round >= 0) this.open(view, round, false);
    else say('The first token comes from reading the prompt; no round drafted it.');
  },
  // Opens the first round with drafts, or the first round if there are none.
  openFirst(view) {
    const { rounds } = view.reply;
    if (rounds.length === 0) return;
    this.open(view, Math.max(0, rounds.findIndex(({ nodes }) => nodes.length > 0)), true);
  },
  open(view, at, focus) {
    this.view = view;
    this.cameFrom = $('tree').hidden ? document.activeElement : this.cameFrom;
    $('tree').hidden = false;
    this.draw(at);
    if (focus) $('tree-title').focus();
  },
  close() {
    if ($('tree').hidden) return false;
    $('tree').hidden = true;
    this.light(-1);
    this.view = null;
    if (this.cameFrom && this.cameFrom.isConnected && this.cameFrom !== document.body) this.cameFrom.focus();
    else $('prompt').focus();
    return true;
  },
  step(by) {
    if (!this.view) return;
    const to = this.round + by;
    if (to >= 0 && to < this.view.reply.rounds.length) this.draw(to);
  },

  // Whether a token belongs to the round that is shown.
  lights(view, index) {
    return this.view === view && index >= view.reply.roundStart(this.round) && index < view.reply.roundEnds[this.round];
  },

  // Marks the tokens of a round in the text.
  light(round) {
    for (const token of document.querySelectorAll('.t.lit')) token.classList.remove('lit');
    if (round < 0) return;
    const { reply, element } = this.view;
    const from = reply.roundStart(round);
    let first = null;
    for (let i = from; i < reply.roundEnds[round]; ++i) {
      for (const token of element.querySelectorAll(`.t[data-i="${i}"]`)) {
        token.classList.add('lit');
        first ||= token;
      }
    }
    if (!first) return;
    first.closest('.think')?.setAttribute('open', '');
    first.scrollIntoView({ block: 'nearest' });
  },

  draw(at) {
    this.round = at;
    const { reply } = this.view;
    const round = reply.rounds[at];
    const start = reply.roundStart(at);
    const nodes = round.nodes.map((node) => ({ ...node, label: String(node.text), kids: [] }));
    const root = { label: reply.tokens[start - 1] ? reply.tokens[start - 1].text : 'prompt', kids: [], root: true, depth: 0 };
    let last = root, drafted = nodes.length, accepted = 0;
    nodes.forEach((node, i) => {
      const parent = node.parent >= 0 && node.parent < i ? nodes[node.parent] : root;
      node.depth = parent.depth + 1;
      parent.kids.push(node);
      if (node.accepted) { ++accepted; last = node; }
    });
    const own = reply.tokens[reply.roundEnds[at] - 1];
    const bonus = { label: own ? own.text : '#' + round.committed.at(-1), drafter: 'target', accepted: true, own: true, depth: last.depth + 1, kids: [] };
    last.kids.push(bonus);
    const all = [root, ...nodes, bonus];
    // What was committed runs straight on; the rest branches off below it.
    for (const node of all) node.kids.sort((a, b) => Boolean(b.accepted) - Boolean(a.accepted) || b.probability - a.probability);
    const widths = [];
    for (const node of all) {
      const text = visible(node.label) || '∅';
      node.short = [...text].length > MAX_LABEL ? [...text].slice(0, MAX_LABEL - 1).join('') + '…' : text;
      node.width = Math.max(30, columnsOf(node.short) * CHAR + 18);
      widths[node.depth] = Math.max(widths[node.depth] || 0, node.width);
    }
    const columns = [1];
    widths.forEach((width, depth) => { columns[depth + 1] = columns[depth] + width + GAP; });
    let rows = 0;
    const pending = [root];
    while (pending.length > 0) {  // depth first, so that a branch keeps together
      const node = pending.pop();
      node.x = columns[node.depth];
      node.y = node.row ?? rows++;
      // The first child stays in its parent's row.
      node.kids.forEach((kid, i) => { if (i === 0) kid.row = node.y; });
      pending.push(...node.kids.slice().reverse());
    }
    const width = columns.at(-1) - GAP + 2, height = rows * ROW + 4;
    const svg = s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': this.describe(round, accepted, bonus) });
    const middle = (node) => node.y * ROW + ROW / 2 + 1;
    for (const node of all) {
      for (const kid of node.kids) {
        const x = node.x + node.width, bend = (kid.x - x) / 2;
        svg.append(s('path', { class: `edge ${kid.accepted ? 'acc ' + colour(kid.drafter) : ''}`, d: `M${x} ${middle(node)}C${x + bend} ${middle(node)} ${kid.x - bend} ${middle(kid)} ${kid.x} ${middle(kid)}` }));
      }
    }
    for (const node of all) svg.append(this.node(node, middle(node)));
    $('canvas').replaceChildren(svg);
    $('canvas').scrollTop = 0;
    $('canvas').scrollLeft = 0;
    $('tree-title').textContent = `Round ${at + 1} of ${reply.rounds.length}`;
    $('tree-what').textContent = drafted === 0 ? 'nothing drafted, one token from the model' : `${drafted} drafted, ${accepted} accepted, ${round.committed.length} committed`;
    $('tree-back').disabled = at === 0;
    $('tree-next').disabled = at + 1 === reply.rounds.length;
    const drafters = [...new Set(nodes.map((node) => String(node.drafter)))].sort(byOrder);
    $('tree-keys').replaceChildren(
      h('li', {}, h('i', { class: 'swatch acc' }), 'accepted'), h('li', {}, h('i', { class: 'swatch rej' }), 'rejected'),
      ...[...drafters, 'target'].map((drafter) => legend(drafter)));
    this.light(at);
  },

  describe(round, accepted, bonus) {
    const path = round.nodes.filter((node) => node.accepted).map((node) => `“${node.text}” (${title(String(node.drafter))})`);
    return `${round.nodes.length} tokens drafted, ${accepted} accepted` + (path.length > 0 ? ': ' + path.join(', ') : '') + `; then “${bonus.label}” by the model itself.`;
  },

  node(node, y) {
    const kind = node.root ? 'root' : node.accepted ? 'acc' : 'rej';
    const tip = node.root ? 'The last token before the round'
      : node.own ? 'The model’s own token'
      : `${title(String(node.drafter))} (${node.drafter}), ${node.accepted ? 'accepted' : 'rejected'}, expected ${percent(node.probability, 1)}`;
    const group = s('g', { class: `node ${kind} ${node.root ? '' : colour(String(node.drafter))}` },
      s('title', {}, `${node.label}\n${tip}`),
      s('rect', { class: 'box', x: node.x, y: y - 11.5, width: node.width, height: 23, rx: 7 }));
    if (!node.root && !node.own) {
      const odds = Math.min(1, Math.max(0, Number(node.probability) || 0));
      group.append(s('rect', { class: 'odds', x: node.x + 6, y: y + 8, width: (node.width - 12) * odds, height: 2, rx: 1 }));
    }
    group.append(s('text', { x: node.x + node.width / 2, y: y - 0.5, 'text-anchor': 'middle' }, node.short));
    return group;
  },
};

