// Volumes through the published npm client.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";

import { Sandbox, SandboxApiException } from "@alibaba-group/opensandbox";

const create = (volumes) => Sandbox.create({ image: "host", timeoutSeconds: 600, volumes });

test("a kept volume is shared between sandboxes", async () => {
  const claimName = `shared-${randomBytes(4).toString("hex")}`;
  const pvc = { claimName, deleteOnSandboxTermination: true };
  const one = await create([{ name: "a", pvc, mountPath: "/data" }]);
  const two = await create([{ name: "b", pvc: { claimName }, mountPath: "/data", readOnly: true }]);
  try {
    await one.commands.run("echo hello > /data/word");
    assert.equal(await two.files.readFile("/data/word"), "hello\n");
    const refused = await two.commands.run("touch /data/new");
    assert.notEqual(refused.exitCode, 0);
  } finally {
    for (const sandbox of [one, two]) {
      await sandbox.kill();
      await sandbox.close();
    }
  }
});

test("a host path that nobody allowed is refused with its code", async () => {
  const volume = { name: "a", host: { path: "/srv" }, mountPath: "/data" };
  await assert.rejects(create([volume]), (error) => {
    assert.ok(error instanceof SandboxApiException, String(error));
    assert.equal(error.error.code, "VOLUME::HOST_PATH_NOT_ALLOWED");
    return true;
  });
});
