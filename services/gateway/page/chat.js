// ---- Chat

const newScope = () => 'page-' + [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
const chat = { turns: [], scope: newScope() };
const MAX_KEPT = 1 << 20;  // characters of a conversation that survive a reload

function keepChat() {
  const turns = chat.turns.map(({ role, content, reply }) => ({
    role, content,
    reply: reply && {
      mode: reply.mode, output: reply.output, text: reply.text, thought: reply.thought, tokens: reply.tokens, finish: reply.finish, error: reply.error, summary: reply.summary,
      took: reply.seconds,
    },
  }));
  const kept = { scope: chat.scope, turns };
  save(session, 'foretoken-chat', JSON.stringify(kept).length > MAX_KEPT ? null : kept);
}

// What an earlier visit of this tab left; the trees of its rounds are not kept.
function restoreChat() {
  const kept = load(session, 'foretoken-chat', null);
  if (!kept || !Array.isArray(kept.turns)) return;
  chat.scope = String(kept.scope);
  for (const { role, content, reply: old } of kept.turns) {
    if (role === 'user') { addUser(String(content)); continue; }
    const reply = Object.assign(new Reply(''), old, { running: false });
    reply.last = reply.begun + 1000 * (old.took || 0);
    chat.turns.push({ role, content, reply });
    const view = new ReplyView(reply);
    view.drawShares();
    $('log').append(view.element);
    live.follow(view);
  }
}

function addUser(text) {
  $('hero').hidden = true;
  chat.turns.push({ role: 'user', content: text });
  $('log').append(h('div', { class: 'turn user' }, h('div', {}, h('span', { class: 'sr' }, 'You: '), text)));
}

// The turns as messages, without those that were never answered: templates want
// users and assistants to alternate.
function answered(turns) {
  return turns
    .filter((turn, i) => turn.content && (turn.role !== 'user' || i + 1 === turns.length || turns[i + 1].content))
    .map(({ role, content, reply }) => ({ role, content, ...(reply && reply.thinking ? { reasoning_content: reply.thinking } : {}) }));
}

async function send(text) {
  addUser(text);
  const reply = new Reply(prefs.mode, prefs.output);
  const view = new ReplyView(reply);
  const messages = [...systemTurn(), ...answered(chat.turns)];
  $('log').append(view.element);
  $('scroll').scrollTop = $('scroll').scrollHeight;
  live.follow(view);
  abort = new AbortController();
  setRunning(true);
  say('The reply begins.');
  await run(reply, messages, { cache_scope: chat.scope, seed: seed(), ...constraint(prefs.output, prefs[prefs.output]) }, abort.signal, () => drawSoon(view));
  abort = null;
  setRunning(false);
  chat.turns.push({ role: 'assistant', content: reply.content, reply });
  drawNow(view);
  keepChat();
  say(reply.error || `The reply ends: ${reply.tokens.length} tokens, ${round1(reply.rate)} tokens per second, accept length ${reply.length.toFixed(2)}.`);
}

function newChat() {
  stop();
  tree.close();
  chat.turns = [];
  chat.scope = newScope();
  $('log').replaceChildren();
  $('hero').hidden = false;
  live.follow(null);
  save(session, 'foretoken-chat', null);
  $('prompt').focus();
}

