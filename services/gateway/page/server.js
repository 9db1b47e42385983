// ---- The server

let models = [];
const model = () => models.find((one) => one.id === prefs.model) || models[0];
const headers = () => (key ? { authorization: 'Bearer ' + key } : {});

class Refusal extends Error {
  // `param`: the field that was refused, if one was.
  constructor(message, status, param) { super(message); this.status = status; this.param = String(param ?? ''); }
}

async function refusal(response) {
  let message = '', param;
  try {
    const { error } = await response.json();
    message = String(error.message);
    param = error.param;
  } catch { /* not in that form */ }
  const after = response.headers.get('retry-after');
  if (response.status === 429 && after) message += ` Try again in ${after} s.`;
  return new Refusal(message || `The server answered ${response.status}.`, response.status, param);
}

// Calls `take` with every event of a stream of server-sent events.
async function events(response, take) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = '', data = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      rest += done ? decoder.decode() + '\n\n' : decoder.decode(value, { stream: true });
      const lines = rest.split('\n');
      rest = lines.pop();
      for (let line of lines) {
        if (line.endsWith('\r')) line = line.slice(0, -1);
        if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
        if (line !== '' || data.length === 0) continue;
        const event = data.join('\n');
        data = [];
        if (event !== '[DONE]') take(JSON.parse(event));
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});  // after an error; else there is nothing left
  }
}

