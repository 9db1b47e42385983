// One panel: its frame, its requests, its plot with legend and pointer.
import { h, hideValues, pointer, s, showValues } from './draw.js';
import { KINDS } from './plots.js';
import { clock } from './units.js';

const PATIENCE_MS = 15000;
// A point for so many pixels.
const PIXELS = { timeseries: 2, stat: 4, 'state-timeline': 3, heatmap: 7 };

export class Refusal extends Error {
  constructor(message, unreachable) { super(message); this.unreachable = unreachable; }
}

// The JSON of a path of this server; Refusal says why there is none.
export async function ask(path) {
  let response;
  try {
    response = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS) });
  } catch {
    throw new Refusal('The server of this page does not answer.', true);
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refusal(String(body.error || `Status ${response.status}.`), Boolean(body.unreachable));
  return body;
}

export class Panel {
  constructor(definition) {
    this.definition = definition;
    const { id, type, title, description, gridPos } = definition;
    this.kind = KINDS[type] ? new KINDS[type](definition) : null;
    this.body = h('div', { class: 'plot' });
    this.legend = h('ul', { class: 'legend' });
    this.note = h('p', { class: 'note' }, 'Loading');
    const heading = `panel-${id}`;
    this.element = h('section', { class: `panel ${type}`, 'aria-labelledby': heading, 'data-id': id, 'data-type': type, 'data-state': 'loading' },
      h('header', {}, h('h3', { id: heading, title }, title), ...(description ? this.about(description) : [])),
      this.body, this.note, this.legend);
    for (const [name, value] of Object.entries({ w: gridPos.w, x: gridPos.x + 1, h: gridPos.h })) this.element.style.setProperty(`--${name}`, value);
    this.body.tabIndex = type === 'stat' ? -1 : 0;
    this.wire();
    if (!this.kind) this.setState('error', `Panels of the type ${type} are not drawn here.`);
  }

  // A button that shows what the panel means.
  about(description) {
    const text = h('p', { class: 'about-panel', hidden: true }, description);
    const button = h('button', { type: 'button', class: 'info', title: description, 'aria-label': 'What this shows', 'aria-expanded': 'false', on: { click: () => {
      text.hidden = !text.hidden;
      button.setAttribute('aria-expanded', String(!text.hidden));
    } } }, 'i');
    return [button, text];
  }

  wire() {
    this.body.addEventListener('pointermove', (event) => this.point(event));
    this.body.addEventListener('pointerdown', (event) => this.point(event));
    this.body.addEventListener('pointerleave', () => this.leave());
    this.body.addEventListener('blur', () => this.leave());
    this.body.addEventListener('keydown', (event) => this.onKey(event));
    pointer.listeners.add((time) => this.drawPointer(time));
    new ResizeObserver(() => { if (this.data) this.draw(); }).observe(this.body);
  }

  setState(state, note = '') {
    this.element.dataset.state = state;
    this.note.textContent = note;
    this.note.hidden = note === '';
  }

  // Asks for the last `range` seconds and draws them; throws a Refusal.
  async refresh(uid, range, parameters) {
    if (!this.kind) return;
    const mine = this.asking = (this.asking ?? 0) + 1;
    const points = Math.max(20, Math.min(1000, Math.round((this.body.clientWidth || 300) / PIXELS[this.definition.type])));
    try {
      const path = `/api/dashboards/${uid}/panels/${this.definition.id}?range=${range}&points=${points}${parameters}`;
      const data = await ask(path);
      // A later answer has been drawn, or will be.
      if (mine !== this.asking) return;
      this.data = data;
      this.draw();
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (mine !== this.asking) return;
      // The alert above the panels has the address and the reason.
      this.setState('error', this.data?.series.length ? '' : error.message.replace(/ at \S+ \(.*\)\.$/, '.'));
      throw error;
    }
  }

  draw() {
    const { data, body } = this;
    const some = data.series.filter(({ values }) => values.some((value) => value !== null));
    body.replaceChildren();
    body.classList.remove(...[...body.classList].filter((name) => name.startsWith('t-')));
    this.legend.replaceChildren();
    if (some.length === 0) {
      this.setState('empty', data.series.length === 0 ? 'No data yet.' : 'Nothing was counted in this time.');
      return;
    }
    this.setState('ok', data.left_out > 0 ? `${data.left_out} more series are not shown.` : '');
    this.kind.take({ ...data, series: some });
    // It takes its room from the plot.
    this.drawLegend();
    this.kind.draw(body, { width: Math.max(120, body.clientWidth), height: Math.max(60, body.clientHeight) });
    this.cross = s('path', { class: 'cross' });
    body.querySelector('svg').append(this.cross);
    this.drawPointer(pointer.time);
    if (this.pointedAt) this.showAt(this.pointedAt.index, this.pointedAt.x, this.pointedAt.y);
  }

  drawLegend() {
    const items = this.kind.legend?.() || [];
    this.legend.replaceChildren(...items.map(({ colour, name, text, solo }) => {
      const inside = [h('i', { class: `chip ${colour}` }), h('span', { class: 'name' }, name), h('span', { class: 'num' }, text)];
      if (solo === undefined) return h('li', {}, ...inside);
      return h('li', {}, h('button', {
        type: 'button', 'aria-pressed': String(solo), title: solo ? 'Show all' : `Show ${name} alone`,
        on: { click: () => { this.kind.solo = solo ? null : name; this.draw(); } },
      }, ...inside));
    }));
  }

  // ---- The values at a time

  indexAt(x) {
    const { room } = this.kind;
    return Math.round((x - room.left) / (room.right - room.left) * (this.data.count - 1));
  }

  point(event) {
    if (!this.data || !this.kind?.room) return;
    const index = this.indexAt(event.clientX - this.body.getBoundingClientRect().left);
    if (index < 0 || index >= this.data.count) { this.leave(); return; }
    this.showAt(index, event.clientX, event.clientY);
  }

  showAt(index, x, y) {
    const rows = this.kind.rowsAt(index);
    this.pointedAt = { index, x, y };
    pointer.set(this.data.start + index * this.data.step);
    if (rows.length === 0) { hideValues(); return; }
    showValues(clock(pointer.time, this.data.step), rows, x, y);
  }

  leave() {
    if (!this.pointedAt) return;
    this.pointedAt = null;
    hideValues();
    pointer.set(null);
  }

  onKey(event) {
    if (!this.data || !this.kind?.room) return;
    if (event.key === 'Escape') { this.leave(); return; }
    if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
    event.preventDefault();
    const from = this.pointedAt ? this.pointedAt.index : this.data.count - 1;
    const index = Math.max(0, Math.min(this.data.count - 1, from + (event.key === 'ArrowLeft' ? -1 : 1)));
    const { room } = this.kind;
    const box = this.body.getBoundingClientRect();
    this.showAt(index, box.left + room.left + (room.right - room.left) * index / Math.max(1, this.data.count - 1), box.top + box.height / 2);
  }

  drawPointer(time) {
    if (!this.cross?.isConnected) return;
    const { room } = this.kind;
    const part = time === null ? -1 : (time - this.data.start) / (this.data.step * Math.max(1, this.data.count - 1));
    const x = room.left + (room.right - room.left) * part;
    this.cross.setAttribute('d', part < 0 || part > 1 ? '' : `M${x.toFixed(1)} ${room.top}V${room.bottom}`);
  }
}
