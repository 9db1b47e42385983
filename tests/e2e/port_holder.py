"""Holds a port of 127.0.0.1 until it is killed; prints a line once it does.

    port_holder.py fine PORT      answers 200 to everything
    port_holder.py silent PORT    accepts connections and says nothing
"""

import http.server
import socket
import sys


class Fine(http.server.BaseHTTPRequestHandler):
    """Answers 200."""

    def do_GET(self):  # pylint: disable=invalid-name
        """An empty page."""
        self.send_response(200)
        self.end_headers()


def main():
    """Serves."""
    manner, address = sys.argv[1], ("127.0.0.1", int(sys.argv[2]))
    if manner == "fine":
        with http.server.ThreadingHTTPServer(address, Fine) as server:
            print("ready", flush=True)
            server.serve_forever()
    kept = []
    with socket.create_server(address) as listener:
        print("ready", flush=True)
        while True:
            kept.append(listener.accept()[0])


if __name__ == "__main__":
    main()
