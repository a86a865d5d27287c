"""A package mirror on loopback whose packages are hostile, each in its own way: mirror.py LOG STATE. Prints its port, then
serves. Every request is a line in LOG. STATE is the state directory of the server that uses it.
"""

import base64
import hashlib
import http.server
import io
import json
import os
import sys
import tarfile
import threading
import time
import zipfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gomirror

LOG = sys.argv[1]
# A folder of the server that no program may see.
STATE = sys.argv[2]
OLD = "2020-01-01T00:00:00Z"
NOW = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
STALLED = threading.Event()
UV = "0.13.8"
FILES = {}


def wheel(name, version="1.0", files=None, claims=None, requires=(), record=None, extra=None):
    """A wheel: files by path; `claims` replaces the name and version in its metadata."""
    said, said_version = claims or (name, version)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in (files if files is not None else {name.replace("-", "_") + ".py": "VALUE = 42\n"}).items():
            archive.writestr(path, content)
        for info, content in extra or ():
            archive.writestr(info, content)
        folder = f"{said.replace('-', '_')}-{said_version}.dist-info"
        lines = "".join(f"Requires-Dist: {one}\n" for one in requires)
        archive.writestr(f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {said}\nVersion: {said_version}\n{lines}")
        archive.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{folder}/RECORD", record if record is not None else f"{folder}/RECORD,,\n")
    return out.getvalue()


def link(path, target):
    info = zipfile.ZipInfo(path)
    info.create_system, info.external_attr = 3, 0o120777 << 16
    return info, target


def sdist(name):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        code = b"import pathlib; pathlib.Path('/workspace/product/ran.py').write_text('x'); raise SystemExit('ran')\n"
        for path, content in {"setup.py": code, "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode()}.items():
            info = tarfile.TarInfo(f"{name}-1.0/{path}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


BACKEND = """
import base64, io, pathlib, socket, zipfile
def seen():
    try:
        socket.create_connection(("127.0.0.1", PORT), 2).close()
        net = "reached"
    except OSError:
        net = "closed"
    return {"net": net, "state": pathlib.Path("STATE").exists()}
def build_wheel(folder, *_):
    name = "built-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as archive:
        archive.writestr("built.py", f"SEEN = {seen()!r}\\n")
        archive.writestr("built-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: built\\nVersion: 1.0\\n")
        archive.writestr("built-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr("built-1.0.dist-info/RECORD", "")
    return name
"""


def backend_sdist():
    """A source package with its own build back end, which notes what it can reach."""
    out = io.BytesIO()
    project = '[project]\nname = "built"\nversion = "1.0"\n[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    files = {
        "pyproject.toml": project,
        "backend.py": BACKEND.replace("PORT", str(PORT)).replace("STATE", STATE),
        "PKG-INFO": "Metadata-Version: 2.1\nName: built\nVersion: 1.0\n",
    }
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, content in files.items():
            info = tarfile.TarInfo(f"built-1.0/{path}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content.encode()))
    return out.getvalue()


def tarball(name, version="1.0.0", fields=None, entries=()):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        manifest = {"name": name, "version": version, "main": "index.js", **(fields or {})}
        plain = [("package/package.json", json.dumps(manifest)), ("package/index.js", "module.exports = 42;\n")]
        for path, content in plain + [entry for entry in entries if isinstance(entry, tuple)]:
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(content), 0o644
            archive.addfile(info, io.BytesIO(content.encode()))
        for info in entries:
            if isinstance(info, tarfile.TarInfo):
                archive.addfile(info)
    return out.getvalue()


def file(filename, content, at=OLD, digest=None, **more):
    FILES[filename] = content
    entry = {"filename": filename, "url": f"/files/{filename}", "hashes": {"sha256": digest or hashlib.sha256(content).hexdigest()}}
    if at:
        entry["upload-time"] = at
    return {**entry, **more}


def py(name, version="1.0", at=OLD, digest=None, more=None, **parts):
    filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return file(filename, wheel(name, version, **parts), at, digest, **(more or {}))


PAGES, DOCUMENTS, LOCK = {}, {}, threading.Lock()


def files_of(name):
    """The files of a package, made when they are first asked for."""
    with LOCK:
        if name not in PAGES:
            make = PYPI.get(name)
            PAGES[name] = make() if make else None
        return PAGES[name]


def pypi():
    deep = {"/".join(["deep"] * 60) + "/x.py": "x"}
    many = {f"manyfiles/f{number}.txt": "" for number in range(3000)}
    return {
        "good": lambda: [py("good"), py("good", "2.0")],
        "good-name": lambda: [py("good-name")],
        "wrong-hash": lambda: [py("wrong-hash", digest="0" * 64)],
        "no-hash": lambda: [{**py("no-hash"), "hashes": {}}],
        "dotdot": lambda: [py("dotdot", files={"../../../../tmp/evil.py": "x", "dotdot.py": ""})],
        "absolute": lambda: [py("absolute", files={"/tmp/evil.py": "x", "absolute.py": ""})],
        "linked": lambda: [py("linked", files={"linked/__init__.py": ""}, extra=[link("linked/secret", "/etc/passwd"), link("linked/up", "../../..")])],
        "bomb": lambda: [py("bomb", files={"bomb.bin": b"\0" * (300 << 20)})],
        "manyfiles": lambda: [py("manyfiles", files=many)],
        "deep": lambda: [py("deep", files=deep)],
        "casefold": lambda: [py("casefold", files={"casefold/a.py": "1", "casefold/A.py": "2"})],
        "liar": lambda: [py("liar", claims=("good", "1.0"))],
        "misnamed": lambda: [{**py("misnamed"), "filename": "good-9.0-py3-none-any.whl"}],
        "recordlies": lambda: [py("recordlies", record="../../../etc/passwd,,\n/etc/shadow,sha256=x,1\nrecordlies.py,sha256=AAAA,1\n")],
        "broken": lambda: [file("broken-1.0-py3-none-any.whl", b"this is no archive")],
        "sourceonly": lambda: [file("sourceonly-1.0.tar.gz", sdist("sourceonly"))],
        "withdrawn": lambda: [py("withdrawn", more={"yanked": "broken"})],
        "partly-withdrawn": lambda: [py("partly-withdrawn"), py("partly-withdrawn", "2.0", more={"yanked": True})],
        "young": lambda: [py("young", at=NOW)],
        "partly-young": lambda: [py("partly-young"), py("partly-young", "2.0", at=NOW)],
        "ageless": lambda: [py("ageless", at=None)],
        "legacy-age": lambda: [py("legacy-age", at=None)],
        "conflicting": lambda: [py("conflicting", requires=["good>=3"])],
        "urldep": lambda: [py("urldep", requires=["good @ http://127.0.0.1:9/good-1.0-py3-none-any.whl"])],
        "needs-denied": lambda: [py("needs-denied", requires=["good"])],
        "elsewhere": lambda: [{**py("elsewhere"), "url": f"http://localhost:{PORT}/files/elsewhere-1.0-py3-none-any.whl"}],
        "metadata": lambda: [{**py("metadata"), "url": "http://169.254.169.254/latest/meta-data"}],
        "otherplatform": lambda: [{**py("otherplatform"), "filename": "otherplatform-1.0-cp27-cp27m-win32.whl"}],
        "stalling": lambda: [py("stalling")],
        "built": lambda: [file("built-1.0.tar.gz", backend_sdist())],
        "metalies": lambda: [py("metalies", more={"core-metadata": {"sha256": "0" * 64}})],
        "scriptpath": lambda: [py("scriptpath", extra=[(f"scriptpath-1.0.dist-info/entry_points.txt", SCRIPTS)])],
        "pathlines": lambda: [py("pathlines", files={"pathlines.py": "", "pathlines.pth": "import os; os.environ['PATHLINES'] = 'ran'\n"})],
        "shadow": lambda: [py("shadow", files={"shadow.py": "", "json.py": "SHADOW = 1\n", "os.py": "SHADOW = 1\n"})],
        "twin": lambda: [py("twin", extra=[("good-9.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: good\nVersion: 9.0\n")])],
        "\u0261ood": lambda: [py("good")],
        "endlessfile": lambda: [{**py("endlessfile"), "url": "/endless/endlessfile-1.0-py3-none-any.whl"}],
        "large": lambda: [py("large", files={"large.bin": os.urandom(60 << 20)})],
    }


def other_uv():
    """A resolver that is not the pinned one. With the file `uv-digest` beside the log, the index lies about it."""
    entry, place = py("uv", UV, files={"uv-0.data/scripts/uv": "#!/bin/sh\n"}), os.path.join(os.path.dirname(LOG), "uv-digest")
    if os.path.exists(place):
        with open(place) as told:
            entry["hashes"]["sha256"] = told.read()
    return entry


SCRIPTS = """[console_scripts]
../../../../tmp/evil-script = scriptpath:main
../../escaped = scriptpath:main
"""


def js(name, version="1.0.0", at=OLD, fields=None, entries=(), integrity=None):
    content = tarball(name, version, fields, entries)
    filename = f"{name.replace('/', '_')}-{version}.tgz"
    FILES[filename] = content
    digest = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    dist = {"tarball": f"http://127.0.0.1:{PORT}/files/{filename}", "integrity": integrity or digest}
    return version, at, {"name": name, "version": version, "dist": dist, **(fields or {})}


def npm():
    run = {"scripts": {"postinstall": "echo ran > ran.txt", "preinstall": "echo ran > ran.txt"}, "hasInstallScript": True}
    evil = [("package/../../../../evil.js", "x"), ("/tmp/evil.js", "x")]
    reach = """const fs = require("fs"); const done = (net) => fs.writeFileSync("seen.json", JSON.stringify({net, state: fs.existsSync("STATE")}));
const link = require("net").connect(PORT, "127.0.0.1", () => { done("reached"); link.end(); }); link.on("error", () => done("closed"));
"""
    reach = reach.replace("PORT", str(PORT)).replace("STATE", STATE)
    looks = {"scripts": {"postinstall": "node look.js"}, "hasInstallScript": True}
    bundled = [("package/node_modules/hidden/package.json", '{"name": "hidden", "version": "1.0.0"}'), ("package/node_modules/hidden/index.js", "")]
    symbolic = tarfile.TarInfo("package/secret")
    symbolic.type, symbolic.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return {
        "goodjs": lambda: [js("goodjs"), js("goodjs", "2.0.0")],
        "@scope/goodjs": lambda: [js("@scope/goodjs")],
        "postinstall": lambda: [js("postinstall", fields=run)],
        "agelessjs": lambda: [js("agelessjs", at=None)],
        "smugglejs": lambda: [js("smugglejs", entries=bundled)],
        "youngjs": lambda: [js("youngjs", at=NOW)],
        "partly-youngjs": lambda: [js("partly-youngjs"), js("partly-youngjs", "2.0.0", at=NOW)],
        "wrongjs": lambda: [js("wrongjs", integrity="sha512-" + base64.b64encode(b"\0" * 64).decode())],
        "weakjs": lambda: [js("weakjs", integrity="sha1-" + base64.b64encode(b"\0" * 20).decode())],
        "dotdotjs": lambda: [js("dotdotjs", entries=evil)],
        "linkjs": lambda: [js("linkjs", entries=[symbolic])],
        "gitdepjs": lambda: [js("gitdepjs", fields={"dependencies": {"x": "git+http://127.0.0.1:9/x.git"}})],
        "filedepjs": lambda: [js("filedepjs", fields={"dependencies": {"x": "file:/etc"}})],
        "looksjs": lambda: [js("looksjs", fields=looks, entries=[("package/look.js", reach)])],
        "bundlejs": lambda: [js("bundlejs", fields={"bundleDependencies": ["hidden"], "dependencies": {"hidden": "1.0.0"}}, entries=bundled)],
        "binjs": lambda: [js("binjs", fields={"bin": {"../../../evil": "index.js", "/tmp/evil": "index.js", "fine": "../../../../etc/passwd"}})],
        "bombjs": lambda: [js("bombjs", entries=[("package/bomb.bin", "\0" * (200 << 20))])],
        "needs-deniedjs": lambda: [js("needs-deniedjs", fields={"dependencies": {"goodjs": "^1"}})],
        "conflictjs": lambda: [js("conflictjs", fields={"dependencies": {"goodjs": "^9"}})],
        "dependsjs": lambda: [js("dependsjs", fields={"dependencies": {"goodjs": "^1"}})],
    }


def document_of(name):
    """The document of an npm package, made when it is first asked for."""
    with LOCK:
        if name not in DOCUMENTS:
            releases = NPM[name]() if name in NPM else None
            DOCUMENTS[name] = releases and {
                "name": name, "dist-tags": {"latest": releases[-1][0]},
                "versions": {version: entry for version, _, entry in releases}, "time": {version: at for version, at, _ in releases},
            }
        return DOCUMENTS[name]


class Mirror(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with open(LOG, "a") as log:
            log.write(self.path + (" with a password" if self.headers["Authorization"] else "") + "\n")
        path = self.path.replace("%2f", "/")
        if path.startswith("/simple/"):
            return self.simple(path.split("/")[2])
        if path == "/pypi/legacy-age/json":
            digest = files_of("legacy-age")[0]["hashes"]["sha256"]
            entry = {"digests": {"sha256": digest}, "upload_time_iso_8601": OLD}
            return self.answer(json.dumps({"releases": {"1.0": [entry]}}).encode(), "application/json")
        if path.startswith("/endless/"):
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            while True:
                self.wfile.write(bytes(1 << 20))
        if path.startswith("/files/"):
            name = path.split("/")[2]
            if name.endswith(".metadata"):
                return self.answer(b"Metadata-Version: 2.1\nName: metalies\nVersion: 1.0\n", "text/plain")
            if name.startswith("stalling") and not STALLED.is_set():
                STALLED.set()
                self.send_response(200)
                self.send_header("Content-Length", "1000000")
                self.end_headers()
                self.wfile.write(b"PK")
                self.wfile.flush()
                return time.sleep(600)
            return self.answer(FILES[name], "application/octet-stream") if name in FILES else self.send(404)
        if path.startswith("/go/"):
            return self.go(gomirror.answer(path[len("/go/"):]))
        if path.startswith("/npm/"):
            document = document_of(path[len("/npm/"):])
            return self.answer(json.dumps(document).encode(), "application/json") if document else self.send(404)
        self.send(404)

    def go(self, found):
        if isinstance(found, int):
            return self.send(found)
        if isinstance(found, str):
            return self.send(302, f"http://localhost:{PORT}{found}")
        if isinstance(found, bytes):
            return self.answer(found, "application/octet-stream")
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        for part in found:
            self.wfile.write(part)

    def simple(self, name):
        if name == "endless":
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Connection", "close")
            self.end_headers()
            line = b"<a href='/files/endless-1.0-py3-none-any.whl#sha256=00'>x</a>\n" * 1000
            while True:
                self.wfile.write(line)
        if name.startswith("chain-"):
            number = int(name.split("-")[1])
            with LOCK:
                PAGES[name] = [py(name, requires=[f"chain-{number + 1}"])]
        if name == "nested":
            return self.answer(b"[" * 1_000_000, "application/vnd.pypi.simple.v1+json")
        if name == "garbage":
            return self.answer(os.urandom(1000), "application/vnd.pypi.simple.v1+json")
        if name == "slow":
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "100000")
            self.end_headers()
            while True:
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.2)
        if name == "moved":
            return self.send(302, f"http://localhost:{PORT}/simple/good/")
        if name == "circle":
            return self.send(302, "/simple/circle/")
        if name == "failing":
            return self.send(503)
        if name == "zipped":
            import gzip
            content = gzip.compress(b"<a>" * (100 << 20))
            return self.answer(content, "text/html", {"Content-Encoding": "gzip"})
        if name == "html":
            entry = py("html")
            old = f'<a href="../../files/{entry["filename"]}#sha256={entry["hashes"]["sha256"]}" data-upload-time="{OLD}">x</a>'
            return self.answer(old.encode(), "text/html")
        if name == "html-withdrawn":
            entry = py("html-withdrawn")
            old = f'<a href="../../files/{entry["filename"]}#sha256={entry["hashes"]["sha256"]}" data-upload-time="{OLD}" data-yanked="broken">x</a>'
            return self.answer(old.encode(), "text/html")
        files = [other_uv()] if name == "uv" else files_of(name)
        if files is None:
            return self.send(404)
        page = {"meta": {"api-version": "1.1"}, "name": name, "files": files}
        self.answer(json.dumps(page).encode(), "application/vnd.pypi.simple.v1+json")

    def send(self, status, location=None):
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def answer(self, content, kind, headers=None):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


SERVER = Server(("127.0.0.1", 0), Mirror)
PORT = SERVER.server_address[1]
PYPI, NPM = pypi(), npm()
print(PORT, flush=True)
SERVER.serve_forever()
