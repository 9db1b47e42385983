// The page: which dashboard and range, what is refreshed when, and what is said of
// Prometheus. Only panels in sight ask for data.
import { h, hideValues, pointer } from './draw.js';
import { Panel, Refusal, ask } from './panel.js';
import { span } from './units.js';

const REFRESH_MS = 5000;
const AT_ONCE = 4;
const RANGES = [300, 900, 3600, 10800, 43200, 86400];

const $ = (id) => document.getElementById(id);
const address = new URLSearchParams(location.search);
const view = {
  uid: address.get('dashboard') || '',
  range: RANGES.includes(Number(address.get('range'))) ? Number(address.get('range')) : RANGES[0],
  chosen: {}, variables: [], panels: new Map(), visible: new Set(), paused: false,
};

function keepAddress() {
  const kept = new URLSearchParams({ dashboard: view.uid, range: view.range });
  for (const [name, value] of Object.entries(view.chosen)) kept.set(`var-${name}`, value);
  history.replaceState(null, '', `?${kept}`);
}

const parameters = () => Object.entries(view.chosen).map(([name, value]) => `&var-${encodeURIComponent(name)}=${encodeURIComponent(value)}`).join('');

// ---- What is said of Prometheus

function say(state, text) {
  $('state').dataset.state = state;
  $('state').lastElementChild.textContent = text;
}
function sayUnfilled(error) {
  say('bad', error.unreachable ? 'Not reachable' : 'Error');
  sayTrouble(h('b', {}, 'The page cannot be filled. '), error.message);
}
function sayTrouble(...parts) {
  $('trouble').hidden = parts.length === 0;
  $('trouble').replaceChildren(...parts);
}

// For a round of refreshing; an answer that a later one has overtaken is dropped.
async function refreshState(mine) {
  let state;
  try {
    state = await ask(`/api/dashboards/${view.uid}/state`);
    if (mine !== round) return false;
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    if (mine !== round) return false;
    say('bad', error.unreachable ? 'Not reachable' : 'Error');
    sayTrouble(h('b', {}, 'No data. '), error.message, ...(error.unreachable ? [' Start it with ', h('code', {}, 'tools/up --dashboards'), '. Panels keep what they showed.'] : []));
    return false;
  }
  const down = state.targets.filter(({ up }) => !up);
  if (view.paused) say('paused', 'Paused');
  else if (state.targets.length === 0) say('bad', 'Nothing is scraped');
  else say(down.length ? 'bad' : 'good', `${state.targets.length - down.length} of ${state.targets.length} scraped`);
  if (state.targets.length === 0) sayTrouble(h('b', {}, 'Prometheus scrapes nothing yet. '), 'It begins a few seconds after its start.');
  else if (down.length > 0) sayTrouble(h('b', {}, 'Not scraped: '), down.slice(0, 6).map(({ job, instance }) => `${job} (${instance})`).join(', '), down.length > 6 ? ` and ${down.length - 6} more` : '', '.');
  else sayTrouble();
  fillVariables(state.variables);
  return true;
}

// A choice for each variable that has several values.
function fillVariables(values) {
  for (const { name, label } of view.variables) {
    let select = $(`var-${name}`);
    const found = values[name] || [];
    if (found.length < 2 && !(name in view.chosen)) { select?.closest('label').remove(); continue; }
    if (!select) {
      select = h('select', { id: `var-${name}`, 'aria-label': label || name, on: { change: () => {
        if (select.value) view.chosen[name] = select.value; else delete view.chosen[name];
        keepAddress();
        refresh();
      } } });
      $('range').closest('label').before(h('label', { class: 'pick' }, h('span', {}, label || name), select));
    }
    const wanted = ['', ...new Set([...found, ...(name in view.chosen ? [view.chosen[name]] : [])])];
    if ([...select.options].map(({ value }) => value).join('\n') !== wanted.join('\n')) {
      select.replaceChildren(...wanted.map((value) => h('option', { value }, value || 'All')));
    }
    select.value = view.chosen[name] || '';
  }
}

// ---- Refreshing

let round = 0;
let timer = null;

// Asks for what is in sight. A newer round ends an older one.
async function refresh() {
  const mine = ++round;
  clearTimeout(timer);
  const { uid } = view;
  try {
    const reachable = await refreshState(mine);
    const waiting = [...view.visible];
    const worker = async () => {
      while (waiting.length > 0 && mine === round) await refreshPanel(waiting.shift(), uid);
    };
    // Without Prometheus, one panel is asked in order to show what it says.
    await Promise.all(Array.from({ length: reachable ? AT_ONCE : 1 }, worker));
  } finally {
    // Also after a defect of one round.
    if (mine === round) schedule();
  }
}

function schedule() {
  clearTimeout(timer);
  if (!view.paused && !document.hidden) timer = setTimeout(refresh, REFRESH_MS);
}

async function refreshPanel(panel, uid) {
  panel.asked = performance.now();
  try {
    await panel.refresh(uid, view.range, parameters());
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
  }
}

const sight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const panel = view.panels.get(target);
    if (!panel) continue;
    if (!isIntersecting) { view.visible.delete(panel); continue; }
    view.visible.add(panel);
    // Not again if it has just been drawn; also while paused, if it never was.
    const old = performance.now() - (panel.asked ?? -Infinity);
    if (old > REFRESH_MS && (!view.paused || !panel.data)) refreshPanel(panel, view.uid);
  }
}, { rootMargin: '200px' });

// ---- The dashboards

function drawBoard(dashboard) {
  sight.disconnect();
  view.panels.clear();
  view.visible.clear();
  pointer.listeners.clear();
  hideValues();
  $('board').replaceChildren();
  $('rows').replaceChildren();
  const placed = [...dashboard.panels].sort((a, b) => a.gridPos.y - b.gridPos.y || a.gridPos.x - b.gridPos.x);
  let grid = null;
  const addRow = (title, id) => {
    const content = h('div', { class: 'grid', id: `row-${id}` });
    const toggle = h('button', { type: 'button', 'aria-expanded': 'true', 'aria-controls': content.id, on: { click: () => {
      content.hidden = !content.hidden;
      toggle.setAttribute('aria-expanded', String(!content.hidden));
    } } }, title);
    const heading = h('h2', { id: `section-${id}` }, toggle);
    $('board').append(heading, content);
    $('rows').append(h('a', { href: `#${heading.id}`, on: { click: (event) => {
      event.preventDefault();
      heading.scrollIntoView({ block: 'start' });
      toggle.focus({ preventScroll: true });
    } } }, title));
    return content;
  };
  for (const definition of placed) {
    if (definition.type === 'row') { grid = addRow(definition.title, definition.id); continue; }
    grid ??= addRow(dashboard.title, 'first');
    const panel = new Panel(definition);
    view.panels.set(panel.element, panel);
    grid.append(panel.element);
    sight.observe(panel.element);
  }
}

let opening = 0;

async function open(uid) {
  const mine = ++opening;
  let dashboard;
  try {
    dashboard = await ask(`/api/dashboards/${encodeURIComponent(uid)}`);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    if (mine === opening) sayUnfilled(error);
    return;
  }
  // Another one has been chosen meanwhile.
  if (mine !== opening) return;
  view.uid = uid;
  view.variables = dashboard.templating.list.filter(({ type }) => type === 'query');
  for (const { name } of view.variables) {
    const value = address.get(`var-${name}`);
    if (value) view.chosen[name] = value;
  }
  document.title = dashboard.title.startsWith('Foretoken') ? dashboard.title : `${dashboard.title} – Foretoken`;
  $('about').textContent = dashboard.description || '';
  for (const button of $('dashboards').children) button.setAttribute('aria-pressed', String(button.dataset.uid === uid));
  keepAddress();
  drawBoard(dashboard);
  scrollTo(0, 0);
  await refresh();
}

// "Foretoken: capacity" is Capacity, where all are Foretoken's.
function shortTitle(title) {
  const rest = title.replace(/^Foretoken:?\s*/, '');
  return rest ? rest[0].toUpperCase() + rest.slice(1) : 'Overview';
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
}
function storedTheme() {
  try { return localStorage.getItem('foretoken-theme'); } catch { return null; }
}
function otherTheme() {
  const chosen = document.documentElement.dataset.theme;
  const dark = chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  setTheme(dark ? 'light' : 'dark');
  try { localStorage.setItem('foretoken-theme', document.documentElement.dataset.theme); } catch { /* It lasts as long as the page. */ }
}

function setPaused(paused) {
  view.paused = paused;
  $('pause').setAttribute('aria-pressed', String(paused));
  $('pause').setAttribute('aria-label', paused ? 'Go on' : 'Pause');
  $('pause').title = paused ? 'Go on' : 'Pause';
  if (paused) { clearTimeout(timer); ++round; say('paused', 'Paused'); } else refresh();
}

function wire() {
  const theme = storedTheme();
  if (theme === 'light' || theme === 'dark') setTheme(theme);
  $('theme').addEventListener('click', otherTheme);
  $('pause').addEventListener('click', () => setPaused(!view.paused));
  $('range').replaceChildren(...RANGES.map((range) => h('option', { value: range }, `Last ${span(range)}`)));
  $('range').value = view.range;
  $('range').addEventListener('change', () => { view.range = Number($('range').value); keepAddress(); refresh(); });
  document.addEventListener('visibilitychange', () => { if (!document.hidden && !view.paused && view.uid) refresh(); });
}

async function begin() {
  wire();
  try {
    const dashboards = await ask('/api/dashboards');
    $('dashboards').replaceChildren(...dashboards.map(({ uid, title }) => h('button', { type: 'button', 'data-uid': uid, 'aria-pressed': 'false', on: { click: () => { if (uid !== view.uid) open(uid); } } }, shortTitle(title))));
    await open(dashboards.some(({ uid }) => uid === view.uid) ? view.uid : dashboards[0].uid);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    sayUnfilled(error);
  }
}

begin();
