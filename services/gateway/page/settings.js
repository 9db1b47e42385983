// ---- Settings

// Formats of the output; those with an example have a source that is written in
// the settings.
const OUTPUTS = {
  text: { name: 'Text' },
  json: { name: 'JSON' },
  schema: {
    name: 'JSON Schema',
    source: 'Schema',
    example: `{
  "type": "object",
  "properties": {
    "title": {
      "type": "string",
      "maxLength": 60
    },
    "summary": {
      "type": "string",
      "maxLength": 200
    },
    "keywords": {
      "type": "array",
      "items": {
        "type": "string",
        "maxLength": 20
      },
      "minItems": 2,
      "maxItems": 4
    },
    "level": {
      "enum": ["easy", "hard"]
    }
  },
  "required": [
    "title", "summary",
    "keywords", "level"
  ],
  "additionalProperties": false
}`,
  },
  regex: { name: 'Regex', source: 'Regular expression', example: '(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])' },
  choice: { name: 'Choice', source: 'Choices, one a line', example: 'positive\nnegative\nneutral' },
  grammar: { name: 'Grammar', source: 'Grammar (GBNF)', example: '# A list of two to five items.\nroot ::= item{2,5}\nitem ::= "- " [A-Z] [a-z ]{2,40} "\\n"' },
};

const DEFAULTS = {
  // Maximum tokens 0: as many as the context holds.
  temperature: 0.6, top_p: 0.95, max_tokens: 512, seed: '', system: '', colours: true,
  shortcuts: true, theme: '', mode: '', model: '',
  output: 'text', schema: OUTPUTS.schema.example, regex: OUTPUTS.regex.example, choice: OUTPUTS.choice.example, grammar: OUTPUTS.grammar.example,
};
function load(storage, key, otherwise) {
  try { return JSON.parse(storage().getItem(key)) ?? otherwise; } catch { return otherwise; }
}
function save(storage, key, value) {
  try { storage().setItem(key, JSON.stringify(value)); } catch { /* full or forbidden: not kept */ }
}
const local = () => localStorage;
const session = () => sessionStorage;
const prefs = { ...DEFAULTS };
for (const [name, value] of Object.entries(load(local, 'foretoken', {}))) {
  if (Object.hasOwn(DEFAULTS, name) && typeof value === typeof DEFAULTS[name]) prefs[name] = value;
}
if (!Object.hasOwn(OUTPUTS, prefs.output)) prefs.output = 'text';
let key = String(load(session, 'foretoken-key', ''));
const keep = () => save(local, 'foretoken', prefs);

