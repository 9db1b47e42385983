// Numbers and times as Grafana writes them, by the unit ids of the panels.

const COUNTS = [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'K'], [1, '']];
const SHORT = [[1e12, ' Tri'], [1e9, ' Bil'], [1e6, ' Mil'], [1e3, ' K'], [1, '']];
const BYTES = [[2 ** 40, ' TiB'], [2 ** 30, ' GiB'], [2 ** 20, ' MiB'], [2 ** 10, ' KiB'], [1, ' B']];
const SECONDS = [[86400, ' d'], [3600, ' h'], [60, ' min'], [1, ' s'], [1e-3, ' ms'], [1e-6, ' µs'], [1e-9, ' ns']];
const RATES = { ops: ' ops/s', reqps: ' req/s', cps: ' c/s', wps: ' wr/s', rps: ' rd/s' };

// [scale, suffix] for numbers of this size.
function scaleOf(unit, size) {
  // Zero takes the unit itself; a size below all scales takes the smallest.
  const pick = (steps) => steps.find(([least]) => (size === 0 ? least === 1 : size >= least)) || steps.at(-1);
  if (unit === 's') return pick(SECONDS);
  if (unit === 'bytes') return pick(BYTES);
  if (unit === 'percentunit') return [0.01, '%'];
  if (unit === 'percent') return [1, '%'];
  if (unit === 'none') return [1, ''];
  const [scale, suffix] = size >= 1 ? pick(unit in RATES ? COUNTS : SHORT) : [1, ''];
  return [scale, suffix + (RATES[unit] ?? '')];
}

// Three digits that mean something, without zeros at the end.
function digits(value, decimals) {
  if (Number.isInteger(decimals)) return value.toFixed(decimals);
  const size = Math.abs(value);
  if (size === 0) return '0';
  const after = Math.max(0, Math.min(6, 2 - Math.floor(Math.log10(size))));
  const text = value.toFixed(after);
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

// [number, suffix] of a value. `scale` is scaleOf another size, for an axis
// whose numbers share a suffix.
export function parts(value, unit, decimals, scale = scaleOf(unit, Math.abs(value))) {
  return [digits(value / scale[0], decimals), scale[1]];
}
export const format = (value, unit, decimals) => parts(value, unit, decimals).join('');

// The labels of an axis: equally many decimals, one suffix.
export function axisLabels(ticks, unit) {
  const largest = Math.max(...ticks.map(Math.abs));
  const scale = scaleOf(unit, largest);
  const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) / scale[0] : 1;
  // 200, 1 K and not 0.2 K, 1.0 K.
  if (step < 0.999) return ticks.map((tick) => (tick === 0 ? '0' : format(tick, unit)));
  const decimals = Math.abs(step - Math.round(step)) > 1e-6 ? 1 : 0;
  return ticks.map((tick) => (tick / scale[0]).toFixed(decimals) + scale[1]);
}

const MOST_TICKS = 50;

// About `count` round numbers from low to high, ends included.
export function niceTicks(low, high, count, unit) {
  const base = unit === 'bytes' ? 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(high - low, 1)) / 10)) : 1;
  const raw = (high - low) / count / base;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = base * power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw * 0.999);
  const ticks = [];
  const first = Math.ceil(low / step - 1e-9);
  for (let i = 0; i < MOST_TICKS && (first + i) * step <= high + step * 1e-6; ++i) ticks.push((first + i) * step);
  return { step, ticks };
}

const TIME_STEPS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

// [time] on the round minutes of this place, at most `count`.
export function timeTicks(start, end, count) {
  const step = TIME_STEPS.find((one) => (end - start) / one <= count) ?? 86400;
  const offset = -60 * new Date(start * 1000).getTimezoneOffset();
  const ticks = [];
  for (let t = Math.ceil((start + offset) / step) * step - offset; t <= end; t += step) ticks.push(t);
  return { step, ticks };
}

const two = (number) => String(number).padStart(2, '0');
export function clock(seconds, step = 1) {
  const date = new Date(seconds * 1000);
  if (step >= 86400) return `${two(date.getMonth() + 1)}/${two(date.getDate())}`;
  return `${two(date.getHours())}:${two(date.getMinutes())}` + (step < 60 ? `:${two(date.getSeconds())}` : '');
}

export function span(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return `${digits(seconds / 3600)} h`;
}
