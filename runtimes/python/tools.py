"""The name `tools` of a run that may call tools of other servers (docs/CODEMODE.md).

The driver gets this file over the socket itself, at the first use, so a run without tools does not pay for it. Speaks lines of JSON over the Unix socket that the host grants for the run. Each process has a
connection of its own, and each event loop another one: forks, threads and loops do not share one by accident.
"""

import sys
from _socket import AF_UNIX, MSG_DONTWAIT, SOCK_STREAM, socket
from _thread import allocate_lock
from json import JSONEncoder, loads
from posix import getpid
from select import POLLIN, POLLOUT, poll

# Below the size from which malloc maps and unmaps memory for each read.
READ_BYTES = 1 << 16
RESERVED = frozenset(("find", "describe", "servers", "read", "save", "saved", "memory", "gather", "Error", "Blob", "Link"))


class Error(Exception):
    """A call that has no result: `code`, `server`, `tool`, `content`."""

    def __init__(self, message, code="tool_error", server=None, tool=None, content=None, **more):
        Exception.__init__(self, message)
        self.message, self.code, self.server, self.tool, self.content = message, code, server, tool, content or []
        self.remedy, self.approval_id = more.get("remedy"), more.get("approval_id")
        self.may_have_run, self.retry_after_ms = more.get("may_have_run", False), more.get("retry_after_ms")

    def __str__(self):
        place = "%s.%s: " % (self.server, self.tool) if self.server else ""
        return "%s%s [%s]%s" % (place, self.message, self.code, "; " + self.remedy if self.remedy else "")

    def __reduce__(self):
        return restore_error, (self.__dict__,)


def plain(value):
    """What stands in a request for a value that JSON does not have: files as base64, links as their address."""
    if isinstance(value, Blob):
        value = value.data
    if isinstance(value, (bytes, bytearray, memoryview)):
        from binascii import b2a_base64

        return b2a_base64(value, newline=False).decode()
    if isinstance(value, Link):
        return value.uri
    raise TypeError("an argument of a tool cannot be %s" % type(value).__name__)


ENCODER = JSONEncoder(default=plain, allow_nan=False)


def line_of(request):
    return ENCODER.encode(request).encode() + b"\n"


def restore_error(names):
    error = Error(names["message"])
    error.__dict__.update(names)
    return error


Error.__module__, Error.__qualname__ = "tools", "Error"


class Blob:
    """An image, a sound or another file of a result."""

    def __init__(self, mime, data, uri=None):
        self.mime, self.data, self.uri = mime, data, uri

    def __repr__(self):
        return "Blob(%r, %d bytes)" % (self.mime, len(self.data))

    def __bytes__(self):
        return self.data

    def __len__(self):
        return len(self.data)

    @property
    def text(self):
        return self.data.decode("utf-8", "replace")

    def save(self, path):
        with open(path, "wb") as file:
            file.write(self.data)
        return path

    def _repr_mimebundle_(self, include=None, exclude=None):
        if not self.mime.startswith("image/"):
            return {"text/plain": repr(self)}
        if self.mime == "image/svg+xml":
            return {self.mime: self.text}
        from binascii import b2a_base64

        return {self.mime: b2a_base64(self.data, newline=False).decode()}


class Structured(dict):
    """The structured content of a result that has files as well: those are its `blobs`."""

    blobs = ()

    def _repr_mimebundle_(self, include=None, exclude=None):
        shown = [one for one in self.blobs if isinstance(one, Blob)]
        return shown[0]._repr_mimebundle_() if shown else {"text/plain": dict.__repr__(self)}


class Link:
    """A resource that a result names: `read()` gets it."""

    def __init__(self, client, server, uri, name=None, mime=None):
        self._client, self.server, self.uri, self.name, self.mime = client, server, uri, name, mime

    def __repr__(self):
        return "Link(%r, %r)" % (self.server, self.uri)

    def read(self):
        return self._client.read(self.server, self.uri)


# -- connections ------------------------------------------------------------------------------------------


def connect(path):
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise ended() from None
    return connection


def ended():
    return Error("no run with tools is open", "no_run", remedy="call tools while a run with `access` is open")


class Connection:
    """The connection of a process without a running loop. Of several threads that wait, one reads for all."""

    def __init__(self, path):
        self.socket, self.pid = connect(path), getpid()
        self.lock, self.reading, self.sending = allocate_lock(), allocate_lock(), allocate_lock()
        self.pending, self.answers, self.waiters, self.number, self.is_over = b"", {}, {}, 0, False

    def send(self, request):
        """Sends a request and gives its number. Answers that arrive meanwhile are taken, so neither side blocks."""
        with self.lock:
            self.number += 1
            number = request["id"] = self.number
        view = memoryview(line_of(request))
        with self.lock:
            self.waiters[number] = None
        with self.sending:
            while view:
                try:
                    view = view[self.socket.send(view, MSG_DONTWAIT):]
                except BlockingIOError:
                    self.wait(POLLIN | POLLOUT)
                    self.read_what_is_there()
                except OSError:
                    self.is_over = True
                    raise ended() from None
        return number

    def wait(self, events):
        look = poll()
        look.register(self.socket.fileno(), events)
        look.poll()

    def read_what_is_there(self):
        if self.reading.acquire(False):
            try:
                self.take(self.socket.recv(READ_BYTES, MSG_DONTWAIT))
            except BlockingIOError:
                pass
            except OSError:
                self.end()
            finally:
                self.reading.release()

    def take(self, data):
        if not data:
            self.end()
            return
        if b"\n" not in data:
            self.pending += data
            return
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            answer = loads(line)
            with self.lock:
                number = answer.get("id")
                if number in self.waiters:
                    self.answers[number] = answer
                    waiter = self.waiters[number]
                    if waiter is not None and waiter.locked():
                        waiter.release()

    def end(self):
        with self.lock:
            self.is_over = True
            for waiter in self.waiters.values():
                if waiter is not None and waiter.locked():
                    waiter.release()

    def receive(self, number):
        """The answer to a request. Waits for it, and reads for others while nobody else does."""
        waiter = allocate_lock()
        waiter.acquire()
        with self.lock:
            if number not in self.answers:
                self.waiters[number] = waiter
        try:
            while True:
                with self.lock:
                    if number in self.answers:
                        return self.answers.pop(number)
                    if self.is_over:
                        raise ended()
                if self.reading.acquire(False):
                    try:
                        self.read_for(number)
                    finally:
                        self.reading.release()
                        self.hand_over()
                else:
                    waiter.acquire()
        except KeyboardInterrupt:
            self.cancel(number)
            raise
        finally:
            with self.lock:
                self.waiters.pop(number, None)
            if not self.reading.locked():
                self.hand_over()

    def read_for(self, number):
        while number not in self.answers and not self.is_over:
            try:
                self.take(self.socket.recv(READ_BYTES))
            except OSError:
                self.end()

    def hand_over(self):
        """Wakes one thread that still waits, to read in this one's place."""
        with self.lock:
            for number, waiter in self.waiters.items():
                if number not in self.answers and waiter is not None and waiter.locked():
                    waiter.release()
                    return

    def cancel(self, number):
        try:
            self.socket.send(line_of({"id": "c%d" % number, "cancel": number}), MSG_DONTWAIT)
        except OSError:
            pass


class LoopConnection:
    """The connection of a running event loop."""

    def __init__(self, path, loop):
        self.socket, self.loop = connect(path), loop
        self.socket.setblocking(False)
        self.pending, self.outgoing, self.futures, self.number = b"", bytearray(), {}, 0
        loop.add_reader(self.socket.fileno(), self.readable)

    def send(self, request):
        self.number += 1
        request["id"] = self.number
        line = line_of(request)
        future = self.futures[self.number] = self.loop.create_future()
        is_waiting = bool(self.outgoing)
        self.outgoing += line
        if not is_waiting:
            self.writable()
        return self.number, future

    def writable(self):
        try:
            while self.outgoing:
                count = self.socket.send(self.outgoing)
                del self.outgoing[:count]
            self.loop.remove_writer(self.socket.fileno())
        except BlockingIOError:
            self.loop.add_writer(self.socket.fileno(), self.writable)
        except OSError:
            self.end()

    def readable(self):
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end()
            return
        if b"\n" not in data:
            self.pending += data
            return
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            answer = loads(line)
            future = self.futures.pop(answer.get("id"), None)
            if future is not None and not future.done():
                future.set_result(answer)

    def end(self):
        self.loop.remove_reader(self.socket.fileno())
        self.loop.remove_writer(self.socket.fileno())
        self.socket.close()
        for future in self.futures.values():
            if not future.done():
                future.set_exception(ended())
        self.futures.clear()

    def cancel(self, number):
        self.futures.pop(number, None)
        try:
            self.send({"cancel": number})
        except Exception:
            pass

    def is_usable(self, loop):
        return self.loop is loop and self.socket.fileno() >= 0


def running_loop():
    events = sys.modules.get("asyncio.events")
    return events._get_running_loop() if events is not None else None


# -- values -----------------------------------------------------------------------------------------------


def taken(answer):
    """The result of an answer, or its error."""
    error = answer.get("error")
    if error is None:
        return answer.get("ok")
    error = dict(error)
    message, code = error.pop("message", "the call failed"), error.pop("code", "internal")
    raise Error(message, code, error.pop("server", None), error.pop("tool", None), None, **error)


def value_of(client, server, tool, result):
    """What a program gets for a result."""
    content = result.get("content") or []
    if result.get("isError"):
        texts = [block.get("text", "") for block in content if block.get("type") == "text"]
        raise Error("\n".join(texts) or "the tool failed", "tool_error", server, tool, content)
    structured = result.get("structuredContent")
    if structured is not None:
        files = [block for block in content if block.get("type") != "text"]
        if files and isinstance(structured, dict):
            structured = Structured(structured)
            structured.blobs = [block_value(client, server, block) for block in files]
        return structured
    if len(content) == 1 and content[0].get("type") == "text":
        return json_or_text(content[0].get("text", ""))
    values = [block_value(client, server, block) for block in content]
    return values[0] if len(values) == 1 else values or None


def json_or_text(text):
    if text[:1].isspace() or text[:1] in "[{":
        try:
            value = loads(text)
        except ValueError:
            return text
        if isinstance(value, (dict, list)):
            return value
    return text


def block_value(client, server, block):
    kind = block.get("type")
    if kind == "text":
        return block.get("text", "")
    if kind in ("image", "audio"):
        return Blob(block.get("mimeType", "application/octet-stream"), decoded(block.get("data", "")))
    if kind == "resource":
        return resource_value(block.get("resource") or {})
    if kind == "resource_link":
        return Link(client, server, block.get("uri"), block.get("name"), block.get("mimeType"))
    return block


def resource_value(resource):
    mime, uri = resource.get("mimeType"), resource.get("uri")
    if "blob" in resource:
        return Blob(mime or "application/octet-stream", decoded(resource["blob"]), uri)
    return Blob(mime or "text/plain", resource.get("text", "").encode(), uri)


def decoded(text):
    from binascii import a2b_base64

    return a2b_base64(text)


# -- what programs use ------------------------------------------------------------------------------------


class Later:
    """A call that is on its way. `result()` waits for it; so does `tools.gather`."""

    def __init__(self, client, name, connection, number, finish):
        self.name, self._client, self._connection, self._number = name, client, connection, number
        self._finish, self._answer = finish, None
        client._unjoined[id(self)] = name

    def __repr__(self):
        return "<call of %s>" % self.name

    def result(self):
        self._client._unjoined.pop(id(self), None)
        if self._answer is None:
            self._answer = self._connection.receive(self._number)
        return self._finish(taken(self._answer))

    def __await__(self):
        return self.result()
        yield


class Tool:
    __slots__ = ("_client", "_server", "_name")

    def __init__(self, client, server, name):
        self._client, self._server, self._name = client, server, name

    def __repr__(self):
        return "<tool %s.%s>" % (self._server, self._name)

    def __call__(self, /, *args, **named):
        return self._client._ask(self._server, self._name, self._request(args, named), self._value, False)

    def raw(self, /, *args, **named):
        return self._client._ask(self._server, self._name, self._request(args, named), None, False)

    def later(self, /, *args, **named):
        return self._client._ask(self._server, self._name, self._request(args, named), self._value, True)

    def _request(self, args, named):
        if args:
            if len(args) > 1 or not isinstance(args[0], dict):
                raise TypeError("give the arguments of a tool by name, or as one dict")
            named = {**args[0], **named}
        return {"call": [self._server, self._name], "args": named}

    def _value(self, result):
        return value_of(self._client, self._server, self._name, result)


class Server:
    def __init__(self, client, name):
        self._client, self._name = client, name

    def __repr__(self):
        return "<tools of %s>" % self._name

    def __getattr__(self, name):
        if name[:1] == "_":
            raise AttributeError(name)
        return Tool(self._client, self._name, name)

    def __getitem__(self, name):
        return Tool(self._client, self._name, name)


class Found(list):
    total = more = 0
    failed = ()


class Saved:
    """Functions that earlier runs saved: `tools.saved.name(...)`; `tools.saved()` lists them."""

    def __init__(self, client):
        self._client = client

    def __call__(self):
        return self._client._request({"saved": None})

    def __getattr__(self, name):
        if name[:1] == "_":
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name):
        found = self._client._request({"saved": name})
        if found.get("language") != "python":
            raise Error("the function is written in %s" % found.get("language"), "bad_language")
        names = {"__name__": "saved", "tools": self._client}
        exec(compile(found["source"], "<saved %s>" % name, "exec", 0, True), names)
        return names[found["name"]]


class Memory:
    """Values that outlive the run, by name. Other names are tools of a server that is called `memory`, as many are."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        if name[:1] == "_":
            raise AttributeError(name)
        return Tool(self._client, "memory", name)

    def get(self, key, default=None):
        return self._client._request({"memory": {"get": key}}).get("value", default)

    def __getitem__(self, key):
        found = self._client._request({"memory": {"get": key}})
        if "value" not in found:
            raise KeyError(key)
        return found["value"]

    def __setitem__(self, key, value):
        self._client._request({"memory": {"set": key, "value": value}})

    def __delitem__(self, key):
        if not self._client._request({"memory": {"delete": key}}):
            raise KeyError(key)

    def __contains__(self, key):
        return "value" in self._client._request({"memory": {"get": key}})

    def __iter__(self):
        return iter(self.keys())

    def keys(self):
        return self._client._request({"memory": None})


class Tools:
    """Tools of other servers: `tools.server.tool(name=value)`."""

    Error, Blob, Link = Error, Blob, Link

    def __init__(self, path):
        self.__dict__["_path"], self.__dict__["_unjoined"] = path, {}
        self.__dict__["_connection"] = self.__dict__["_of_loop"] = None
        self.__dict__["saved"], self.__dict__["memory"] = Saved(self), Memory(self)

    def __repr__(self):
        return "<tools of other servers: tools.servers(), tools.find(words)>"

    def __getattr__(self, name):
        if name[:2] == "__":
            raise AttributeError(name)
        return Server(self, name)

    def __getitem__(self, name):
        return Server(self, name)

    def _connect(self):
        found = self._connection
        if found is None or found.is_over or found.pid != getpid():
            found = self.__dict__["_connection"] = Connection(self._path)
        return found

    def _ask(self, server, tool, request, finish, is_later):
        """Sends a call at once. Gives its value, or what is waited for later."""
        finish = finish or (lambda result: result)
        name, loop = "%s.%s" % (server, tool), running_loop()
        if loop is not None:
            return self._in_loop(loop, name, request, finish)
        connection = self._connect()
        number = connection.send(request)
        if is_later:
            return Later(self, name, connection, number, finish)
        return finish(taken(connection.receive(number)))

    def _in_loop(self, loop, name, request, finish):
        found = self._of_loop
        if found is None or not found.is_usable(loop):
            found = self.__dict__["_of_loop"] = LoopConnection(self._path, loop)
        number, future = found.send(request)
        key = (id(found), number)
        self._unjoined[key] = name
        return self._awaited(found, number, future, key, finish)

    async def _awaited(self, connection, number, future, key, finish):
        self._unjoined.pop(key, None)
        try:
            answer = await future
        except BaseException:
            if number in connection.futures:
                connection.cancel(number)
            raise
        return finish(taken(answer))

    def _request(self, request):
        connection = self._connect()
        return taken(connection.receive(connection.send(request)))

    def gather(self, *calls):
        """The values of calls that are on their way, in their order. In a running loop: awaitable."""
        if len(calls) == 1 and not hasattr(calls[0], "__await__"):
            calls = tuple(calls[0])
        if running_loop() is not None:
            from asyncio import gather

            return gather(*calls)
        failed, values = None, []
        for call in calls:
            try:
                values.append(call.result())
            except Error as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return values

    def find(self, words="", servers=None, limit=20):
        request = {"find": words, "limit": limit, "language": "python"}
        if servers is not None:
            request["servers"] = [servers] if isinstance(servers, str) else list(servers)
        answer = self._request(request)
        found = Found(answer.get("tools", ()))
        found.total, found.more, found.failed = answer.get("total"), answer.get("more"), answer.get("failed")
        return found

    def describe(self, name, tool=None):
        return self._request({"describe": name if tool is None else [name, tool]})

    def servers(self):
        return self._request({"servers": True})

    def read(self, server, uri):
        values = [resource_value(one) for one in self._request({"read": [server, uri]}).get("contents", ())]
        return values[0] if len(values) == 1 else values

    def save(self, function, name=None, about=None):
        from inspect import cleandoc, getsource
        from textwrap import dedent

        own = function.__name__
        source = dedent(getsource(function))
        if name is not None and name != own:
            source += "\n%s = %s\n" % (name, own)
        about = cleandoc(function.__doc__ or "") if about is None else about
        self._request({"save": {"name": name or own, "about": about, "language": "python", "source": source}})

    def _finish(self):
        """At the end of the run: tells which calls nothing waited for, and lets go of the connections."""
        left, of_loop = list(self._unjoined.values()), self._of_loop
        self._unjoined.clear()
        try:
            if left and (self._connection is None or self._connection.pid == getpid()):
                self._request({"left": left[:64]})
        except Exception:
            pass
        if of_loop is not None:
            self.__dict__["_of_loop"] = None
            try:
                of_loop.end()
            except Exception:
                pass
        self.__dict__["_connection"] = None
