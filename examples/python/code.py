"""Code that remembers: cells of one interpreter, an error, a second language."""

from datetime import timedelta

from code_interpreter import CodeInterpreterSync
from opensandbox import SandboxSync

with SandboxSync.create("host", timeout=timedelta(minutes=10)) as sandbox:
    try:
        with CodeInterpreterSync.create(sandbox) as interpreter:
            interpreter.codes.run("import math\nradius = 3")
            execution = interpreter.codes.run("print('area')\nround(math.pi * radius**2, 2)")
            print(execution.logs.stdout[0].text, end="")
            print(execution.result[0].text)

            failed = interpreter.codes.run("radius / 0")
            print(failed.error.name, "-", failed.error.value)

            interpreter.codes.run("greeting=hello", language="bash")
            greeted = interpreter.codes.run("echo $greeting from bash", language="bash")
            print(greeted.logs.stdout[0].text, end="")
    finally:
        sandbox.kill()
