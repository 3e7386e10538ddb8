#!/usr/bin/env python3
"""How long a node leads on a store whose writes are slow.

    eval "$(cargo xtask s3 up seaweedfs)"
    cargo build && python3 bench/slow_store.py target/debug/tenure

A proxy on loopback stands between the node and the S3 engine of the environment (AWS_ENDPOINT_URL). It delays every
PUT, half of it before the engine has it and half of it after, and every other request by 40 ms. A node with default
settings runs for a minute and a quarter; from the fifteenth second on it is asked over HTTP, twenty times a second for a
minute, whether it leads. Needs nothing but Python's own library.
"""

import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LATENCIES_MS = [0, 300, 600, 900, 1200]
READ_S = 0.04
BEFORE_S, MEASURED_S, EVERY_S = 15, 60, 0.05


def proxy(engine, write_s):
    """A server that passes everything on to the engine, late."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def handle_any(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            half_s = (write_s if self.command == "PUT" else READ_S) / 2
            time.sleep(half_s)
            upstream = http.client.HTTPConnection(engine, timeout=30)
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            content = answer.read()
            upstream.close()
            time.sleep(half_s)
            try:
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                length = answer.getheader("content-length") if self.command == "HEAD" else str(len(content))
                if answer.status not in (204, 304):
                    self.send_header("content-length", length or "0")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)
            except OSError:
                pass  # Whoever asked has given up.

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_any

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def leads(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        connection.request("GET", "/leaderz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def measure(binary, write_ms):
    engine = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"]).netloc
    server = proxy(engine, write_ms / 1000)
    port = 17420 + write_ms // 100
    environment = dict(os.environ, AWS_ENDPOINT_URL=f"http://127.0.0.1:{server.server_address[1]}")
    with tempfile.TemporaryDirectory() as folder:
        node = subprocess.Popen(
            [binary, "run", "--node", "pod-a", "--startup-jitter-max", "0", "--listen", f"127.0.0.1:{port}",
             "--store", f"s3://tenure-test/slow-{write_ms}-{time.time_ns()}"],
            env=dict(environment, TENURE_DATA_DIR=folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(BEFORE_S)
            began, asked, led = time.monotonic(), 0, 0
            while time.monotonic() - began < MEASURED_S:
                asked += 1
                led += leads(port)
                time.sleep(EVERY_S)
        finally:
            node.kill()
            node.wait()
            server.shutdown()
    return led * MEASURED_S / asked


if __name__ == "__main__":
    print("write latency   seconds led of 60")
    for write_ms in LATENCIES_MS:
        print(f"{write_ms:>10} ms {measure(sys.argv[1], write_ms):>18.1f}", flush=True)
