# What a Python context needs when a cell does more than to compute: values that can be shown in several ways, plots,
# magics, errors.


def begin(tell, show, flush, namespace, state):
    import builtins
    import sys

    # What objects may know of themselves, and the type of what they answer.
    methods = (
        ("_repr_html_", "text/html"),
        ("_repr_markdown_", "text/markdown"),
        ("_repr_svg_", "image/svg+xml"),
        ("_repr_png_", "image/png"),
        ("_repr_jpeg_", "image/jpeg"),
        ("_repr_pdf_", "application/pdf"),
        ("_repr_latex_", "text/latex"),
        ("_repr_json_", "application/json"),
        ("_repr_javascript_", "application/javascript"),
    )

    def encoded(kind, value):
        """A value as it travels: text, base64 of what is none, JSON of what has a structure."""
        if isinstance(value, (bytes, bytearray)):
            import base64

            return base64.b64encode(value)
        if isinstance(value, str) and not is_json(kind):
            return value.encode("utf-8", "replace")
        import json

        return json.dumps(value, default=str).encode()

    def is_json(kind):
        return kind == "application/json" or kind.endswith("+json")

    def plain(value):
        kind = type(value)
        if kind.__repr__ is object.__repr__:
            module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
            return f"<{module}{kind.__qualname__} at {hex(id(value))}>"
        text = repr(value)
        # Containers that are too long for a line are easier to read on several.
        if type(value) in (dict, list, tuple, set, frozenset) and len(text) > 79 and len(text) < 100_000:
            import pprint

            return pprint.pformat(value, width=80, compact=True, sort_dicts=False)
        return text

    def ask(value, method):
        """What an object answers to a method of its class; nothing if it has none, or if that fails."""
        if isinstance(value, type) or not hasattr(type(value), method):
            return None
        try:
            answer = getattr(value, method)()
        except NotImplementedError:
            return None
        except Exception as error:
            print(f"{type(value).__name__}.{method} failed: {type(error).__name__}: {error}", file=sys.stderr)
            return None
        # Beside the data there may be what is said about them.
        return answer[0] if isinstance(answer, tuple) else answer

    def shapes(value):
        data = {}
        bundle = ask(value, "_repr_mimebundle_")
        if isinstance(bundle, dict):
            data.update(bundle)
        for method, kind in methods:
            if kind not in data:
                answer = ask(value, method)
                if answer is not None:
                    data[kind] = answer
        return data

    def flat(data):
        fields = []
        for kind, value in data.items():
            if value is not None:
                fields += (kind, encoded(kind, value))
        return fields

    def bundle(value):
        """A value in all ways in which it can be shown, as fields of a message."""
        if hasattr(type(value), "_ipython_display_") and not isinstance(value, type):
            value._ipython_display_()
            return ()
        data = shapes(value)
        if is_figure(value) and (value.axes or value.lines):
            data["image/png"] = picture(value)
        data.setdefault("text/plain", plain(value))
        return flat(data)

    class Display:
        """Something that was shown, and can be shown anew."""

        def __init__(self, name):
            self.display_id = name

        def __repr__(self):
            return f"<DisplayHandle display_id={self.display_id}>"

        def display(self, value):
            display(value, display_id=self.display_id)

        def update(self, value):
            display(value, display_id=self.display_id, update=True)

    def display(*values, raw=False, display_id=None, update=False, metadata=None, clear=False, **rest):
        if clear:
            clear_output(wait=True)
        if display_id is True:
            import uuid

            display_id = uuid.uuid4().hex
        for value in values:
            fields = flat(value) if raw else bundle(value)
            if fields:
                show(b"U" if update else b"D", display_id or "", *fields)
        return Display(display_id) if display_id else None

    def clear_output(wait=False):
        show(b"C", "1" if wait else "")

    # Plots.

    def is_figure(value):
        base = sys.modules.get("matplotlib.figure")
        return base is not None and isinstance(value, base.Figure)

    def picture(figure):
        import io

        content = io.BytesIO()
        figure.savefig(content, format="png", bbox_inches="tight")
        return content.getvalue()

    def show_plots(*args, **options):
        """Shows all plots that are open, and closes them."""
        from matplotlib import _pylab_helpers, pyplot

        managers = _pylab_helpers.Gcf.get_all_fig_managers()
        try:
            for manager in managers:
                display(manager.canvas.figure)
        finally:
            if managers:
                pyplot.close("all")

    def is_undecided(matplotlib):
        import os

        if "MPLBACKEND" in os.environ:
            return False
        from matplotlib import rcsetup

        return dict.__getitem__(matplotlib.rcParams, "backend") is rcsetup._auto_backend_sentinel

    def prepare_plots():
        import types

        import matplotlib

        if "_execd_plots" in sys.modules or not is_undecided(matplotlib):
            return
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        plots = types.ModuleType("_execd_plots")
        plots.FigureCanvas, plots.show = FigureCanvasAgg, show_plots
        sys.modules["_execd_plots"] = plots
        matplotlib.rcParams["backend"] = "module://_execd_plots"

    def end_of_cell():
        if "_execd_plots" in sys.modules and "matplotlib.pyplot" in sys.modules:
            if sys.modules["matplotlib"].get_backend() == "module://_execd_plots":
                show_plots()

    # What is asked for and not installed.

    class Loader:
        """Fills a module in, after whoever else does."""

        def __init__(self, fill, first=None):
            self.fill, self.first = fill, first

        def create_module(self, spec):
            return self.first.create_module(spec) if self.first else None

        def exec_module(self, module):
            if self.first:
                self.first.exec_module(module)
            self.fill(module)

    def shown_as(kind, method):
        """A class whose values are shown as this."""

        class Shown:
            def __init__(self, data=None, url=None, filename=None, **options):
                if filename is not None:
                    with open(filename, "rb") as file:
                        data = file.read()
                    if not kind.startswith("image/") or kind == "image/svg+xml":
                        data = data.decode()
                self.data, self.url, self.filename = data, url, filename

        setattr(Shown, method, lambda self: self.data)
        return Shown

    def fill_display(module):
        names = {
            "HTML": ("text/html", "_repr_html_"),
            "Markdown": ("text/markdown", "_repr_markdown_"),
            "SVG": ("image/svg+xml", "_repr_svg_"),
            "Latex": ("text/latex", "_repr_latex_"),
            "Math": ("text/latex", "_repr_latex_"),
            "JSON": ("application/json", "_repr_json_"),
            "Javascript": ("application/javascript", "_repr_javascript_"),
            "Image": ("image/png", "_repr_png_"),
        }
        for name, (kind, method) in names.items():
            if not hasattr(module, name):
                shown = shown_as(kind, method)
                shown.__name__ = shown.__qualname__ = name
                setattr(module, name, shown)
        module.display, module.clear_output = display, clear_output
        module.update_display = lambda value, *, display_id, **rest: display(value, display_id=display_id, update=True)
        module.DisplayHandle = Display

    def fill_package(module):
        module.__path__ = []
        module.get_ipython = lambda: None
        module.version_info = (8, 0, 0, "")
        module.__version__ = "8.0.0"

    def find(name, path):
        from importlib.machinery import ModuleSpec

        if name == "matplotlib.pyplot":
            prepare_plots()
            return None
        if name in ("IPython.display", "linecache"):
            spec = installed(name, path)
            if spec is not None:
                spec.loader = Loader(fill_display if name == "IPython.display" else show_sources, spec.loader)
                return spec
        is_package = name in ("IPython", "IPython.core")
        return ModuleSpec(name, Loader(fill_package if is_package else fill_display), is_package=is_package)

    def installed(name, path):
        """What others than this know of a module."""
        for finder in sys.meta_path:
            if type(finder).__name__ != "Finder" and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path)
                if spec is not None and spec.loader is not None:
                    return spec
        return None

    # Magics.

    def without_magics(text, error, parse):
        """The text with what only notebooks understand in the words of Python, and its syntax tree."""
        if text.lstrip().startswith("%%"):
            first, _, rest = text.lstrip().partition("\n")
            name, _, line = first[2:].partition(" ")
            text = f"__execd_cell__({name!r}, {line.strip()!r}, {rest!r})"
            prepare_magics()
            return text, parse(text)
        first = text.lstrip("\n")
        indent = first[: len(first) - len(first.lstrip())]
        lines = [line[len(indent) :] if line.startswith(indent) else line for line in text.split("\n")]
        if indent:
            try:
                return "\n".join(lines), parse("\n".join(lines))
            except SyntaxError as next_error:
                error = next_error
        for _ in range(len(lines) + 1):
            if not error.lineno or not replace(lines, error.lineno - 1):
                break
            try:
                return "\n".join(lines), parse("\n".join(lines))
            except SyntaxError as next_error:
                error = next_error
        raise error from None

    def replace(lines, at):
        """Replaces a line that Python has stumbled on, or the one before, if it is a magic."""
        for at in (at, at - 1):
            if not 0 <= at < len(lines):
                continue
            line = lines[at]
            bare = line.lstrip()
            indent = line[: len(line) - len(bare)]
            target, equals, command = bare.partition("=")
            command = command.strip()
            if bare.startswith(("!", "%")):
                lines[at] = f"{indent}{call(bare)}"
            elif equals and command.startswith(("!", "%")) and not target.endswith(("=", "!", "<", ">")):
                lines[at] = f"{indent}{target.strip()} = {call(command, True)}"
            elif bare.endswith("?") and bare.rstrip("?").isprintable():
                lines[at] = f"{indent}help({bare.rstrip('?')})"
            else:
                continue
            prepare_magics()
            return True
        return False

    def call(command, wants=False):
        if command.startswith("!"):
            return f"__execd_shell__({command.lstrip('!')!r}, {wants})"
        name, _, line = command[1:].partition(" ")
        return f"__execd_line__({name!r}, {line.strip()!r})"

    def expanded(line):
        """A line with the values of variables in the place of `{name}` and `$name`."""
        import re

        def value(match):
            name = match.group(1) or match.group(2)
            try:
                return str(eval(name, namespace))
            except Exception:
                return match.group(0)

        return re.sub(r"\{([^{}]+)\}|\$(\w+)", value, line)

    def shell(line, wants=False):
        import shutil
        import subprocess

        flush()
        command = [shutil.which("bash") or "/bin/sh", "-c", expanded(line)]
        if wants:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            return done.stdout.decode("utf-8", "replace").splitlines()
        namespace["_exit_code"] = subprocess.run(command).returncode
        return None

    def pip(line):
        import importlib
        import subprocess

        flush()
        done = subprocess.run([sys.executable, "-m", "pip", *words(line)])
        # What was installed just now is looked for as well.
        importlib.invalidate_caches()
        namespace["_exit_code"] = done.returncode

    def words(line):
        import shlex

        return shlex.split(expanded(line))

    def change_directory(line):
        import os

        quiet, place = line.startswith("-q"), line[2:].strip() if line.startswith("-q") else line
        os.chdir(os.path.expanduser(expanded(place) or "~"))
        if not quiet:
            print(os.getcwd())

    def environment(line):
        import os

        name, equals, value = line.partition("=") if "=" in line else line.partition(" ")
        if not name:
            return dict(os.environ)
        if not equals:
            return os.environ.get(name)
        os.environ[name.strip()] = expanded(value.strip())
        print(f"env: {name.strip()}={os.environ[name.strip()]}")
        return None

    def timed(line):
        import time

        begun, worked = time.perf_counter(), time.process_time()
        value = evaluated(line)
        worked, passed = time.process_time() - worked, time.perf_counter() - begun
        print(f"CPU times: {worked:.3f} s\nWall time: {passed:.3f} s")
        return value

    def timed_often(line):
        import timeit

        count, taken = timeit.Timer(line, globals=namespace).autorange()
        print(f"{taken / count * 1e6:.3f} us per loop ({count} loops)")

    def evaluated(text):
        try:
            code = compile(text, "<cell>", "eval", dont_inherit=True)
        except SyntaxError:
            return exec(compile(text, "<cell>", "exec", dont_inherit=True), namespace)
        return eval(code, namespace)

    def written(line, text):
        names = words(line)
        mode = "a" if "-a" in names else "w"
        with open(names[-1], mode) as file:
            file.write(text if text.endswith("\n") else text + "\n")
        print(f"{'Appending to' if mode == 'a' else 'Writing'} {names[-1]}")

    def piped(program):
        def run(line, text):
            import subprocess

            flush()
            done = subprocess.run([*program, *words(line)], input=text.encode())
            if done.returncode:
                raise subprocess.CalledProcessError(done.returncode, program)

        return run

    lines = {
        "pip": pip,
        "cd": change_directory,
        "env": environment,
        "set_env": environment,
        "time": timed,
        "timeit": timed_often,
        "pwd": lambda line: __import__("os").getcwd(),
        "matplotlib": lambda line: None,
        "config": lambda line: None,
        "load_ext": lambda line: None,
        "autoreload": lambda line: None,
        "sx": lambda line: shell(line, True),
        "system": lambda line: shell(line, True),
    }
    cells = {
        "bash": piped(["bash"]),
        "sh": piped(["sh"]),
        "writefile": written,
        "file": written,
        "time": lambda line, text: timed(text),
        "capture": lambda line, text: evaluated(text),
    }

    UsageError = type("UsageError", (Exception,), {"__module__": "builtins"})

    def line_magic(name, line):
        if name not in lines:
            raise UsageError(f"there is no magic %{name} here; there are: {', '.join(sorted(lines))}")
        return lines[name](line)

    def cell_magic(name, line, text):
        if name not in cells:
            raise UsageError(f"there is no magic %%{name} here; there are: {', '.join(sorted(cells))}")
        return cells[name](line, text)

    def prepare_magics():
        builtins.__execd_shell__, builtins.__execd_line__, builtins.__execd_cell__ = shell, line_magic, cell_magic

    # Errors.

    StdinNotImplementedError = type("StdinNotImplementedError", (NotImplementedError,), {"__module__": "builtins"})

    def refuse_input():
        raise StdinNotImplementedError("input() was called, but nobody can answer: give the cell what it needs")

    def show_sources(linecache=None):
        if linecache is None:
            import linecache
        for name, text in state.sources.items():
            if name not in linecache.cache:
                lines = [f"{line}\n" for line in text.rstrip("\n").split("\n")]
                linecache.cache[name] = (len(text), None, lines, name)

    def hide(told, depth=0):
        """Leaves out the frames that are not the user's, here and in what caused it."""
        told.stack[:] = [frame for frame in told.stack if frame.filename != "<execd>"]
        for other in (told.__cause__, told.__context__, *(getattr(told, "exceptions", None) or ())):
            if other is not None and depth < 20:
                hide(other, depth + 1)

    def tell_error(error):
        import traceback

        show_sources()
        try:
            end_of_cell()
        except Exception:
            pass
        try:
            told = traceback.TracebackException(type(error), error, error.__traceback__)
            hide(told)
            text = "".join(told.format())
        except Exception as other:
            text = f"{type(error).__name__}: its text cannot be made: {other}"
        try:
            message = str(error)
        except Exception:
            message = "<its text cannot be made>"
        flush()
        # More than 3 MiB of it would be left out.
        tell(b"E", type(error).__name__, message, *text.rstrip("\n")[:500_000].split("\n")[:1000])

    class Rich:
        pass

    for each in (bundle, display, find, without_magics, refuse_input, show_sources, tell_error, end_of_cell):
        setattr(Rich, each.__name__, staticmethod(each))
    return Rich
