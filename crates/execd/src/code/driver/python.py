# What the interpreter of a Python context runs: it takes a cell from execd, executes it, tells what came of it, and
# takes the next.
#
# Whatever is imported or compiled here is waited for by everybody who starts a context, so this part is small and does
# without all but the modules that are built in. The rest (python_rich.py) comes as an argument, and is compiled when
# it is needed first. Nothing but what users may see is left in the namespace of the cells. Both are compiled as
# `<execd>`, and frames of that name are not shown.
#
# execd is on standard input. A message is a letter, the number of its fields, and each field after its length. The main
# thread is the only one that reads there, or has it done and waits for it; whoever writes does so under a lock.


def _execd():
    import _ast
    import _signal
    import _thread
    import builtins
    import io
    import os
    import sys
    import time

    owner = os.getpid()
    control = os.dup(0)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    main = _thread.get_ident()
    telling, listening, writing = _thread.RLock(), _thread.allocate_lock(), _thread.RLock()
    namespace = sys.modules["__main__"].__dict__
    del namespace["_execd"]
    # Nodes of the syntax only; `await` outside of functions; what a cell says of the future holds for later ones.
    only_ast, top_level_await, futures = 0x400, 0x2000, 0x1FE0000

    def read(length):
        parts = []
        while length:
            part = os.read(control, min(length, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def undisturbed(work):
        """Has it done by a thread, where no handler of a signal breaks in. What one raises is raised afterwards."""
        done, over = [], _thread.allocate_lock()
        over.acquire()

        def do():
            try:
                work()
            finally:
                done.append(True)
                over.release()

        try:
            _thread.start_new_thread(do, ())
        except RuntimeError:
            # There may be no more threads.
            return work()
        raised = None
        while not done:
            try:
                over.acquire()
            except BaseException as error:
                raised = error
        if raised is not None:
            raise raised

    def send(message):
        message = memoryview(message)
        with telling:
            try:
                while message:
                    message = message[os.write(control, message) :]
            except TimeoutError:
                # No socket says that, but a handler of the cell.
                raise
            except OSError:
                # Whoever listened is gone.
                os._exit(0)

    def ask(message):
        """Sends it, and waits until it and all that came before have been passed on."""
        with listening:
            send(message)
            try:
                read(3)
            except EOFError:
                pass

    def tell(kind, *fields, waits=False):
        # A process that a cell has forked has nothing to say here, and nobody has in the middle of a message.
        if os.getpid() != owner or telling._is_owned():
            return
        fields = [field if isinstance(field, bytes) else str(field).encode("utf-8", "replace") for field in fields]
        parts = [kind, len(fields).to_bytes(2, "big")]
        # execd takes no message of more than 32 MiB, no text of more than one, and no other field of more than three.
        left, before = 16 << 20, b""
        for field in fields:
            most = 1_000_000 if kind == b"E" or before == b"text/plain" else max(min(4 << 20, left), 1000)
            before = field
            if len(field) > most:
                field = field[:most].decode("utf-8", "ignore").encode() + b" [%d bytes more]" % (len(field) - most)
            left -= len(field)
            parts += (len(field).to_bytes(4, "big"), field)
        if waits:
            parts.append(b"W\x00\x00")
        message = b"".join(parts)
        if waits:
            undisturbed(lambda: ask(message))
        elif len(message) > 4096 and _thread.get_ident() == main:
            undisturbed(lambda: send(message))
        else:
            # Written at once or not at all, or where no handler is called.
            send(message)

    def show(kind, *fields):
        """Tells something that stands between what is printed before and after it, which takes another way.

        Other threads do not wait for that, and between cells nobody does."""
        if os.getpid() == owner:
            flush()
            tell(kind, *fields, waits=State.busy and _thread.get_ident() == main)

    class Output(io.TextIOWrapper):
        """Passes lines on as they come, and a moment later what is no line, or comes too fast to be passed on alone."""

        _left, _since = 0, 0.0

        def write(self, text):
            with writing:
                length = super().write(text)
                if "\n" in text:
                    now = time.monotonic()
                    if now - self._since > 0.1:
                        self._since, self._left = now, 100
                    if self._left > 0:
                        self._left -= 1
                        super().flush()
                        return length
            Late.begin()
            return length

        def flush(self):
            with writing:
                super().flush()

    class Late:
        """A thread that is there as long as something has not been passed on."""

        is_there, hurry, over = False, None, None

        @classmethod
        def begin(cls):
            if not cls.is_there and os.getpid() == owner:
                cls.is_there = True
                # Each thread has its own: the last one may not have come to its end yet.
                cls.hurry, cls.over = hurry, over = _thread.allocate_lock(), _thread.allocate_lock()
                hurry.acquire()
                over.acquire()
                _thread.start_new_thread(cls.wait, (hurry, over))

        @classmethod
        def wait(cls, hurry, over):
            hurry.acquire(True, 0.03)
            cls.is_there = False
            flush()
            over.release()

        @classmethod
        def end(cls):
            # A process with one thread is one that can be forked.
            hurry, over = cls.hurry, cls.over
            if over is not None and over.locked():
                if hurry.locked():
                    hurry.release()
                if over.acquire(True, 1):
                    over.release()

    def wrapped(stream):
        return Output(stream.detach(), encoding="utf-8", errors="backslashreplace", newline="\n")

    sys.stdout, sys.stderr = wrapped(sys.stdout), wrapped(sys.stderr)
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr

    def flush():
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass

    class Leaving(BaseException):
        """Ends the interpreter, whatever else a cell catches."""

    class Quitter:
        def __init__(self, name):
            self.name = name

        def __repr__(self):
            return f"Use {self.name}() to end the interpreter and to lose its variables"

        def __call__(self, code=None):
            raise Leaving(code)

    class State:
        count = 0
        flags = 0
        busy = False
        loop = None
        # The texts of the cells, by the names that tracebacks have for them.
        sources = {}
        rich = None
        rest = sys.argv[2]

    sys.argv[:] = [""]

    def rich():
        """The part that most cells do without."""
        if State.rich is None:
            part = {"__name__": "_execd_rich"}
            exec(compile(State.rest, "<execd>", "exec", dont_inherit=True), part)
            State.rich = part["begin"](tell, show, flush, namespace, State)
        return State.rich

    def wait_for(coroutine):
        import asyncio

        if State.loop is None or State.loop.is_closed():
            State.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(State.loop)
        task = State.loop.create_task(coroutine)
        try:
            return State.loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            try:
                State.loop.run_until_complete(task)
            except BaseException:
                pass
            raise

    def execute(tree, name, mode):
        code = compile(tree, name, mode, State.flags | top_level_await, True)
        State.flags |= code.co_flags & futures
        value = eval(code, namespace)
        return wait_for(value) if code.co_flags & 0x80 else value

    def parse(text, name):
        return compile(text, name, "exec", State.flags | only_ast | top_level_await, True)

    def run(text):
        State.count += 1
        name = f"<cell {State.count}>"
        State.sources[name] = text
        try:
            tree = parse(text, name)
        except SyntaxError as error:
            text, tree = rich().without_magics(text, error, lambda text: parse(text, name))
            State.sources[name] = text
        if "linecache" in sys.modules:
            rich().show_sources()
        value = None
        if tree.body and isinstance(tree.body[-1], _ast.Expr) and not text.rstrip().endswith(";"):
            last = tree.body.pop()
            if tree.body:
                execute(tree, name, "exec")
            value = execute(_ast.Expression(last.value), name, "eval")
        else:
            execute(tree, name, "exec")
        if State.rich is not None:
            State.rich.end_of_cell()
        if value is not None:
            namespace["___"], namespace["__"], namespace["_"] = namespace.get("__"), namespace.get("_"), value
            if type(value) in (int, float, bool, str, bytes, complex):
                data = ("text/plain", repr(value))
            else:
                data = rich().bundle(value)
            flush()
            if data:
                tell(b"O", State.count, *data)

    class Finder:
        def __init__(self, *names):
            self.names = names

        def find_spec(self, name, path=None, target=None):
            return rich().find(name, path) if name in self.names else None

    def on_interrupt(number, frame):
        if State.busy:
            raise KeyboardInterrupt

    os.register_at_fork(before=Late.end)
    builtins.exit, builtins.quit = Quitter("exit"), Quitter("quit")
    builtins.display = lambda *values, **options: rich().display(*values, **options)

    builtins.input = lambda prompt="": rich().refuse_input()
    # The first hears of what shows something before it does; the second is asked for what is not installed.
    sys.meta_path.insert(0, Finder("matplotlib.pyplot", "IPython.display", "linecache"))
    sys.meta_path.append(Finder("IPython", "IPython.core", "IPython.core.display"))

    def become(cwd, *pairs):
        """Is as if it had been started there, with these variables and no others."""
        os.chdir(cwd)
        wanted = dict(zip(pairs[::2], pairs[1::2]))
        for name in [name for name in os.environb if name not in wanted]:
            del os.environb[name]
        os.environb.update(wanted)

    def prepare(*modules):
        rich()
        for name in modules:
            try:
                __import__(name.decode())
            except (Exception, SystemExit):
                # Whoever imports it is told why it cannot be.
                pass

    _signal.signal(_signal.SIGINT, on_interrupt)
    # Here, and it can be interrupted.
    tell(b"H")
    while True:
        try:
            with listening:
                head = read(3)
                # Without threads, somebody may have been interrupted before it saw this.
                if head[:1] == b"A":
                    continue
                fields = [read(int.from_bytes(read(4), "big")) for _ in range(int.from_bytes(head[1:], "big"))]
        except EOFError:
            return
        try:
            try:
                # Cells may have changed it.
                _signal.signal(_signal.SIGINT, on_interrupt)
                State.busy = True
                if head[:1] == b"V":
                    become(*fields)
                elif head[:1] == b"I":
                    prepare(*fields)
                else:
                    run(fields[0].decode())
            finally:
                State.busy = False
        except Leaving as leaving:
            if os.getpid() == owner:
                flush()
            sys.exit(leaving.args[0])
        except BaseException as error:
            if os.getpid() == owner:
                rich().tell_error(error)
            elif isinstance(error, SystemExit):
                sys.exit(error.code)
        if os.getpid() != owner:
            # A child of a cell, which has come to its end.
            flush()
            os._exit(0)
        flush()
        tell(b"F", State.count)


_execd()
