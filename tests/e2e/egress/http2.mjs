// A host that speaks HTTP/2 alone. Prints every request as a line of JSON, with what its body was.
//
//   node http2.mjs ADDRESS CERTIFICATE KEY

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createSecureServer } from "node:http2";

const [address, certificate, key] = process.argv.slice(2);
const server = createSecureServer({ cert: readFileSync(certificate), key: readFileSync(key) });

server.on("stream", (stream, headers) => {
  const path = headers[":path"];
  const digest = createHash("sha256");
  let length = 0;
  stream.on("error", () => {});
  const tell = (trailers) => {
    const seen = { method: headers[":method"], path, headers: { ...headers }, length, trailers };
    console.log(JSON.stringify(seen));
    return JSON.stringify({ ...seen, sha256: digest.digest("hex") });
  };
  if (path === "/duplex") {
    tell();
    stream.respond({ ":status": 200 });
    stream.on("data", (part) => stream.write(part.toString().toUpperCase()));
    stream.on("end", () => stream.end());
  } else if (path.startsWith("/bytes/")) {
    tell();
    let left = Number(path.slice(7));
    stream.respond({ ":status": 200, "content-length": left });
    const send = () => {
      while (left > 0) {
        const part = Math.min(left, 1 << 16);
        left -= part;
        if (!stream.write(Buffer.alloc(part, "x"))) return stream.once("drain", send);
      }
      stream.end();
    };
    send();
  } else if (path === "/trailers") {
    tell();
    stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "7", "x-late": "yes" }));
    stream.end("body");
  } else if (path === "/early") {
    tell();
    stream.respond({ ":status": 413 });
    stream.end("too much");
  } else {
    let trailers;
    stream.on("trailers", (said) => (trailers = { ...said }));
    stream.on("data", (part) => {
      digest.update(part);
      length += part.length;
    });
    stream.on("end", () => {
      stream.respond({ ":status": 200, "content-type": "application/json" });
      stream.end(tell(trailers));
    });
  }
});
server.listen(443, address, () => console.log("ready"));
process.stdin.on("end", () => process.exit()).resume();
