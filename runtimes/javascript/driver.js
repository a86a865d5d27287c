'use strict';
// Runs programs in this Node on behalf of the guest (protocol: docs/DRIVERS.md).
//
// What runs is not the source but what `palisade __parse` made of it: the same lines, a note whether it is a
// module, and the last expression handed to a function. Without that note (the parser gave up) the source runs
// as Node reads it. Nothing said on the control channel decides an outcome but
// `leaving`, which ends the run: the program shares this process, and could end itself.
//
// Holds: nothing beyond what Node has loaded is required on the way to a program that only prints; lines of the
// code are lines of the source; a program that breaks the channel still runs to its end with its own status.

const fs = require('fs');
const vm = require('vm');
const { Module } = require('module');

const CONTROL_FD = 3;
const FIELD_BYTES_MAX = 65536;
const JSON_DEPTH_MAX = 64;
const SOURCES_MAX = 256;
const UNSETTLED = 13;
// The folder of packages that were installed for programs.
const PACKAGES = '/node_modules';
const CJS_NAMES = ['exports', 'require', 'module', '__filename', '__dirname'];
const VALUE = '__palisade_value';
const HIDDEN_FRAME = /^\s+at .*(?:node:vm|node:inspector|evalmachine\.<anonymous>|node:internal\/(?:vm|modules|main|process\/task_queues|process\/esm_loader))/;

// Of the modules of vm; of Node's own way to read modules without a package.json, and TypeScript.
const OWN_WARNING = /^(?:VM Modules|vm\.USE_MAIN_CONTEXT_DEFAULT_LOADER|Type Stripping|MODULE_TYPELESS_PACKAGE_JSON$)/;

const driverFile = __filename;
const preparedPath = process.argv[2];
// What a live interpreter's programs may put other things in the place of, for themselves.
const { existsSync, writeSync, readSync, fstatSync, readFileSync, unlinkSync, openSync, closeSync } = fs;
const JSON = globalThis.JSON;
const environment = process.env;

// -- the channel --------------------------------------------------------------------------------------

// Elsewhere only while nothing is to be said.
let channelFd = CONTROL_FD;
let identity = channelIdentity();
let pending = Buffer.alloc(0);

function channelIdentity() {
  try {
    const { dev, ino } = fstatSync(channelFd);
    return `${dev}:${ino}`;
  } catch {
    return '';
  }
}

function send(fields) {
  write(fields.map(fieldText));
}

// Fields as they are: short enough, and without NUL.
function write(fields) {
  try {
    // A program may have closed the descriptor, or put a file of its own in its place.
    if (identity === '' || channelIdentity() !== identity) return;
    let data = Buffer.from(`${fields.length}\0${fields.map((field) => `${field}\0`).join('')}`);
    while (data.length > 0) {
      try {
        data = data.subarray(writeSync(channelFd, data));
      } catch (error) {
        if (error.code !== 'EAGAIN') return;
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
      }
    }
  } catch {}
}

function fieldText(text) {
  const bytes = Buffer.from(text.slice(0, FIELD_BYTES_MAX).replaceAll('\0', '\\x00'));
  if (bytes.length <= FIELD_BYTES_MAX) return bytes.toString();
  let end = FIELD_BYTES_MAX;
  while ((bytes[end] & 0xc0) === 0x80) end--;
  return bytes.toString('utf8', 0, end);
}

// The next complete message in `pending`, or undefined; null for nonsense. What a run is given is put aside.
function takeMessage() {
  const message = takeAnyMessage();
  if (message?.[0] !== 'given') return message;
  given = message.slice(1);
  return takeMessage();
}

function takeAnyMessage() {
  const head = pending.indexOf(0);
  if (head < 0) return undefined;
  const count = Number(pending.toString('latin1', 0, head));
  if (!Number.isInteger(count) || count < 1) return null;
  const fields = [];
  let at = head + 1;
  while (fields.length < count) {
    const end = pending.indexOf(0, at);
    if (end < 0) return undefined;
    fields.push(pending.toString('utf8', at, end));
    at = end + 1;
  }
  pending = pending.subarray(at);
  return fields;
}

function receiveSync() {
  const buffer = Buffer.allocUnsafe(65536);
  for (;;) {
    const message = takeMessage();
    if (message !== undefined) return message;
    let count = 0;
    try {
      count = readSync(CONTROL_FD, buffer, 0, buffer.length);
    } catch {}
    if (count === 0) return null;
    pending = Buffer.concat([pending, buffer.subarray(0, count)]);
  }
}

// -- what a program shows ---------------------------------------------------------------------------------

const DISPLAYS_MAX = 16;
const DISPLAY_BYTES_MAX = 2 << 20;
const DISPLAYS_BYTES_MAX = 8 << 20;
const MAGIC = { '89504e470d0a1a0a': 'image/png', ffd8ff: 'image/jpeg', 47494638: 'image/gif', 52494646: 'image/webp' };
const MIMES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/svg+xml', 'text/html', 'text/markdown', 'text/latex', 'application/json'];
const DISPLAY = Symbol.for('Jupyter.display');
let shownCount = 0;
let shownBytes = 0;
// Promises of what is still to be shown.
const showing = new Set();

// The global `display(value, mime)`: images as bytes, everything else as text. What is neither is printed.
function display(value, mime) {
  if (mime !== undefined) return displayAs(value, mime);
  const shown = showItself(value);
  if (shown === '') return displayAs(value, mime);
  if (typeof shown !== 'string') shown.then((type) => type || displayAs(value, mime));
  return undefined;
}

// What a value shows by its own method: the type, or a promise of it; empty if it shows nothing.
function showItself(value) {
  try {
    if (value === null || !/^(?:object|function)$/.test(typeof value) || typeof value[DISPLAY] !== 'function') return '';
    const bundle = value[DISPLAY]();
    if (typeof bundle?.then !== 'function') return showBundle(bundle);
    const shown = Promise.resolve(bundle).then(showBundle).catch(() => '').finally(() => showing.delete(shown));
    showing.add(shown);
    return shown;
  } catch {
    return '';
  }
}

// The best of several forms of one value.
function showBundle(bundle) {
  for (const [mime, content] of formsOf(bundle ?? {})) {
    const isBytes = ArrayBuffer.isView(content);
    if (mime === 'application/json' && content !== undefined && typeof content !== 'string') {
      show(mime, Buffer.from(JSON.stringify(content)));
      return mime;
    }
    if (typeof content === 'string' || isBytes) {
      const isRaster = mime.startsWith('image/') && mime !== 'image/svg+xml';
      show(mime, isBytes ? Buffer.from(content.buffer, content.byteOffset, content.byteLength) : Buffer.from(content, isRaster ? 'base64' : 'utf8'));
      return mime;
    }
  }
  return '';
}

function formsOf(bundle) {
  const others = Object.keys(bundle).filter((mime) => mime.includes('/') && !MIMES.includes(mime));
  const data = others.filter((mime) => mime.endsWith('+json'));
  return [
    ...MIMES.map((mime) => [mime, bundle[mime]]),
    ...data.map((mime) => ['application/json', bundle[mime]]),
    ['text/plain', bundle['text/plain']],
    ...others.map((mime) => ['text/plain', bundle[mime]]),
  ];
}

function displayAs(value, mime) {
  const isBytes = ArrayBuffer.isView(value) || value instanceof ArrayBuffer;
  const bytes = isBytes ? Buffer.from(value.buffer ?? value, value.byteOffset ?? 0, value.byteLength) : null;
  if (mime === undefined) mime = isBytes ? mimeOfBytes(bytes) : mimeOfText(value);
  if (mime === undefined) return console.log(value);
  if (!isBytes && typeof value !== 'string') value = JSON.stringify(value) ?? String(value);
  return show(String(mime), bytes ?? Buffer.from(value));
}

function mimeOfBytes(bytes) {
  const start = bytes.toString('hex', 0, 8);
  const found = Object.keys(MAGIC).find((magic) => start.startsWith(magic));
  return found && MAGIC[found];
}

function mimeOfText(value) {
  if (typeof value !== 'string') return undefined;
  if (/^\s*(?:<\?xml[^>]*>\s*)?<svg[\s>]/.test(value)) return 'image/svg+xml';
  return /^\s*<[a-zA-Z!][^]*>\s*$/.test(value) ? 'text/html' : undefined;
}

// The host has the same bounds and counts what is sent without content.
function show(mime, bytes) {
  const isRaster = mime.startsWith('image/') && mime !== 'image/svg+xml';
  const fits = shownCount < DISPLAYS_MAX && bytes.length <= DISPLAY_BYTES_MAX && shownBytes + bytes.length <= DISPLAYS_BYTES_MAX;
  if (fits) {
    shownCount += 1;
    shownBytes += bytes.length;
  }
  const content = isRaster ? bytes.toString('base64') : bytes.toString().replaceAll('\0', '');
  write(['display', fieldText(mime), fits ? content : '', '']);
}

// -- one program --------------------------------------------------------------------------------------

// What was made of the program; null where the parser gave up.
function readPrepared(code) {
  try {
    if (code === '') {
      code = readFileSync(preparedPath, 'utf8');
      unlinkSync(preparedPath);
    }
    return JSON.parse(code);
  } catch {
    return null;
  }
}

function prepareProcess(source, stdinPath, variables, args) {
  shownCount = shownBytes = 0;
  if (given.length > 0) give();
  process.argv = [process.execPath, source, ...args];
  if (stdinPath) openStdin(stdinPath);
  if (variables) {
    const values = parseVariables(variables);
    for (const name of Object.keys(values)) define(name, values[name], true);
  }
}

// -- what a run is given --------------------------------------------------------------------------------

// The variables of the message `given`, until the run begins that they are for; then what they stood for before.
let given = [];
const before = new Map();

function give() {
  for (let at = 0; at + 1 < given.length; at += 2) {
    before.set(given[at], environment[given[at]]);
    environment[given[at]] = given[at + 1];
    if (given[at] === TOOLS_VARIABLE) define('tools', lateTools(given[at + 1]), false);
  }
  given = [];
  useProxies();
}

// After a kept run: every given name is what it was before, whatever the program did with it.
function takeBack() {
  for (const [name, value] of before) {
    if (value === undefined) delete environment[name];
    else environment[name] = value;
  }
  before.clear();
  if (closeTools) {
    delete globalThis.tools;
    closeTools();
    closeTools = null;
  }
}

// -- tools of other servers -------------------------------------------------------------------------------

// The variable that names the socket for tools, in runs that have one.
const TOOLS_VARIABLE = 'PALISADE_TOOLS';
const TOOLS_OWN = ['find', 'describe', 'servers', 'read', 'save', 'saved', 'memory', 'gather'];
let closeTools = null;

class ToolError extends Error {
  constructor({ message, ...more }) {
    super(more.server ? `${more.server}.${more.tool}: ${message} [${more.code}]` : `${message} [${more.code}]`);
    Object.assign(this, { name: 'ToolError', content: [], ...more });
  }
}

// The global `tools`: remembers the names behind it. Its library comes over the socket with the first call.
function lateTools(path) {
  let library = null;
  let socket = null;
  const open = () => library ??= openTools(path, (opened) => { socket = opened; });
  closeTools = () => socket?.destroy();
  // Awaiting calls `then`, which says that somebody waits for it.
  class ToolCall extends Promise {
    static get [Symbol.species]() { return Promise; }
    then(...next) {
      this.isJoined = true;
      library?.then(({ unjoined }) => unjoined.delete(this), () => {});
      return super.then(...next);
    }
  }
  const use = (names, isOwn, args) => {
    const asked = open();
    const call = new ToolCall((resolve, reject) => {
      asked.then((opened) => opened.use(names, args, isOwn)).then(resolve, reject);
    });
    asked.then(({ unjoined }) => call.isJoined || unjoined.set(call, names.join('.')), () => {});
    return call;
  };
  const at = (names, isOwn) => new Proxy(function tools() {}, {
    get(_, name) {
      if (typeof name === 'symbol' || (name === 'then' && names.length < 2)) return undefined;
      if (names.length === 0 && name === 'Error') return ToolError;
      return at([...names, name], names.length === 0 ? TOOLS_OWN.includes(name) : isOwn);
    },
    apply: (_, self, args) => use(names.at(-1) === 'later' && names.length === 3 ? names.slice(0, 2) : names, isOwn, args),
  });
  return at([], false);
}

function openTools(path, opened) {
  return new Promise((resolve, reject) => {
    const socket = require('net').connect(path);
    const parts = [];
    const fail = () => reject(new ToolError({ code: 'no_run', message: 'no run with tools is open' }));
    opened(socket);
    for (const event of ['error', 'close']) socket.once(event, fail);
    socket.on('data', function take(part) {
      const at = part.indexOf(10);
      parts.push(at < 0 ? part : part.subarray(0, at));
      if (at < 0) return;
      socket.removeAllListeners();
      const source = JSON.parse(Buffer.concat(parts).toString()).ok;
      const make = vm.compileFunction(source, ['socket', 'rest', 'ToolError', 'parse', 'require'], { filename: driverFile });
      socket.unref();
      resolve(make(socket, at + 1 < part.length ? [part.subarray(at + 1)] : [], ToolError, parseVariables, require));
    });
    socket.write('{"id":0,"client":"javascript"}\n');
  });
}

// -- proxies ----------------------------------------------------------------------------------------------

// Node before 24 reads no proxy variables, and later ones read them at start only. So `fetch` and the global agents of
// `http` and `https` ask here for each request, once a run was given such a variable. A program's own agents are its own.

const PROXY_NAMES = ['http_proxy', 'https_proxy', 'all_proxy'];
let hasProxies = false;

function proxyVariable(name) {
  return environment[name] || environment[name.toUpperCase()];
}

function useProxies() {
  if (hasProxies || !PROXY_NAMES.some(proxyVariable)) return;
  hasProxies = true;
  proxyPlainAgent(require('http').globalAgent);
  proxyTlsAgent(require('https').globalAgent);
  const { fetch: direct } = globalThis;
  let isReady = false;
  define('fetch', function fetch(...request) {
    // Not before: what fetch is made of takes long to load.
    if (!isReady) proxyFetch();
    isReady = true;
    return direct.apply(this, request);
  }, true);
}

// The proxy for a host, or null.
function proxyFor(scheme, host, port) {
  const address = proxyVariable(`${scheme}_proxy`) || proxyVariable('all_proxy');
  if (!address || isExempt(proxyVariable('no_proxy') ?? '', host.toLowerCase(), String(port))) return null;
  try {
    const url = new URL(address.includes('://') ? address : `http://${address}`);
    return url.protocol === 'http:' ? { host: url.hostname, port: Number(url.port || 80) } : null;
  } catch {
    return null;
  }
}

function isExempt(list, host, port) {
  return list.toLowerCase().split(/[\s,]+/).filter(Boolean).some((entry) => {
    const [, name, only] = /^(.*?)(?::(\d+))?$/.exec(entry);
    if (only !== undefined && only !== port) return false;
    const end = name.replace(/^\*?\./, '');
    return name === '*' || host === end || host.endsWith(`.${end}`);
  });
}

// Absolute form (RFC 9112, section 3.2.2): the proxy reads the whole address in the request line.
function proxyPlainAgent(agent) {
  const { addRequest } = agent;
  agent.addRequest = function addProxied(request, options, ...more) {
    const { host = 'localhost', port = 80, socketPath } = options;
    const proxy = socketPath ? null : proxyFor('http', host, port);
    if (!proxy) return addRequest.call(this, request, options, ...more);
    const path = `http://${request.getHeader('host') ?? `${host}:${port}`}${request.path}`;
    if (request._header) request._header = request._header.replace(request.path, () => path);
    request.path = path;
    return addRequest.call(this, request, { ...options, ...proxy, hostname: proxy.host }, ...more);
  };
}

function proxyTlsAgent(agent) {
  const { createConnection } = agent;
  agent.createConnection = function connectThrough(options, done) {
    const proxy = options.socketPath ? null : proxyFor('https', options.host, options.port);
    if (!proxy) return createConnection.call(this, options, done);
    tunnel(proxy, options.host, options.port, (error, socket) => {
      if (error) done(error);
      else done(null, createConnection.call(this, { ...options, socket }));
    });
    return undefined;
  };
}

// A connection to the host, through the proxy (RFC 9110, section 9.3.6).
function tunnel(proxy, host, port, done) {
  const path = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  const request = require('http').request({ ...proxy, method: 'CONNECT', path, headers: { host: path }, agent: false });
  request.once('connect', ({ statusCode }, socket) => {
    if (statusCode === 200) return done(null, socket);
    socket.destroy();
    return done(new Error(`the proxy refused the connection to ${path} with status ${statusCode}`));
  });
  request.once('error', done);
  request.end();
}

function proxyFetch() {
  const place = Symbol.for('undici.globalDispatcher.1');
  // To mention it is to load it.
  void globalThis.Headers;
  const direct = globalThis[place];
  const Agent = direct?.constructor;
  if (typeof Agent !== 'function') return;
  const connect = ({ hostname, port, servername }, done) => {
    const host = hostname.replace(/^\[(.*)\]$/, '$1');
    const number = Number(port || 443);
    tunnel(proxyFor('https', host, number) ?? {}, host, number, (error, socket) => {
      if (error) return done(error, null);
      const options = { socket, servername: servername || (require('net').isIP(host) ? '' : host), ALPNProtocols: ['http/1.1'] };
      const secure = require('tls').connect(options);
      return secure.once('secureConnect', () => done(null, secure)).once('error', (problem) => done(problem, null));
    });
  };
  const tunnelled = new Agent({ connect });
  const dispatch = (options, handler) => {
    const { protocol, hostname, host, port } = new URL(options.origin);
    const isTls = protocol === 'https:';
    const proxy = proxyFor(isTls ? 'https' : 'http', hostname.replace(/^\[(.*)\]$/, '$1'), port || (isTls ? 443 : 80));
    if (!proxy) return direct.dispatch(options, handler);
    if (isTls) return tunnelled.dispatch(options, handler);
    const { headers } = options;
    const more = Array.isArray(headers) ? [...headers, 'host', host] : { ...headers, host };
    const path = `${protocol}//${host}${options.path}`;
    return direct.dispatch({ ...options, origin: `http://${proxy.host}:${proxy.port}`, path, headers: more }, handler);
  };
  globalThis[place] = { dispatch, close: () => direct.close(), destroy: () => direct.destroy() };
}

function define(name, value, enumerable) {
  Object.defineProperty(globalThis, name, { value, enumerable, writable: true, configurable: true });
}

function openStdin(path) {
  try {
    closeSync(0);
  } catch {}
  // The lowest free descriptor is the one just closed.
  openSync(path, 'r');
}

// Integers that a number cannot hold exactly become BigInt; everything else is as JSON.parse has it.
function parseVariables(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const mark = `bigint ${process.hrtime.bigint()}`;
  const marked = text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?![\d.eE])(?<!\.\d*)/g, (token) =>
    token[0] === '"' || Number.isSafeInteger(Number(token)) ? token : `{"${mark}":"${token}"}`);
  return JSON.parse(marked, (key, value) =>
    value !== null && typeof value === 'object' && mark in value ? BigInt(value[mark]) : value);
}

// -- what a run says about itself -----------------------------------------------------------------------

class Report {
  constructor(id) {
    this.id = id;
    this.status = 'ok';
    this.exitCode = 0;
    this.message = this.line = this.column = this.repr = this.json = this.mime = '';
  }

  // Takes the last expression as the function around it gives it.
  take(give, awaits) {
    if (awaits) return give().then((value) => this.value(value));
    return this.value(give());
  }

  value(value) {
    if (value === undefined) return;
    this.describe(value);
    const shown = showItself(value);
    if (typeof shown === 'string') this.mime = shown;
    else shown.then((type) => { this.mime = type; });
  }

  describe(value) {
    try {
      this.repr = require('util').inspect(value);
    } catch (error) {
      this.repr = `[${typeof value} whose inspection failed: ${describe(error)}]`;
      return;
    }
    try {
      const text = jsonText(value, 0);
      if (text !== undefined && Buffer.byteLength(text) <= FIELD_BYTES_MAX) this.json = text;
    } catch {}
  }

  failure(error, programs) {
    this.status = 'error';
    this.exitCode = 1;
    this.message = describe(error);
    const place = placeOf(error, programs);
    if (place && place.isMain) {
      this.line = String(place.line);
      this.column = place.column ? String(place.column) : '';
    }
    return place;
  }

  send() {
    send(['done', this.id, this.status, String(this.exitCode & 255), this.message, this.line, this.column, this.repr, this.json, this.mime]);
  }
}

// JSON only if reading it back gives the same value.
function jsonText(value, depth) {
  if (value === null || typeof value === 'boolean') return String(value);
  if (typeof value === 'number') return Number.isFinite(value) && !Object.is(value, -0) ? String(value) : undefined;
  if (typeof value === 'string') return hasLoneSurrogate(value) ? undefined : JSON.stringify(value);
  if (typeof value !== 'object' || depth >= JSON_DEPTH_MAX || Object.getOwnPropertySymbols(value).length > 0) return undefined;
  const isArray = Array.isArray(value);
  if (Object.getPrototypeOf(value) !== (isArray ? Array.prototype : Object.prototype)) return undefined;
  const keys = Object.keys(value);
  if (Object.getOwnPropertyNames(value).length !== keys.length + (isArray ? 1 : 0)) return undefined;
  if (isArray && keys.length !== value.length) return undefined;
  const parts = [];
  for (const key of keys) {
    const { value: item, get } = Object.getOwnPropertyDescriptor(value, key);
    const text = get || key === '__proto__' ? undefined : jsonText(item, depth + 1);
    if (text === undefined) return undefined;
    parts.push(isArray ? text : `${JSON.stringify(key)}:${text}`);
  }
  return isArray ? `[${parts.join()}]` : `{${parts.join()}}`;
}

function hasLoneSurrogate(text) {
  return /[\ud800-\udfff]/.test(text) && /(?:[\ud800-\udbff](?![\udc00-\udfff]))|(?:(?<![\ud800-\udbff])[\udc00-\udfff])/.test(text);
}

// `TypeError: x is not a function`, as the first line of a stack has it.
function describe(error) {
  try {
    if (error instanceof Error || Object.prototype.toString.call(error) === '[object Error]') {
      return error.message ? `${error.name}: ${error.message}` : String(error.name);
    }
    return `Uncaught ${require('util').inspect(error)}`;
  } catch {
    return 'Uncaught exception';
  }
}

function stackOf(error) {
  try {
    return typeof error?.stack === 'string' ? error.stack : '';
  } catch {
    return '';
  }
}

// Where in one of the programs it happened: the head of a syntax error, else the topmost frame of theirs.
function placeOf(error, programs) {
  const stack = stackOf(error);
  const head = /^(.*):(\d+)\n.*\n( *)(?:\^|\n)/.exec(stack);
  if (head) {
    const program = programs.find(head[1]);
    return program ? program.place(Number(head[2]), head[3].length) : null;
  }
  const wanted = /does not provide an export named '(.*)'$/m.exec(describe(error));
  if (wanted && error instanceof SyntaxError) return programs.placeOfImport(wanted[1]);
  const frames = stack.slice(stack.indexOf('\n    at ') + 1);
  for (const found of frames.matchAll(/(?:\(|at (?:async )?)([^()\s]*|[^()]*):(\d+):(\d+)\)?$/gm)) {
    const program = programs.find(found[1]);
    if (program) return program.place(Number(found[2]), Number(found[3]) - 1);
  }
  return programs.placeOfStatement(error);
}

// The text Node would print for an uncaught error, without frames that are not the program's.
function errorText(error, place, programs) {
  let text;
  try {
    text = require('util').inspect(error);
  } catch {
    text = describe(error);
  }
  const isError = stackOf(error) !== '';
  // A syntax error brings its place in its stack; it is shown once, as for every other error.
  text = text.replace(/^.*:\d+\n.*\n *\^* *\n+/, '');
  text = withoutOurFrames(text.split('\n')).map((line) => programs.repairFrame(line)).join('\n');
  const head = place ? `${place.name}:${place.line}\n${place.text}\n${' '.repeat(Math.max(0, (place.column || 1) - 1))}^\n\n` : '';
  return `${head}${isError ? '' : 'Uncaught:\n'}${text}\n`;
}

// Frames below the program's own are the driver's or Node's way to it.
function withoutOurFrames(lines) {
  const kept = [];
  let isBelow = false;
  for (const line of lines) {
    const isFrame = /^\s+at /.test(line);
    isBelow = isFrame && (isBelow || line.includes(driverFile) || HIDDEN_FRAME.test(line));
    if (!isBelow) kept.push(line);
    // What follows the last frame begins on its line.
    else if (line.endsWith(' {') && kept.length > 0) kept.push(`${kept.pop()} {`);
  }
  return kept;
}

// One source and how its code differs from it.
class Program {
  constructor(name, source, prepared, isMain) {
    this.name = name;
    this.source = source;
    this.shifts = prepared?.shifts ?? [];
    this.isMain = isMain;
  }

  // Column of the source for a column of the code, both from 0.
  unshift(line, column) {
    let by = 0;
    for (const [shiftLine, from, delta, width] of this.shifts) {
      if (shiftLine !== line) continue;
      // Within what was put in: the text that follows it is meant.
      if (column < from && column >= from - width) return from - delta;
      if (column >= from) by = delta;
    }
    return Math.max(0, column - by);
  }

  place(line, column) {
    const lines = this.source.split('\n');
    // An unfinished program fails behind its end.
    if (line > lines.length) [line, column] = [lines.length, lines.at(-1).length];
    const text = lines[line - 1];
    // V8 counts UTF-16 units; people and editors count characters.
    const characters = Array.from(text.slice(0, this.unshift(line, column))).length;
    return { name: this.name, isMain: this.isMain, line, column: characters + 1, text };
  }
}

function nameOf(url) {
  return url.startsWith('file://') ? decodeURIComponent(url.slice(7)) : url;
}

class Programs {
  constructor() {
    this.byName = new Map();
    // The one that runs, in a session: all runs of a session import by the name of the first.
    this.current = null;
    // What an import statement failed with, and where that statement is.
    this.statements = new WeakMap();
  }

  add(program) {
    this.byName.set(program.name, program);
    if (this.byName.size > SOURCES_MAX) this.byName.delete(this.byName.keys().next().value);
    return program;
  }

  find(name) {
    return this.byName.get(nameOf(name));
  }

  // V8 names what is missing; where it was wanted is looked for.
  placeOfImport(name) {
    for (const program of this.byName.values()) {
      const lines = program.source.split('\n');
      const line = lines.findIndex((text) => /\b(?:import|export)\b/.test(text) && text.split(/[^\w$]+/).includes(name));
      if (line >= 0) return { ...program.place(line + 1, 0), column: Array.from(lines[line].slice(0, lines[line].indexOf(name))).length + 1 };
    }
    return null;
  }

  // Passes on what became of an import statement. The innermost one counts: its module is imported by others.
  blame(error, specifier, referrer) {
    const isObject = error !== null && /^(object|function)$/.test(typeof error);
    const program = this.current?.name.replace(/#\d+$/, '') === nameOf(referrer) ? this.current : this.find(referrer);
    if (isObject && !this.statements.has(error)) this.statements.set(error, { specifier, program });
    throw error;
  }

  placeOfStatement(error) {
    const { specifier, program } = this.statements.get(error) ?? {};
    if (!program) return null;
    for (const found of program.source.matchAll(/\b(?:from|import)\s*(?:\(\s*)?(?=(['"])(.*?)\1)/g)) {
      if (found[2] !== specifier) continue;
      const before = program.source.slice(0, found.index + found[0].length).split('\n');
      return { ...program.place(before.length, 0), column: Array.from(before.at(-1)).length + 1 };
    }
    return null;
  }

  repairFrame(line) {
    const found = /^(\s+at .*?\(?)([^()\s]+):(\d+):(\d+)(\)?)$/.exec(line);
    const program = found && this.find(found[2]);
    if (!program || program.shifts.length === 0) return line;
    return `${found[1]}${found[2]}:${found[3]}:${program.unshift(Number(found[3]), Number(found[4]) - 1) + 1}${found[5]}`;
  }
}

// -- loading --------------------------------------------------------------------------------------------

// Programs and the files of the workspace they use. Modules of the workspace are linked here, so that their
// positions and bindings are the real ones; packages and Node's own modules come from Node.
class Loader {
  constructor(source) {
    this.source = source;
    this.modules = new Map();
    this.prepared = {};
    this.programs = new Programs();
    this.require = Module.createRequire(source);
    this.link = async (specifier, { identifier }) => {
      try {
        return await this.get(this.resolve(specifier, identifier));
      } catch (error) {
        return this.programs.blame(error, specifier, identifier);
      }
    };
    this.importDynamically = async (specifier, referrer) => {
      const identifier = referrer?.identifier ?? toUrl(this.source);
      return this.evaluated(await this.link(specifier, { identifier }));
    };
  }

  async evaluated(module) {
    if (module.status === 'unlinked') await module.link(this.link);
    await module.evaluate();
    return module;
  }

  // A file URL, or the specifier itself where Node is to decide.
  resolve(specifier, referrer) {
    const isPath = /^(?:\.{0,2}\/|file:)/.test(specifier);
    if (!isPath) return specifier;
    const url = new URL(specifier, referrer);
    const path = decodeURIComponent(url.pathname);
    const found = candidates(path).find((candidate) => this.prepared[candidate] || isFile(candidate));
    if (found === undefined) {
      const error = new Error(`Cannot find module '${path}' imported from ${decodeURIComponent(new URL(referrer).pathname)}`);
      error.code = 'ERR_MODULE_NOT_FOUND';
      throw error;
    }
    return found === path ? url.href : toUrl(found) + url.search;
  }

  get(url) {
    let module = this.modules.get(url);
    if (!module) {
      module = this.load(url);
      this.modules.set(url, module);
    }
    return module;
  }

  load(url) {
    const name = url.startsWith('node:') ? url.slice(5) : url;
    if (url.startsWith('node:') || Module.builtinModules.includes(name)) return wrapped(url, { ...this.require(url), default: this.require(url) });
    if (!url.startsWith('file:')) return this.foreign(url);
    const path = decodeURIComponent(new URL(url).pathname);
    const prepared = this.prepared[path];
    if (prepared) {
      if (prepared.error) throw new SyntaxError(`${path}:${prepared.error}`);
      if (prepared.kind === 'module') return this.module(url, path, readFileSync(path, 'utf8'), prepared);
      return this.commonjs(url, path);
    }
    if (path.endsWith('.json')) return wrapped(url, { default: JSON.parse(readFileSync(path, 'utf8')) });
    if (path.includes('/node_modules/') || !/\.m?js$/.test(path)) return path.endsWith('.cjs') ? this.commonjs(url, path) : this.foreign(url);
    const text = readFileSync(path, 'utf8');
    if (path.endsWith('.js') && isCommonJs(path, text)) return this.commonjs(url, path);
    return this.module(url, path, text, null);
  }

  commonjs(url, path) {
    const exports = this.require(path);
    const named = exports !== null && /^(object|function)$/.test(typeof exports) ? exports : {};
    return wrapped(url, { ...named, default: exports });
  }

  async foreign(specifier) {
    try {
      return wrapped(specifier, await nativeImport(specifier, this.source, this.require));
    } catch (error) {
      // A package that is missing now may be installed before the next run.
      this.modules.delete(specifier);
      throw error;
    }
  }

  module(url, path, source, prepared) {
    this.programs.add(new Program(path, source, prepared, path === this.source));
    const before = prepared?.before ? `${prepared.before}\n` : '';
    return new vm.SourceTextModule(before + (prepared?.code ?? source), {
      identifier: url,
      lineOffset: before ? -1 : 0,
      initializeImportMeta: (meta, module) => this.describeModule(meta, module.identifier),
      importModuleDynamically: this.importDynamically,
    });
  }

  describeModule(meta, url) {
    const path = decodeURIComponent(new URL(url).pathname);
    meta.dirname = folderOf(path);
    meta.filename = path;
    meta.resolve = (specifier) => {
      const found = this.resolve(specifier, url);
      return found.includes(':') ? found : Module.builtinModules.includes(found) ? `node:${found}` : toUrl(this.require.resolve(found));
    };
    meta.url = url;
  }

  // Runs a CommonJS program as the main module.
  runCommonJs(source, prepared, onValue) {
    this.programs.add(new Program(this.source, source, prepared, true));
    const module = this.mainModule();
    const before = prepared?.before ? `${prepared.before}\n` : '';
    const main = vm.compileFunction(before + (prepared?.code ?? source), [...CJS_NAMES, VALUE], {
      filename: this.source,
      lineOffset: before ? -1 : 0,
      importModuleDynamically: this.importDynamically,
    });
    const returned = main.call(module.exports, module.exports, this.require, module, this.source, folderOf(this.source), onValue);
    if (returned !== undefined) onValue(() => returned, returned instanceof Promise);
    module.loaded = true;
  }

  mainModule() {
    const module = new Module(this.source, null);
    module.id = '.';
    module.filename = this.source;
    module.paths = Module._nodeModulePaths(folderOf(this.source));
    delete Module._cache[driverFile];
    Module._cache[this.source] = module;
    process.mainModule = module;
    this.require.main = module;
    return module;
  }

  // TypeScript files of the workspace, for require.
  allowRequire() {
    for (const path of Object.keys(this.prepared)) {
      Module._extensions[path.slice(path.lastIndexOf('.'))] = (module, filename) => {
        const prepared = this.prepared[filename];
        if (!prepared) throw new SyntaxError(`${filename} was not there when the run began`);
        if (prepared.error) throw new SyntaxError(`${filename}:${prepared.error}`);
        if (prepared.kind === 'module') throw new Error(`${filename} is a module: use import, not require`);
        this.programs.add(new Program(filename, readFileSync(filename, 'utf8'), prepared, false));
        module._compile(prepared.code, filename);
      };
    }
  }
}

// Node remembers that a package.json is missing. Packages may be installed while this interpreter lives, so it only looks
// into the folder of installed packages for one that is there.
function lookForPackagesAnew() {
  const find = Module._findPath;
  Module._findPath = function findPath(request, paths, ...rest) {
    if (!Array.isArray(paths) || /^(?:\.|\/)/.test(request)) return find.call(this, request, paths, ...rest);
    const name = request.split('/').slice(0, request.startsWith('@') ? 2 : 1).join('/');
    const isThere = (folder) => folder !== PACKAGES || existsSync(`${folder}/${name}`);
    return find.call(this, request, paths.filter(isThere), ...rest);
  };
}

function wrapped(identifier, namespace) {
  const names = Object.keys(namespace);
  return new vm.SyntheticModule(names, function fill() {
    for (const name of names) this.setExport(name, namespace[name]);
  }, { identifier });
}

function nativeImport(specifier, source, require) {
  const loader = vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER;
  if (loader === undefined) return import(specifier.includes(':') ? specifier : toUrl(require.resolve(specifier)));
  return vm.compileFunction('return import(specifier)', ['specifier'], { filename: source, importModuleDynamically: loader })(specifier);
}

function candidates(path) {
  const typed = path.replace(/\.([cm]?)js$/, '.$1ts');
  const endings = ['.ts', '.mts', '.cts', '.js', '.mjs', '.cjs', '.json', '/index.ts', '/index.js'];
  return [path, ...(typed === path ? [] : [typed]), ...endings.map((ending) => path + ending)];
}

function isFile(path) {
  return fs.statSync(path, { throwIfNoEntry: false })?.isFile() === true;
}

// As Node decides for a `.js`, except that a file without package.json is judged by its text.
function isCommonJs(path, text) {
  for (let folder = folderOf(path); folder; folder = folder === '/' ? '' : folderOf(folder)) {
    const file = `${folder === '/' ? '' : folder}/package.json`;
    if (isFile(file)) {
      try {
        return JSON.parse(readFileSync(file, 'utf8')).type !== 'module';
      } catch {
        return true;
      }
    }
  }
  return compiles(text);
}

function compiles(text) {
  try {
    vm.compileFunction(text, CJS_NAMES);
    return true;
  } catch {
    return false;
  }
}

function folderOf(path) {
  return path.slice(0, path.lastIndexOf('/')) || '/';
}

function toUrl(path) {
  return `file://${encodeURI(path).replace(/[?#]/g, encodeURIComponent)}`;
}

// -- a fresh run ----------------------------------------------------------------------------------------

function runLast([, id, , source, code, stdinPath, count, ...rest]) {
  const report = new Report(id);
  const loader = new Loader(source);
  let running = true;
  let isIdle = false;
  process.on('beforeExit', () => { isIdle = true; });
  process.on('exit', (status) => {
    if (running && isIdle && status === 0) {
      process.exitCode = UNSETTLED;
      writeSync(2, 'Warning: the program ended while its top-level await was not settled\n');
    }
    if (report.status === 'ok') {
      report.exitCode = Number(process.exitCode ?? status) || 0;
      if (report.exitCode !== 0) report.status = 'exit';
    }
    report.send();
  });
  sayWhenItLeaves();
  const die = (error) => {
    const place = report.failure(error, loader.programs);
    running = false;
    try {
      writeSync(2, errorText(error, place, loader.programs));
    } catch {}
    process.exit(1);
  };
  // Where the program handles such errors itself, it still does.
  process.on('uncaughtExceptionMonitor', (error) => {
    if (process.listenerCount('uncaughtException') === 0 && !process.hasUncaughtExceptionCaptureCallback()) die(error);
  });
  const [text, prepared] = begin(loader, die, source, code, stdinPath, count, rest);
  const onValue = (give, awaits) => report.take(give, awaits);
  const kind = prepared?.kind ?? (compiles(text) || !isModuleError(text) ? 'commonjs' : 'module');
  if (kind === 'commonjs') {
    try {
      loader.runCommonJs(text, prepared, onValue);
    } catch (error) {
      fail(error, die);
    }
    running = false;
    return;
  }
  defineCommonJs(loader, prepared?.uses ?? CJS_NAMES);
  define(VALUE, onValue, false);
  runModule(loader, text, prepared).then(() => { running = false; }, (error) => { running = false; fail(error, die); });
}

// Once every listener of `exit` was called, nothing of the program runs any more: whoever waits for its end need not wait
// until Node has taken itself apart. Not after an error that was not caught: Node itself may write about it after that.
function sayWhenItLeaves() {
  const { emit } = process;
  let isFatal = false;
  process.on('uncaughtExceptionMonitor', () => { isFatal = true; });
  process.emit = function emitAndLeave(name, ...values) {
    const isHeard = Reflect.apply(emit, this, [name, ...values]);
    // A program may speak of an exit of its own that way, and go on.
    if (name === 'exit' && process._exiting && !isFatal) send(['leaving', String(Number(process.exitCode ?? values[0] ?? 0) & 255)]);
    return isHeard;
  };
}

// A listener of the program hears of errors of its main part, too.
function fail(error, die) {
  // That function is not told to anybody: Node has to call it.
  if (process.hasUncaughtExceptionCaptureCallback()) queueMicrotask(() => { throw error; });
  else if (process.listenerCount('uncaughtException') > 0) process.emit('uncaughtException', error, 'uncaughtException');
  else die(error);
}

function begin(loader, die, source, code, stdinPath, count, rest) {
  try {
    const variables = Number(count);
    prepareProcess(source, stdinPath, variables > 0 ? rest[0] : '', rest.slice(variables));
    const prepared = readPrepared(code);
    loader.prepared = prepared?.files ?? {};
    loader.allowRequire();
    return [prepared?.source ?? readFileSync(source, 'utf8'), prepared];
  } catch (error) {
    return die(new Error(`the driver could not prepare the run: ${error.message}`));
  }
}

async function runModule(loader, text, prepared) {
  const url = toUrl(loader.source);
  const module = loader.module(url, loader.source, text, prepared);
  loader.modules.set(url, module);
  await loader.evaluated(module);
}

// What Node says of a script that should have been a module.
function isModuleError(text) {
  try {
    vm.compileFunction(text, CJS_NAMES);
  } catch (error) {
    return /import statement|import\.meta|token 'export'|await is only valid|reserved word/.test(error.message);
  }
  return false;
}

function defineCommonJs(loader, names) {
  const module = loader.mainModule();
  const values = { exports: module.exports, require: loader.require, module, __filename: loader.source, __dirname: folderOf(loader.source) };
  for (const name of names) define(name, values[name], false);
}

// -- a live interpreter -----------------------------------------------------------------------------------

const TURN = Symbol.for('palisade.turn');
const TAKE = Symbol.for('palisade.take');
const EXIT = Symbol('exit');

// Runs of one session. Each is evaluated by V8 in the way of a console: declarations of earlier runs are there and
// may be declared again, await works at the top level, and the last expression is the result.
class Session {
  constructor(source) {
    lookForPackagesAnew();
    this.loader = new Loader(source);
    this.runs = 0;
    this.exitCode = 0;
    this.current = null;
    const inspector = new (require('inspector').Session)();
    inspector.connect();
    this.inspector = inspector;
    this.turn = new vm.Script(`globalThis[Symbol.for('palisade.turn')]()`);
    defineCommonJs(this.loader, CJS_NAMES);
    define('__palisade_import', async (specifier) => (await this.loader.importDynamically(String(specifier), null)).namespace, false);
    const meta = {};
    this.loader.describeModule(meta, toUrl(source));
    define('__palisade_meta', meta, false);
    process.exit = (status) => this.exit(status);
    process.on('SIGINT', () => this.finish('interrupted'));
    process.on('uncaughtException', (error) => this.stray(error));
  }

  // Ends the run, not the session.
  exit(status) {
    if (status !== undefined) process.exitCode = status;
    throw EXIT;
  }

  // An error that no run waits for: shown, and the end of the run that is on.
  stray(error) {
    if (this.current) this.fail(error);
    else if (error !== EXIT) writeSync(2, errorText(error, placeOf(error, this.loader.programs), this.loader.programs));
  }

  run([, id, , source, code, stdinPath, count, ...rest]) {
    return new Promise((resolve) => {
      this.current = { report: new Report(id), resolve, stdinPath };
      process.exitCode = undefined;
      const prepared = readPrepared(code);
      const name = this.runs++ === 0 ? source : `${source}#${this.runs}`;
      try {
        const variables = Number(count);
        prepareProcess(source, stdinPath, variables > 0 ? rest[0] : '', rest.slice(variables));
        if (stdinPath) {
          renewStdin();
          hide(stdinPath);
        }
        this.loader.prepared = prepared?.files ?? {};
        const text = prepared?.source ?? (code || readFileSync(source, 'utf8'));
        const program = this.loader.programs.add(new Program(name, text, prepared, true));
        this.loader.programs.current = program;
        this.evaluate(prepared, prepared?.code ?? text, program);
      } catch (error) {
        this.fail(error);
      }
    });
  }

  evaluate(prepared, code, program) {
    const expression = `${code}\n//# sourceURL=${program.name}`;
    const options = { expression, replMode: true, awaitPromise: true, objectGroup: 'run' };
    const { current } = this;
    let isInterruptible = true;
    let settle = null;
    const evaluate = () => this.inspector.post('Runtime.evaluate', options, (error, answer) => {
      settle = () => this.settle(current, prepared, program, error, answer);
      if (!isInterruptible) settle();
    });
    define(TURN, evaluate, false);
    try {
      this.turn.runInThisContext({ breakOnSigint: true });
    } catch (error) {
      if (error?.code !== 'ERR_SCRIPT_EXECUTION_INTERRUPTED') throw error;
      settle = () => this.finish('interrupted');
    } finally {
      delete globalThis[TURN];
    }
    // Only now: a signal above would have ended the driver's own steps as well.
    isInterruptible = false;
    settle?.();
  }

  settle(current, prepared, program, error, answer) {
    if (this.current !== current) return;
    if (error) return this.fail(new Error(error.message));
    const { exceptionDetails: details, result } = answer;
    if (details) return this.fail(this.take(details.exception), details, program);
    if (prepared?.value !== false) current.report.value(this.take(result));
    if (showing.size === 0) return this.finish('ok');
    return Promise.all(showing).then(() => this.current === current && this.finish('ok'));
  }

  // The object behind the inspector's description of it.
  take(remote) {
    if (remote.objectId === undefined) {
      const text = remote.unserializableValue;
      if (text === undefined) return remote.value;
      return text.endsWith('n') ? BigInt(text.slice(0, -1)) : Number(text);
    }
    let taken;
    define(TAKE, (value) => { taken = value; }, false);
    const functionDeclaration = `function () { 'use strict'; globalThis[Symbol.for('palisade.take')](this) }`;
    this.inspector.post('Runtime.callFunctionOn', { objectId: remote.objectId, functionDeclaration, silent: true });
    delete globalThis[TAKE];
    return taken;
  }

  fail(error, details, program) {
    if (error === EXIT) return this.finish('exit');
    const { report } = this.current;
    const { programs } = this.loader;
    let place = report.failure(error, programs);
    if (!place && details && error instanceof SyntaxError && details.scriptId !== undefined) {
      place = program.place(details.lineNumber + 1, details.columnNumber);
      [report.line, report.column] = [String(place.line), String(place.column)];
    }
    try {
      writeSync(2, errorText(error, place, programs));
    } catch {}
    return this.finish('error');
  }

  finish(status) {
    if (!this.current) return;
    const { report, resolve, stdinPath } = this.current;
    this.current = null;
    showing.clear();
    this.inspector.post('Runtime.releaseObjectGroup', { objectGroup: 'run' });
    report.status = status;
    if (status === 'interrupted') report.exitCode = 130;
    else if (status !== 'error') report.exitCode = Number(process.exitCode ?? 0) & 255;
    if (status === 'ok' && report.exitCode !== 0) report.status = 'exit';
    this.exitCode = report.exitCode;
    process.exitCode = undefined;
    takeBack();
    if (stdinPath) {
      openStdin('/dev/null');
      renewStdin();
    }
    report.send();
    resolve();
  }
}

// A stream over the new descriptor 0: the old one may hold input of an earlier run.
function renewStdin() {
  let stream;
  const get = () => {
    stream ??= new fs.ReadStream(null, { fd: 0, autoClose: false });
    return stream;
  };
  Object.defineProperty(process, 'stdin', { configurable: true, enumerable: true, get });
}

// The file of standard input is open and not for the program's eyes. The host removes what is left.
function hide(stdinPath) {
  try {
    unlinkSync(stdinPath);
  } catch {}
}

async function runKept(first) {
  const { reallyExit } = process;
  const session = new Session(first[3]);
  const socket = new (require('net').Socket)({ fd: CONTROL_FD, readable: true, writable: false });
  let wake = () => {};
  let isOver = false;
  socket.on('data', (part) => {
    pending = Buffer.concat([pending, part]);
    wake();
  });
  const end = () => {
    isOver = true;
    wake();
  };
  socket.on('error', end).on('close', end).on('end', end);
  for (let message = first; message;) {
    if (message[0] !== 'run') break;
    if (message[2] !== 'keep') {
      process.removeAllListeners('SIGINT').removeAllListeners('uncaughtException');
      delete process.exit;
      socket.destroy();
      return runLast(message);
    }
    await session.run(message);
    message = takeMessage();
    while (message === undefined && !isOver) {
      await new Promise((resolve) => { wake = resolve; });
      message = takeMessage();
    }
  }
  return reallyExit.call(process, session.exitCode);
}

// What the first lines of nearly every program would wait for, while nobody waits yet.
function warmUp() {
  for (const stream of [process.stdout, process.stderr]) {
    stream.listenerCount('error');
    // Node does not wait for a full pipe from here on; a program that never mentions these streams and writes to the
    // descriptors itself finds them as it would without us.
    stream._handle?.setBlocking?.(true);
  }
  compiles('0');
  try {
    rehearse();
  } catch {
    // Then the program comes upon it all first.
  }
}

// Walks once through a whole run, from its order to its last word, and into nothing.
function rehearse() {
  const endings = ['beforeExit', 'exit', 'uncaughtExceptionMonitor'];
  const listeners = endings.map((name) => process.rawListeners(name));
  const { argv, mainModule, exit } = process;
  const source = '/workspace/rehearsed.js';
  // As the console of programs does it.
  const nothing = { write() {}, once() {}, removeListener() {}, listenerCount: () => 0 };
  globalThis.nowhere = new console.Console({ stdout: nothing, stderr: nothing });
  channelFd = openSync('/dev/null', 'r+');
  try {
    identity = channelIdentity();
    process.exit = () => { throw new Error('this was to go well'); };
    const code = `require('fs'); nowhere.log(1, 'a', [{ a: 1 }]); ${VALUE}(() => [1, 'a', { a: 2.5 }]);`;
    pending = Buffer.from(`7\0run\0${0}\0last\0${source}\0${JSON.stringify({ kind: 'commonjs', source: '', code })}\0\0${0}\0`);
    runLast(takeMessage());
    process.stdout.write('');
    process.emit('beforeExit', 0);
    process.emit('exit', 0);
  } finally {
    closeSync(channelFd);
    channelFd = CONTROL_FD;
    identity = channelIdentity();
    pending = Buffer.alloc(0);
    delete process.emit;
    Object.assign(process, { argv, mainModule, exit });
    endings.forEach((name, number) => {
      const added = process.rawListeners(name).filter((listener) => !listeners[number].includes(listener));
      added.forEach((listener) => process.removeListener(name, listener));
    });
    delete globalThis.nowhere;
    delete Module._cache[source];
  }
}

function main() {
  const { emitWarning } = process;
  // What the driver uses of Node to load programs is no news to them.
  process.emitWarning = (warning, ...more) => {
    if (OWN_WARNING.test(String(warning)) || OWN_WARNING.test(String(more[0]?.code ?? more[1]))) return;
    emitWarning.call(process, warning, ...more);
  };
  process.execArgv = [];
  define('display', display, false);
  // Of a run whose interpreter was started with its variables.
  useProxies();
  send(['ready']);
  warmUp();
  const message = receiveSync();
  if (!message || message[0] !== 'run') return;
  if (message[2] === 'keep') runKept(message);
  else runLast(message);
}

main();
