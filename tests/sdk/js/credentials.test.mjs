// The credential vault and the network policy, with every method that the published npm client has
// for them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Sandbox, SandboxApiException } from "@alibaba-group/opensandbox";

const SECRET = "hunter2-of-the-js-client";
// What the client needs for itself.
const INTERNAL = ["constructor", "credentialVaultUrl", "readErrorResponse", "requestJson"];
// These are for the policy; the sandbox has them under its own names.
const POLICY = ["getPolicy", "patchRules", "deleteRules"];

const credential = (name) => ({ name, source: { type: "inline", value: SECRET } });

const binding = (name, auth, match = {}) => ({
  name,
  match: { hosts: ["api.example.com"], ...match },
  auth,
});

const refused = (status, code) => (error) => {
  assert.ok(error instanceof SandboxApiException);
  assert.equal(error.statusCode, status);
  assert.equal(error.error.code, code);
  return true;
};

async function withSandbox(use) {
  const sandbox = await Sandbox.create({
    image: "host",
    timeoutSeconds: 600,
    networkPolicy: {
      defaultAction: "deny",
      egress: [{ action: "allow", target: "api.example.com" }],
    },
    credentialProxy: { enabled: true },
  });
  try {
    await use(sandbox);
  } finally {
    await sandbox.kill();
    await sandbox.close();
  }
}

// The vault, with a record of what was called.
function recorded(vault, called) {
  return new Proxy(vault, {
    get(target, name) {
      const member = target[name];
      if (typeof member !== "function") return member;
      return (...args) => {
        called.add(name);
        return member.apply(target, args);
      };
    },
  });
}

test("a vault is made, read, changed and deleted, by every method that there is", async () => {
  await withSandbox(async (sandbox) => {
    const called = new Set();
    const vault = recorded(sandbox.credentialVault, called);
    await assert.rejects(vault.get(), refused(404, "VAULT::NOT_FOUND"));

    const substitutions = [{ credential: "b", placeholder: "__B__", in: ["query", "body"] }];
    const made = await vault.create({
      credentials: [credential("a"), credential("b")],
      bindings: [
        binding("bearer", { type: "bearer", credential: "a" }, { paths: ["/1/*"] }),
        binding("basic", { type: "basic", credential: "a" }, { paths: ["/2/*"] }),
        binding("key", { type: "apiKey", name: "X-KEY", credential: "a" }, { paths: ["/3/*"] }),
        binding(
          "custom",
          { type: "customHeaders", headers: [{ name: "X-A", credential: "a" }] },
          { paths: ["/4/*"] },
        ),
        binding("none", { type: "passthrough", substitutions }, { paths: ["/5/*"] }),
      ],
    });
    assert.equal(made.revision, 1);
    assert.deepEqual(made.bindings.map(({ name, auth }) => [name, auth.type]), [
      ["basic", "basic"],
      ["bearer", "bearer"],
      ["custom", "customHeaders"],
      ["key", "apiKey"],
      ["none", "passthrough"],
    ]);
    assert.deepEqual(await vault.get(), made);
    assert.deepEqual(await vault.listCredentials(), made.credentials);
    assert.deepEqual(await vault.listBindings(), made.bindings);
    assert.deepEqual(await vault.getCredential("a"), made.credentials[0]);
    assert.equal((await vault.getBinding("key")).auth.name, "X-Key");
    assert.ok(!JSON.stringify(made).includes(SECRET));
    await assert.rejects(
      vault.create({ credentials: [], bindings: [] }),
      refused(409, "VAULT::ALREADY_EXISTS"),
    );

    const changed = await vault.patch({
      expectedRevision: 1,
      credentials: { add: [credential("git/hub ü")], delete: ["b"] },
      bindings: { delete: ["none"] },
    });
    assert.equal(changed.revision, 2);
    assert.equal((await vault.getCredential("git/hub ü")).revision, 2);
    await assert.rejects(
      vault.patch({ expectedRevision: 1 }),
      refused(409, "VAULT::REVISION_MISMATCH"),
    );
    await assert.rejects(
      vault.patch({ credentials: { delete: ["a"] } }),
      refused(400, "VAULT::INVALID"),
    );
    await vault.delete();
    await assert.rejects(vault.delete(), refused(404, "VAULT::NOT_FOUND"));

    const offered = Object.getOwnPropertyNames(Object.getPrototypeOf(sandbox.credentialVault));
    const untried = offered.filter(
      (name) => ![...INTERNAL, ...POLICY].includes(name) && !called.has(name),
    );
    assert.deepEqual(untried, []);
  });
});

test("the policy is read and changed, and keeps what credentials are bound to", async () => {
  await withSandbox(async (sandbox) => {
    await sandbox.credentialVault.create({
      credentials: [credential("a")],
      bindings: [binding("b", { type: "bearer", credential: "a" })],
    });
    await sandbox.patchEgressRules([{ action: "allow", target: "*.example.org" }]);
    const targets = async () => (await sandbox.getEgressPolicy()).egress.map((rule) => rule.target);
    assert.deepEqual(await targets(), ["*.example.org", "api.example.com"]);
    await assert.rejects(sandbox.deleteEgressRules(["api.example.com"]), (error) => {
      assert.equal(error.statusCode, 400);
      return true;
    });
    await sandbox.deleteEgressRules(["*.example.org"]);
    assert.deepEqual(await targets(), ["api.example.com"]);
  });
});

test("a vault needs a policy, and a sandbox that is made for it", async () => {
  const credentialProxy = { enabled: true };
  await assert.rejects(
    Sandbox.create({ image: "host", timeoutSeconds: 600, credentialProxy }),
    (error) => {
      assert.equal(error.statusCode, 422);
      return true;
    },
  );
});
