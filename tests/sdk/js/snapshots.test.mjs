// Snapshots, with every method that the published npm client has for them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Sandbox, SandboxApiException, SandboxManager } from "@alibaba-group/opensandbox";

const lines = (execution) => execution.logs.stdout.map((message) => message.text);

test("files are kept, found, brought back and let go", async () => {
  const manager = SandboxManager.create();
  const source = await Sandbox.create({ image: "host", timeoutSeconds: 600 });
  let restored;
  try {
    await source.commands.run("echo then > /srv/file");
    const taken = await manager.createSnapshot(source.id, { name: "before" });
    assert.equal(taken.status.state, "Ready");
    assert.equal(taken.sandboxId, source.id);
    assert.equal(taken.name, "before");
    await source.commands.run("echo now > /srv/file");

    restored = await Sandbox.create({ snapshotId: taken.id, timeoutSeconds: 600 });
    assert.deepEqual(lines(await restored.commands.run("cat /srv/file")), ["then"]);

    const found = await manager.getSnapshot(taken.id);
    assert.equal(found.id, taken.id);
    const { items } = await manager.listSnapshots({ sandboxId: source.id, states: ["Ready"] });
    assert.deepEqual(items.map((item) => item.id), [taken.id]);
    await manager.deleteSnapshot(taken.id);
    await assert.rejects(manager.getSnapshot(taken.id), (error) => {
      assert.ok(error instanceof SandboxApiException);
      assert.equal(error.statusCode, 404);
      return true;
    });
    assert.deepEqual(lines(await restored.commands.run("cat /srv/file")), ["then"]);
  } finally {
    for (const sandbox of [source, restored]) {
      await sandbox?.kill();
      await sandbox?.close();
    }
    await manager.close();
  }
});
