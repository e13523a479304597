// Every method that the published npm client has for the daemon inside a sandbox, as it is.
//
// The last test reads the package's own type declarations and fails for a method that no test of
// this file has called.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { after, test } from "node:test";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import {
  ConnectionConfig,
  DefaultAdapterFactory,
  Sandbox,
  SandboxApiException,
} from "@alibaba-group/opensandbox";

const EXECD_PORT = 44772;
const WAYS = ["direct", "through the server", "through its own proxy"];
const INTERFACES = { commands: "ExecdCommands", files: "SandboxFiles", metrics: "ExecdMetrics" };

const called = new Set();
const texts = (messages) => messages.map((message) => message.text);

/** The service itself, with a note of each method that is called. */
function noting(name, service) {
  return new Proxy(service, {
    get(target, method) {
      const found = target[method];
      if (typeof found !== "function") return found;
      called.add(`${name}.${String(method)}`);
      return found.bind(target);
    },
  });
}

/** Runs `story` with the services of a new sandbox, and removes it whatever happens. */
async function withBox(way, options, story) {
  const connectionConfig = new ConnectionConfig({ useServerProxy: way === "through the server" });
  const sandbox = await Sandbox.create({
    image: "host",
    timeoutSeconds: 600,
    connectionConfig,
    ...options,
  });
  try {
    const endpoint = await sandbox.getEndpoint(EXECD_PORT);
    let base = `http://${endpoint.endpoint}`;
    let services = sandbox;
    if (way === "through its own proxy") {
      base += `/proxy/${EXECD_PORT}`;
      services = new DefaultAdapterFactory().createExecdStack({
        connectionConfig,
        execdBaseUrl: base,
        endpointHeaders: endpoint.headers,
      });
    }
    const headers = { ...connectionConfig.headers, ...endpoint.headers };
    await story({
      sandbox,
      commands: noting("commands", services.commands),
      files: noting("files", services.files),
      metrics: noting("metrics", services.metrics),
      http: (path, request = {}) => fetch(base + path, { ...request, headers }),
    });
  } finally {
    await sandbox.kill();
    await sandbox.close();
  }
}

/** The same story on every way to the daemon. */
function onEveryWay(what, story, options = {}) {
  for (const way of WAYS) {
    test(`${what} (${way})`, () => withBox(way, options, story));
  }
}

/** Refused by the daemon, with a status and a message. */
async function refused(promise, ...statuses) {
  await assert.rejects(promise, (error) => {
    assert.ok(error instanceof SandboxApiException, String(error));
    assert.ok(statuses.includes(error.statusCode), `${error.statusCode}: ${error.message}`);
    return true;
  });
}

async function until(what, condition) {
  const deadline = Date.now() + 20_000;
  for (;;) {
    const value = await condition();
    if (value) return value;
    assert.ok(Date.now() < deadline, `waited in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

onEveryWay("a command, its events and its handlers", async ({ commands }) => {
  const seen = [];
  const note = (name) => (event) => void seen.push([name, event]);
  const execution = await commands.run("echo Hello; echo err >&2", undefined, {
    onInit: note("init"),
    onStdout: note("stdout"),
    onStderr: note("stderr"),
    onError: note("error"),
    onExecutionComplete: note("complete"),
  });
  assert.deepEqual(texts(execution.logs.stdout), ["Hello"]);
  assert.deepEqual(texts(execution.logs.stderr), ["err"]);
  assert.equal(execution.exitCode, 0);
  assert.equal(seen[0][0], "init");
  assert.equal(seen[0][1].id, execution.id);
  assert.equal(seen.at(-1)[0], "complete");
  assert.deepEqual(seen.map(([name]) => name).sort(), ["complete", "init", "stderr", "stdout"]);
});

onEveryWay("the events of a command one by one", async ({ commands }) => {
  const types = [];
  for await (const event of commands.runStream("echo a; exit 3")) {
    assert.equal(typeof event.timestamp, "number");
    if (event.type !== "ping") types.push(event.type);
    if (event.type === "error") assert.equal(event.error.evalue, "3");
  }
  assert.deepEqual(types, ["init", "stdout", "error"]);
});

onEveryWay("the options of a command", async ({ commands }) => {
  const placed = await commands.run('pwd; echo "$A"; id -u; id -g', {
    workingDirectory: "/tmp",
    envs: { A: "b 'c' $HOME" },
    uid: 65534,
    gid: 65534,
  });
  assert.deepEqual(texts(placed.logs.stdout), ["/tmp", "b 'c' $HOME", "65534", "65534"]);
  const slow = await commands.run("sleep 60", { timeoutSeconds: 0.2 });
  assert.equal(slow.exitCode, -1);
  assert.equal(slow.complete, undefined);
  await refused(commands.run("pwd", { workingDirectory: "/no/such/place" }), 400);
});

onEveryWay("odd characters and long lines", async ({ commands }) => {
  const odd = await commands.run("printf 'a\\xe2\\x80\\xa8b\\xc2\\x85c\\n\\n\\xff\\n'");
  assert.deepEqual(texts(odd.logs.stdout), ["a\u2028b\u0085c", "\n", "\ufffd"]);
  const long = await commands.run("head -c 5000000 /dev/zero | tr '\\0' x");
  assert.equal(texts(long.logs.stdout).join("").length, 5_000_000);
});

onEveryWay("a command in the background, its status and its logs", async ({ commands }) => {
  const execution = await commands.run("for n in 1 2 3; do echo $n; done; exit 5", {
    background: true,
  });
  assert.equal(execution.exitCode, undefined);
  const status = await until("the command ends", async () => {
    const status = await commands.getCommandStatus(execution.id);
    assert.equal(typeof status.running, "boolean");
    return !status.running && status;
  });
  assert.equal(status.exitCode, 5);
  assert.ok(status.finishedAt >= status.startedAt);
  const logs = await commands.getBackgroundCommandLogs(execution.id);
  assert.deepEqual(logs, { content: "1\n2\n3\n", cursor: 6 });
  const rest = await commands.getBackgroundCommandLogs(execution.id, 4);
  assert.deepEqual(rest, { content: "3\n", cursor: 6 });
  await refused(commands.getCommandStatus("0".repeat(32)), 404);
  await refused(commands.getBackgroundCommandLogs("0".repeat(32)), 400, 404);
});

onEveryWay("an interrupt ends a stream with an error", async ({ commands }) => {
  let id;
  const execution = await commands.run("echo begun; sleep 60", undefined, {
    onInit: (event) => void (id = event.id),
    onStdout: () => commands.interrupt(id),
  });
  assert.equal(execution.exitCode, -1);
  assert.equal(execution.error.name, "CommandExecError");
});

// The client heeds an abort only until the head of the answer is there, so this one is plain HTTP.
onEveryWay("a client that goes away ends its command", async ({ commands, http }) => {
  const leaving = new AbortController();
  const body = JSON.stringify({ command: "echo $$; sleep 60" });
  const answer = await http("/command", { method: "POST", body, signal: leaving.signal });
  const decoder = new TextDecoder();
  let seen = "";
  let pid;
  for await (const piece of answer.body) {
    seen += decoder.decode(piece, { stream: true });
    pid = seen.match(/"stdout","text":"(\d+)"/)?.[1];
    if (pid) break;
  }
  leaving.abort();
  assert.ok(pid, seen);
  await until("the command is gone", async () => {
    const look = await commands.run(`test -e /proc/${pid} || echo gone`);
    return texts(look.logs.stdout)[0] === "gone";
  });
});

onEveryWay("a session", async ({ commands }) => {
  const session = await commands.createSession({ workingDirectory: "/tmp/s" });
  const run = (command, options) => commands.runInSession(session, command, options);
  const lines = async (command, options) => texts((await run(command, options)).logs.stdout);
  await run("export A=1; B=2; f() { echo f; }");
  assert.deepEqual(await lines("pwd; echo $A$B; f"), ["/tmp/s", "12", "f"]);
  assert.deepEqual(await lines("pwd", { workingDirectory: "/usr" }), ["/usr"]);
  const failed = await run("echo err >&2; exit 7");
  assert.equal(failed.exitCode, 7);
  assert.deepEqual(texts(failed.logs.stderr), ["err"]);
  const slow = await run("sleep 60", { timeoutSeconds: 0.2 });
  assert.ok(slow.error);
  assert.deepEqual(await lines("echo $B"), ["2"]);

  const events = [];
  const handlers = { onInit: (event) => void events.push(event.id) };
  await commands.runInSession(session, "true", {}, handlers);
  assert.deepEqual(events, [session]);

  await commands.deleteSession(session);
  await refused(commands.deleteSession(session), 404);
  await refused(run("true"), 404, 500);
  const plain = await commands.createSession();
  assert.equal((await commands.runInSession(plain, "true")).exitCode, 0);
});

async function* pieces(count, size) {
  for (let number = 0; number < count; number += 1) {
    yield new Uint8Array(size).fill(number % 256);
  }
}

onEveryWay("files in every form go in and come out", async ({ files }) => {
  await files.writeFiles([
    { path: "/tmp/text", data: "grüße\n☃", mode: 600, owner: "nobody", group: "nogroup" },
    { path: "/tmp/bytes", data: new Uint8Array([0, 255, 10]) },
    { path: "/tmp/buffer", data: new Uint8Array([1, 2]).buffer },
    { path: "/tmp/blob", data: new Blob(["blob"]) },
    { path: "/tmp/iterated", data: pieces(40, 65536) },
    { path: "/tmp/streamed", data: ReadableStream.from(pieces(3, 1000)) },
    { path: "/tmp/new/place/empty", data: "" },
  ]);
  assert.equal(await files.readFile("/tmp/text"), "grüße\n☃");
  assert.deepEqual([...(await files.readBytes("/tmp/bytes"))], [0, 255, 10]);
  assert.deepEqual([...(await files.readBytes("/tmp/buffer"))], [1, 2]);
  assert.equal(await files.readFile("/tmp/blob"), "blob");
  assert.equal((await files.readBytes("/tmp/iterated")).length, 40 * 65536);
  assert.equal(await files.readFile("/tmp/new/place/empty"), "");
  const parts = [];
  for await (const part of files.readBytesStream("/tmp/streamed")) parts.push(part);
  assert.deepEqual(Buffer.concat(parts), Buffer.from([].concat(...[0, 1, 2].map((n) => Array(1000).fill(n)))));
  const { "/tmp/text": info } = await files.getFileInfo(["/tmp/text"]);
  assert.deepEqual([info.type, info.mode, info.owner, info.group], ["file", 600, "nobody", "nogroup"]);
  assert.ok(info.modifiedAt instanceof Date && info.createdAt instanceof Date);
});

onEveryWay("parts of files by range and by line", async ({ files }) => {
  await files.writeFiles([{ path: "/tmp/f", data: "one\ntwo\nthree" }]);
  assert.equal(await files.readFile("/tmp/f", { range: "bytes=0-2" }), "one");
  assert.equal(await files.readFile("/tmp/f", { offset: 2, limit: 1 }), "two");
  assert.equal(Buffer.from(await files.readBytes("/tmp/f", { range: "bytes=-5" })).toString(), "three");
  const parts = [];
  for await (const part of files.readBytesStream("/tmp/f", { offset: 2 })) parts.push(part);
  assert.equal(Buffer.concat(parts).toString(), "two\nthree");
  await refused(files.readFile("/tmp/f", { range: "bytes=99-" }), 416);
  await refused(files.readFile("/tmp/none"), 404);
});

onEveryWay("directories, moves, permissions and deletion", async ({ files }) => {
  await files.createDirectories([{ path: "/tmp/a/b", mode: 750 }, { path: "/tmp/c" }]);
  await files.writeFiles([{ path: "/tmp/a/f", data: "x" }]);
  await files.moveFiles([{ src: "/tmp/a/f", dest: "/tmp/c/g" }]);
  await files.setPermissions([{ path: "/tmp/c/g", mode: 640, owner: "nobody", group: "nogroup" }]);
  const listed = await files.listDirectory({ path: "/tmp", depth: 2 });
  assert.deepEqual(
    listed.map(({ path, type, mode, owner }) => [path, type, mode, owner]),
    [
      ["/tmp/a", "directory", 755, "root"],
      ["/tmp/a/b", "directory", 750, "root"],
      ["/tmp/c", "directory", 755, "root"],
      ["/tmp/c/g", "file", 640, "nobody"],
    ],
  );
  assert.equal((await files.listDirectory({ path: "/tmp" })).length, 2);
  await refused(files.moveFiles([{ src: "/tmp/none", dest: "/tmp/x" }]), 404);
  await files.deleteFiles(["/tmp/c/g", "/tmp/none"]);
  await files.deleteDirectories(["/tmp/a", "/tmp/c"]);
  assert.deepEqual(await files.listDirectory({ path: "/tmp" }), []);
  await refused(files.getFileInfo(["/tmp/a"]), 404);
});

onEveryWay("search and replacement", async ({ files }) => {
  await files.writeFiles([
    { path: "/tmp/a.txt", data: "one two one" },
    { path: "/tmp/d/b.txt", data: "three" },
    { path: "/tmp/d/c.py", data: "" },
  ]);
  const found = async (pattern) =>
    (await files.search({ path: "/tmp", pattern })).map(({ path }) => path).sort();
  assert.deepEqual(await found("*.txt"), ["/tmp/a.txt", "/tmp/d/b.txt"]);
  assert.equal((await found(undefined)).length, 3);
  const counts = await files.replaceContentsDetailed([
    { path: "/tmp/a.txt", oldContent: "one", newContent: "1" },
    { path: "/tmp/d/b.txt", oldContent: "none", newContent: "" },
  ]);
  assert.deepEqual(
    new Map(counts.map(({ path, replacedCount }) => [path, replacedCount])),
    new Map([["/tmp/a.txt", 2], ["/tmp/d/b.txt", 0]]),
  );
  await files.replaceContents([{ path: "/tmp/a.txt", oldContent: "two", newContent: "2" }]);
  assert.equal(await files.readFile("/tmp/a.txt"), "1 2 1");
});

onEveryWay(
  "metrics are those of the sandbox",
  async ({ sandbox, metrics }) => {
    for (const found of [await metrics.getMetrics(), await sandbox.getMetrics()]) {
      assert.equal(found.cpuCount, 1);
      assert.equal(found.memoryTotalMiB, 256);
      assert.ok(found.memoryUsedMiB > 0 && found.memoryUsedMiB <= 256);
      assert.ok(found.cpuUsedPercentage >= 0 && found.cpuUsedPercentage <= 100);
      assert.ok(Math.abs(found.timestamp - Date.now()) < 60_000);
    }
  },
  { resource: { cpu: "1", memory: "256Mi" } },
);

/** The names of the methods of an interface, as the package declares them. */
function declared(name) {
  const place = dirname(fileURLToPath(import.meta.resolve("@alibaba-group/opensandbox")));
  for (const file of readdirSync(place).filter((file) => file.endsWith(".d.ts"))) {
    const text = readFileSync(join(place, file), "utf8");
    const body = text.match(new RegExp(`interface ${name} \\{\\n(.*?)\\n\\}`, "s"))?.[1];
    if (body) return [...body.matchAll(/^ {4}(\w+)\(/gm)].map(([, method]) => method);
  }
  assert.fail(`the package declares no ${name}`);
}

after(() => {
  const missing = Object.entries(INTERFACES).flatMap(([service, name]) => {
    const methods = declared(name);
    assert.ok(methods.length > 0);
    return methods.map((method) => `${service}.${method}`).filter((method) => !called.has(method));
  });
  assert.deepEqual(missing, [], "methods that no test has called");
});
