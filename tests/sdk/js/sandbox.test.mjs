// The published npm client, as it is, against a real server.
//
// The server's address and key come from OPEN_SANDBOX_DOMAIN and OPEN_SANDBOX_API_KEY, which the
// client reads by itself.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";

import {
  ConnectionConfig,
  Sandbox,
  SandboxApiException,
  SandboxManager,
} from "@alibaba-group/opensandbox";

const texts = (messages) => messages.map((message) => message.text);

/** Runs `story` with a new sandbox and removes it whatever happens. */
async function withSandbox(useServerProxy, options, story) {
  const connectionConfig = new ConnectionConfig({ useServerProxy });
  const sandbox = await Sandbox.create({
    image: "host",
    timeoutSeconds: 600,
    connectionConfig,
    ...options,
  });
  try {
    await story(sandbox);
  } finally {
    await sandbox.kill();
    await sandbox.close();
  }
}

async function ids() {
  const manager = SandboxManager.create();
  try {
    const { items } = await manager.listSandboxInfos({ pageSize: 200 });
    return items.map((item) => item.id).sort();
  } finally {
    await manager.close();
  }
}

for (const useServerProxy of [false, true]) {
  const way = useServerProxy ? "through the server" : "direct";

  test(`create, run, write, read, kill (${way})`, async () => {
    const before = await ids();
    let id;
    await withSandbox(useServerProxy, {}, async (sandbox) => {
      id = sandbox.id;
      const execution = await sandbox.commands.run("echo hello");
      assert.deepEqual(texts(execution.logs.stdout), ["hello"]);
      assert.deepEqual(texts(execution.logs.stderr), []);
      assert.equal(execution.exitCode, 0);

      await sandbox.files.writeFiles([{ path: "/tmp/note.txt", data: "grüße\n" }]);
      assert.equal(await sandbox.files.readFile("/tmp/note.txt"), "grüße\n");
      assert.ok((await ids()).includes(id));
    });
    assert.deepEqual(await ids(), before);
  });

  test(`lines, both streams and exit codes (${way})`, async () => {
    await withSandbox(useServerProxy, {}, async (sandbox) => {
      const lines = await sandbox.commands.run("printf 'a\\n\\nb\\n'; echo err >&2");
      assert.deepEqual(texts(lines.logs.stdout), ["a", "\n", "b"]);
      assert.deepEqual(texts(lines.logs.stderr), ["err"]);

      const failed = await sandbox.commands.run("exit 7");
      assert.equal(failed.exitCode, 7);
      assert.equal(failed.error?.name, "CommandExecError");

      const placed = await sandbox.commands.run('pwd; echo "$A"', {
        workingDirectory: "/tmp",
        envs: { A: "b c" },
      });
      assert.deepEqual(texts(placed.logs.stdout), ["/tmp", "b c"]);
    });
  });

  test(`five megabytes come back as they were (${way})`, async () => {
    await withSandbox(useServerProxy, {}, async (sandbox) => {
      const content = randomBytes(5 * 1024 * 1024);
      await sandbox.files.writeFiles([{ path: "/tmp/blob", data: new Uint8Array(content) }]);
      const back = Buffer.from(await sandbox.files.readBytes("/tmp/blob"));
      assert.ok(back.equals(content), "the bytes differ");
      const sum = await sandbox.commands.run("sha256sum /tmp/blob | cut -d' ' -f1");
      const expected = createHash("sha256").update(content).digest("hex");
      assert.deepEqual(texts(sum.logs.stdout), [expected]);
    });
  });

  test(`description, renewal and metadata (${way})`, async () => {
    await withSandbox(useServerProxy, { metadata: { team: "red" } }, async (sandbox) => {
      const info = await sandbox.getInfo();
      assert.equal(info.status.state, "Running");
      assert.deepEqual(info.metadata, { team: "red" });
      assert.equal(new Date(info.expiresAt) - new Date(info.createdAt), 600_000);

      const renewed = await sandbox.renew(3600);
      const distance = Math.abs(new Date(renewed.expiresAt) - (Date.now() + 3_600_000));
      assert.ok(distance < 10_000, `off by ${distance} ms`);

      const patched = await sandbox.patchMetadata({ team: null, size: "xl" });
      assert.deepEqual(patched.metadata, { size: "xl" });
      assert.equal(await sandbox.isHealthy(), true);
    });
  });
}

test("a killed sandbox is unknown", async () => {
  let gone;
  await withSandbox(false, {}, async (sandbox) => {
    gone = sandbox.id;
  });
  const manager = SandboxManager.create();
  await assert.rejects(manager.getSandboxInfo(gone), (error) => {
    assert.ok(error instanceof SandboxApiException);
    assert.equal(error.statusCode, 404);
    assert.equal(error.error.code, "DOCKER::SANDBOX_NOT_FOUND");
    return true;
  });
  await assert.rejects(manager.killSandbox(gone), SandboxApiException);
  await manager.close();
});

const WRONG = {
  "an unknown image": [{ image: `sha256:${"0".repeat(64)}` }, "SANDBOX::IMAGE_NOT_FOUND"],
  "a timeout below a minute": [{ timeoutSeconds: 59 }, "SANDBOX::INVALID_PARAMETER"],
  "an absurd timeout": [{ timeoutSeconds: 1e15 }, "SANDBOX::INVALID_PARAMETER"],
  "metadata with blanks": [{ metadata: { "a b": "c" } }, "SANDBOX::INVALID_METADATA_LABEL"],
  "a limit of nonsense": [{ resource: { cpu: "lots" } }, "SANDBOX::INVALID_PARAMETER"],
};

for (const [what, [options, code]] of Object.entries(WRONG)) {
  test(`${what} is refused and leaves nothing behind`, async () => {
    const before = await ids();
    await assert.rejects(withSandbox(false, options, async () => {}), (error) => {
      assert.ok(error instanceof SandboxApiException, String(error));
      assert.equal(error.error.code, code);
      assert.ok(error.error.message);
      return true;
    });
    assert.deepEqual(await ids(), before);
  });
}

test("a wrong key is refused", async () => {
  const connectionConfig = new ConnectionConfig({ apiKey: "wrong" });
  await assert.rejects(Sandbox.create({ image: "host", connectionConfig }), (error) => {
    assert.equal(error.statusCode, 401);
    assert.equal(error.error.code, "INVALID_API_KEY");
    return true;
  });
});
