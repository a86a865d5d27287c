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

# Columns of a series and the axes on which their values are.
BOTH = {"x": "x", "y": "y"}
NO_LINE = ("None", "none", "", " ")

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
        # Artists that are parts of a box plot.
        self.taken = set()
        # Axes on which a series stands at the labels of the ticks.
        self.labelled = set()

    def read(self):
        """Its data, or nothing if nothing is drawn. A part that cannot be read is left out."""
        for step in (self.read_containers, self.read_boxes, self.read_lines, self.read_collections, self.read_patches, self.read_images):
            try:
                step()
            except Exception:
                pass
        titles = [self.axes.get_title(where) for where in ("center", "left", "right")]
        title = next((text for text in titles if text), None)
        if not (self.series or title or self.axes.has_data() or self.axes.texts or self.axes.tables):
            return None
        kinds = {one["type"] for one in self.series} or {"unknown"}
        chart = {"type": kinds.pop() if len(kinds) == 1 else "mixed", "title": title}
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
        chart = {name: value for name, value in chart.items() if value not in (None, "", [])}
        chart["series"] = self.series[:SERIES_MAX]
        return chart

    def axis(self, name):
        axis = getattr(self.axes, name + "axis")
        label = axis.get_label_text()
        unit = UNIT.match(label)
        low, high = sorted(axis.get_view_interval())
        span = (high - low) * 1e-9
        places, texts = ticks_of(axis)
        ticks = [(at, text) for at, text in zip(places, texts) if low - span <= at <= high + span][:TICKS_MAX]
        values = self.named(name, [at for at, _ in ticks])
        # Labels that only repeat the ticks are left out.
        is_repeated = all(text == value or is_number(text, value) for value, (_, text) in zip(values, ticks))
        return {
            name + "_label": self.plain.text(label),
            name + "_unit": unit and (unit.group(1) or unit.group(2)),
            name + "_scale": self.scale(name),
            name + "_ticks": [self.plain.value(value) for value in values],
            name + "_tick_labels": None if is_repeated else [self.plain.text(text) for _, text in ticks],
        }

    def scale(self, name):
        if self.dates(name):
            return "datetime"
        return "categorical" if self.categories(name) or name in self.labelled else getattr(self.axes, name + "axis").get_scale()

    # -- what is drawn --

    def add(self, kind, label, values, places=None, **more):
        """A series; of many points those at even distances. `places` says on which axis the values of a column are."""
        count = min([len(column) for column in values.values()], default=0)
        if not count:
            return
        series = {"type": kind, "label": self.plain.text(label) if label and not str(label).startswith("_") else None}
        series.update(more)
        if count > self.points_max:
            chosen = [at * (count - 1) // (self.points_max - 1) for at in range(self.points_max)]
            series.update(points_total=count, truncated=True)
            values = {name: column[chosen] if column_kind(column) in "biuf" else [column[at] for at in chosen] for name, column in values.items()}
        for name, column in values.items():
            column = column.tolist() if hasattr(column, "tolist") and column_kind(column) in "biuf" else column
            axis = (places or {}).get(name)
            series[name] = [self.plain.value(value) for value in (self.named(axis, column, is_point=True) if axis else column)]
        self.series.append({name: value for name, value in series.items() if value is not None})

    def is_full(self):
        """Whether the next series would be left out: one more than there may be says that something was."""
        return len(self.series) > SERIES_MAX

    def read_containers(self):
        for container in self.axes.containers:
            if self.is_full():
                return
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
            columns, places = {"x": at, "y": values}, {"x": "x" if is_upright else "y"}
            if len({number(width) for width in widths}) == 1:
                more["width"] = number(widths[0])
            else:
                columns["width"] = widths
            if any(bases):
                columns["base"] = bases
            self.add("bar", container.get_label(), columns, places, **more)

    def read_boxes(self):
        """Box plots are lines and patches like others; what tells them is their order and their places."""
        lines = [(line, line.get_xydata()) for line in self.axes.lines if not hasattr(line, "get_data_3d")]
        patches = {}
        for patch in self.axes.patches:
            if type(patch).__name__ == "PathPatch" and len(patch.get_path().vertices):
                for along in (0, 1):
                    place, *values = frame_of(patch.get_path().vertices, along)
                    patches.setdefault((along, *values), []).append(place)
        found = {0: [], 1: []}
        at = 0
        while at < len(lines):
            box = next((box for box in (Box(lines, at, along, patches) for along in (0, 1)) if box.is_one), None)
            at = box.end if box else at + 1
            if box:
                found[box.along].append(box)
                self.taken.update(box.parts)
        for along, name in enumerate("xy"):
            if found[along]:
                self.add_boxes(name, found[along])

    def add_boxes(self, name, boxes):
        places = [box.place for box in boxes]
        words = {**self.labels(name), **self.categories(name)}
        labels = self.named(name, [words.get(place) or place for place in places])
        if all(place in words for place in places):
            self.labelled.add(name)
        series = {"type": "box_and_whisker"}
        if name == "y":
            series["orientation"] = "horizontal"
        if len(boxes) > self.points_max:
            series.update(points_total=len(boxes), truncated=True)
        series["boxes"] = []
        for label, box in list(zip(labels, boxes))[: self.points_max]:
            label = self.plain.value(label)
            one = {"label": label if isinstance(label, str) else "%g" % label, **box.numbers}
            one["outliers"] = [number(value) for value in box.outliers[: self.points_max]]
            if len(box.outliers) > self.points_max:
                one.update(points_total=len(box.outliers), truncated=True)
            series["boxes"].append(one)
        self.series.append(series)

    def read_lines(self):
        for line in self.axes.lines:
            if self.is_full():
                return
            if line in self.taken:
                continue
            if hasattr(line, "get_data_3d"):
                self.add("line", line.get_label(), dict(zip("xyz", line.get_data_3d())))
                continue
            in_x, in_y = line.get_transform().contains_branch_seperately(self.axes.transData)
            x, y = line.get_xdata(orig=True), line.get_ydata(orig=True)
            if in_x and in_y:
                is_drawn = line.get_linestyle() not in NO_LINE
                self.add("line" if is_drawn else "scatter", line.get_label(), {"x": series_of(x), "y": series_of(y)}, BOTH)
            elif in_y:
                self.add("hline", line.get_label(), {"y": series_of(y)[:1]}, BOTH)
            elif in_x:
                self.add("vline", line.get_label(), {"x": series_of(x)[:1]}, BOTH)

    def read_collections(self):
        for thing in self.axes.collections:
            name = type(thing).__name__
            if self.is_full():
                return
            if name == "PathCollection":
                self.add("scatter", thing.get_label(), columns_of(thing.get_offsets()), BOTH)
            elif name == "Path3DCollection":
                self.add("scatter", thing.get_label(), dict(zip("xyz", thing._offsets3d)))
            elif name == "QuadMesh":
                self.add_matrix("heatmap", thing.get_array())
            elif name in ("PolyCollection", "FillBetweenPolyCollection"):
                # Those that say where to draw one polygon many times are no areas.
                for path in thing.get_paths()[: 0 if len(thing.get_offsets()) > 1 else SERIES_MAX + 1]:
                    self.add("area", thing.get_label(), columns_of(path.vertices), BOTH)

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
            if self.is_full():
                return
            if name == "StepPatch":
                data = patch.get_data()
                self.add("histogram", patch.get_label(), {"y": data.values}, edges=[number(float(edge)) for edge in data.edges[: self.points_max + 1]])
            elif name == "Polygon" and all(patch.get_transform().contains_branch_seperately(self.axes.transData)):
                self.add("area", patch.get_label(), columns_of(patch.get_xy()), BOTH)

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

    # -- places on an axis in the program's words --

    def named(self, name, values, is_point=False):
        """Numbers as dates, as categories, as the labels that the program gave its ticks; what is no number stays."""
        moment = self.dates(name)
        if moment:
            return [moment(value) if is_plain_number(value) and isfinite(value) else value for value in values]
        words = self.categories(name)
        labels = {} if words or not (is_point or name in self.labelled) else self.labels(name)
        if not all(value in (words or labels) for value in values if is_plain_number(value)):
            return values
        if labels and is_point and values:
            self.labelled.add(name)
        return [(words or labels)[value] if is_plain_number(value) else value for value in values]

    def dates(self, name):
        """What makes dates of the numbers on an axis, if they are dates."""
        axis = getattr(self.axes, name + "axis")
        if any(word in converter_of(axis) for word in ("DateConverter", "DatetimeConverter")):
            from_number = sys.modules["matplotlib.dates"].num2date
            zone = axis.units if hasattr(axis.units, "utcoffset") else None
            return lambda value: moment_of(from_number, value, zone)
        # pandas draws time series over the numbers of their periods.
        period, freq = getattr(sys.modules.get("pandas"), "Period", None), getattr(self.axes, "freq", None)
        if name != "x" or period is None or freq is None:
            return None
        return lambda value: period(ordinal=int(value), freq=freq).to_timestamp() 

    def categories(self, name):
        axis = getattr(self.axes, name + "axis")
        mapping = getattr(axis.units, "_mapping", None) if converter_of(axis) == "StrCategoryConverter" else None
        return {place: word for word, place in (mapping or {}).items()}

    def labels(self, name):
        axis = getattr(self.axes, name + "axis")
        formatter = axis.get_major_formatter()
        # What `set_ticklabels` makes: one of these, by the kind of locator.
        from_words = getattr(getattr(formatter, "func", None), "func", None)
        if type(formatter).__name__ != "FixedFormatter" and getattr(from_words, "__name__", "") != "_format_with_dict":
            return {}
        places, texts = ticks_of(axis)
        return {} if all(is_number(text, at) for at, text in zip(places, texts)) else dict(zip(places, texts))


class Box:
    """One box of a box plot, if the lines from `at` on are its whiskers, caps and median, in matplotlib's order.

    `along` is the axis on which the boxes stand side by side: 0 if they are upright.
    """

    def __init__(self, lines, at, along, patches):
        self.lines, self.along, self.end = lines, along, at
        self.parts, self.outliers, self.numbers = [], [], {}
        self.is_one = len(lines[at][1]) == 2 and self.read(at, patches)

    def read(self, at, patches):
        low, high = self.points(at), self.points(at + 1)
        if low is None or high is None or {place for place, _ in (*low, *high)} != {low[0][0]}:
            return False
        self.place, first, least, third, most = low[0][0], low[0][1], low[1][1], high[0][1], high[1][1]
        # Written so that it holds for the box of an empty set, whose numbers are NaN.
        if first > third or least > first or most < third or not self.find_box(at, patches, first, third):
            return False
        self.end = at + 2
        across = []
        while len(across) < 4 and self.is_across(self.end):
            across.append(self.points(self.end)[0][1])
            self.end += 1
        # The caps may be absent. The mean may be a line.
        caps = 2 if len(across) > 2 else 0
        if not across or across[caps] < first or across[caps] > third:
            return False
        names = ("min", "first_quartile", "median", "third_quartile", "max", "mean")
        values = (least, first, across[caps], third, most, *across[caps + 1 : caps + 2])
        self.numbers = {name: number(value) for name, value in zip(names, values)}
        self.read_marks(least, most)
        self.parts += [line for line, _ in self.lines[at : self.end]]
        return True

    def points(self, at, count=2):
        """(place, value) of each point of a line that has so many."""
        points = self.lines[at][1] if at < len(self.lines) else ()
        if len(points) != count:
            return None
        return [(float(point[self.along]), float(point[1 - self.along])) for point in points]

    def is_across(self, at):
        points = self.points(at)
        if points is None or points[0][0] == points[1][0] or points[0][1] < points[1][1] or points[0][1] > points[1][1]:
            return False
        return is_near((points[0][0] + points[1][0]) / 2, self.place)

    def find_box(self, at, patches, first, third):
        """The box itself is a patch, or the line before its whiskers."""
        values = (number(first), number(third))
        if at and len(self.lines[at - 1][1]) >= 5:
            place, *frame = frame_of(self.lines[at - 1][1], self.along)
            if is_near(place, self.place) and tuple(frame) == values:
                self.parts.append(self.lines[at - 1][0])
                return True
        return any(is_near(place, self.place) for place in patches.get((self.along, *values), ()))

    def read_marks(self, least, most):
        """Points without a line at the place of the box: its mean, if it is drawn, and then its outliers."""
        marks = [self.marks(self.end), self.marks(self.end + 1)]
        is_outside = [values is not None and not any(least <= value <= most for value in values) for values in marks]
        if marks[0] is not None and len(marks[0]) == 1 and (is_outside[1] or not is_outside[0]):
            self.numbers["mean"] = number(marks.pop(0)[0])
            is_outside.pop(0)
            self.end += 1
        if is_outside[0]:
            self.outliers = marks[0]
            self.end += 1

    def marks(self, at):
        if at >= len(self.lines) or self.lines[at][0].get_linestyle() not in NO_LINE:
            return None
        points = self.points(at, len(self.lines[at][1]))
        return [value for _, value in points] if all(place == self.place for place, _ in points) else None


def frame_of(points, along):
    """The middle of a box on one axis, and its first and third quartile on the other; a notch may reach beyond them."""
    places, values = points[:, along], points[:, 1 - along]
    opposite = min(5 if len(values) > 10 else 2, len(values) - 1)
    return float(places.min() + places.max()) / 2, number(float(values[0])), number(float(values[opposite]))


def is_near(value, place):
    return abs(value - place) <= 1e-9 * max(1.0, abs(place))


def moment_of(from_number, value, zone):
    """A date of matplotlib as one of Python; what is no date of the calendar stays a number."""
    try:
        return from_number(value, zone) if zone else from_number(value).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return value


def converter_of(axis):
    converter = axis.get_converter() if hasattr(axis, "get_converter") else getattr(axis, "converter", None)
    return type(converter).__name__


def columns_of(points):
    return {"x": points[:, 0], "y": points[:, 1]}


def is_plain_number(value):
    return isinstance(value, (int, float)) and value == value


def ticks_of(axis):
    """(places, texts) of the labelled ticks."""
    return [float(at) for at in axis.get_majorticklocs()], [text.get_text() for text in axis.get_ticklabels()]


def is_number(text, value):
    try:
        return abs(float(text.replace("\u2212", "-")) - value) <= abs(value) * 1e-6
    except (TypeError, ValueError):
        return False


def series_of(values):
    """A sequence of a program as one that has a length and can be indexed by number."""
    if hasattr(values, "to_numpy"):
        return values.to_numpy()
    return values if hasattr(values, "__len__") and hasattr(values, "__getitem__") else list(values)


def column_kind(column):
    return getattr(getattr(column, "dtype", None), "kind", "O")
