// Isolated sessions, with every method that the published npm client has for them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ConnectionConfig, Sandbox } from "@alibaba-group/opensandbox";

const WORK = "/work";
const texts = (execution) => execution.logs.stdout.map(({ text }) => text);

async function withSandbox(story) {
  const sandbox = await Sandbox.create({
    image: "host",
    timeoutSeconds: 600,
    connectionConfig: new ConnectionConfig(),
  });
  try {
    await sandbox.files.writeFiles([{ path: `${WORK}/old`, data: "old" }]);
    await story(sandbox);
  } finally {
    await sandbox.kill();
    await sandbox.close();
  }
}

test("a session from its creation to its end", () =>
  withSandbox(async ({ isolation }) => {
    const capabilities = await isolation.capabilities();
    assert.equal(capabilities.available, true);
    const session = await isolation.create({ workspace: { path: WORK, mode: "overlay" } });
    const ran = await session.run("cat old; echo; echo new > old; exit 3");
    assert.deepEqual([texts(ran), ran.exitCode], [["old"], 3]);
    const state = await session.get();
    assert.equal(state.status, "active");
    assert.deepEqual((await isolation.list()).map((one) => one.session_id), [session.sessionId]);
    const again = await isolation.attach(session.sessionId);
    assert.equal(again.info.workspace.mode, "overlay");
    assert.deepEqual(texts(await again.run("cat old; echo $A", { envs: { A: "1" } })), ["new", "1"]);
    await session.delete();
    assert.deepEqual(await isolation.list(), []);
    await assert.rejects(again.get(), /404/);
  }));

test("code that is run once, and a session that ends with its story", () =>
  withSandbox(async ({ isolation }) => {
    const once = await isolation.runOnce("cat old", WORK, { workspaceMode: "ro" });
    assert.deepEqual([texts(once), once.exitCode], [["old"], 0]);
    const request = { workspace: { path: WORK, mode: "rw" }, profile: "strict" };
    const seen = await isolation.withSession(request, async (session) =>
      texts(await session.run("touch x; ls")),
    );
    assert.deepEqual(seen, ["old", "x"]);
    assert.deepEqual(await isolation.list(), []);
  }));

test("the files of a session are those that it sees", () =>
  withSandbox(async ({ isolation, files: outside }) => {
    const request = { workspace: { path: WORK, mode: "overlay" } };
    await isolation.withSession(request, async ({ files, run }) => {
      await files.writeFiles([{ path: `${WORK}/a.txt`, data: "one two one" }]);
      assert.equal(await files.readFile(`${WORK}/a.txt`), "one two one");
      const info = await files.getFileInfo([`${WORK}/a.txt`]);
      assert.equal(info[`${WORK}/a.txt`].size, 11);
      await files.moveFiles([{ src: `${WORK}/a.txt`, dest: `${WORK}/b.txt` }]);
      const found = await files.search({ path: WORK, pattern: "*.txt" });
      assert.deepEqual(found.map(({ path }) => path), [`${WORK}/b.txt`]);
      await files.deleteFiles([`${WORK}/b.txt`]);
    });
    const left = await outside.listDirectory({ path: WORK });
    assert.deepEqual(left.map(({ path }) => path), [`${WORK}/old`]);
  }));

test("what cannot be is refused", () =>
  withSandbox(async ({ isolation }) => {
    await assert.rejects(isolation.create({ workspace: { path: "relative" } }), /400/);
    await assert.rejects(isolation.create({ workspace: { path: "/none" } }), /400/);
  }));
