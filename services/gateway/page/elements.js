// The playground. It talks to /v1/models and /v1/chat/completions alone.
//
// What a model writes reaches the document as text nodes only: elements are
// made by h() and s() from names in this file, links must be http or https, and
// the page's policy refuses every string that would be parsed as HTML.

// ---- Elements

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value == null) continue;
    if (name === 'on') {
      for (const [type, listener] of Object.entries(value)) element.addEventListener(type, listener);
    } else {
      element.setAttribute(name, value === true ? '' : String(value));
    }
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
const $ = (id) => document.getElementById(id);
const say = (text) => { $('status').textContent = text; };

