// A sandbox, a command, a file.

import { Sandbox } from "@alibaba-group/opensandbox";

const sandbox = await Sandbox.create({ image: "host", timeoutSeconds: 600 });
try {
  const execution = await sandbox.commands.run("echo hello; exit 3");
  console.log(execution.logs.stdout.map((line) => line.text), "exit code", execution.exitCode);

  await sandbox.files.writeFiles([{ path: "/tmp/note.txt", data: "kept\n" }]);
  process.stdout.write(await sandbox.files.readFile("/tmp/note.txt"));
} finally {
  await sandbox.kill();
  await sandbox.close();
}
