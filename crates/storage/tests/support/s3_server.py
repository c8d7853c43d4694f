"""An S3 server on loopback, for tests: moto, with one request at a time.

Conditional writes must be atomic, and moto's are only if nothing runs beside them. A request is
taken as a whole before its turn, so that one that never ends doesn't keep the others waiting.
"""

import io
import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

moto = DomainDispatcherApplication(create_backend_app)
turn = threading.Lock()


def one_at_a_time(environ, start_response):
    length = int(environ.get("CONTENT_LENGTH") or 0)
    environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
    with turn:
        return [b"".join(moto(environ, start_response))]


run_simple("127.0.0.1", int(sys.argv[1]), one_at_a_time, threaded=True)
