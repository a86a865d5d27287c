// The library behind the global `tools` of a run that may call tools of other servers (docs/CODEMODE.md).
//
// The driver gets this file over the socket itself, at the first use, so a run without tools does not pay for it. It is
// the body of a function of: socket, rest (what arrived behind this file), ToolError, parse. It gives the function that
// every use of `tools` ends in: the names behind `tools`, and the arguments.

const { writeFileSync } = require('fs');
const waiting = new Map();
const unjoined = new Map();
let number = 0;
let pending = rest;
let isOver = false;

socket.on('data', take);
for (const event of ['error', 'end', 'close']) socket.on(event, end);

function end() {
  if (isOver) return;
  isOver = true;
  socket.destroy();
  for (const { reject } of waiting.values()) reject(new ToolError({ code: 'no_run', message: 'the run has ended' }));
  waiting.clear();
}

function take(part) {
  let at = part.indexOf(10);
  if (at < 0) {
    pending.push(part);
    return;
  }
  let from = 0;
  while (at >= 0) {
    pending.push(part.subarray(from, at));
    hear(Buffer.concat(pending).toString());
    pending = [];
    from = at + 1;
    at = part.indexOf(10, from);
  }
  if (from < part.length) pending.push(part.subarray(from));
}

function hear(line) {
  const { id, ok, error } = parse(line);
  const asked = waiting.get(id);
  if (!asked) return;
  waiting.delete(id);
  if (waiting.size === 0) socket.unref();
  if (error) asked.reject(new ToolError(error));
  else asked.resolve(ok);
}

// JSON with the digits of a BigInt. Files stand there as base64, links as their address.
function text(request) {
  let has = false;
  const written = JSON.stringify(request, function replace(key, value) {
    const own = this[key] instanceof Blob ? this[key].data : this[key];
    if (ArrayBuffer.isView(own)) return Buffer.from(own.buffer, own.byteOffset, own.byteLength).toString('base64');
    if (own instanceof Link) return own.uri;
    if (typeof value !== 'bigint') return value;
    has = true;
    return `\u0000bigint:${value}`;
  });
  return has ? written.replace(/"\\u0000bigint:(-?\d+)"/g, '$1') : written;
}

function ask(request) {
  return new Promise((resolve, reject) => {
    if (isOver) {
      reject(new ToolError({ code: 'no_run', message: 'the run has ended' }));
      return;
    }
    const id = ++number;
    const line = text({ id, ...request });
    waiting.set(id, { resolve, reject });
    socket.ref();
    socket.write(`${line}\n`);
  });
}

class Blob {
  constructor(mime, data, uri) {
    Object.assign(this, { mime, data, uri });
  }

  get text() {
    return this.data.toString();
  }

  save(path) {
    writeFileSync(path, this.data);
    return path;
  }

  [Symbol.for('Jupyter.display')]() {
    if (!this.mime.startsWith('image/')) return { 'text/plain': `Blob(${this.mime}, ${this.data.length} bytes)` };
    return { [this.mime]: this.mime === 'image/svg+xml' ? this.text : this.data };
  }
}

class Link {
  constructor(server, uri, name, mime) {
    Object.assign(this, { server, uri, name, mime });
  }

  read() {
    return read(this.server, this.uri);
  }
}

function resource({ mimeType, uri, blob, text: content }) {
  if (blob !== undefined) return new Blob(mimeType ?? 'application/octet-stream', Buffer.from(blob, 'base64'), uri);
  return new Blob(mimeType ?? 'text/plain', Buffer.from(content ?? ''), uri);
}

function block(server, one) {
  switch (one.type) {
    case 'text': return one.text;
    case 'image': case 'audio': return new Blob(one.mimeType ?? 'application/octet-stream', Buffer.from(one.data ?? '', 'base64'));
    case 'resource': return resource(one.resource ?? {});
    case 'resource_link': return new Link(server, one.uri, one.name, one.mimeType);
    default: return one;
  }
}

function value(server, tool, result) {
  const content = result.content ?? [];
  if (result.isError) {
    const message = content.filter((one) => one.type === 'text').map((one) => one.text).join('\n') || 'the tool failed';
    throw new ToolError({ code: 'tool_error', message, server, tool, content });
  }
  if (result.structuredContent !== undefined && result.structuredContent !== null) return structured(server, result.structuredContent, content);
  if (content.length === 1 && content[0].type === 'text') return jsonOrText(content[0].text);
  const values = content.map((one) => block(server, one));
  return values.length > 1 ? values : values[0] ?? null;
}

// The structured content. Files of the result are its `blobs`, which do not count as its own properties.
function structured(server, given, content) {
  const blobs = content.filter((one) => one.type !== 'text').map((one) => block(server, one));
  if (blobs.length === 0 || typeof given !== 'object' || Object.hasOwn(given, 'blobs')) return given;
  Object.defineProperty(given, 'blobs', { value: blobs, enumerable: false });
  const shown = blobs.find((one) => one instanceof Blob);
  const key = Symbol.for('Jupyter.display');
  if (shown) Object.defineProperty(given, key, { value: () => shown[key](), enumerable: false });
  return given;
}

function jsonOrText(given) {
  if (!/^\s*[[{]/.test(given)) return given;
  try {
    return parse(given);
  } catch {
    return given;
  }
}

async function call(server, tool, args, isRaw) {
  const result = await ask({ call: [server, tool], args: args ?? {} });
  return isRaw ? result : value(server, tool, result);
}

async function read(server, uri) {
  const { contents = [] } = await ask({ read: [server, uri] });
  const values = contents.map(resource);
  return values.length === 1 ? values[0] : values;
}

async function find(words = '', { servers, limit = 20 } = {}) {
  const request = { find: words, limit, language: 'typescript' };
  if (servers) request.servers = [].concat(servers);
  const { tools: found = [], total, more } = await ask(request);
  return Object.assign(found, { total, more });
}

function save(fn, { name = fn.name, about = '' } = {}) {
  return ask({ save: { name, about, language: 'javascript', source: `(${fn})` } });
}

async function callSaved(name, args) {
  const { language, source } = await ask({ saved: name });
  if (language !== 'javascript') throw new ToolError({ code: 'bad_language', message: `the function is written in ${language}` });
  return (0, eval)(source)(...args);
}

const MEMORY = {
  get: async (key, other) => (await ask({ memory: { get: key } })).value ?? other,
  set: (key, given) => ask({ memory: { set: key, value: given } }),
  delete: (key) => ask({ memory: { delete: key } }),
  keys: () => ask({ memory: null }),
};

process.once('beforeExit', () => {
  if (unjoined.size > 0 && !isOver) ask({ left: [...unjoined.values()].slice(0, 64) }).catch(() => {});
  unjoined.clear();
});

const own = {
  find, read, save,
  describe: (name, tool) => ask({ describe: tool === undefined ? name : [name, tool] }),
  servers: () => ask({ servers: true }),
  gather: (...calls) => Promise.all(calls.length === 1 && !calls[0]?.then ? calls[0] : calls),
  saved: () => ask({ saved: null }),
};

function use([first, second, third], args, isOwn) {
  if (isOwn && second === undefined && own[first]) return own[first](...args);
  if (isOwn && first === 'saved' && second !== undefined) return callSaved(second, args);
  if (isOwn && first === 'memory' && MEMORY[second]) return MEMORY[second](...args);
  if (second === undefined) throw new TypeError(`tools.${first} is a server: call one of its tools`);
  return call(first, second, args[0], third === 'raw');
}

return { use, unjoined, end };
