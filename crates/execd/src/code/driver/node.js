// What the interpreter of a JavaScript or TypeScript context runs: it takes a cell from execd, executes it, tells what
// came of it, and takes the next.
//
// Cells are evaluated by the inspector in the mode of its console, which is the only way to have `await` outside of
// functions, and `let` and `const` that may be declared again. execd is on standard input; a message is a letter, the
// number of its fields, and each field after its length.
"use strict";
{
  const fs = require("fs");
  const net = require("net");
  const util = require("util");
  const vm = require("vm");
  const { Session } = require("inspector");

  const language = process.argv[process.argv.length - 1];
  process.argv.length = 1;
  const control = new net.Socket({ fd: 0, readable: true, writable: true });
  const session = new Session();
  session.connect();
  let count = 0;
  let interrupt = null;
  let heard = Buffer.alloc(0);
  let waiting = Promise.resolve();

  // What is too long is cut between two characters, and says so.
  function within(content, most) {
    if (content.length <= most) return content;
    let end = most;
    while ((content[end] & 0xc0) === 0x80) end -= 1;
    return Buffer.concat([content.subarray(0, end), Buffer.from(` [${content.length - end} bytes more]`)]);
  }

  // Told in one piece and at once: what was printed is in the pipes by then.
  function tell(kind, ...fields) {
    const parts = [Buffer.from([kind.charCodeAt(0), fields.length >> 8, fields.length & 255])];
    // execd takes no message of more than 32 MiB, no text of more than one, and no other field of more than three.
    let left = 16 << 20;
    for (const [at, field] of fields.entries()) {
      const is_text = kind === "E" || fields[at - 1] === "text/plain";
      const most = is_text ? 1_000_000 : Math.max(Math.min(4 << 20, left), 1000);
      const content = within(Buffer.isBuffer(field) ? field : Buffer.from(String(field)), most);
      left -= content.length;
      const length = Buffer.alloc(4);
      length.writeUInt32BE(content.length);
      parts.push(length, content);
    }
    control.write(Buffer.concat(parts));
  }

  // The whole output is written before anything else is told, however slow its reader.
  for (const [name, fd] of [["stdout", 1], ["stderr", 2]]) {
    const write = (chunk, encoding, done) => {
      let content = typeof chunk === "string" ? Buffer.from(chunk, typeof encoding === "string" ? encoding : "utf8") : chunk;
      while (content.length) {
        try {
          content = content.subarray(fs.writeSync(fd, content));
        } catch (error) {
          if (error.code !== "EAGAIN") throw error;
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
        }
      }
      const finished = typeof encoding === "function" ? encoding : done;
      if (finished) process.nextTick(finished);
      return true;
    };
    process[name].write = write;
  }

  const kinds = { html: "text/html", markdown: "text/markdown", svg: "image/svg+xml", png: "image/png", json: "application/json" };

  function bundle(value) {
    const fields = ["text/plain", util.inspect(value, { depth: 4 })];
    // What libraries for notebooks offer, as Deno has it.
    const shapes = value != null && typeof value[Symbol.for("Jupyter.display")] === "function" ? value[Symbol.for("Jupyter.display")]() : null;
    for (const [kind, content] of Object.entries(shapes ?? {})) {
      if (kind === "text/plain") fields[1] = String(content);
      else fields.push(kind, typeof content === "string" ? content : JSON.stringify(content));
    }
    return fields;
  }

  // What does not fit into the socket is held until the cell waits for something.
  function show(...fields) {
    if (control.writableLength > 64 << 20) throw new RangeError("more than 64 MiB were shown at once: await something, as a timer, before more is");
    tell("D", "", ...fields);
  }

  const display = (value) => show(...bundle(value));
  for (const [name, kind] of Object.entries(kinds)) {
    display[name] = (content) => show(kind, name === "json" ? JSON.stringify(content) : content, "text/plain", `<${kind}>`);
  }
  Object.defineProperty(globalThis, "display", { value: display, writable: true, configurable: true });
  const here = () => (globalThis.require = require("module").createRequire(process.cwd() + "/cell.js"));
  here();
  globalThis.module = { exports: {} };
  globalThis.exports = globalThis.module.exports;

  function failed(error) {
    const is_error = util.types.isNativeError(error) || error instanceof Error;
    const name = is_error ? error.name : "Error";
    const message = is_error ? error.message : util.inspect(error);
    const stack = is_error && typeof error.stack === "string" ? error.stack : `${name}: ${message}`;
    // More than 3 MiB of it would be left out.
    const lines = stack.slice(0, 500_000).split("\n").slice(0, 1000);
    const end = lines.findIndex((line) => line.includes("<execd>"));
    const own = (line) => !/new Promise \(<anonymous>\)|\(node:|\[eval\]/.test(line);
    tell("E", name, message, ...lines.slice(0, end < 0 ? lines.length : end).filter(own));
  }

  // Values and errors are handed over as what they are, not as what the inspector says of them.
  const handed = Symbol.for("execd.handed");
  const hold = { value: undefined };
  Object.defineProperty(globalThis, handed, { value: (value) => (hold.value = value) });

  // What the inspector has refused. An interrupt can come before anybody has the promise that is broken then.
  const refused = new WeakSet();

  function post(method, parameters) {
    return new Promise((resolve, reject) => {
      session.post(method, parameters, (error, answer) => {
        if (!error) return resolve(answer);
        const refusal = new Error(error.message);
        refused.add(refusal);
        reject(refusal);
      });
    });
  }

  async function actual(remote) {
    if (remote.objectId === undefined) {
      if (remote.unserializableValue !== undefined) return (0, eval)(remote.unserializableValue);
      return remote.value;
    }
    hold.value = undefined;
    const take = "function () { globalThis[Symbol.for('execd.handed')](this); }";
    const symbol = remote.type === "symbol";
    if (symbol) return Symbol(remote.description);
    await post("Runtime.callFunctionOn", { functionDeclaration: take, objectId: remote.objectId, silent: true });
    const value = hold.value;
    hold.value = undefined;
    post("Runtime.releaseObject", { objectId: remote.objectId }).catch(() => {});
    return value;
  }

  function stripped(code) {
    if (language !== "typescript") return code;
    const { stripTypeScriptTypes } = require("module");
    if (!stripTypeScriptTypes) throw new Error(`TypeScript needs Node 22.13 or later, or the kernel tslab; this is ${process.version}`);
    // That it may change is nothing that a cell should be told.
    const { emitWarning } = process;
    process.emitWarning = () => {};
    try {
      return stripTypeScriptTypes(code, { mode: "transform" });
    } finally {
      process.emitWarning = emitWarning;
    }
  }

  async function run(code) {
    count += 1;
    const interrupted = new Promise((_, reject) => {
      interrupt = () => reject(Object.assign(new Error("the cell was interrupted"), { name: "KeyboardInterrupt", stack: "KeyboardInterrupt" }));
    });
    interrupted.catch(() => {});
    try {
      const expression = with_imports(stripped(code));
      let evaluated;
      // The inspector evaluates before it returns; a script within which it does so can be interrupted.
      const evaluate = () => {
        evaluated = post("Runtime.evaluate", {
          expression: `${expression}\n//# sourceURL=cell-${count}`,
          replMode: true,
          awaitPromise: true,
          userGesture: true,
          silent: true,
        });
        // If it is interrupted, nobody waits for it.
        evaluated.catch(() => {});
      };
      globalThis[Symbol.for("execd.evaluate")] = evaluate;
      try {
        breakable.runInThisContext({ breakOnSigint: true });
      } catch (error) {
        if (error.code !== "ERR_SCRIPT_EXECUTION_INTERRUPTED") throw error;
        interrupt();
      }
      const answer = await Promise.race([evaluated ?? interrupted, interrupted]);
      if (answer.exceptionDetails) {
        const thrown = answer.exceptionDetails.exception;
        failed(thrown ? await actual(thrown) : new Error(answer.exceptionDetails.text));
      } else if (answer.result.type !== "undefined") {
        const value = await actual(answer.result);
        globalThis._ = value;
        tell("O", count, ...bundle(value));
      }
    } catch (error) {
      failed(error);
    } finally {
      interrupt = null;
    }
    tell("F", count);
  }
  const breakable = new vm.Script("globalThis[Symbol.for('execd.evaluate')]()", { filename: "<execd>" });

  // What only modules may have is said in other words. The inspector does not know where to import from, but this does.
  Object.defineProperty(globalThis, "__execd_import__", { value: (name) => import(located(name)) });

  function located(name) {
    return /^\.{0,2}\//.test(name) ? require("url").pathToFileURL(require("path").resolve(name)).href : name;
  }

  function with_imports(code) {
    if (!/\bimport\b/.test(code)) return code;
    const is_text = texts(code);
    const parts = /((?:^|;)[ \t]*)import\s+([\w$*{][^;'"]*?)\s+from\s+(['"][^'"]+['"])|((?:^|;)[ \t]*)import\s+(['"][^'"]+['"])|(?<![.\w$])import(?=\s*\()/gm;
    return code.replace(parts, (part, space, names, from, indent, whole, at) => {
      if (is_text[at + part.indexOf("import")]) return part;
      // A statement ends with what it imports from, whatever the next line begins with.
      if (names !== undefined) return `${space}${imported(names, from)};`;
      return whole === undefined ? "__execd_import__" : `${indent}await __execd_import__(${whole});`;
    });
  }

  // Which characters are no code but in texts, patterns and comments.
  function texts(code) {
    const is_text = new Uint8Array(code.length);
    const simple = /'(?:\\[^]|[^'\\\n])*'?|"(?:\\[^]|[^"\\\n])*"?|\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)/y;
    const pattern = /\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\//y;
    const before_pattern = /(?:^|[(,=:[!&|?{;+\-*%<>~^]|\b(?:return|typeof|case|in|of|await|void|throw|else|do))\s*$/;
    const template = /(?:\\[^]|\$(?!\{)|[^\\`$])*(?:`|\$\{|$)/y;
    // For each template whose code is being read, how many braces are open in it.
    const open = [];
    let at = 0;
    const found = (expression, from) => {
      expression.lastIndex = from;
      if (!expression.test(code)) return false;
      is_text.fill(1, at, expression.lastIndex);
      at = expression.lastIndex;
      return true;
    };
    const read_template = () => {
      if (found(template, at + 1) && code.endsWith("${", at)) open.push(0);
    };
    while (at < code.length) {
      const character = code[at];
      if (found(simple, at)) continue;
      if (character === "/" && before_pattern.test(code.slice(Math.max(0, at - 20), at)) && found(pattern, at)) continue;
      if (character === "`") {
        read_template();
        continue;
      }
      if (character === "}" && open.at(-1) === 0) {
        open.pop();
        read_template();
        continue;
      }
      if (open.length && character === "{") open[open.length - 1] += 1;
      if (open.length && character === "}") open[open.length - 1] -= 1;
      at += 1;
    }
    return is_text;
  }

  function imported(names, from) {
    const all = /^\*\s+as\s+([\w$]+)$/.exec(names);
    if (all) return `const ${all[1]} = await __execd_import__(${from})`;
    const [, main, rest] = /^([\w$]+)?\s*,?\s*(\{[^}]*\})?$/.exec(names) ?? [];
    const some = rest ? rest.replace(/\bas\b/g, ":").slice(1, -1) : "";
    const parts = [main ? `default: ${main}` : "", some].filter((part) => part.trim());
    return `const { ${parts.join(", ")} } = await __execd_import__(${from})`;
  }

  process.on("SIGINT", () => interrupt?.());
  process.on("uncaughtException", (error) => process.stderr.write(`${util.inspect(error)}\n`));
  process.on("unhandledRejection", (error) => {
    if (!refused.has(error)) process.stderr.write(`${util.inspect(error)}\n`);
  });

  // Is as if it had been started there, with these variables and no others.
  function become(cwd, ...pairs) {
    try {
      process.chdir(cwd);
      here();
      for (const name of Object.keys(process.env)) delete process.env[name];
      for (let at = 0; at < pairs.length; at += 2) process.env[pairs[at]] = pairs[at + 1];
    } catch (error) {
      failed(error);
    }
    tell("F", count);
  }

  // The first message of what was heard, which is taken from it; nothing if it has not arrived whole.
  function message() {
    if (heard.length < 3) return null;
    const fields = [];
    let at = 3;
    for (let left = heard.readUInt16BE(1); left > 0; left -= 1) {
      if (heard.length < at + 4 || heard.length < at + 4 + heard.readUInt32BE(at)) return null;
      const end = at + 4 + heard.readUInt32BE(at);
      fields.push(heard.toString("utf8", at + 4, end));
      at = end;
    }
    const kind = String.fromCharCode(heard[0]);
    heard = heard.subarray(at);
    return { kind, fields };
  }

  control.on("data", (chunk) => {
    heard = Buffer.concat([heard, chunk]);
    for (let told = message(); told !== null; told = message()) {
      const { kind, fields } = told;
      const work = { R: run, V: become, I: () => tell("F", count) }[kind];
      waiting = waiting.then(() => work(...fields));
    }
  });
  control.on("end", () => process.exit(0));
  control.on("error", () => process.exit(0));
  // Here, and it can be interrupted.
  tell("H");
}
