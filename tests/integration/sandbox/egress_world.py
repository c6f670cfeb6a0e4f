"""A small internet in a network namespace: a name service and a web server on every address.

argv[1] is JSON, from a name to its addresses, answer by answer. It prints `ready`, then the own
address of every connection to the web server.
"""

import http.server
import json
import socket
import struct
import sys
import threading

names: dict[str, list[list[str]]] = json.loads(sys.argv[1])
A, IN = 1, 1


class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        own = self.connection.getsockname()[0]
        print(own, flush=True)
        self.send_response(200)
        self.send_header('Content-Length', str(len(own)))
        self.end_headers()
        self.wfile.write(own.encode())

    def log_message(self, *_: object) -> None:
        pass


def answer(query: bytes) -> bytes:
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    kind, _ = struct.unpack_from('>HH', query, at + 1)
    found: list[str] = []
    if kind == A and (answers := names.get('.'.join(labels))):
        found = answers.pop(0) if len(answers) > 1 else answers[0]
    head = query[:2] + struct.pack('>HHHHH', 0x8180, 1, len(found), 0, 0)
    records = (
        struct.pack('>HHHIH', 0xC00C, A, IN, 0, 4) + socket.inet_aton(each) for each in found
    )
    return head + query[12 : at + 5] + b''.join(records)


web = http.server.ThreadingHTTPServer(('0.0.0.0', 8080), Web)
threading.Thread(target=web.serve_forever, daemon=True).start()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as dns:
    dns.bind(('0.0.0.0', 53))
    print('ready', flush=True)
    while True:
        query, peer = dns.recvfrom(512)
        dns.sendto(answer(query), peer)
