"""A server of S3 on this computer, moto's, and a proxy before it that breaks answers at moments that a seed decides."""

import http.client
import os
import random
import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

KINDS = ("500", "503", "reset", "short", "slow")


class Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), Forward)
        self.behind, self.rate, self.faults, self.kinds = port, 0.0, [], KINDS
        self.requests, self.delay, self.under_way, self.most = [], 0.0, 0, 0
        self.random, self.lock = random.Random(0), threading.Lock()

    def fault(self):
        with self.lock:
            if self.random.random() >= self.rate:
                return None
            self.faults.append(self.random.choice(self.kinds))
            return self.faults[-1]


class Forward(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def forward(self):
        proxy = self.server
        with proxy.lock:
            proxy.requests.append((self.command, unquote(self.path.partition("?")[0])))
            proxy.under_way += 1
            proxy.most = max(proxy.most, proxy.under_way)
        try:
            time.sleep(proxy.delay)
            self.answer()
        finally:
            with proxy.lock:
                proxy.under_way -= 1

    def answer(self):
        fault = self.server.fault()
        if fault == "slow":
            time.sleep(0.2)
        if fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.close_connection = True
            self.connection.close()
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        if fault in ("403", "500", "503"):
            self.send_response(int(fault))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        server = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        server.request(self.command, self.path, body, dict(self.headers))
        answer = server.getresponse()
        data = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        size = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", size or "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if fault == "short" else data)
        if fault == "short":
            self.close_connection = True
        server.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward  # noqa: N815


@contextmanager
def serving():
    """Give the proxy; `uri(path)` of it names a file or folder."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    reset = http.client.HTTPConnection("127.0.0.1", port)  # servers of one process share their buckets
    reset.request("POST", "/moto-api/reset")
    reset.getresponse().read()
    reset.close()
    proxy = Proxy(port)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    before = dict(os.environ)
    os.environ.update(AWS_ACCESS_KEY_ID="mine", AWS_SECRET_ACCESS_KEY="SECRET", AWS_EC2_METADATA_DISABLED="true")
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        server.stop()
        os.environ.clear()
        os.environ.update(before)


def uri(proxy, path):
    return f"s3://{path}?endpoint_override=127.0.0.1:{proxy.server_address[1]}&scheme=http&region=us-east-1"


def upload(proxy, folder):
    """Put the Parquet files below a folder into the bucket `logs`."""
    import pyarrow.fs

    behind = pyarrow.fs.S3FileSystem(
        access_key="mine",
        secret_key="SECRET",
        scheme="http",
        region="us-east-1",
        endpoint_override=f"127.0.0.1:{proxy.behind}",
        allow_bucket_creation=True,
    )
    behind.create_dir("logs")
    for path in folder.rglob("*.parquet"):
        with behind.open_output_stream(f"logs/{path.relative_to(folder)}") as file:
            file.write(path.read_bytes())
