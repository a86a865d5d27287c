"""What a program shows besides text: figures, images, tables. Loaded by driver.py when something is to be shown.

The probe puts this file, compiled, into the compiled driver, which gives it `message_bytes`; a program that shows nothing never pays for it.
Nothing here imports a package that the program did not import itself, and nothing here fails a run: what cannot be
shown is left out, with an empty message if it was too large.

Holds: at most DISPLAYS_MAX displays of a run are sent, each within DISPLAY_BYTES_MAX; the host has the same bounds
and the last word.
"""

import sys
from _thread import allocate_lock, start_new_thread
from binascii import b2a_base64

DISPLAYS_MAX = 16
DISPLAY_BYTES_MAX = 2 << 20
DISPLAYS_BYTES_MAX = 8 << 20
# Content as it is sent, as base64 or as text.
CONTENT_BYTES_MAX = 3 << 20
# Larger images are made smaller before they are drawn.
PIXELS_MAX = 4_000_000
SIDE_PIXELS_MAX = 4096
# An image that is still too large is halved so often.
HALVINGS_MAX = 4

RASTER = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
# What an object may say about itself, best first.
REPRS = (
    ("image/png", "_repr_png_"), ("image/jpeg", "_repr_jpeg_"), ("image/svg+xml", "_repr_svg_"),
    ("text/html", "_repr_html_"), ("text/markdown", "_repr_markdown_"), ("text/latex", "_repr_latex_"),
    ("application/json", "_repr_json_"),
)
MIMES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml", "text/html", "text/markdown",
         "text/latex", "application/json", "text/plain")


class Displays:
    """What one process shows, run by run."""

    def __init__(self, channel, notebook, data):
        self.channel, self.open_notebook, self.open_data = channel, notebook, data
        self.begin()

    def begin(self):
        self.count = self.bytes = 0
        # The type of what was put last.
        self.mime = ""
        # Figures that were shown and not changed since are not shown again at the end.
        self.shown = {}
        # What was shown with an id, as it is now: sent at the end of the run.
        self.named = {}

    # -- sending --

    def send(self, fields):
        """Sends from a thread of its own and waits for it.

        A signal may raise an exception in the program at any time, and only in its main thread: half a message
        would spoil all that follow.
        """
        if not self.channel.is_ours():
            return
        data = message_bytes(fields, CONTENT_BYTES_MAX)
        ended = allocate_lock()
        ended.acquire()
        try:
            start_new_thread(self.write, (data, ended))
        except RuntimeError:  # no more threads
            self.channel.write(data)
        else:
            ended.acquire()

    def write(self, data, ended):
        try:
            self.channel.write(data)
        except OSError:
            pass
        finally:
            ended.release()

    def is_full(self):
        """Whether another display would be one too many; the host then counts it."""
        if self.count < DISPLAYS_MAX:
            return False
        self.send(["display", "text/plain", "", ""])
        return True

    def put(self, mime, content, text="", data=""):
        """Sends text or bytes, and the data behind it as JSON; of what is too large only the type."""
        if self.is_full():
            return
        self.mime = mime
        if mime.startswith("image/") and mime != "image/svg+xml":
            size, content = len(content), b2a_base64(content, newline=False).decode()
        else:
            content = content if isinstance(content, str) else bytes(content).decode("utf-8", "replace")
            content = content.encode("utf-8", "backslashreplace").decode().replace("\0", "")
            size = len(content.encode())
        if size > DISPLAY_BYTES_MAX or self.bytes + size > DISPLAYS_BYTES_MAX:
            content = data = ""
        else:
            self.count += 1
            self.bytes += size
        self.send(["display", mime, content, text, data] if data else ["display", mime, content, text])

    def data_of(self, read, value):
        """The data behind an object. It never holds up the object itself."""
        return quietly(lambda: self.open_data()[read](value)) or ""

    # -- objects --

    def display(self, *objects, mime=None, raw=False, display_id=None, **ignored):
        """The builtin, as in notebooks: whatever has no picture of itself is printed."""
        if display_id is not None:
            name = str(display_id) if display_id is not True else "display-%d" % (len(self.named) + 1)
            self.named[name] = objects, mime, raw
            return Handle(self, name)
        return self.display_now((objects, mime, raw))

    def update_display(self, *objects, display_id, mime=None, raw=False, **ignored):
        self.named[str(display_id)] = objects, mime, raw

    def publish_display_data(self, data, *ignored, **more):
        """What IPython calls with a bundle of types and contents."""
        return self.display(data, raw=True, display_id=(more.get("transient") or {}).get("display_id"))

    def display_now(self, what):
        objects, mime, raw = what
        for value in objects:
            if mime is not None and isinstance(value, (str, bytes, bytearray)):
                self.put(mime, value)
            elif raw and isinstance(value, dict) and quietly(lambda: self.put_bundle(value, "")):
                continue
            elif not self.value(value):
                print(repr(value))

    def offer(self, value):
        """The type of what was shown of the last value, or nothing."""
        return self.mime if self.value(value) else ""

    def value(self, value):
        """Shows an object that knows how; tells whether it did."""
        try:
            return self.show_known(value) or self.show_itself(value)
        except KeyboardInterrupt:
            raise
        except BaseException:
            return False

    def show_known(self, value):
        if isinstance(value, (bytes, bytearray)):
            mime = raster_of(value)
            if mime:
                self.put(mime, value)
            return mime is not None
        figure = loaded("matplotlib.figure", "Figure")
        if figure and isinstance(value, figure):
            self.figure(value)
            return True
        image = loaded("PIL.Image", "Image")
        if image and isinstance(value, image):
            self.image(value)
            return True
        plot = loaded("plotly.basedatatypes", "BaseFigure")
        if plot and isinstance(value, plot):
            self.plot(value)
            return True
        return False

    def show_itself(self, value):
        if isinstance(value, type):
            return False
        kind = type(value)
        if hasattr(kind, "_repr_mimebundle_"):
            bundle = quietly(value._repr_mimebundle_)
            bundle = bundle[0] if isinstance(bundle, tuple) and bundle else bundle
            if isinstance(bundle, dict) and self.put_bundle(bundle, describe(value)):
                return True
        for mime, name in REPRS:
            content = quietly(getattr(value, name)) if hasattr(kind, name) else None
            if content is not None and self.put_bundle({mime: content}, describe(value), self.table(value)):
                return True
        return False

    def table(self, value):
        return self.data_of("table_of", value) if type(value).__name__.endswith("DataFrame") else ""

    def put_bundle(self, bundle, text, data=""):
        """The best of several forms of one object."""
        for mime, content in forms_of(bundle):
            content = content[0] if isinstance(content, tuple) and content else content
            if content is None:
                continue
            if mime == "application/json" and not isinstance(content, str):
                from json import dumps

                content = dumps(content, default=str)
            if isinstance(content, str) and mime.startswith("image/") and mime != "image/svg+xml":
                from binascii import a2b_base64

                content = a2b_base64(content)
            if isinstance(content, (str, bytes, bytearray)):
                self.put(mime, content, text, data)
                return True
        return False

    # -- matplotlib --

    def figure(self, figure):
        if self.is_full():
            return
        self.put_smaller(lambda scale: draw(figure, scale), describe_figure(figure), lambda: self.data_of("chart_of", figure))
        self.shown[id(figure)] = figure
        figure.stale = False

    def open_figures(self):
        helpers = sys.modules.get("matplotlib._pylab_helpers")
        gcf = getattr(helpers, "Gcf", None)
        return [manager.canvas.figure for manager in gcf.get_all_fig_managers()] if gcf else []

    def show_figures(self):
        """plt.show(): as with a window that is closed at once, what follows is drawn on a new figure."""
        figures = self.open_figures()
        for figure in figures:
            self.guarded(self.figure, figure)
        pyplot = sys.modules.get("matplotlib.pyplot")
        for figure in figures:
            pyplot.close(figure)

    def finish(self, keep):
        """At the end of a run: figures that the program left open and did not show as they are now."""
        try:
            for what in list(self.named.values()) if self.channel.is_ours() else ():
                self.guarded(self.display_now, what)
            figures = self.open_figures() if self.channel.is_ours() else []
            for figure in figures:
                if self.shown.get(id(figure)) is not figure or figure.stale:
                    self.guarded(self.figure, figure)
            if keep and figures:
                sys.modules["matplotlib.pyplot"].close("all")
        finally:
            self.begin()

    def guarded(self, show, value):
        try:
            show(value)
        except KeyboardInterrupt:
            raise
        except BaseException:
            pass

    def put_smaller(self, make, text, data=str):
        """Sends what `make` draws at the largest scale whose file is not too large, with the data behind it."""
        scale = 1.0
        for _ in range(HALVINGS_MAX):
            content = make(scale)
            if len(content) <= DISPLAY_BYTES_MAX:
                break
            scale /= 2
        self.put("image/png", content, text, data())

    # -- images and plots --

    def image(self, image):
        if self.is_full():
            return
        text = "%s, %dx%d pixels" % (type(image).__name__, *image.size)
        self.put_smaller(lambda scale: encode(image, scale), text)

    def plot(self, figure):
        """Its page without the library, its picture if something can draw it, all without network."""
        if self.is_full():
            return
        text = "plotly figure: %s" % ", ".join(trace.type for trace in figure.data[:8])
        from importlib.util import find_spec

        if find_spec("kaleido") is not None:
            content = quietly(lambda: figure.to_image(format="png"))
            if content:
                self.put("image/png", content, text)
                return
        self.put("text/html", figure.to_html(full_html=False, include_plotlyjs="cdn"), text)

    # -- what is changed in packages once they are imported --

    def find_spec(self, screen, name, path, target):
        """As the finders behind `screen` find it, but that the module is changed as soon as it is there."""
        for finder in list(sys.meta_path):
            spec = None if finder is screen else finder.find_spec(name, path, target)
            if spec is not None:
                self.follow(name, spec.loader)
                return spec
        if name.partition(".")[0] != "IPython":
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, StandIn(self), is_package=True)

    def follow(self, name, loader):
        if loader is None or "exec_module" in getattr(loader, "__dict__", "exec_module"):
            return
        execute = loader.exec_module

        def exec_module(module):
            execute(module)
            try:
                del loader.exec_module
                self.patch(name, module)
            except Exception:
                pass

        loader.exec_module = exec_module

    def patch(self, name, module):
        if name == "matplotlib.pyplot":
            def show(*args, **kwargs):
                """Shows all open figures, and closes them."""
                self.show_figures()

            # A plain function: pyplot writes a signature on it when it chooses a backend.
            module.show = show
            manager = sys.modules["matplotlib.backend_bases"].FigureManagerBase
            manager.show = lambda manager: self.guarded(self.figure, manager.canvas.figure)
        elif name == "PIL.Image":
            module.Image.show = lambda image, *args, **kwargs: self.guarded(self.image, image)
        elif name == "plotly.basedatatypes":
            module.BaseFigure.show = lambda figure, *args, **kwargs: self.guarded(self.plot, figure)
        elif name in ("IPython.display", "IPython.core.display_functions"):
            # Its own would look for a shell that does not exist here.
            module.display, module.update_display = self.display, self.update_display
            module.publish_display_data = self.publish_display_data
            module.clear_output = self.open_notebook()["clear_output"]


class Handle:
    """What `display(..., display_id=...)` gives: the object can be replaced until the run ends."""

    def __init__(self, displays, name):
        self.displays, self.display_id = displays, name

    def display(self, *objects, mime=None, raw=False, **ignored):
        self.displays.named[self.display_id] = objects, mime, raw

    update = display


class StandIn:
    """Loads what stands for IPython where it is not installed."""

    def __init__(self, displays):
        self.displays = displays

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        self.displays.open_notebook()["fill_module"](module, self.displays)


def loaded(module, name):
    return getattr(sys.modules.get(module), name, None)


def quietly(make):
    try:
        return make()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def forms_of(bundle):
    """(type, content), best first. Data of types with a suffix is JSON, other text is plain."""
    for mime in MIMES[:-1]:
        yield mime, bundle.get(mime)
    others = [(str(mime), content) for mime, content in bundle.items() if mime not in MIMES]
    for mime, content in others:
        if mime.endswith("+json"):
            yield "application/json", content
    yield "text/plain", bundle.get("text/plain")
    for mime, content in others:
        if "/" in mime and isinstance(content, str):
            yield "text/plain", content


def raster_of(content):
    for magic, mime in RASTER.items():
        if content.startswith(magic):
            return mime
    return "image/webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else None


def fitting(width, height):
    """By how much an image of that size is made smaller before it is drawn."""
    if width <= 0 or height <= 0:
        return 1.0
    return min(1.0, SIDE_PIXELS_MAX / width, SIDE_PIXELS_MAX / height, (PIXELS_MAX / (width * height)) ** 0.5)


def draw(figure, scale):
    from io import BytesIO
    import warnings

    width, height = figure.get_size_inches() * figure.dpi
    buffer = BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure.savefig(buffer, format="png", dpi=figure.dpi * fitting(width, height) * scale)
    return buffer.getvalue()


def describe_figure(figure):
    titles = [getattr(figure, "_suptitle", None)] + [axes.title for axes in figure.axes[:4]]
    texts = [title.get_text() for title in titles if title is not None]
    return ", ".join(text for text in texts if text) or describe_axes(figure)


def describe_axes(figure):
    """A figure without a title: what is drawn, and on which axes."""
    words = []
    for axes in figure.axes[:4]:
        drawn = [("line", axes.lines), ("bar or area", axes.patches), ("point set", axes.collections), ("image", axes.images)]
        kinds = ["%d %s%s" % (len(things), kind, "s" * (len(things) > 1)) for kind, things in drawn if len(things)]
        labels = " over ".join(text for text in (axes.get_ylabel(), axes.get_xlabel()) if text)
        words.append(", ".join(kinds) + (" (%s)" % labels if labels else ""))
    return "figure: " + "; ".join(word for word in words if word) if any(words) else "figure"


def encode(image, scale):
    from io import BytesIO

    scale *= fitting(*image.size)
    if scale < 1.0:
        image = image.copy()
        image.thumbnail((max(1, int(image.width * scale)), max(1, int(image.height * scale))))
    if image.mode not in ("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA"):
        image = image.convert("RGB")
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def describe(value):
    name = type(value).__name__
    shape = quietly(lambda: tuple(value.shape)) if hasattr(type(value), "shape") else None
    if name == "DataFrame" and shape and len(shape) == 2:
        return "DataFrame, %d rows x %d columns" % shape
    return name
