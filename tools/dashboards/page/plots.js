// The kinds of plots that the dashboards use. Each has
//   take(data)         what is drawn from now on
//   draw(body, size)   into an empty element; afterwards, `room` is where it lies
//   rowsAt(index)      the values at a time: [{colour, name, text}]
//   legend()           [{colour, name, text, solo}], if it has one
// data: {start, step, count, series: [{name, values: [count] of number or null}]}
import { frame, s, h, scaleX, scaleY, seriesColours, timeAxis, valueAxis } from './draw.js';
import { axisLabels, format, niceTicks, parts } from './units.js';

// The indices [from, to) of values without a gap between them.
function runs(values) {
  const found = [];
  for (let i = 0; i < values.length; ++i) {
    if (values[i] === null) continue;
    let end = i + 1;
    while (end < values.length && values[end] !== null) ++end;
    found.push([i, end]);
    i = end;
  }
  return found;
}

const isZero = ({ values }) => values.every((value) => !value);

export const last = (values) => values.findLast((value) => value !== null) ?? null;

// The colour of a value by absolute thresholds, which begin with the base.
export function thresholdColour(thresholds, value) {
  const step = (thresholds?.steps || []).findLast(({ value: least }) => least === null || value >= least);
  return `t-${step?.color || 'text'}`;
}

function svg(size, label, ...children) {
  return s('svg', { viewBox: `0 0 ${size.width} ${size.height}`, width: size.width, height: size.height, role: 'img', 'aria-label': label }, ...children);
}

export class TimeSeries {
  constructor(panel) {
    this.defaults = panel.fieldConfig.defaults;
    this.custom = this.defaults.custom || {};
    this.stacked = this.custom.stacking?.mode === 'normal';
    this.solo = null;
  }

  // Lower and upper edges of every series: [{from, to}].
  edges(shown, count) {
    if (!this.stacked) return shown.map(({ values }) => ({ from: null, to: values }));
    let below = new Array(count).fill(0);
    return shown.map(({ values }) => {
      const from = below;
      const to = values.map((value, i) => (value === null ? null : from[i] + value));
      below = from.map((value, i) => to[i] ?? value);
      return { from, to };
    });
  }

  domain(edges) {
    let low = Infinity;
    let high = -Infinity;
    for (const { to } of edges) {
      for (const value of to) {
        if (value === null) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    low = this.defaults.min ?? (this.stacked ? Math.min(0, low) : low);
    high = this.defaults.max ?? high;
    if (!(high > low)) high = low + (Math.abs(low) || 1);
    return [low, high];
  }

  take(data) {
    this.data = data;
    const colours = seriesColours(data.series.map(({ name }) => name));
    this.series = data.series.map((one, i) => ({ ...one, colour: colours[i] }));
  }

  draw(body, size) {
    const { data } = this;
    const shown = this.solo !== null && this.series.some(({ name }) => name === this.solo) ? this.series.filter(({ name }) => name === this.solo) : this.series;
    this.shown = shown;
    const edges = this.edges(shown, data.count);
    let [low, high] = this.domain(edges);
    const { unit } = this.defaults;
    const nice = niceTicks(low, high, Math.max(2, Math.min(5, Math.floor(size.height / 38))), unit);
    if (this.defaults.max === undefined) high = Math.max(high * 1.02, nice.ticks.at(-1) + (high > nice.ticks.at(-1) * 1.001 ? nice.step : 0));
    const ticks = niceTicks(low, high, Math.max(2, Math.min(5, Math.floor(size.height / 38))), unit).ticks;
    const room = frame(size.width, size.height, axisLabels(ticks, unit));
    const x = scaleX(room, data);
    const y = scaleY(room, low, high);
    // In a stack, a series of zeros would be drawn over the one below it.
    const drawn = this.stacked && shown.some((one) => !isZero(one)) ? (one) => !isZero(one) : () => true;
    const lines = shown.flatMap((one, i) => (drawn(one) ? [this.line(one, edges[i], x, y, room)] : []));
    body.append(svg(size, this.summary(), valueAxis(room, ticks, unit, y, low, high), timeAxis(room, data), ...lines));
    this.room = room;
  }

  line({ colour, name }, { from, to }, x, y, room) {
    const group = s('g', { class: `series ${colour}`, 'data-name': name });
    const point = (value, i) => `${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
    for (const [begin, end] of runs(to)) {
      const path = 'M' + to.slice(begin, end).map((value, k) => point(value, begin + k)).join('L');
      if (end - begin === 1) {
        group.append(s('circle', { class: 'dot', cx: x(begin).toFixed(1), cy: y(to[begin]).toFixed(1), r: 1.8 }));
        continue;
      }
      if (this.custom.fillOpacity > 0) {
        let back = `V${room.bottom}H${x(begin).toFixed(1)}Z`;
        if (from) back = 'L' + from.slice(begin, end).map((value, k) => point(value, begin + k)).reverse().join('L') + 'Z';
        group.append(s('path', { class: 'area', d: path + back, 'fill-opacity': this.custom.fillOpacity / 100 }));
      }
      group.append(s('path', { class: 'line', d: path }));
    }
    return group;
  }

  text(value) { return value === null ? '–' : format(value, this.defaults.unit, this.defaults.decimals); }
  summary() { return this.series.map(({ name, values }) => `${name}: ${this.text(last(values))}`).join('; '); }
  rowsAt(index) {
    return this.shown.filter(({ values }) => values[index] !== null)
      .sort((a, b) => b.values[index] - a.values[index])
      .map(({ colour, name, values }) => ({ colour, name, text: this.text(values[index]) }));
  }
  // Those that are always 0 come last.
  legend() {
    return [...this.series].sort((a, b) => isZero(a) - isZero(b))
      .map(({ colour, name, values }) => ({ colour, name, text: this.text(last(values)), solo: name === this.solo }));
  }
}

export class Stat {
  constructor(panel) { this.defaults = panel.fieldConfig.defaults; this.panel = panel; }

  take(data) {
    this.data = data;
    this.series = data.series;
  }

  draw(body, size) {
    const { unit, decimals, thresholds } = this.defaults;
    const { data } = this;
    const [{ values, name }] = data.series;
    const value = last(values);
    const [number, suffix] = parts(value, unit, decimals);
    const colour = thresholdColour(thresholds, value);
    const about = name && name !== '{}' && name.toLowerCase() !== this.panel.title.toLowerCase() ? name : '';
    body.classList.add(colour);
    const low = this.defaults.min ?? Math.min(...values.filter((one) => one !== null));
    const top = Math.max(...values.filter((one) => one !== null));
    const high = top > low ? top + (top - low) * 0.08 : low + 1;
    const room = { left: 0, right: size.width, top: size.height * 0.45, bottom: size.height, width: size.width, height: size.height };
    this.room = room;
    const plot = new TimeSeries({ fieldConfig: { defaults: { custom: { fillOpacity: 14 } } } });
    const line = plot.line({ colour: 'spark', name }, { from: null, to: values }, scaleX(room, data), scaleY(room, low, high), room);
    body.append(svg(size, `${this.panel.title}: ${number}${suffix} ${about}`, line), h('p', { class: 'big num' }, number, h('small', {}, suffix, about ? h('span', { class: 'unit' }, about) : '')));
  }
  rowsAt(index) {
    return this.series.filter(({ values }) => values[index] !== null)
      .map(({ name, values }) => ({ colour: 'spark', name: name && name !== '{}' ? name : this.panel.title, text: format(values[index], this.defaults.unit, this.defaults.decimals) }));
  }
}

export class StateTimeline {
  constructor(panel) {
    this.defaults = panel.fieldConfig.defaults;
    this.options = Object.assign({}, ...(this.defaults.mappings || []).filter(({ type }) => type === 'value').map(({ options }) => options));
  }
  state(value) {
    const mapped = this.options[String(value)];
    return mapped ? { text: mapped.text, colour: `t-${mapped.color}` } : { text: format(value, this.defaults.unit, this.defaults.decimals), colour: thresholdColour(this.defaults.thresholds, value) };
  }

  take(data) {
    this.data = data;
    this.series = data.series;
  }

  draw(body, size) {
    const { data } = this;
    const room = { left: 1, top: 2, right: size.width - 1, bottom: size.height - 20, width: size.width, height: size.height };
    const x = scaleX(room, data);
    const slot = Math.min(46, (room.bottom - room.top) / data.series.length);
    const bars = data.series.map(({ name, values }, row) => {
      const top = room.top + row * slot;
      const group = s('g', { class: 'series', 'data-name': name }, s('text', { class: 'lane', x: room.left, y: (top + 11).toFixed(1) }, name));
      for (let i = 0; i < data.count; ++i) {
        if (values[i] === null) continue;
        let end = i;
        while (end + 1 < data.count && values[end + 1] === values[i]) ++end;
        const width = Math.max(2, x(Math.min(end + 1, data.count - 1)) - x(i));
        group.append(s('rect', { class: `phase ${this.state(values[i]).colour}`, x: x(i).toFixed(1), y: (top + 15).toFixed(1), width: width.toFixed(1), height: Math.max(3, slot - 20).toFixed(1), rx: 2 }));
        i = end;
      }
      return group;
    });
    const summary = data.series.map(({ name, values }) => `${name}: ${last(values) === null ? 'unknown' : this.state(last(values)).text}`).join('; ');
    body.append(svg(size, summary, timeAxis(room, data), ...bars));
    this.room = room;
  }
  rowsAt(index) {
    return this.series.filter(({ values }) => values[index] !== null)
      .map(({ name, values }) => ({ name, ...this.state(values[index]) }));
  }
  legend() {
    const mapped = Object.values(this.options).sort((a, b) => a.index - b.index);
    return mapped.map(({ text, color }) => ({ colour: `t-${color}`, name: text, text: '' }));
  }
}

export class Heatmap {
  constructor(panel) { this.unit = panel.options?.yAxis?.unit || 'short'; }

  // Prometheus' buckets count everything below them: the difference is what
  // lies in one.
  buckets(series) {
    const sorted = series.map(({ name, values }) => ({ bound: Number(name.replace('+Inf', 'Infinity')), values })).sort((a, b) => a.bound - b.bound);
    return sorted.map(({ bound, values }, i) => ({
      bound,
      values: values.map((value, k) => (value === null ? null : Math.max(0, value - (i > 0 ? sorted[i - 1].values[k] ?? 0 : 0)))),
    }));
  }
  label(bound) { return bound === Infinity ? '+Inf' : format(bound, this.unit); }

  take(data) {
    this.data = data;
    this.rows = this.buckets(data.series);
  }

  draw(body, size) {
    const { data } = this;
    const room = frame(size.width, size.height, this.rows.map(({ bound }) => this.label(bound)));
    const tall = (room.bottom - room.top) / this.rows.length;
    const wide = (room.right - room.left) / data.count;
    const top = Math.max(...this.rows.flatMap(({ values }) => values.map((value) => value ?? 0)));
    const every = Math.ceil(13 / tall);
    const cells = s('g', { class: 'cells' });
    const axis = s('g', { class: 'axis' });
    this.rows.forEach(({ bound, values }, i) => {
      const y = room.bottom - (i + 1) * tall;
      if (i % every === 0) axis.append(s('text', { x: room.left - 6, y: (y + tall / 2).toFixed(1), dy: '.32em', 'text-anchor': 'end' }, this.label(bound)));
      values.forEach((value, k) => {
        if (value > 0) cells.append(s('rect', { x: (room.left + k * wide).toFixed(1), y: (y + 0.5).toFixed(1), width: (wide + 0.3).toFixed(1), height: Math.max(1, tall - 1).toFixed(1), 'fill-opacity': (0.08 + 0.92 * Math.sqrt(value / top)).toFixed(2) }));
      });
    });
    const summary = this.rows.map(({ bound, values }) => `up to ${this.label(bound)}: ${format(last(values) ?? 0, 'ops')}`).join('; ');
    body.append(svg(size, summary, axis, timeAxis(room, data), cells));
    this.room = room;
  }
  rowsAt(index) {
    return this.rows.filter(({ values }) => values[index] > 0)
      .map(({ bound, values }) => ({ colour: 'heat', name: `up to ${this.label(bound)}`, text: format(values[index], 'ops') })).reverse();
  }
}

export const KINDS = { timeseries: TimeSeries, stat: Stat, 'state-timeline': StateTimeline, heatmap: Heatmap };
