// ---- Colours of code

// Comments, strings, numbers, keywords and member names, by a few rules that nearly
// all languages share. Each step continues after the text it has read, so a block
// takes time linear in its length.

const MAX_COLOURED = 50_000;  // characters of a block; the rest of it has no colours
const wordSet = (text) => new Set(text.split(' '));

const C = 'alignas alignof auto bool break case char const constexpr continue default do double else enum extern false float for goto if inline int long nullptr register return short signed sizeof static struct switch true typedef union unsigned void volatile while';
const SLASHES = [['//', '\n'], ['/*', '*/']];
const HASH = [['#', '\n']];
const QUOTES = ['"', "'"];

// comments: [opening, closing]. quotes: longest first; strings in quotes of several
// characters or in backticks may span lines. marks: characters that make the next
// word a keyword. keys: the character after a member name. apart: comments start
// after white space only, and strings not within a word. dashes: words may contain
// '-'. separators: numbers may contain "'". lifetimes: "'" may start a name.
const LANGUAGES = {
  python: { comments: HASH, quotes: ['"""', "'''", '"', "'"], marks: '@', words: wordSet('False None True and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return self try while with yield') },
  javascript: { comments: SLASHES, quotes: ['"', "'", '`'], marks: '@', words: wordSet('abstract any as async await boolean break case catch class const continue debugger declare default delete do else enum export extends false finally for from function get if implements import in instanceof interface keyof let new null number of private protected public readonly return set static string super switch this throw true try type typeof undefined unknown var void while yield') },
  c: { comments: SLASHES, quotes: QUOTES, marks: '#', separators: true, words: wordSet(C + ' and asm catch class co_await co_return co_yield concept consteval constinit const_cast decltype delete dynamic_cast explicit export final friend import module mutable namespace new noexcept not operator or override private protected public reinterpret_cast requires static_assert static_cast template this throw try typename using virtual __device__ __global__ __host__ __shared__') },
  java: { comments: SLASHES, quotes: ['"""', '"', "'"], marks: '@', words: wordSet('abstract assert boolean break byte case catch char class const continue default do double else enum extends false final finally float for if implements import instanceof int interface long native new null package permits private protected public record return sealed short static super switch synchronized this throw throws transient true try var void volatile while yield') },
  csharp: { comments: SLASHES, quotes: ['"""', '"', "'"], marks: '#', words: wordSet('abstract as async await base bool break byte case catch char class const continue decimal default delegate do double else enum event explicit extern false finally fixed float for foreach get if implicit in init int interface internal is lock long namespace new null object operator out override params private protected public readonly record ref return sbyte sealed set short static string struct switch this throw true try typeof uint ulong using var virtual void when where while yield') },
  go: { comments: SLASHES, quotes: ['"', "'", '`'], words: wordSet('any bool break byte case chan const continue default defer else error fallthrough false float32 float64 for func go goto if import int int32 int64 interface iota map nil package range return rune select string struct switch true type uint uint32 uint64 var') },
  rust: { comments: SLASHES, quotes: QUOTES, lifetimes: true, words: wordSet('Self as async await bool break char const continue crate dyn else enum extern f32 f64 false fn for i16 i32 i64 i8 if impl in isize let loop match mod move mut pub ref return self static str struct super trait true type u16 u32 u64 u8 unsafe use usize where while') },
  kotlin: { comments: SLASHES, quotes: ['"""', '"', "'"], marks: '@', words: wordSet('abstract actual as break by catch class companion const continue data do else enum expect false final finally for fun get if import in init inline interface internal is it lateinit null object open operator override package private protected public return sealed set super suspend this throw true try typealias val var vararg when where while') },
  swift: { comments: SLASHES, quotes: ['"""', '"'], marks: '@#', words: wordSet('Self actor any as async await break case catch class continue default defer deinit do else enum extension false fileprivate final for func guard if import in init inout internal is lazy let mutating nil open override private protocol public repeat rethrows return self some static struct subscript super switch throw throws true try typealias var weak where while') },
  php: { comments: [...SLASHES, ...HASH], quotes: QUOTES, words: wordSet('abstract and array as bool break callable case catch class clone const continue declare default do echo else elseif enum extends false final finally float fn for foreach function global if implements include instanceof int interface isset list match namespace new null or print private protected public readonly require require_once return self static string switch this throw trait true try unset use var void while yield') },
  ruby: { comments: HASH, quotes: QUOTES, apart: true, words: wordSet('alias and begin break case class def defined do else elsif end ensure false for if in include module next nil not or puts raise redo require rescue retry return self super then true unless until when while yield') },
  shell: { comments: HASH, quotes: ['"', "'", '`'], apart: true, words: wordSet('alias break case cd continue do done echo elif else esac eval exec exit export fi for function if in local printf read readonly return select set shift source then trap unset until while') },
  sql: { comments: [['--', '\n'], ['/*', '*/']], quotes: QUOTES, caseless: true, words: wordSet('add all alter and as asc between bigint boolean by cascade case check column constraint create cross date default delete desc distinct drop else end exists false foreign from full group having if in index inner insert int integer into is join key left like limit not null numeric offset on or order outer partition primary references returning right rollback select set table text then timestamp true union unique update using values varchar view when where with') },
  lua: { comments: [['--[[', ']]'], ['--', '\n']], quotes: QUOTES, words: wordSet('and break do else elseif end false for function goto if in local nil not or repeat return then true until while') },
  r: { comments: HASH, quotes: QUOTES, words: wordSet('FALSE NA NULL TRUE break else for function if in library next repeat return while') },
  css: { comments: [['/*', '*/']], quotes: QUOTES, marks: '@', dashes: true, keys: ':', words: wordSet('auto inherit initial none unset') },
  json: { comments: SLASHES, quotes: ['"'], keys: ':', words: wordSet('false null true') },
  yaml: { comments: HASH, quotes: QUOTES, apart: true, dashes: true, keys: ':', words: wordSet('false no null off on true yes') },
  toml: { comments: HASH, quotes: ['"""', "'''", '"', "'"], dashes: true, keys: '=', words: wordSet('false true') },
  docker: { comments: HASH, quotes: QUOTES, apart: true, words: wordSet('ADD ARG AS CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL RUN SHELL STOPSIGNAL USER VOLUME WORKDIR') },
  cmake: { comments: [['#[[', ']]'], ...HASH], quotes: ['"'], words: wordSet('AND NOT OR PRIVATE PUBLIC add_executable add_library break else elseif endforeach endfunction endif endmacro endwhile find_package foreach function if include macro message project return set target_link_libraries while') },
  html: { markup: true },
};
const ALIASES = {
  py: 'python', python3: 'python', pyi: 'python', js: 'javascript', jsx: 'javascript', mjs: 'javascript', ts: 'javascript', tsx: 'javascript', typescript: 'javascript',
  h: 'c', cc: 'c', cpp: 'c', 'c++': 'c', cxx: 'c', hpp: 'c', cu: 'c', cuda: 'c', proto: 'c', protobuf: 'c', cs: 'csharp', 'c#': 'csharp', golang: 'go', rs: 'rust', kt: 'kotlin', rb: 'ruby',
  sh: 'shell', bash: 'shell', zsh: 'shell', console: 'shell', make: 'shell', makefile: 'shell', scss: 'css', less: 'css', jsonc: 'json', json5: 'json', jsonl: 'json', yml: 'yaml', ini: 'toml', dockerfile: 'docker', xml: 'html', svg: 'html', vue: 'html', xhtml: 'html',
};

const isDigit = (c) => c >= '0' && c <= '9';
const isWordPart = (c) => c !== undefined && (/[\w$]/.test(c) || c > '\x7f');

class Code {
  constructor(text, rules) { Object.assign(this, { text, rules, spans: [] }); }

  // [{from, to, kind}], ascending and disjoint.
  read() {
    const { text } = this;
    let at = 0;
    while (at < text.length) {
      let kind = 'comment', to = this.comment(at);
      if (to < 0) { kind = 'string'; to = this.string(at); }
      if (to >= 0) {
        if (kind === 'string' && this.isKey(to)) kind = 'name';
        this.add(at, to, kind);
      } else if (isDigit(text[at])) {
        to = this.number(at);
        this.add(at, to, 'number');
      } else {
        to = this.word(at);
      }
      at = to;
    }
    return this.spans;
  }

  add(from, to, kind) { this.spans.push({ from, to, kind }); }
  // Whether a string may begin at `at`.
  begins(at) { return !this.rules.apart || at === 0 || !isWordPart(this.text[at - 1]); }

  // The end of the comment that begins at `at`; -1: none does.
  comment(at) {
    const { text, rules } = this;
    for (const [open, close] of rules.comments) {
      if (!text.startsWith(open, at) || (rules.apart && at > 0 && !/\s/.test(text[at - 1]))) continue;
      const end = text.indexOf(close, at + open.length);
      return end < 0 ? text.length : close === '\n' ? end : end + close.length;
    }
    return -1;
  }

  // The end of the string that begins at `at`; -1: none does. An unterminated string
  // ends with its line, or with the text if it may span lines.
  string(at) {
    const { text, rules } = this;
    const quote = rules.quotes.find((mark) => text.startsWith(mark, at));
    if (!quote || !this.begins(at)) return -1;
    if (rules.lifetimes && quote === "'" && text[at + 1] !== '\\' && text[at + 2] !== "'") return -1;
    const lines = quote.length > 1 || quote === '`';
    for (let to = at + quote.length; to < text.length; ++to) {
      if (text[to] === '\\') ++to;
      else if (text.startsWith(quote, to)) return to + quote.length;
      else if (text[to] === '\n' && !lines) return to;
    }
    return text.length;
  }

  number(at) {
    const { text, rules } = this;
    const exponent = text.startsWith('0x', at) ? /[pP]/ : /[eE]/;
    let to = at + 1;
    for (; to < text.length; ++to) {
      const c = text[to];
      if (isWordPart(c)) continue;
      const joins = (c === '.' && isDigit(text[to + 1])) || (rules.separators && c === "'" && isWordPart(text[to + 1]));
      const signs = (c === '+' || c === '-') && exponent.test(text[to - 1]) && isDigit(text[to + 1] ?? '');
      if (!joins && !signs) break;
    }
    return to;
  }

  // A word, or one character that belongs to nothing.
  word(at) {
    const { text, rules } = this;
    const marked = rules.marks?.includes(text[at]) && isWordPart(text[at + 1]);
    if (!marked && !isWordPart(text[at])) return at + 1;
    let to = at + 1;
    while (to < text.length && (isWordPart(text[to]) || (rules.dashes && text[to] === '-'))) ++to;
    const word = text.slice(at, to);
    if (marked || rules.words.has(rules.caseless ? word.toLowerCase() : word)) this.add(at, to, 'keyword');
    else if (this.isKey(to)) this.add(at, to, 'name');
    return to;
  }

  // Whether what ends at `to` is the name of a member.
  isKey(to) {
    const { text, rules } = this;
    if (!rules.keys) return false;
    while (text[to] === ' ') ++to;
    // YAML requires white space after it; the others do not.
    return text[to] === rules.keys && (!rules.apart || !/\S/.test(text[to + 1] ?? ''));
  }
}

// HTML and XML: comments, tags, attribute names and attribute values.
function markupSpans(text) {
  const spans = [];
  let inTag = false, at = 0;
  const until = (mark, from) => {
    const end = text.indexOf(mark, from);
    return end < 0 ? text.length : end + mark.length;
  };
  while (at < text.length) {
    const c = text[at];
    let to = at + 1, kind = '';
    if (!inTag && c === '<' && /[A-Za-z/!?]/.test(text[at + 1] || '')) {
      if (text.startsWith('<!--', at)) { kind = 'comment'; to = until('-->', at + 4); }
      else { kind = 'keyword'; inTag = true; to = at + 2; }
    } else if (inTag && c === '>') {
      kind = 'keyword';
      inTag = false;
    } else if (inTag && (c === '"' || c === "'")) {
      kind = 'string';
      to = until(c, at + 1);
    } else if (inTag && isWordPart(c)) {
      kind = 'name';
    }
    // Names of tags and attributes go on.
    if (inTag && (kind === 'keyword' || kind === 'name')) while (to < text.length && /[\w:.-]/.test(text[to])) ++to;
    if (kind) spans.push({ from: at, to, kind });
    at = to;
  }
  return spans;
}

// The coloured parts of a block of code: [{from, to, kind}], ascending and disjoint.
// Empty for an unknown language.
function codeSpans(text, language) {
  let name = language.toLowerCase();
  if (Object.hasOwn(ALIASES, name)) name = ALIASES[name];
  if (!Object.hasOwn(LANGUAGES, name)) return [];
  // Keep surrogate pairs whole.
  const part = text.slice(0, MAX_COLOURED).replace(/[\ud800-\udbff]$/, '');
  return LANGUAGES[name].markup ? markupSpans(part) : new Code(part, LANGUAGES[name]).read();
}
