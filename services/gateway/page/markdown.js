// ---- Markdown

const MAX_DEPTH = 8;
const MAX_COLUMNS = 64;      // browsers lay out columns times rows
const MAX_EMPTY_CELLS = 5000;  // that fill up rows, in all tables
const MAX_LINK_TEXT = 1000;
const MAX_URL = 2000;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+|$)/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])([ \t]+|$)/;

// A model may write anything, and what it wrote is read again at every reload:
// all of this takes a time linear in the text. A regular expression with two
// repetitions that can share a stretch of it does not, so these are read by hand.
const isSpaceOrTab = (c) => c === ' ' || c === '\t';
// Where what `is` holds for, up to `end`, begins.
function back(text, end, is) {
  while (end > 0 && is(text[end - 1])) --end;
  return end;
}
// The first line of a code block, ```language; null for any other line.
function fenceOf(text) {
  const margin = /^ {0,3}/.exec(text)[0].length;
  const mark = text[margin];
  if (mark !== '`' && mark !== '~') return null;
  let end = margin;
  while (text[end] === mark) ++end;
  if (end - margin < 3 || text.includes('`', end)) return null;
  return { fence: text.slice(margin, end), language: /^[ \t]*(\S*)/.exec(text.slice(end))[1] };
}
function isRule(text) {
  const begin = /^ {0,3}([-*_])/.exec(text);
  if (!begin) return false;
  let marks = 0;
  for (let at = begin[0].length - 1; at < text.length; ++at) {
    if (text[at] === begin[1]) ++marks; else if (!isSpaceOrTab(text[at])) return false;
  }
  return marks >= 3;
}
// Where the words of a heading end: before closing marks that stand apart.
function headingEnd(text) {
  const words = back(text, text.length, isSpaceOrTab);
  const marks = back(text, words, (c) => c === '#');
  const before = back(text, marks, isSpaceOrTab);
  return before < marks ? before : words;
}
// The line below a table's head, | :-- | --: |.
function isDelimiters(text) {
  const begin = /^ {0,3}\|/.exec(text);
  const start = begin ? begin[0].length : 0;
  let end = back(text, text.length, isSpaceOrTab);
  if (end > start && text[end - 1] === '|') --end;
  return text.slice(start, end).split('|').every((cell) => /^[ \t]*:?-+:?[ \t]*$/.test(cell));
}

// A line knows where in the source it begins and where its break is, so that every
// character that is shown can be traced to its token.
const cut = (line, from, to) => ({ text: line.text.slice(from, to), at: line.at + from, end: line.end });
function linesOf(text, from) {
  const lines = [];
  while (from <= text.length) {
    let end = text.indexOf('\n', from);
    if (end < 0) end = text.length;
    lines.push({ text: text.slice(from, end).replace(/\r$/, ''), at: from, end });
    from = end + 1;
  }
  return lines;
}
const isBlank = (line) => line.text.trim() === '';
const indentOf = (line) => line.text.length - line.text.trimStart().length;
const beginsBlock = ({ text }) => fenceOf(text) !== null || HEADING.test(text) || isRule(text) || QUOTE.test(text) || ITEM.test(text);

class Markdown {
  // `show(parent, from, to)` appends the source's text in that range. `growsAt`:
  // where more text will come, so that a mark without its end may yet get one;
  // -1: nowhere.
  constructor(show, growsAt) {
    this.show = show;
    this.growsAt = growsAt;
    this.room = MAX_EMPTY_CELLS;
  }

  // Appends the blocks of `lines`; returns where each begins in the source.
  blocks(parent, lines, depth) {
    const starts = [];
    let i = 0;
    while (i < lines.length) {
      if (isBlank(lines[i])) { ++i; continue; }
      starts.push(lines[i].at);
      i = this.block(parent, lines, i, depth);
    }
    return starts;
  }

  block(parent, lines, i, depth) {
    const { text } = lines[i];
    let match;
    if ((match = fenceOf(text))) return this.code(parent, lines, i, match);
    if ((match = HEADING.exec(text))) {
      const end = headingEnd(text);
      const heading = h('h' + Math.min(6, match[1].length + 2));
      this.inline(heading, [cut(lines[i], match[0].length, Math.max(end, match[0].length))]);
      parent.append(heading);
      return i + 1;
    }
    if (isRule(text)) { parent.append(h('hr')); return i + 1; }
    if (depth < MAX_DEPTH && QUOTE.test(text)) return this.quote(parent, lines, i, depth);
    if (depth < MAX_DEPTH && ITEM.test(text)) return this.list(parent, lines, i, depth);
    if (text.includes('|') && lines[i + 1] && lines[i + 1].text.includes('-') && isDelimiters(lines[i + 1].text)) {
      const columns = this.cells(lines[i]).length;
      if (columns <= MAX_COLUMNS && columns === this.cells(lines[i + 1]).length) return this.table(parent, lines, i);
    }
    let end = i + 1;
    while (end < lines.length && !isBlank(lines[end]) && !beginsBlock(lines[end])) ++end;
    const paragraph = h('p');
    this.inline(paragraph, lines.slice(i, end).map((line) => cut(line, indentOf(line))));
    parent.append(paragraph);
    return end;
  }

  code(parent, lines, i, { fence, language }) {
    const margin = indentOf(lines[i]);
    const parts = [];  // a line, or the break before one, without the margin
    let end = i + 1;
    const closes = ({ text }) => text.trim().startsWith(fence) && text.trim().replaceAll(fence[0], '') === '' && indentOf({ text }) < 4;
    while (end < lines.length && !closes(lines[end])) {
      const line = cut(lines[end], Math.min(margin, indentOf(lines[end])));
      // The break before a line belongs to the line before.
      if (end > i + 1) parts.push({ text: '\n', at: lines[end - 1].end });
      parts.push(line);
      ++end;
    }
    const code = h('code');
    this.coloured(code, parts, language);
    const copy = h('button', { type: 'button', on: { click: () => copyText(code.textContent, copy) } }, 'Copy');
    parent.append(h('figure', { class: 'code' }, h('figcaption', {}, h('span', {}, language || 'text'), copy), h('pre', { tabindex: 0 }, code)));
    return end + 1;
  }

  // Appends code in the colours of its language. Token elements stay, inside those
  // of syntax; a token with parts of two kinds becomes two elements.
  coloured(parent, parts, language) {
    const text = parts.map((part) => part.text).join('');
    let shown = 0;          // offset into `text`
    let i = 0, before = 0;  // the part that goes on there, and the text before it
    const show = (into, end) => {
      while (shown < end) {
        const part = parts[i], skip = shown - before;
        const length = Math.min(part.text.length - skip, end - shown);
        this.show(into, part.at + skip, part.at + skip + length);
        shown += length;
        if (skip + length === part.text.length) { before = shown; ++i; }
      }
    };
    for (const { from, to, kind } of codeSpans(text, language)) {
      show(parent, from);
      const span = h('span', { class: 'syntax-' + kind });
      show(span, to);
      parent.append(span);
    }
    show(parent, text.length);
  }

  quote(parent, lines, i, depth) {
    const inner = [];
    while (i < lines.length && !isBlank(lines[i])) {
      const match = QUOTE.exec(lines[i].text);
      if (!match && beginsBlock(lines[i])) break;
      inner.push(match ? cut(lines[i], match[0].length) : lines[i]);
      ++i;
    }
    const quote = h('blockquote');
    this.blocks(quote, inner, depth + 1);
    parent.append(quote);
    return i;
  }

  list(parent, lines, i, depth) {
    const first = ITEM.exec(lines[i].text);
    const kind = (mark) => (/\d/.test(mark) ? mark.at(-1) : mark);
    const ordered = /\d/.test(first[2]);
    const list = h(ordered ? 'ol' : 'ul', ordered && parseInt(first[2], 10) !== 1 ? { start: parseInt(first[2], 10) } : {});
    const outer = first[1].length;
    while (i < lines.length) {
      const match = ITEM.exec(lines[i].text);
      if (!match || isRule(lines[i].text) || kind(match[2]) !== kind(first[2]) || match[1].length > outer + 3) break;
      const column = match[1].length + match[2].length + 1;
      const inner = [cut(lines[i], match[0].length)];
      ++i;
      while (i < lines.length) {
        const line = lines[i];
        if (isBlank(line)) {
          // Blank lines are the item's if more of it follows.
          let next = i;
          while (next < lines.length && isBlank(lines[next])) ++next;
          if (next === lines.length || indentOf(lines[next]) < Math.min(column, match[1].length + 2)) break;
          for (; i < next; ++i) inner.push(cut(lines[i], Math.min(column, indentOf(lines[i]))));
          continue;
        }
        if (indentOf(line) < Math.min(column, match[1].length + 2) && (beginsBlock(line) || isBlank(lines[i - 1]))) {
          break;
        }
        inner.push(cut(line, Math.min(column, indentOf(line))));
        ++i;
      }
      const item = h('li');
      this.blocks(item, inner, depth + 1);
      // An item of one paragraph is set without the paragraph's distance.
      const only = item.firstChild;
      if (only && only.tagName === 'P') {
        while (only.firstChild) only.before(only.firstChild);
        only.remove();
      }
      list.append(item);
      while (i < lines.length && isBlank(lines[i]) && lines[i + 1] && (isBlank(lines[i + 1]) || ITEM.test(lines[i + 1].text))) ++i;
    }
    parent.append(list);
    return i;
  }

  // The cells of a row of a table, trimmed.
  cells(line) {
    const cells = [];
    let start = indentOf(line), end = line.text.trimEnd().length;
    if (line.text[start] === '|') ++start;
    if (end > start && line.text[end - 1] === '|' && line.text[end - 2] !== '\\') --end;
    for (let at = start; at <= end; ++at) {
      if (at < end && (line.text[at] !== '|' || line.text[at - 1] === '\\')) continue;
      const cell = cut(line, start, at);
      const space = indentOf(cell);
      cells.push(cut(cell, space, Math.max(space, cell.text.trimEnd().length)));
      start = at + 1;
    }
    return cells;
  }

  table(parent, lines, i) {
    const sides = this.cells(lines[i + 1]).map(({ text }) => (text.endsWith(':') ? (text.startsWith(':') ? 'center' : 'right') : false));
    const row = (line, tag) => {
      const cells = this.cells(line);
      return h('tr', {}, sides.map((side, column) => {
        const cell = h(tag, { class: side });
        if (cells[column]) this.inline(cell, [cells[column]]);
        return cell;
      }));
    };
    const body = h('tbody');
    const head = h('thead', {}, row(lines[i], 'th'));
    i += 2;
    while (i < lines.length && !isBlank(lines[i]) && lines[i].text.includes('|')) {
      // Short rows below a long head have more cells than text.
      this.room -= Math.max(0, sides.length - this.cells(lines[i]).length);
      if (this.room < 0) break;
      body.append(row(lines[i++], 'td'));
    }
    parent.append(h('div', { class: 'table', tabindex: 0, role: 'group', 'aria-label': 'Table' }, h('table', {}, head, body)));
    return i;
  }

  // Appends `lines`, with breaks between them, as inline Markdown.
  inline(parent, lines) {
    this.source = lines.map(({ text }) => text).join('\n');
    this.places = [];
    for (const { text, at } of lines) {
      for (let i = 0; i <= text.length; ++i) this.places.push(at + i);
    }
    this.open = this.places.at(-1) === this.growsAt;
    this.unclosed = new Set();
    this.ticks = null;
    this.brackets = null;
    this.span(parent, 0, this.source.length, 0);
  }

  plain(parent, from, to) {
    // Ranges without a gap: one at a time.
    while (from < to) {
      let end = from + 1;
      while (end < to && this.places[end] === this.places[end - 1] + 1) ++end;
      this.show(parent, this.places[from], this.places[end - 1] + 1);
      from = end;
    }
  }

  // Where the next run of just so many backticks begins, or -1.
  closingTicks(count, from) {
    if (!this.ticks) {
      this.ticks = new Map();
      for (const { 0: run, index } of this.source.matchAll(/`+/g)) {
        if (!this.ticks.has(run.length)) this.ticks.set(run.length, []);
        this.ticks.get(run.length).push(index);
      }
    }
    const runs = this.ticks.get(count) || [];
    let low = 0, high = runs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (runs[middle] < from) low = middle + 1; else high = middle;
    }
    return low < runs.length ? runs[low] : -1;
  }

  // The bracket that closes the one at `from`, or -1.
  closingBracket(from) {
    if (!this.brackets) {
      this.brackets = new Map();
      const open = [];
      for (let at = 0; at < this.source.length; ++at) {
        const c = this.source[at];
        if (c === '\\') ++at;
        else if (c === '[') open.push(at);
        else if (c === ']' && open.length > 0) this.brackets.set(open.pop(), at);
      }
    }
    return this.brackets.get(from) ?? -1;
  }

  // The end of an emphasis that begins at `from` with `mark`, or -1.
  closing(mark, from, to) {
    const { source } = this;
    if (this.unclosed.has(mark + to)) return -1;
    for (let at = from; (at = source.indexOf(mark, at)) >= 0 && at + mark.length <= to; ) {
      const single = mark.length === 1;
      const doubled = single && source[at + 1] === mark;
      const inWord = mark[0] === '_' && /\w/.test(source[at + mark.length] || ' ');
      if (at > from && !/\s/.test(source[at - 1]) && source[at - 1] !== '\\' && !doubled && !inWord) {
        return !single && source[at + 2] === mark[0] && at + 3 <= to ? at + 1 : at;
      }
      at += doubled ? 2 : 1;
    }
    if (this.open && to === source.length) return to;
    this.unclosed.add(mark + to);
    return -1;
  }

  span(parent, from, to, depth) {
    const { source } = this;
    let plain = from;
    let i = from;
    const flush = (next) => { this.plain(parent, plain, i); i = next; plain = next; };
    while (i < to) {
      const c = source[i];
      if (c === '\n') {
        flush(i + 1);
        parent.append(h('br'));
      } else if (c === '\\' && /[!-/:-@[-`{-~]/.test(source[i + 1] || '')) {
        flush(i + 1);
        ++i;
      } else if (c === '`') {
        let begin = i;
        while (source[begin] === '`') ++begin;
        const ticks = begin - i;
        let end = this.closingTicks(ticks, begin);
        if (end >= to) end = -1;
        if (end < 0 && this.open && to === source.length) end = to;
        if (end < 0) { i = begin; continue; }
        flush(Math.min(to, end + ticks));
        const code = h('code');
        this.plain(code, begin, end);
        parent.append(code);
      } else if (depth < MAX_DEPTH && (c === '*' || c === '_' || (c === '~' && source[i + 1] === '~'))) {
        const mark = source[i + 1] === c ? c + c : c;
        const next = i + mark.length;
        const inWord = c === '_' && /\w/.test(source[i - 1] || ' ');
        const end = next >= to || /\s/.test(source[next]) || inWord ? -1 : this.closing(mark, next, to);
        if (end < 0) { i += mark.length; continue; }
        const inner = h(c === '~' ? 's' : mark.length === 2 ? 'strong' : 'em');
        flush(Math.min(to, end + mark.length));
        this.span(inner, next, end, depth + 1);
        parent.append(inner);
      } else if (c === '[' || (c === '!' && source[i + 1] === '[')) {
        const link = this.link(i + (c === '!'), to);
        if (!link) { ++i; continue; }
        flush(link.end);
        const anchor = this.anchor(link.href);
        if (depth < MAX_DEPTH) this.span(anchor, link.from, link.to, depth + 1); else this.plain(anchor, link.from, link.to);
        parent.append(anchor);
      } else if (c === 'h' || c === '<') {
        const bare = c === 'h' && /\w/.test(source[i - 1] || ' ') ? null
          : /^(<?)(https?:\/\/[^\s<>]{1,2000})/.exec(source.slice(i, Math.min(to, i + MAX_URL + 10)));
        if (!bare) { ++i; continue; }
        let url = bare[2];
        if (!bare[1]) url = url.slice(0, back(url, url.length, (last) => '.,:;!?\'"*_~)]}'.includes(last)));
        const start = i + bare[1].length;
        const end = start + url.length;
        flush(end + (bare[1] && source[end] === '>' ? 1 : 0));
        const anchor = this.anchor(url);
        this.plain(anchor, start, end);
        parent.append(anchor);
      } else {
        ++i;
      }
    }
    flush(to);
  }

  // [text](url "title"), which begins at `from`; null if it is none.
  link(from, to) {
    const { source } = this;
    const close = this.closingBracket(from);
    if (close < 0 || close >= Math.min(to, from + MAX_LINK_TEXT) || source[close + 1] !== '(') return null;
    const limit = Math.min(to, close + MAX_URL + 100);
    let at = close + 2;
    const spaces = () => {
      const before = at;
      while (at < limit && /\s/.test(source[at])) ++at;
      return at > before;
    };
    spaces();
    if (source[at] === '<') ++at;
    const begin = at;
    // Parentheses in pairs, none within another.
    let depth = 0;
    for (; at < limit && !/[\s<>]/.test(source[at]); ++at) {
      if (source[at] === '(' && ++depth > 1) return null;
      if (source[at] === ')' && --depth < 0) break;
    }
    if (depth > 0) return null;
    const href = source.slice(begin, at);
    if (source[at] === '>') ++at;
    if (spaces() && (source[at] === '"' || source[at] === "'")) {
      const quote = source[at++];
      while (at < limit && source[at] !== quote) ++at;
      ++at;
      spaces();
    }
    return at < limit && source[at] === ')' ? { from: from + 1, to: close, href, end: at + 1 } : null;
  }

  // A link for http and https; for anything else its text alone.
  anchor(href) {
    let url;
    try { url = new URL(href); } catch { return h('span'); }
    if (url.protocol !== 'http:' && url.protocol !== 'https:') return h('span');
    return h('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer nofollow' });
  }
}

