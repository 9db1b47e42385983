// ---- Constraints of the output

const choices = (source) => source.split('\n').filter((line) => line.trim() !== '');

// A schema is sent as text: JSON.parse would reorder keys like "10" and round
// long numbers.
function constraint(output, source) {
  if (output === 'text') return {};
  if (output === 'json') return { response_format: { type: 'json_object' } };
  if (output === 'schema') return { response_format: { type: 'json_schema', json_schema: { name: 'output', schema: source } } };
  return { structured_outputs: { [output]: output === 'choice' ? choices(source) : source } };
}

// The fault that the page can find in the source without the server; '': none.
function fault() {
  const { name, example } = OUTPUTS[prefs.output];
  if (!example) return '';
  if (prefs[prefs.output].trim() === '') return `${name} is empty.`;
  if (prefs.output !== 'schema') return '';
  try {
    const schema = JSON.parse(prefs.schema);
    return schema && typeof schema === 'object' && !Array.isArray(schema) ? '' : 'A JSON Schema is an object.';
  } catch (error) { return `Invalid JSON: ${error.message}`; }
}

// Shows a fault at the source; '': none.
function showFault(text) {
  $('source-wrong').textContent = text;
  $('source-wrong').hidden = !text;
  $('source').setAttribute('aria-invalid', String(Boolean(text)));
}
// Shows a fault, and takes the user there.
function complain(text) {
  if (sideFloats()) setSide(true);
  showFault(text);
  $($('source-field').hidden ? 'output' : 'source').focus();
}
// Whether a prompt can be sent as things stand; if not, the fault is shown.
function canSend() {
  const text = fault();
  if (text) complain(text); else showFault('');
  return !text;
}

function showOutput() {
  const { source, example } = OUTPUTS[prefs.output];
  $('output').value = prefs.output;
  $('source-name').textContent = source || '';
  $('source').value = example ? prefs[prefs.output] : '';
  $('source').setSelectionRange(0, 0);
  $('source').rows = prefs.output === 'schema' ? 10 : 4;
  $('source-field').hidden = $('example').hidden = !example;
  showFault('');
}
function setSource(text) {
  prefs[prefs.output] = text;
  if (!fault()) showFault('');
  keep();
}

function wireOutput() {
  $('output').append(...Object.entries(OUTPUTS).map(([id, { name }]) => h('option', { value: id }, name)));
  showOutput();
  $('output').addEventListener('change', () => { prefs.output = $('output').value; showOutput(); keep(); });
  $('source').addEventListener('input', () => setSource($('source').value));
  // JSON is incomplete while it is typed: it is checked when that ends.
  $('source').addEventListener('change', () => { if (fault()) showFault(fault()); });
  $('example').addEventListener('click', () => {
    // As if it were typed, so that undo brings the user's own source back.
    $('source').focus();
    $('source').select();
    document.execCommand('insertText', false, OUTPUTS[prefs.output].example);
    $('source').setSelectionRange(0, 0);
    $('source').scrollTop = 0;
  });
}

