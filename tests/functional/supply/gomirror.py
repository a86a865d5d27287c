"""The Go part of the mirror: a module proxy whose modules are hostile, each in its own way, and a checksum database that signs
what they should be. `answer(path)` gives a body, a status, or an iterator for a body without an end.
"""

import base64
import hashlib
import io
import json
import threading
import time
import zipfile

OLD, NOW = "2020-01-01T00:00:00Z", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
HOST = "mod.example"
DATABASE = "sums.example"
SEED = hashlib.sha256(b"the checksum database of these tests").digest()


class Module:
    """One module: its versions with their times, its files, and what is wrong with it."""

    def __init__(self, name, versions=None, needs=(), code=None, **wrong):
        self.path, self.versions = f"{HOST}/{name}", versions or {"v1.0.0": OLD}
        package = name.split("/")[-1].lower().replace("-", "")
        imports = "".join(f'import _ "{HOST}/{need.split("@")[0]}"\n' for need in needs)
        plain = f'const Version = "VERSION"\n\nfunc Value() int {{ return 42 }}\n'
        self.code = code or f"package {package}\n\n{imports}\n{plain}"
        self.needs, self.wrong = needs, wrong

    def info(self, version):
        said = {"Version": self.wrong.get("claims", version), "Time": self.versions[version]}
        return json.dumps({name: value for name, value in said.items() if value}).encode()

    def mod(self, _version):
        if self.wrong.get("bare"):
            return f"module {self.path}\n".encode()
        lines = "".join(f"require {HOST}/{need.replace('@', ' ')}\n" for need in self.needs)
        return f"module {self.wrong.get('declares', self.path)}\n\ngo {self.wrong.get('go', '1.18')}\n\n{lines}".encode()

    def files(self, version):
        more = {name: content() for name, content in self.wrong.get("files", {}).items()}
        plain = {"go.mod": self.mod(version), "code.go": self.code.replace("VERSION", version).encode()}
        if self.wrong.get("bare"):
            del plain["go.mod"]
        return {**plain, **more}

    def zip(self, version):
        out = io.BytesIO()
        prefix = self.wrong.get("prefix", f"{self.path}@{version}")
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in self.files(version).items():
                archive.writestr(f"{prefix}/{name}", content)
        return out.getvalue()

    def sums(self, version):
        """The two lines of a go.sum file."""
        prefix = self.wrong.get("prefix", f"{self.path}@{version}")
        named = {f"{prefix}/{name}": content for name, content in self.files(version).items()}
        whole = "h1:" + base64.b64encode(b"\0" * 32).decode() if self.wrong.get("sum") else digest(named)
        return f"{self.path} {version} {whole}\n{self.path} {version}/go.mod {digest({'go.mod': self.mod(version)})}\n"


def digest(files):
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return "h1:" + base64.b64encode(hashlib.sha256("".join(lines).encode()).digest()).decode()


def modules():
    cgo = 'package cgo\n\n// int answer(void) { return 42; }\nimport "C"\n\nfunc Value() int { return int(C.answer()) }\n'
    runs = 'package runs\n\n//go:generate touch /workspace/product/mod/ran\n\nimport "os"\n\n' \
           'func init() { os.WriteFile("/workspace/product/mod/ran", nil, 0644) }\n\nfunc Value() int { return 42 }\n'
    all_of_them = [
        Module("good", {"v1.0.0": OLD, "v1.1.0": OLD}),
        Module("good/v2", {"v2.0.0": OLD}),
        Module("Upper/Case", code="package uppercase\n\nfunc Value() int { return 42 }\n"),
        Module("needs", needs=["good@v1.0.0"]),
        Module("wrong", sum=True),
        Module("needs-wrong", needs=["wrong@v1.0.0"]),
        Module("young", {"v1.0.0": NOW}),
        Module("partly-young", {"v1.0.0": OLD, "v1.1.0": NOW}),
        Module("needs-young", needs=["young@v1.0.0"]),
        Module("ageless", {"v1.0.0": None}),
        Module("untagged", {"v0.0.0-20200101000000-000000000000": OLD}),
        Module("suffixed", {"v2.0.0+incompatible": OLD}, bare=True),
        Module("unlisted", listed=False),
        Module("bulky", sum=True, files={"bulk.bin": lambda: hashlib.shake_128(b"bulky").digest(8 << 20)}),
        Module("hiccup"),
        Module("bomb", files={"bomb.txt": lambda: bytes(64 << 20)}),
        Module("dotdot", files={"../../../../../../../tmp/evil.go": lambda: b"package evil\n"}),
        Module("casefold", files={"a.txt": lambda: b"1", "A.txt": lambda: b"2"}),
        Module("liar", prefix=f"{HOST}/good@v1.0.0"),
        Module("misnamed", claims="v9.0.0"),
        Module("pathlies", declares=f"{HOST}/good"),
        Module("newer", go="1.999"),
        Module("cgo", code=cgo),
        Module("runs", code=runs),
        Module("endlessfile"),
        Module("broken"),
    ]
    return {module.path: module for module in all_of_them}


MODULES = modules()


# -- the checksum database: RFC 8032 (Ed25519), RFC 6962 (trees), and the form of its notes --

P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def add(one, other):
    (x1, y1), (x2, y2) = one, other
    cross = D * x1 * x2 * y1 * y2 % P
    return (
        (x1 * y2 + x2 * y1) * pow(1 + cross, P - 2, P) % P,
        (y1 * y2 + x1 * x2) * pow(1 - cross, P - 2, P) % P,
    )


def times(number, point):
    total = (0, 1)
    while number:
        if number & 1:
            total = add(total, point)
        point, number = add(point, point), number >> 1
    return total


def base_point():
    y = 4 * pow(5, P - 2, P) % P
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    return (x if x % 2 == 0 else P - x), y


BASE = base_point()
HALVES = hashlib.sha512(SEED).digest()
SECRET = int.from_bytes(HALVES[:32], "little") & ((1 << 254) - 8) | (1 << 254)


def packed(point):
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


PUBLIC = packed(times(SECRET, BASE))
KEY = b"\x01" + PUBLIC
KEY_ID = hashlib.sha256(DATABASE.encode() + b"\n" + KEY).digest()[:4]
# What GOSUMDB is set to.
VERIFIER = f"{DATABASE}+{KEY_ID.hex()}+{base64.b64encode(KEY).decode()}"


def number(*parts):
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % ORDER


def signed(text):
    nonce = number(HALVES[32:], text)
    point = packed(times(nonce, BASE))
    proof = (nonce + number(point, PUBLIC, text) * SECRET) % ORDER
    line = base64.b64encode(KEY_ID + point + proof.to_bytes(32, "little")).decode()
    return text + f"\n\u2014 {DATABASE} {line}\n".encode()


def root(hashes):
    if len(hashes) == 1:
        return hashes[0]
    left = 1 << (len(hashes) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + root(hashes[:left]) + root(hashes[left:])).digest()


TREE, LOCK = {}, threading.Lock()


def tree():
    """All records, their hashes, and the signed head: made at the first use."""
    with LOCK:
        if TREE:
            return TREE
        listed = [module for module in MODULES.values() if module.wrong.get("listed", True)]
        named = [(module.path, version) for module in listed for version in module.versions]
        TREE["names"] = [f"{path}@{version}" for path, version in named]
        TREE["records"] = [MODULES[path].sums(version) for path, version in named]
        TREE["hashes"] = [hashlib.sha256(b"\0" + record.encode()).digest() for record in TREE["records"]]
        head = base64.b64encode(root(TREE["hashes"])).decode()
        TREE["head"] = signed(f"go.sum database tree\n{len(named)}\n{head}\n".encode())
        return TREE


def database(asked):
    known = tree()
    if asked == "supported":
        return b""
    if asked == "latest":
        return known["head"]
    if asked.startswith("lookup/") and plain(asked[len("lookup/"):]) in known["names"]:
        at = known["names"].index(plain(asked[len("lookup/"):]))
        return f"{at}\n{known['records'][at]}\n".encode() + known["head"]
    if asked == f"tile/8/0/000.p/{len(known['hashes'])}":
        return b"".join(known["hashes"])
    return 404


# -- the proxy --

ANSWERED = set()


def is_first(path):
    """Whether it is the first request for something of the module that is answered wrongly once."""
    if f"{HOST}/hiccup" not in path or not path.endswith((".info", ".mod", ".zip", "@v1.0.0")):
        return False
    with LOCK:
        return path not in ANSWERED and not ANSWERED.add(path)


def plain(text):
    """The name of an escaped path."""
    first, *rest = text.replace("%21", "!").split("!")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def forever(line):
    while True:
        yield line


def chain(name, file):
    """A module that needs the next one, which needs the next one."""
    module = Module(name, needs=[f"chain-{int(name.split('-')[1]) + 1}@v1.0.0"])
    return document(module, file)


def document(module, file):
    if file == "list":
        return "".join(f"{version}\n" for version in module.versions if not version.startswith("v0.0.0-")).encode()
    version, _, ending = file.rpartition(".")
    if ending == "info" and f"{version}+incompatible" in module.versions:
        version += "+incompatible"
    if version not in module.versions or ending not in ("info", "mod", "zip"):
        return 404
    return getattr(module, ending)(version)


def answer(path):
    """The body for a path below the proxy, a status, or an iterator."""
    if is_first(path):
        return b"<html>come back later</html>"
    if path.startswith(f"sumdb/{DATABASE}/"):
        return database(path[len(f"sumdb/{DATABASE}/"):])
    if path.endswith("/@latest"):
        module = MODULES.get(plain(path[: -len("/@latest")]))
        return module.info(list(module.versions)[-1]) if module else 404
    name, _, file = plain(path).partition("/@v/")
    short = name[len(HOST) + 1:]
    if short.startswith("chain-"):
        return chain(short, file)
    if short == "endless" and file == "list":
        return forever(b"v1.0.0\n" * 1000)
    if short == "endlessfile" and file.endswith(".zip"):
        return forever(bytes(1 << 20))
    if short == "broken" and file.endswith(".zip"):
        return b"this is no archive"
    if short == "failing":
        return 503
    if short == "garbage":
        return b"\xff\xfe" * 100
    if short == "moved":
        return "/simple/good/"
    return document(MODULES[name], file) if name in MODULES else 404


if __name__ == "__main__":
    print(VERIFIER)
