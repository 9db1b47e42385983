// ---- Drafters

// API id: a name for people, and where the drafts come from.
const DRAFTERS = {
  fused_request: ['This conversation', 'text from above'],
  fused_history: ['Earlier outputs', 'written before'],
  fused_prior: ['Common phrases', 'known beforehand'],
  fused_recycled: ['Recycled candidates', 'earlier runners-up'],
  fused: ['Fused sources', 'no draft model'],
  draft_model: ['Draft model', 'a smaller model'],
  lookahead: ['Lookahead', 'guesses in parallel'],
  ouroboros: ['Phrase pool', 'drafted phrases'],
  ngram_trie: ['Context trie', 'counted n-grams'],
  crest: ['Stored trees', 'from a datastore'],
  prompt_lookup: ['Prompt lookup', 'copied from above'],
  grammar: ['Grammar', 'forced by the format'],
  target: ['Model', 'one token each round'],
};
const NAMES = Object.keys(DRAFTERS);
const known = (drafter) => (Object.hasOwn(DRAFTERS, drafter) ? drafter : 'other');
const colour = (drafter) => 'd-' + known(drafter);
const title = (drafter) => (Object.hasOwn(DRAFTERS, drafter) ? DRAFTERS[drafter][0] : drafter);
const about = (drafter) => (Object.hasOwn(DRAFTERS, drafter) ? DRAFTERS[drafter][1] : '');
// A legend entry; its tooltip shows the id.
const legend = (drafter, ...more) => h('li', { title: drafter }, h('i', { class: 'chip ' + colour(drafter) }), h('span', {}, title(drafter)), ...more);
const byOrder = (a, b) => NAMES.indexOf(known(a)) - NAMES.indexOf(known(b));

// Makes the white space of a token visible.
const visible = (text) => text.replace(/\n/g, '↵').replace(/\t/g, '⇥').replace(/ /g, '␣');

