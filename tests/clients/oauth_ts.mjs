// OAuth through the official TypeScript libraries: oauth_ts.mjs FOLDER LINE ERA, with LINE v1 or v2, run by oauth.py.
// FOLDER has the node_modules.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [folder, line, era] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const prefix = line === 'v1' ? '@modelcontextprotocol/sdk/client' : '@modelcontextprotocol/client';
const { StreamableHTTPClientTransport } = await load(line === 'v1' ? `${prefix}/streamableHttp.js` : prefix);
const { Client } = await load(line === 'v1' ? `${prefix}/index.js` : prefix);

const label = `typescript ${line} ${era} oauth`;
const url = new URL(process.env.SERVER_URL);
const callback = 'http://127.0.0.1:3030/callback';

// Keeps everything in memory, and is the person at the browser, who is sent back at once.
class Provider {
  kept = {};
  redirectUrl = callback;
  clientMetadata = {
    client_name: 'palisade tests',
    redirect_uris: [callback],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: 'none',
  };
  clientInformation() { return this.kept.client; }
  saveClientInformation(client) { this.kept.client = client; }
  tokens() { return this.kept.tokens; }
  saveTokens(tokens) { this.kept.tokens = tokens; }
  codeVerifier() { return this.kept.verifier; }
  saveCodeVerifier(verifier) { this.kept.verifier = verifier; }
  saveDiscoveryState(discovered) { this.kept.discovered = discovered; }
  discoveryState() { return this.kept.discovered; }
  async redirectToAuthorization(address) {
    const answer = await fetch(address, { redirect: 'manual' });
    if (answer.status !== 302) throw new Error(`the authorization failed: ${await answer.text()}`);
    this.sent = new URL(answer.headers.get('location')).searchParams;
  }
}

const provider = new Provider();
const finish = (transport) => transport.finishAuth(line === 'v1' ? provider.sent.get('code') : provider.sent);

function made() {
  const mode = { legacy: 'legacy', auto: 'auto', modern: { pin: '2026-07-28' } }[era];
  const options = line === 'v1' ? undefined : { versionNegotiation: { mode } };
  return new Client({ name: 'palisade-tests', version: '1.0.0' }, options);
}

async function connected() {
  const first = new StreamableHTTPClientTransport(url, { authProvider: provider });
  try {
    await made().connect(first);
    throw new Error('connected without a token');
  } catch (error) {
    if (!provider.sent) throw error;
  }
  await finish(first);
  const transport = new StreamableHTTPClientTransport(url, { authProvider: provider });
  const client = made();
  await client.connect(transport);
  return [client, transport];
}

let failed = 0;
async function check(name, action) {
  try {
    await action();
    console.log(`ok ${label}: ${name}`);
  } catch (error) {
    failed += 1;
    console.error(error);
    console.log(`FAILED ${label}: ${name}: ${error?.message ?? error}`);
  }
}

function expect(condition, found) {
  if (!condition) throw new Error(JSON.stringify(found));
}

let client, transport;
await check('registration, authorization with PKCE, and a call', async () => {
  [client, transport] = await connected();
  const result = await client.callTool({ name: 'run', arguments: { language: 'python', code: 'print(6 * 7)' } });
  expect(result.structuredContent.stdout === '42\n', result);
});
await check('a call that needs another scope steps up', async () => {
  expect(provider.kept.tokens.scope === 'palisade:run', provider.kept.tokens.scope);
  const open = () => client.callTool({ name: 'sandbox_open', arguments: {} });
  provider.sent = undefined;
  let opened;
  try {
    opened = await open();
  } catch (error) {
    if (!provider.sent) throw error;
    await finish(transport);
    opened = await open();
  }
  const scopes = provider.kept.tokens.scope.split(' ').sort().join(' ');
  expect(scopes === 'palisade:run palisade:sandbox', scopes);
  const { sandbox_id } = opened.structuredContent;
  const closed = await client.callTool({ name: 'sandbox_close', arguments: { sandbox_id } });
  expect(!closed.isError, closed);
});
await client?.close();
process.exit(failed ? 1 : 0);
