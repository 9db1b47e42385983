// Elements, colours and the parts that all plots share: axes, the line at the
// pointer's time, the box that shows the values there.
import { axisLabels, clock, timeTicks } from './units.js';

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'on') for (const [type, action] of Object.entries(value)) element.addEventListener(type, action);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children);
  return element;
}

// ---- Colours

// A drafter has the colour that it has in the playground.
const DRAFTERS = ['target', 'fused_request', 'fused_history', 'fused_prior', 'fused_recycled', 'draft_model', 'lookahead', 'ouroboros', 'ngram_trie', 'crest', 'prompt_lookup', 'grammar', 'fused'];
const PALETTE = 12;

// A class for each series: its drafter's, or the next of the palette.
export function seriesColours(names) {
  let next = 0;
  return names.map((name) => (DRAFTERS.includes(name) ? `d-${name}` : `c${next++ % PALETTE}`));
}

// ---- Time that is pointed at, on all panels at once

export const pointer = {
  time: null,
  listeners: new Set(),
  set(time) {
    if (time === this.time) return;
    this.time = time;
    for (const listener of this.listeners) listener(time);
  },
};

// ---- The box with the values

const MAX_ROWS = 16;
let box;

// rows: [{colour, name, text, lit}]. Near the point (x, y) of the window.
export function showValues(title, rows, x, y) {
  box ??= document.body.appendChild(h('div', { class: 'values', role: 'status' }));
  const shown = rows.slice(0, MAX_ROWS);
  box.replaceChildren(
    h('div', { class: 'when num' }, title),
    ...shown.map(({ colour, name, text, lit }) => h('div', { class: lit ? 'row lit' : 'row' }, h('i', { class: `chip ${colour}` }), h('span', { class: 'name' }, name), h('span', { class: 'num' }, text))),
    ...(rows.length > MAX_ROWS ? [h('div', { class: 'more' }, `and ${rows.length - MAX_ROWS} more`)] : []),
  );
  box.hidden = false;
  const width = box.offsetWidth;
  const height = box.offsetHeight;
  const right = x + 16 + width <= document.documentElement.clientWidth - 8;
  const left = right ? x + 16 : Math.max(8, Math.min(x - 16 - width, document.documentElement.clientWidth - width - 8));
  box.style.left = `${left}px`;
  box.style.top = `${Math.max(8, Math.min(y - height / 2, innerHeight - height - 8))}px`;
}
export function hideValues() { if (box) box.hidden = true; }

// ---- The frame of a plot

const ruler = document.createElement('canvas').getContext('2d');
function textWidth(text) {
  ruler.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

// The room for a plot in width x height: labels on the left and below.
export function frame(width, height, labels) {
  const left = Math.ceil(Math.max(0, ...labels.map(textWidth))) + 8;
  return { left, top: 8, right: width - 8, bottom: height - 20, width, height };
}

// y of a value between low and high.
export const scaleY = (room, low, high) => (value) => room.bottom - (room.bottom - room.top) * Math.max(-0.02, Math.min(1.02, (value - low) / (high - low)));
export const scaleX = (room, data) => (index) => room.left + (room.right - room.left) * (data.count > 1 ? index / (data.count - 1) : 0.5);

export function timeAxis(room, data) {
  const end = data.start + data.step * (data.count - 1);
  const { step, ticks } = timeTicks(data.start, end, Math.max(2, Math.floor((room.right - room.left) / 78)));
  const x = (t) => room.left + (room.right - room.left) * (t - data.start) / (end - data.start);
  return s('g', { class: 'axis' }, ...ticks.flatMap((t) => {
    const at = x(t).toFixed(1);
    // A label at the edge would be cut off.
    const anchor = x(t) > room.right - 18 ? 'end' : 'middle';
    return [s('path', { class: 'grid', d: `M${at} ${room.top}V${room.bottom}` }), s('text', { x: anchor === 'end' ? room.width - 2 : at, y: room.height - 5, 'text-anchor': anchor }, clock(t, step))];
  }));
}

export function valueAxis(room, ticks, unit, y, low, high) {
  const labels = axisLabels(ticks, unit);
  return s('g', { class: 'axis' }, ...ticks.flatMap((tick, i) => (tick < low - 1e-12 || tick > high * (1 + 1e-9) ? [] : [
    s('path', { class: 'grid', d: `M${room.left} ${y(tick).toFixed(1)}H${room.right}` }),
    s('text', { x: room.left - 6, y: y(tick).toFixed(1), dy: '.32em', 'text-anchor': 'end' }, labels[i]),
  ])));
}
