// ---- What runs

let abort = null;  // of what runs; null: nothing does

// The model may run on this machine: the page leaves it the processor. Text is
// drawn some twenty times a second, and what is measured five times.
const TEXT_MS = 45, FIGURES_MS = 200;
let drawing = false;

function drawSoon(view) {
  view.dirty = true;
  if (drawing) return;
  drawing = true;
  setTimeout(() => requestAnimationFrame(() => {
    drawing = false;
    if (!view.dirty) return;  // drawn at its end
    view.dirty = false;
    const now = performance.now();
    const figures = now - (view.figuresAt || 0) >= FIGURES_MS;
    if (figures) view.figuresAt = now;
    keepAtEnd(() => {
      view.draw();
      if (!figures) return;
      view.drawShares();
      live.sample();
      live.draw();
    });
  }), TEXT_MS);
}
// Draws the end. Frames stand still in a hidden tab, but replies do not.
function drawNow(view) {
  view.dirty = false;
  keepAtEnd(() => {
    view.draw();
    view.drawShares();
    live.draw();
  });
}
// Who reads the end goes on reading it; who has scrolled up stays there.
function keepAtEnd(draw) {
  const scroll = $('scroll');
  const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
  draw();
  if (atEnd) scroll.scrollTop = scroll.scrollHeight;
}

function setRunning(running) {
  $('send').hidden = running;
  $('stop').hidden = !running;
  if (running && document.activeElement === $('send')) $('prompt').focus();
}

// The page draws seeds itself: those of the server may have 64 bits, and a number
// of the page has 53.
const seed = () => (/^\d{1,15}$/.test(prefs.seed) ? Number(prefs.seed) : crypto.getRandomValues(new Uint32Array(1))[0]);
const systemTurn = () => (prefs.system.trim() ? [{ role: 'system', content: prefs.system }] : []);

