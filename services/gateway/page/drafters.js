// ---- Drafters

// Name, source of the drafts, and a longer name for places with room for it.
const DRAFTERS = {
  fused_request: ['This text', 'copied from here'],
  fused_history: ['Earlier outputs', 'written before'],
  fused_prior: ['Prior', 'common phrases'],
  fused_recycled: ['Recycled', 'earlier runners-up'],
  fused: ['Fused', 'without a model'],
  draft_model: ['Draft model', 'a smaller model'],
  lookahead: ['Lookahead', 'its Jacobi window'],
  ouroboros: ['Ouroboros', 'drafted phrases'],
  ngram_trie: ['N-gram trie', 'counts of this text'],
  crest: ['CREST', 'stored trees'],
  prompt_lookup: ['Prompt lookup', 'copied from here'],
  grammar: ['Forced', 'by the grammar', 'Forced by the grammar'],
  target: ['Model', 'one each round'],
};
const NAMES = Object.keys(DRAFTERS);
const known = (drafter) => (Object.hasOwn(DRAFTERS, drafter) ? drafter : 'other');
const colour = (drafter) => 'd-' + known(drafter);
const title = (drafter) => (Object.hasOwn(DRAFTERS, drafter) ? DRAFTERS[drafter][2] || DRAFTERS[drafter][0] : drafter);
const byOrder = (a, b) => NAMES.indexOf(known(a)) - NAMES.indexOf(known(b));

// Makes the white space of a token visible.
const visible = (text) => text.replace(/\n/g, '↵').replace(/\t/g, '⇥').replace(/ /g, '␣');

