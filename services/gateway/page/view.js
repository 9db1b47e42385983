async function copyText(text, button) {
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {  // no permission, or not a secure context
    const area = h('textarea', { class: 'sr' });
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand('copy');
    area.remove();
  }
  const label = button.textContent;
  button.textContent = done ? 'Copied' : 'Not copied';
  setTimeout(() => { button.textContent = label; }, 1200);
}

// ---- A reply on the page

// Draws text that is not Markdown, from offset `from` on. Text before `reply.at`
// is drawn once, since its tokens have their places.
class Verbatim {
  constructor(view, element, from) { Object.assign(this, { view, element, from, nodes: 0 }); }
  draw(to) {
    const { view, element } = this;
    while (element.childNodes.length > this.nodes) element.lastChild.remove();
    const settled = Math.max(this.from, Math.min(view.reply.at, to));
    view.show(element, this.from, settled);
    this.from = settled;
    this.nodes = element.childNodes.length;
    view.show(element, settled, to);
  }
}

class ReplyView {
  // `brief`: what stands beside it says the rest.
  constructor(reply, brief) {
    this.reply = reply;
    this.brief = brief;
    this.think = h('details', { class: 'think', open: true, hidden: true }, h('summary', {}, 'Thinking'), h('div'));
    this.thinking = new Verbatim(this, this.think.lastChild, 0);
    this.body = h('div', { class: 'md' });
    this.bar = h('div', { class: 'share', 'aria-hidden': 'true', hidden: true });
    this.legend = h('ul', { class: 'keys', 'aria-label': 'Tokens by drafter' });
    this.facts = h('span', { class: 'num' });
    this.actions = h('span', { class: 'do' });
    this.foot = h('div', { class: 'foot' }, this.facts, this.actions);
    this.element = h('article', { class: 'turn reply', 'aria-label': 'Reply', 'aria-busy': 'true' }, this.think, this.body, this.bar, this.legend, this.foot);
    this.settled = 0;        // source before this offset is drawn for good
    this.settledNodes = 0;   // by so many children of the body
    views.set(this.element, this);
    this.draw();
  }

  show(parent, from, to) {
    const { reply } = this;
    let index = reply.tokenAt(from);
    while (from < to) {
      const next = reply.tokens[index + 1];
      const end = next ? Math.min(to, next.start) : to;
      if (end > from) {
        const text = reply.text.slice(from, end);
        parent.append(index < 0 ? text : h('span', { class: this.classOf(index), 'data-i': index }, text));
      }
      from = Math.max(from, end);
      ++index;
    }
  }

  classOf(index) {
    const { drafter } = this.reply.tokens[index];
    const alone = live.view === this && live.solo === drafter;
    return `t ${colour(drafter)}${alone ? ' on' : ''}${tree.lights(this, index) ? ' lit' : ''}`;
  }

  draw() {
    const { reply, body } = this;
    if (reply.running && reply.text === '') {
      if (!body.firstChild) body.append(h('span', { class: 'waiting', role: 'img', 'aria-label': 'Waiting' }, h('i'), h('i'), h('i')));
      return;
    }
    this.drawThinking();
    while (body.childNodes.length > this.settledNodes) body.lastChild.remove();
    if (reply.output !== 'text') this.drawVerbatim(); else this.drawMarkdown();
    if (!reply.running) this.finish();
  }

  // Open until the content begins.
  drawThinking() {
    const { reply, think } = this;
    if (reply.thought === 0) return;
    think.hidden = false;
    this.thinking.draw(reply.thought);
    this.settled = Math.max(this.settled, reply.thought);
    if (this.answers || reply.text.length === reply.thought) return;
    this.answers = true;
    think.open = false;
  }

  // Constrained text is not Markdown: JSON may hold any of its marks.
  drawVerbatim() {
    const { reply, body } = this;
    if (reply.text.length === reply.thought) return;
    if (!this.verbatim) {
      this.verbatim = new Verbatim(this, h('pre', { class: 'verbatim' }), reply.thought);
      body.append(this.verbatim.element);
      this.settledNodes = 1;
    }
    this.verbatim.draw(reply.text.length);
  }

  drawMarkdown() {
    const { reply, body } = this;
    const markdown = new Markdown((...range) => this.show(...range), reply.running ? reply.text.length : -1);
    const starts = markdown.blocks(body, linesOf(reply.text, this.settled), 0);
    // The last block may yet change, and what the last line begins may turn out
    // to continue the block before; all before that is whole.
    const lastLine = reply.text.lastIndexOf('\n') + 1;
    const block = starts.findLastIndex((start) => start < lastLine);
    if (block >= 0) {
      this.settled = starts[block];
      this.settledNodes += block;
    }
  }

  drawShares() {
    const shares = [...this.reply.shares(1)];
    this.bar.hidden = shares.length === 0;
    const total = this.reply.tokens.length;
    this.bar.replaceChildren(...shares.map(([drafter, { tokens }]) => {
      const part = h('i', { class: colour(drafter) });
      part.style.flexGrow = tokens;
      return part;
    }));
    this.legend.replaceChildren(...shares.map(([drafter, { tokens }]) =>
      legend(drafter, h('span', { class: 'num' }, percent(tokens, total)))));
  }

  finish() {
    const { reply } = this;
    this.element.setAttribute('aria-busy', 'false');
    if (reply.error) this.body.append(h('div', { class: 'alert', role: 'alert' }, h('b', {}, reply.text ? 'The reply broke off. ' : 'No reply. '), reply.error));
    const facts = this.brief ? [] : [`${reply.tokens.length} tokens`];
    if (reply.rate && !this.brief) facts.push(`${round1(reply.rate)} tokens/s`);
    if (reply.length) facts.push(`accept length ${reply.length.toFixed(2)}`);
    if (!this.brief) facts.push(reply.mode);
    if (!this.brief && reply.output !== 'text') facts.push(OUTPUTS[reply.output].name);
    if (reply.summary && reply.summary.seed != null) facts.push(`seed ${reply.summary.seed}`);
    if (reply.finish === 'length') facts.push('cut at the maximum');
    if (reply.finish === 'stopped') facts.push('stopped');
    this.facts.textContent = reply.error ? '' : facts.join(' · ');
    const buttons = [];
    if (reply.rounds.length > 0) {
      buttons.push(h('button', { class: 'text', type: 'button', on: { click: () => tree.openFirst(this) } }, 'Token trees'));
    }
    if (reply.content) {
      const copy = h('button', { class: 'text', type: 'button', on: { click: () => copyText(reply.content, copy) } }, 'Copy');
      buttons.push(copy);
    }
    this.actions.replaceChildren(...buttons);
  }
}
const views = new WeakMap();  // by element
const viewOf = (token) => views.get(token.closest('.reply'));
const percent = (part, whole) => `${Math.round(100 * part / Math.max(1, whole))} %`;
const round1 = (value) => (value >= 100 ? Math.round(value).toString() : value.toFixed(1));

