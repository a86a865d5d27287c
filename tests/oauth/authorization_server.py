"""A small OAuth 2.1 authorization server for tests, with nothing but the standard library: authorization_server.py [CERTIFICATE KEY]

Prints {"issuer": URL} and serves until standard input ends, over TLS if it gets a certificate. It approves every request by itself.

  /.well-known/oauth-authorization-server   metadata (RFC 8414)
  /register    dynamic client registration (RFC 7591)
  /authorize   authorization code with PKCE S256 and `resource` (RFC 8707); redirects at once
  /token       codes and refresh tokens against access tokens (ES256, RFC 9068)
  /jwks        public keys
  /mint        POST {claims, header}: a token with these claims over the usual ones; null removes one
  /rotate      POST: another key replaces the one in force
  /approve     POST {scopes}: what the next authorizations are granted at most, one text each; then everything
  /documents   POST {URL: document}: the metadata of clients at these addresses (client ID metadata documents). From then on
               the metadata says that such clients are taken. Nothing is fetched
  /spoil       POST {name: value}: over the fields of the next answer of /token; null removes one
  /counters    how often each path was asked
"""

import base64
import collections
import hashlib
import http.server
import json
import secrets
import ssl
import sys
import threading
import time
import urllib.parse

# The curve P-256 (FIPS 186-4, D.1.2.3): field, order, base point; its coefficient a is -3.
P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
G = (0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
     0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5)
LIFETIME_S = 600


def add(one, two):
    if one is None or two is None:
        return one or two
    if one[0] == two[0]:
        if (one[1] + two[1]) % P == 0:
            return None
        slope = (3 * one[0] * one[0] - 3) * pow(2 * one[1], -1, P) % P
    else:
        slope = (two[1] - one[1]) * pow(two[0] - one[0], -1, P) % P
    x = (slope * slope - one[0] - two[0]) % P
    return x, (slope * (one[0] - x) - one[1]) % P


def multiply(scalar, point):
    product = None
    while scalar:
        if scalar & 1:
            product = add(product, point)
        point, scalar = add(point, point), scalar >> 1
    return product


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Key:
    """A key pair. Fit for tests only: its arithmetic takes a time that depends on the secret."""

    def __init__(self):
        self.secret = secrets.randbelow(N - 1) + 1
        self.public = multiply(self.secret, G)
        self.id = secrets.token_hex(8)

    def jwk(self):
        x, y = (base64url(part.to_bytes(32, "big")) for part in self.public)
        return {"kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": self.id, "use": "sig", "alg": "ES256"}

    def sign(self, header, claims):
        message = ".".join(base64url(json.dumps(part).encode()) for part in (header, claims))
        digest = int.from_bytes(hashlib.sha256(message.encode()).digest(), "big")
        while True:
            nonce = secrets.randbelow(N - 1) + 1
            r = multiply(nonce, G)[0] % N
            s = pow(nonce, -1, N) * (digest + r * self.secret) % N
            if r and s:
                return f"{message}.{base64url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def without_port(url):
    """An address whose port does not count: that of a client on loopback (RFC 8252, section 7.3)."""
    parts = urllib.parse.urlsplit(url)
    return (parts.scheme, parts.hostname, parts.path) if parts.hostname == "127.0.0.1" else url


class State:
    def __init__(self):
        self.lock = threading.Lock()
        self.issuer = None
        self.key = Key()
        self.clients, self.codes, self.refresh = {}, {}, {}
        self.approvals = collections.deque()
        self.documents, self.spoiled = {}, {}
        self.counters = collections.Counter()

    def token(self, claims, header=None):
        now = int(time.time())
        usual = {"iss": self.issuer, "sub": "alice", "iat": now, "exp": now + LIFETIME_S, "jti": secrets.token_hex(8)}
        claims = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        header = {"alg": "ES256", "typ": "at+jwt", "kid": self.key.id, **(header or {})}
        return self.key.sign(header, claims)


state = State()


class Refused(Exception):
    """An error of OAuth (RFC 6749, section 5.2)."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, **headers):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.serve({"/.well-known/oauth-authorization-server": self.metadata, "/jwks": self.jwks,
                    "/authorize": self.authorize, "/counters": lambda: self.answer(200, state.counters)})

    def do_POST(self):
        self.serve({"/register": self.register, "/token": self.exchange, "/mint": self.mint, "/rotate": self.rotate,
                    "/approve": self.approve, "/documents": self.document, "/spoil": self.spoil})

    def serve(self, routes):
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        path, _, self.query = self.path.partition("?")
        with state.lock:
            state.counters[path] += 1
            try:
                routes[path]() if path in routes else self.answer(404, {})
            except Refused as refused:
                self.answer(400, {"error": str(refused)})

    def metadata(self):
        at = lambda path: state.issuer + path
        self.answer(200, {
            "issuer": state.issuer,
            "authorization_endpoint": at("/authorize"),
            "token_endpoint": at("/token"),
            "registration_endpoint": at("/register"),
            "jwks_uri": at("/jwks"),
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": bool(state.documents),
        })

    def jwks(self):
        self.answer(200, {"keys": [state.key.jwk()]})

    def register(self):
        asked = json.loads(self.body)
        client = {**asked, "client_id": secrets.token_hex(8), "token_endpoint_auth_method": "none",
                  "client_id_issued_at": int(time.time())}
        state.clients[client["client_id"]] = client
        self.answer(201, client)

    def authorize(self):
        asked = dict(urllib.parse.parse_qsl(self.query))
        if not self.is_known(asked.get("client_id"), asked.get("redirect_uri")):
            raise Refused("invalid_client")
        if asked.get("code_challenge_method") != "S256" or not asked.get("code_challenge"):
            raise Refused("invalid_request")
        if asked.get("response_type") != "code" or not asked.get("resource"):
            raise Refused("invalid_target")
        scopes = asked.get("scope", "").split()
        if state.approvals:
            most = state.approvals.popleft().split()
            scopes = [scope for scope in scopes if scope in most]
        code = secrets.token_urlsafe(16)
        state.codes[code] = {**asked, "scope": " ".join(scopes)}
        answer = {"code": code, "iss": state.issuer}
        if "state" in asked:
            answer["state"] = asked["state"]
        self.answer(302, {}, Location=f"{asked['redirect_uri']}?{urllib.parse.urlencode(answer)}")

    def is_known(self, client_id, redirect):
        if client_id in state.clients:
            return redirect in state.clients[client_id]["redirect_uris"]
        document = state.documents.get(client_id)
        # The document must be about its own address, and the client is one without a secret.
        if document is None or document.get("client_id") != client_id or document.get("token_endpoint_auth_method") != "none":
            return False
        return any(without_port(redirect) == without_port(one) for one in document.get("redirect_uris", []))

    def exchange(self):
        asked = dict(urllib.parse.parse_qsl(self.body))
        if asked.get("grant_type") == "refresh_token":
            granted = state.refresh.pop(asked.get("refresh_token"), None)
            if granted is None or granted["client_id"] != asked.get("client_id"):
                raise Refused("invalid_grant")
        else:
            granted = state.codes.pop(asked.get("code"), None)
            if granted is None or any(granted[name] != asked.get(name) for name in ("client_id", "redirect_uri", "resource")):
                raise Refused("invalid_grant")
            proof = base64url(hashlib.sha256(asked.get("code_verifier", "").encode()).digest())
            if proof != granted["code_challenge"]:
                raise Refused("invalid_grant")
        more = {}
        # As most authorization servers do. Some clients would use it in place of an authorization with more scopes.
        if "offline_access" in granted["scope"].split():
            more["refresh_token"] = secrets.token_urlsafe(16)
            state.refresh[more["refresh_token"]] = granted
        claims = {"aud": granted["resource"], "client_id": granted["client_id"], "scope": granted["scope"]}
        answer = {"access_token": state.token(claims), "token_type": "Bearer", "expires_in": LIFETIME_S,
                  "scope": granted["scope"], **more, **state.spoiled}
        state.spoiled = {}
        answer = {name: value for name, value in answer.items() if value is not None}
        self.answer(200, answer, **{"Cache-Control": "no-store"})

    def mint(self):
        asked = json.loads(self.body)
        self.answer(200, {"token": state.token(asked.get("claims", {}), asked.get("header"))})

    def rotate(self):
        state.key = Key()
        self.answer(200, {"kid": state.key.id})

    def document(self):
        state.documents.update(json.loads(self.body))
        self.answer(200, {})

    def spoil(self):
        state.spoiled = json.loads(self.body)
        self.answer(200, {})

    def approve(self):
        state.approvals.extend(json.loads(self.body)["scopes"])
        self.answer(200, {})


def start(certificate=None, key=None):
    """Serves in the background; gives the issuer."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.issuer = f"http://127.0.0.1:{server.server_address[1]}"
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        state.issuer = f"https://localhost:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return state.issuer


if __name__ == "__main__":
    print(json.dumps({"issuer": start(*sys.argv[1:])}), flush=True)
    sys.stdin.read()
