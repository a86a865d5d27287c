'use strict';
// Describes this Node to the host, once, outside any sandbox (docs/DRIVERS.md, "The probe").

const fs = require('fs');
const os = require('os');
const path = require('path');
const { Module } = require('module');

const NODE_MAJOR_MIN = 18;
const PACKAGES_MAX = 500;
const SYSTEM = ['/bin', '/sbin', '/lib', '/usr'];
const homes = [process.env.HOME, accountHome()].filter(Boolean);

if (Number(process.versions.node.split('.')[0]) < NODE_MAJOR_MIN) {
  console.error(`Node ${NODE_MAJOR_MIN} or newer is needed, this is ${process.versions.node}`);
  process.exit(1);
}

// In a container the user may have no account, and Node throws then.
function accountHome() {
  try {
    return os.userInfo().homedir;
  } catch {
    return undefined;
  }
}

function isWithin(file, folder) {
  return file === folder || file.startsWith(folder.endsWith('/') ? folder : `${folder}/`);
}

// A home, anything that contains one, or the root.
function isTooWide(folder) {
  return folder === '/' || path.dirname(folder) === '/home' || homes.some((home) => isWithin(home, folder));
}

// The installation's folder is enough: a Node is one file with its own modules inside it.
function binds(executable) {
  const folder = path.dirname(executable);
  const isSystem = SYSTEM.some((system) => isWithin(folder, system));
  if (isSystem) return [];
  const prefix = path.basename(folder) === 'bin' ? path.dirname(folder) : folder;
  return isTooWide(prefix) ? [executable] : [prefix];
}

// What `require` finds without a node_modules of the program's own.
function packages() {
  const found = {};
  for (const folder of Module.globalPaths.filter((folder) => !homes.some((home) => isWithin(folder, home)))) {
    for (const name of names(folder)) {
      try {
        found[name] ??= JSON.parse(fs.readFileSync(path.join(folder, name, 'package.json'), 'utf8')).version ?? '';
      } catch {}
    }
  }
  return Object.fromEntries(Object.entries(found).sort().slice(0, PACKAGES_MAX));
}

function names(folder) {
  try {
    return fs.readdirSync(folder).flatMap((name) => name.startsWith('@') ? fs.readdirSync(path.join(folder, name)).map((inner) => `${name}/${inner}`) : [name]);
  } catch {
    return [];
  }
}

// The commands of this Node for programs of all languages.
function commands(executable) {
  const folder = path.dirname(executable);
  const found = { node: executable };
  for (const name of ['npm', 'npx']) {
    if (fs.existsSync(path.join(folder, name))) found[name] = path.join(folder, name);
  }
  return found;
}

const executable = fs.realpathSync(process.execPath);
console.log(JSON.stringify({
  version: process.versions.node,
  executable,
  binds: binds(executable),
  env: {},
  tools: { commands: commands(executable), binds: binds(executable) },
  packages: packages(),
  modules: Module.builtinModules.filter((name) => !name.startsWith('_') && !name.startsWith('internal/')),
}));
