// ---- The page

function show(view) {
  const comparing = view === 'compare';
  if (comparing === !$('compare').hidden) return;
  stop();
  tree.close();
  $('chat').hidden = comparing;
  $('compare').hidden = !comparing;
  $('to-chat').setAttribute('aria-pressed', String(!comparing));
  $('to-compare').setAttribute('aria-pressed', String(comparing));
  $('prompt').placeholder = comparing ? 'A prompt to run twice' : 'Ask anything';
  const anew = comparing ? 'New comparison' : 'New conversation';
  $('new').title = anew;
  $('new').setAttribute('aria-label', anew);
  $('prompt').focus();
}

const startAnew = () => { if ($('compare').hidden) newChat(); else newComparison(); };

function setTheme(theme) {
  prefs.theme = theme;
  if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
}
function otherTheme() {
  const dark = prefs.theme ? prefs.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  setTheme(dark ? 'light' : 'dark');
  keep();
}
function setColours(on) {
  prefs.colours = on;
  $('colours').checked = on;
  document.body.classList.toggle('plain', !on);
  keep();
}
function setSide(open) {
  $('side').classList.toggle('open', open);
  $('open-side').setAttribute('aria-expanded', String(open));
  if (open) $('close-side').focus(); else $('open-side').focus();
}
const sideFloats = () => matchMedia('(max-width: 66rem)').matches;

function fitPrompt() {
  $('prompt').style.height = 'auto';
  $('prompt').style.height = `${$('prompt').scrollHeight}px`;
}

function fillModes() {
  const info = (model() || {}).foretoken || {};
  const modes = Array.isArray(info.modes) && info.modes.length > 0 ? info.modes.map(String) : ['off', 'auto'];
  if (!modes.includes(prefs.mode)) prefs.mode = modes.includes(info.default_mode) ? info.default_mode : modes[0];
  $('mode').replaceChildren(...modes.map((mode) => h('option', { value: mode, title: title(mode) }, mode)));
  $('mode').value = prefs.mode;
}

async function loadModels() {
  try {
    const response = await fetch('/v1/models', { headers: headers() });
    if (!response.ok) throw await refusal(response);
    models = (await response.json()).data.map((one) => ({ ...one, id: String(one.id) }));
    $('trouble')?.remove();
  } catch (error) {
    const wantsKey = error.status === 401 || error.status === 403;
    $('trouble')?.remove();
    $('hero').before(h('div', { class: 'alert turn', role: 'alert', id: 'trouble' }, h('b', {}, 'The models cannot be listed. '), error instanceof Refusal ? error.message : 'The server cannot be reached.', wantsKey ? ' Enter an API key in the settings.' : ''));
    if (wantsKey) {
      if (sideFloats()) setSide(true);
      $('key').focus();
    }
  }
  $('model').replaceChildren(...models.map(({ id }) => h('option', { value: id }, id)));
  if (model()) $('model').value = prefs.model = model().id;
  fillModes();
}

function moveTip(event) {
  const token = event.target.closest && event.target.closest('.t');
  const tip = $('tip');
  if (!token || event.pointerType === 'touch') { tip.hidden = true; return; }
  const { reply } = viewOf(token);
  const index = Number(token.dataset.i);
  const { id, drafter, text } = reply.tokens[index];
  const round = reply.roundOf(index);
  tip.replaceChildren(h('code', {}, visible(text)), ` ${id}`, h('br'), title(drafter), ' ', h('code', {}, drafter), round < 0 ? '' : ` · round ${round + 1}`);
  tip.hidden = false;
  const box = token.getClientRects()[0] || token.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(innerWidth - tip.offsetWidth - 8, box.left))}px`;
  tip.style.top = `${box.top > tip.offsetHeight + 12 ? box.top - tip.offsetHeight - 6 : box.bottom + 6}px`;
}

function onKey(event) {
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey || $('help').open) return;
  if (event.key === 'Escape') {
    if (abort) stop();
    else if ($('side').classList.contains('open')) setSide(false);
    else if (!tree.close() && live.solo) live.setSolo('');
    return;
  }
  const writes = event.target.matches('input:not([type="checkbox"]), textarea, select');
  if (writes) return;
  if (!$('tree').hidden && (event.key === 'ArrowLeft' || event.key === 'ArrowRight') && !event.target.matches('input')) {
    tree.step(event.key === 'ArrowLeft' ? -1 : 1);
    event.preventDefault();
    return;
  }
  if (!prefs.shortcuts) return;
  const actions = {
    '/': () => $('prompt').focus(),
    '?': () => $('help').showModal(),
    m: () => $('mode').focus(),
    o: () => { if (sideFloats()) setSide(true); $('output').focus(); },
    x: () => show($('compare').hidden ? 'compare' : 'chat'),
    c: () => setColours(!prefs.colours),
    t: otherTheme,
    n: startAnew,
    s: () => { if (sideFloats()) setSide(true); $('temperature').focus(); },
    r: () => { if (live.view) tree.openFirst(live.view); },
  };
  if (!Object.hasOwn(actions, event.key)) return;
  event.preventDefault();
  actions[event.key]();
}

function wire() {
  setTheme(prefs.theme);
  setColours(prefs.colours);
  for (const name of ['temperature', 'top_p']) {
    const out = () => { $(name + '-out').textContent = prefs[name].toFixed(2); };
    $(name).value = prefs[name];
    out();
    $(name).addEventListener('input', () => { prefs[name] = Number($(name).value); out(); keep(); });
  }
  const showMaximum = () => { $('max_tokens').value = prefs.max_tokens || ''; };
  showMaximum();
  $('max_tokens').addEventListener('change', () => {
    prefs.max_tokens = Math.max(0, Math.min(Math.floor(Number($('max_tokens').value)), 131072));
    showMaximum();
    keep();
  });
  for (const name of ['seed', 'system']) {
    $(name).value = prefs[name];
    $(name).addEventListener('input', () => { prefs[name] = $(name).value.trim() === '' ? '' : $(name).value; keep(); });
  }
  wireOutput();
  $('key').value = key;
  $('key').addEventListener('change', () => { key = $('key').value.trim(); save(session, 'foretoken-key', key); loadModels(); });
  $('shortcuts').checked = prefs.shortcuts;
  $('shortcuts').addEventListener('change', () => { prefs.shortcuts = $('shortcuts').checked; keep(); });
  $('colours').addEventListener('change', () => setColours($('colours').checked));
  $('model').addEventListener('change', () => { prefs.model = $('model').value; fillModes(); keep(); });
  $('mode').addEventListener('change', () => { prefs.mode = $('mode').value; keep(); });
  $('theme').addEventListener('click', otherTheme);
  $('new').addEventListener('click', startAnew);
  $('open-help').addEventListener('click', () => $('help').showModal());
  $('open-side').addEventListener('click', () => setSide(true));
  $('close-side').addEventListener('click', () => setSide(false));
  $('to-chat').addEventListener('click', () => show('chat'));
  $('to-compare').addEventListener('click', () => show('compare'));
  $('tree-back').addEventListener('click', () => tree.step(-1));
  $('tree-next').addEventListener('click', () => tree.step(1));
  $('tree-close').addEventListener('click', () => tree.close());
  $('stop').addEventListener('click', stop);
  $('prompt').addEventListener('input', fitPrompt);
  $('prompt').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $('form').requestSubmit();
  });
  $('form').addEventListener('submit', (event) => {
    event.preventDefault();
    const text = $('prompt').value;
    if (abort || text.trim() === '' || !canSend()) return;
    $('prompt').value = '';
    fitPrompt();
    if ($('compare').hidden) send(text); else compare(text, prefs.output, prefs[prefs.output]);
  });
  $('scroll').addEventListener('click', (event) => {
    const token = event.target.closest('.t');
    if (!token || event.target.closest('a') || String(getSelection())) return;
    tree.openToken(viewOf(token), Number(token.dataset.i));
  });
  $('scroll').addEventListener('pointerover', moveTip);
  $('scroll').addEventListener('pointerleave', () => { $('tip').hidden = true; });
  $('scroll').addEventListener('scroll', () => { $('tip').hidden = true; }, { passive: true });
  document.addEventListener('keydown', onKey);
  fillStarters($('starters'), STARTERS, (text) => { if (!abort && canSend()) send(text); });
  // These set the output format themselves, whatever the settings say.
  fillStarters($('races'), RACES, (text, output = 'text') => { if (!abort) compare(text, output, OUTPUTS[output].example); });
}

wire();
restoreChat();
loadModels();
