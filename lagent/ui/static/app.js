'use strict';
// Puts the parts of the page that the server sends in their places, and sends what the user does.
// All HTML is made by the server; none is put together here.

const base = document.body.dataset.base;
const [told, said, lost] = ['told', 'said', 'lost'].map((id) => document.getElementById(id));
const HEADERS = {'X-Lagent': '1'};
const NEAR = 80; // pixels from the end of a log, from which it is followed
const MOST_SAID = 8; // parts that the live region keeps
const SPOKEN = {PRE: 'Code.', TABLE: 'Table.'}; // what is said for a reply's own

let seen = document.body.dataset.seen;
let source = null;

// What the server sends

function connect() {
  if (source) source.close();
  const panes = [...document.querySelectorAll('.pane[data-session]')];
  const query = new URLSearchParams([...panes.map((pane) => ['s', pane.dataset.session]), ['seen', seen]]);
  source = new EventSource(`${base}/live?${query}`);
  source.onopen = () => { lost.textContent = ''; };
  source.onmessage = (event) => {
    seen = event.lastEventId;
    apply(event.data);
  };
  source.onerror = () => {
    lost.textContent ||= 'The connection is lost; trying again …';
    // The browser itself tries again where the connection broke, and gives up where it was refused.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  };
}

function apply(html) {
  const template = document.createElement('template');
  template.innerHTML = html;
  for (const part of [...template.content.children]) {
    const there = document.getElementById(part.id);
    if (part.matches('.log')) said.replaceChildren(); // something was taken back
    for (const each of part.matches('.log') ? part.children : [part]) {
      const old = document.getElementById(each.id);
      if (isWhole(each) && !(old && isWhole(old))) say(each.cloneNode(true));
    }
    if (there) {
      Idiomorph.morph(there, part, {morphStyle: 'outerHTML', callbacks: {beforeAttributeUpdated: keepsOpen}});
    } else {
      document.getElementById(part.dataset.into)?.append(part);
    }
  }
  follow();
  setTitle();
}

// Whether a part is unfolded is the reader's choice, of which the server knows nothing.
function keepsOpen(name, element) {
  return !(name === 'open' && element.tagName === 'DETAILS');
}

// A log that is read out while it grows would be read word by word: each part is said once.
function isWhole(part) {
  return part.matches('.block:not(.question, [aria-busy])');
}

function say(part) {
  for (const each of part.querySelectorAll('pre, table')) {
    each.replaceWith(each.closest('.prose') ? SPOKEN[each.tagName] : '');
  }
  for (const image of part.querySelectorAll('img')) image.replaceWith(image.alt);
  const line = document.createElement('p');
  line.textContent = part.textContent.replace(/\s+/g, ' ').trim();
  said.append(line);
  if (said.children.length > MOST_SAID) said.firstElementChild.remove();
}

function toEnd(log) {
  log.scrollTop = log.scrollHeight;
}

// The end of a log is followed until the reader scrolls away from it.
const left = new WeakSet();

function follow() {
  for (const log of document.querySelectorAll('.log')) if (!left.has(log)) toEnd(log);
}

document.addEventListener('scroll', ({target: log}) => {
  if (!log.matches?.('.log')) return;
  if (log.scrollHeight - log.scrollTop - log.clientHeight < NEAR) {
    left.delete(log);
  } else {
    left.add(log);
  }
}, true);

document.addEventListener('load', follow, true); // images come after their places

function setTitle() {
  const name = document.querySelector('.pane h2')?.textContent ?? '';
  const busy = document.querySelector('.actions[data-busy=yes]') ? '● ' : '';
  document.title = `${busy}${name} · lagent`;
}

// What the user does

function tell(words) {
  told.textContent = words;
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => { told.textContent = ''; }, 8000);
}

async function post(path, options = {}) {
  try {
    const answer = await fetch(`${base}${path}`, {
      method: 'POST', body: options.body, headers: {...HEADERS, ...options.headers},
    });
    if (!answer.ok) tell(await answer.text());
    return answer.ok ? answer : null;
  } catch {
    tell('The server was not reached.');
    return null;
  }
}

async function ask(pane) {
  const field = pane.querySelector('textarea');
  const question = field.value.trim();
  if (!question) return;
  if (pane.querySelector('.actions').dataset.busy === 'yes') {
    tell('Wait for the answer, or stop it first.');
    return;
  }
  field.value = '';
  fit(field);
  const headers = {'Content-Type': 'application/json'};
  const sent = await post(`/s/${pane.dataset.session}/ask`, {body: JSON.stringify({question}), headers});
  if (!sent && !field.value) {
    field.value = question;
    fit(field);
  }
  left.delete(pane.querySelector('.log'));
  follow();
}

function upload(pane, files) {
  for (const file of files) send(pane, file);
}

// The only way to know how much of a file was sent.
function send(pane, file) {
  const row = document.createElement('li');
  const progress = document.createElement('progress');
  progress.max = 1;
  progress.setAttribute('aria-label', `Sending ${file.name}`);
  row.append(file.name, progress);
  pane.querySelector('.sending').append(row);
  const request = new XMLHttpRequest();
  request.open('POST', `${base}/s/${pane.dataset.session}/files?name=${encodeURIComponent(file.name)}`);
  request.setRequestHeader('X-Lagent', '1');
  request.upload.onprogress = (event) => { progress.value = event.loaded / (event.total || 1); };
  request.onload = () => { if (request.status !== 202) tell(`${file.name}: ${request.responseText}`); };
  request.onerror = () => tell(`${file.name} was not sent.`);
  request.onloadend = () => row.remove();
  request.send(file);
}

function fit(field) {
  field.rows = 1;
  while (field.scrollHeight > field.clientHeight && field.rows < 8) field.rows += 1;
}

const wide = matchMedia('(min-width: 60rem)');
const menus = () => [...document.querySelectorAll(`.head details[open]${wide.matches ? '' : ', #menu[open]'}`)];

// What was focused in a menu is not there any more when it closes.
function leave(open) {
  open.removeAttribute('open');
  open.querySelector('summary').focus();
}

const paneOf = (event) => event.target.closest('.pane[data-session]');

document.addEventListener('submit', (event) => {
  event.preventDefault();
  const pane = paneOf(event);
  if (pane) ask(pane);
});

document.addEventListener('click', async (event) => {
  const button = event.target.closest('button, a[aria-disabled=true]');
  if (!button) return;
  const pane = paneOf(event);
  if (button.matches('[aria-disabled=true]')) {
    event.preventDefault();
  } else if ('new' in button.dataset) {
    const answer = await post('/sessions');
    if (answer) location.assign(`${base}/?s=${(await answer.json()).session}`);
  } else if ('attach' in button.dataset) {
    pane.querySelector('input[type=file]').click();
  } else if (button.dataset.post) {
    if (button.dataset.sure && !confirm(button.dataset.sure)) return;
    const open = button.closest('details');
    if (open) leave(open);
    const done = await post(`/s/${pane.dataset.session}/${button.dataset.post}`);
    if (done && button.dataset.post === 'close') location.assign(`${base}/`);
  }
});

document.addEventListener('change', (event) => {
  if (!event.target.matches('input[type=file]')) return;
  upload(paneOf(event), [...event.target.files]);
  event.target.value = '';
});

document.addEventListener('input', (event) => {
  if (event.target.matches('textarea')) fit(event.target);
});

document.addEventListener('keydown', (event) => {
  if (event.isComposing) return;
  const pane = paneOf(event);
  if (event.key === 'Enter' && !event.shiftKey && event.target.matches('textarea')) {
    event.preventDefault();
    ask(pane);
  } else if (event.key === 'Escape') {
    const [open] = menus();
    if (open) {
      leave(open);
      return;
    }
    const busy = (pane ?? document).querySelector('.actions[data-busy=yes]');
    if (busy) post(`/s/${busy.closest('.pane').dataset.session}/stop`);
  }
});

// A menu closes when something beside it is used.
for (const type of ['pointerdown', 'focusin']) {
  document.addEventListener(type, (event) => {
    for (const open of menus()) {
      if (!open.contains(event.target)) open.removeAttribute('open');
    }
  });
}

document.addEventListener('paste', (event) => {
  const pane = paneOf(event) ?? document.querySelector('.pane[data-session]');
  const files = [...event.clipboardData.files];
  if (!pane || !files.length) return;
  event.preventDefault();
  upload(pane, files);
});

for (const type of ['dragover', 'dragleave', 'drop']) {
  document.addEventListener(type, (event) => {
    event.preventDefault(); // a browser would leave the page for the file
    const pane = paneOf(event);
    for (const each of document.querySelectorAll('.pane')) {
      each.classList.toggle('is-target', type === 'dragover' && each === pane);
    }
    if (type === 'drop' && pane) upload(pane, [...event.dataTransfer.files]);
  });
}

// A browser opens few connections to a server; a page that nobody looks at needs none.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) {
    source.close();
  } else {
    connect();
  }
});

const menu = document.getElementById('menu');
const setMenu = () => { menu.open = wide.matches; };
wide.addEventListener('change', setMenu);

setMenu();
setTitle();
follow();
if (wide.matches) document.querySelector('textarea')?.focus();
connect();
