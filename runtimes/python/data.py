"""The data behind what is shown, as JSON: the rows of a table, the series of a chart. Loaded by displays.py when a
table or a figure is shown.

Nothing here imports a package that the program did not import itself. What does not fit is left out, and `truncated`
says so; what cannot be read is left out as well.
"""

import re
import sys
from json import dumps
from math import isfinite

JSON_BYTES_MAX = 256 << 10
# Of a table.
ROWS_MAX = 1000
COLUMNS_MAX = 100
CELLS_MAX = 20_000
# Of a chart. One that is still too large has fewer points.
CHARTS_MAX = 16
SERIES_MAX = 50
POINTS_MAX = 1000
POINTS_FEWER = (100, 10)
TICKS_MAX = 50
# Of one value.
TEXT_CHARACTERS_MAX = 1000
ITEMS_MAX = 100
DEPTH_MAX = 4

UNIT = re.compile(r"^.*\S\s*(?:\(([^()]{1,20})\)|\[([^\[\]]{1,20})\])\s*$", re.S)


class Plain:
    """Makes values of JSON from those of a program, and remembers whether it left something out."""

    def __init__(self):
        self.is_cut = False

    def text(self, value):
        value = str(value)
        if len(value) > TEXT_CHARACTERS_MAX:
            self.is_cut = True
            value = value[:TEXT_CHARACTERS_MAX]
        return value.encode("utf-8", "replace").decode()

    def value(self, value, depth=0):
        kind = type(value)
        if value is None or kind is bool or kind is int:
            return value
        if kind is float:
            return number(value)
        if kind is str:
            return self.text(value)
        if kind.__name__ in ("NAType", "NaTType"):
            return None
        if isinstance(value, (list, tuple, set, frozenset)):
            return self.items(value, depth)
        if isinstance(value, dict):
            return self.fields(value, depth)
        if hasattr(kind, "isoformat"):
            return value.isoformat()
        if kind.__module__ == "numpy":
            return self.of_numpy(value, depth)
        return self.text(value)

    def items(self, value, depth):
        if depth >= DEPTH_MAX:
            return self.text(value)
        self.is_cut |= len(value) > ITEMS_MAX
        return [self.value(item, depth + 1) for item, _ in zip(value, range(ITEMS_MAX))]

    def fields(self, value, depth):
        if depth >= DEPTH_MAX:
            return self.text(value)
        self.is_cut |= len(value) > ITEMS_MAX
        return {self.text(name): self.value(value[name], depth + 1) for name, _ in zip(value, range(ITEMS_MAX))}

    def of_numpy(self, value, depth):
        name = type(value).__name__
        if name in ("datetime64", "timedelta64"):
            text = str(value)
            return None if text == "NaT" else text
        if name == "ndarray":
            return self.items(value.ravel()[:ITEMS_MAX + 1].tolist(), depth)
        return self.value(value.item(), depth) if hasattr(value, "item") and not name.startswith("complex") else self.text(value)


def number(value):
    """Twelve digits are what a chart or table needs; JSON has no number for the rest."""
    return float("%.12g" % value) if isfinite(value) else None


def to_json(value):
    return dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# -- tables --


def table_of(frame):
    """The first rows of a data frame of pandas or polars; empty for anything else."""
    for module, read in (("pandas", read_pandas), ("polars", read_polars)):
        kind = getattr(sys.modules.get(module), "DataFrame", None)
        if kind is not None and isinstance(frame, kind):
            rows_total, columns_total = frame.shape
            width = min(columns_total, COLUMNS_MAX)
            height = min(rows_total, ROWS_MAX, CELLS_MAX // max(width, 1))
            return write_table(read(frame, height, width), rows_total, columns_total)
    return ""


def read_pandas(frame, height, width):
    """(columns, types, index or None, rows)."""
    part = frame.iloc[:height, :width]
    index = None if is_counted(part.index) else list(part.index)
    return list(part.columns), [str(kind) for kind in part.dtypes], index, part.itertuples(index=False, name=None)


def is_counted(index):
    """Whether the index is nothing but the numbers of the rows."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1 and index.name is None


def read_polars(frame, height, width):
    part = frame[:height, :width]
    return part.columns, [str(kind) for kind in part.dtypes], None, part.iter_rows()


def write_table(read, rows_total, columns_total):
    columns, types, index, rows = read
    plain = Plain()
    head = {"type": "table", "columns": [plain.value(name) for name in columns], "dtypes": types}
    room = JSON_BYTES_MAX - len(to_json(head).encode()) - 200
    written, labels = [], []
    for place, row in enumerate(rows):
        line = to_json([plain.value(cell) for cell in row])
        label = "" if index is None else to_json(plain.value(index[place]))
        room -= len(line.encode()) + len(label.encode()) + 2
        if room < 0:
            break
        written.append(line)
        labels.append(label)
    head["rows_total"], head["columns_total"] = rows_total, columns_total
    if plain.is_cut or len(written) < rows_total or len(columns) < columns_total:
        head["truncated"] = True
    parts = [to_json(head)[:-1]]
    if index is not None:
        parts.append('"index":[%s]' % ",".join(labels))
    parts.append('"rows":[%s]}' % ",".join(written))
    return ",".join(parts)


# -- charts --


def chart_of(figure):
    """What a matplotlib figure shows, as numbers and words; empty if that cannot be told."""
    axes = [one for one in figure.axes if one.get_visible() and one.get_label() != "<colorbar>"]
    for points_max in (POINTS_MAX, *POINTS_FEWER):
        charts = [Chart(one, points_max).read() for one in axes[:CHARTS_MAX]]
        found = {"type": "chart", "title": title_of(figure), "charts": [chart for chart in charts if chart]}
        if len(axes) > CHARTS_MAX:
            found["truncated"] = True
        if not found["charts"]:
            return ""
        text = to_json({name: value for name, value in found.items() if value is not None})
        if len(text.encode()) <= JSON_BYTES_MAX:
            return text
    return ""


def title_of(figure):
    title = getattr(figure, "_suptitle", None)
    return title.get_text() or None if title is not None else None


class Chart:
    """One pair of axes."""

    def __init__(self, axes, points_max):
        self.axes, self.points_max = axes, points_max
        self.plain = Plain()
        self.series = []

    def read(self):
        """Its data, or nothing if nothing is drawn. A part that cannot be read is left out."""
        for step in (self.read_containers, self.read_lines, self.read_collections, self.read_patches, self.read_images):
            try:
                step()
            except Exception:
                pass
        if not self.series:
            return None
        kinds = {one["type"] for one in self.series}
        titles = [self.axes.get_title(where) for where in ("center", "left", "right")]
        chart = {"type": kinds.pop() if len(kinds) == 1 else "mixed", "title": next((text for text in titles if text), None)}
        for name in ("x", "y", "z"):
            if hasattr(self.axes, name + "axis") and chart["type"] != "pie":
                try:
                    chart.update(self.axis(name))
                except Exception:
                    pass
        legend = self.axes.get_legend()
        if legend is not None:
            chart["legend"] = [self.plain.text(text.get_text()) for text in legend.get_texts()[:SERIES_MAX]]
        if len(self.series) > SERIES_MAX or self.plain.is_cut:
            chart["truncated"] = True
        chart["series"] = self.series[:SERIES_MAX]
        return {name: value for name, value in chart.items() if value not in (None, "", [])}

    def axis(self, name):
        axis = getattr(self.axes, name + "axis")
        label = axis.get_label_text()
        unit = UNIT.match(label)
        low, high = sorted(axis.get_view_interval())
        span = (high - low) * 1e-9
        places, texts = ticks_of(axis)
        ticks = [(at, text) for at, text in zip(places, texts) if low - span <= at <= high + span][:TICKS_MAX]
        # Labels that only repeat the numbers are left out.
        labels = [self.plain.text(text) for at, text in ticks] if any(not is_number(text, at) for at, text in ticks) else None
        return {
            name + "_label": self.plain.text(label),
            name + "_unit": unit and (unit.group(1) or unit.group(2)),
            name + "_scale": axis.get_scale(),
            name + "_ticks": [number(at) for at, _ in ticks],
            name + "_tick_labels": labels,
        }

    # -- what is drawn --

    def add(self, kind, label, values, moments=None, **more):
        """A series; of many points those at even distances. `moments` makes times of what is on the x axis."""
        count = min([len(column) for column in values.values()], default=0)
        if not count:
            return
        series = {"type": kind, "label": self.plain.text(label) if label and not str(label).startswith("_") else None}
        series.update(more)
        if count > self.points_max:
            chosen = [at * (count - 1) // (self.points_max - 1) for at in range(self.points_max)]
            series.update(points_total=count, truncated=True)
            values = {name: [column[at] for at in chosen] for name, column in values.items()}
        if moments is not None:
            values["x"] = [moments(value) for value in values["x"]]
        for name, column in values.items():
            column = column.tolist() if hasattr(column, "tolist") and column_kind(column) in "biuf" else column
            series[name] = [self.plain.value(value) for value in column]
        self.series.append({name: value for name, value in series.items() if value is not None})

    def read_containers(self):
        for container in self.axes.containers:
            if type(container).__name__ != "BarContainer" or not container.patches:
                continue
            is_upright = getattr(container, "orientation", "vertical") != "horizontal"
            boxes = [(bar.get_x(), bar.get_y(), bar.get_width(), bar.get_height()) for bar in container.patches]
            if is_upright:
                rows = [(x + width / 2, height, y, width) for x, y, width, height in boxes]
            else:
                rows = [(y + height / 2, width, x, height) for x, y, width, height in boxes]
            at, values, bases, widths = [[float(cell) for cell in column] for column in zip(*rows)]
            more = {"orientation": None if is_upright else "horizontal"}
            columns = {"x": self.named("x" if is_upright else "y", at), "y": values}
            if len({number(width) for width in widths}) == 1:
                more["width"] = number(widths[0])
            else:
                columns["width"] = widths
            if any(bases):
                columns["base"] = bases
            self.add("bar", container.get_label(), columns, **more)

    def read_lines(self):
        for line in self.axes.lines:
            if hasattr(line, "get_data_3d"):
                self.add("line", line.get_label(), dict(zip("xyz", line.get_data_3d())))
                continue
            in_x, in_y = line.get_transform().contains_branch_seperately(self.axes.transData)
            x, y = line.get_xdata(orig=True), line.get_ydata(orig=True)
            if in_x and in_y:
                is_drawn = line.get_linestyle() not in ("None", "none", "", " ")
                x, y = series_of(x), series_of(y)
                self.add("line" if is_drawn else "scatter", line.get_label(), {"x": x, "y": y}, self.moments(x))
            elif in_y:
                self.add("hline", line.get_label(), {"y": series_of(y)[:1]})
            elif in_x:
                self.add("vline", line.get_label(), {"x": series_of(x)[:1]})

    def read_collections(self):
        for thing in self.axes.collections:
            name = type(thing).__name__
            if name == "PathCollection":
                points = thing.get_offsets()
                x, y = points[:, 0].tolist(), points[:, 1].tolist()
                self.add("scatter", thing.get_label(), {"x": self.named("x", x), "y": self.named("y", y)})
            elif name == "Path3DCollection":
                self.add("scatter", thing.get_label(), dict(zip("xyz", thing._offsets3d)))
            elif name == "QuadMesh":
                self.add_matrix("heatmap", thing.get_array())
            elif name in ("PolyCollection", "FillBetweenPolyCollection"):
                for path in thing.get_paths():
                    points = path.vertices
                    self.add("area", thing.get_label(), {"x": self.named("x", points[:, 0].tolist()), "y": points[:, 1].tolist()})

    def read_patches(self):
        wedges = [patch for patch in self.axes.patches if type(patch).__name__ == "Wedge"]
        if wedges:
            texts = [text.get_text() for text in self.axes.texts]
            labels = [wedge.get_label() for wedge in wedges]
            if all(label.startswith("_") for label in labels):
                labels = texts[: len(wedges)] if len(texts) >= len(wedges) else [""] * len(wedges)
            shares = [(wedge.theta2 - wedge.theta1) / 360 for wedge in wedges]
            self.add("pie", None, {"labels": labels, "fractions": shares})
        for patch in self.axes.patches:
            name = type(patch).__name__
            if name == "StepPatch":
                data = patch.get_data()
                self.add("histogram", patch.get_label(), {"y": data.values}, edges=[number(float(edge)) for edge in data.edges[: self.points_max + 1]])
            elif name == "Polygon" and all(patch.get_transform().contains_branch_seperately(self.axes.transData)):
                points = patch.get_xy()
                self.add("area", patch.get_label(), {"x": points[:, 0].tolist(), "y": points[:, 1].tolist()})

    def read_images(self):
        for image in self.axes.images:
            self.add_matrix("image", image.get_array())

    def add_matrix(self, kind, values):
        """A small matrix whole, of a large one its shape."""
        if values is None:
            return
        series = {"type": kind, "shape": list(values.shape)}
        if values.ndim == 2 and values.size <= self.points_max:
            series["values"] = [[self.plain.value(cell) for cell in row] for row in values.tolist()]
        else:
            series["truncated"] = True
        self.series.append(series)

    def moments(self, values):
        """pandas draws time series over the numbers of their periods."""
        period, freq = getattr(sys.modules.get("pandas"), "Period", None), getattr(self.axes, "freq", None)
        if period is None or freq is None or column_kind(values) not in "iu":
            return None
        return lambda value: period(ordinal=int(value), freq=freq).to_timestamp()

    def named(self, name, values):
        """Places on an axis in the program's words: categories, dates, labels that it gave its ticks."""
        axis = getattr(self.axes, name + "axis")
        converter = axis.get_converter() if hasattr(axis, "get_converter") else getattr(axis, "converter", None)
        kind = type(converter).__name__
        if "DateConverter" in kind or "DatetimeConverter" in kind or kind == "ConciseDateConverter":
            from_number = sys.modules["matplotlib.dates"].num2date
            return [from_number(value).replace(tzinfo=None) if is_known(value) else None for value in values]
        words = {}
        mapping = getattr(getattr(axis, "units", None), "_mapping", None)
        if kind == "StrCategoryConverter" and mapping:
            words = {place: word for word, place in mapping.items()}
        elif type(axis.get_major_formatter()).__name__ == "FixedFormatter":
            words = dict(zip(*ticks_of(axis)))
        if words and all(value in words for value in values):
            return [words[value] for value in values]
        return values


def ticks_of(axis):
    """(places, texts) of the labelled ticks."""
    return [float(at) for at in axis.get_majorticklocs()], [text.get_text() for text in axis.get_ticklabels()]


def is_number(text, value):
    try:
        return abs(float(text.replace("\u2212", "-")) - value) <= abs(value) * 1e-6
    except ValueError:
        return False


def is_known(value):
    return value is not None and value == value


def series_of(values):
    """A sequence of a program as one that has a length and can be indexed by number."""
    if hasattr(values, "to_numpy"):
        return values.to_numpy()
    return values if hasattr(values, "__len__") and hasattr(values, "__getitem__") else list(values)


def column_kind(column):
    return getattr(getattr(column, "dtype", None), "kind", "O")
