// The checks through the official TypeScript libraries: ts_sdk.mjs FOLDER LINE ERA, with LINE v1 or v2. FOLDER
// has the node_modules; over HTTP when a server is given (served.py), else over stdio. Speaks to checks.py over standard input and output, one JSON object per line.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const [folder, line, era, binary] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);

const information = { name: 'palisade-tests', version: '1.0.0' };
const parameters = { command: binary, args: ['mcp'], env: { ...process.env, PALISADE_LOG: 'warn' }, stderr: 'inherit' };

const url = process.env.SERVER_URL;

async function transport() {
  const prefix = line === 'v1' ? '@modelcontextprotocol/sdk/client' : '@modelcontextprotocol/client';
  if (!url) {
    const { StdioClientTransport } = await load(`${prefix}/stdio${line === 'v1' ? '.js' : ''}`);
    return new StdioClientTransport(parameters);
  }
  const { StreamableHTTPClientTransport } = await load(line === 'v1' ? `${prefix}/streamableHttp.js` : prefix);
  const headers = { Authorization: `Bearer ${process.env.SERVER_TOKEN}` };
  return new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
}

async function connect() {
  if (line === 'v1') {
    const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
    const client = new Client(information);
    await client.connect(await transport());
    return client;
  }
  const { Client } = await load('@modelcontextprotocol/client');
  const mode = { legacy: 'legacy', auto: 'auto', modern: { pin: '2026-07-28' } }[era];
  const client = new Client(information, { versionNegotiation: { mode } });
  await client.connect(await transport());
  return client;
}

const pending = new Map();
const say = (message) => process.stdout.write(JSON.stringify(message) + '\n');
// The first question is answered with why there is no connection.
const client = await connect().catch((error) => {
  say({ id: 1, error: `${error?.code ?? ''} ${error?.message ?? error}` });
  process.exit(0);
});

function callTool(asked, options) {
  const params = { name: asked.name, arguments: asked.arguments };
  return line === 'v1' ? client.callTool(params, undefined, options) : client.callTool(params, options);
}

async function answer(asked) {
  switch (asked.do) {
    case 'list_tools': return await client.listTools();
    case 'list_resources': return await client.listResources();
    case 'read_resource': return await client.readResource({ uri: asked.uri });
    case 'version': return { server: client.getServerVersion(), version: client.getNegotiatedProtocolVersion?.() };
    case 'call': {
      const abort = new AbortController();
      pending.set(asked.id, abort);
      const options = { signal: abort.signal };
      if (asked.progress) {
        options.onprogress = (news) => say({ id: asked.id, progress: news.progress, message: news.message });
      }
      return await callTool(asked, options);
    }
  }
}

for await (const text of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(text);
  if (asked.do === 'cancel') {
    pending.get(asked.of)?.abort('test');
    continue;
  }
  answer(asked).then(
    (result) => say({ id: asked.id, result }),
    (error) => say({ id: asked.id, error: String(error?.message ?? error) }),
  );
}
await client.close();
