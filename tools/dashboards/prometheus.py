"""A client of Prometheus' HTTP API, for serve.py. Threads may share one.

Answers are bounded in bytes, time and number; `Failure` says what went wrong in a
sentence for people.
"""

import base64
import http.client
import json
import math
import threading
import urllib.parse

TIMEOUT_S = 10
MAX_ANSWER_BYTES = 8 << 20
MAX_QUERIES = 8
MAX_SERIES = 100


class Failure(Exception):
    """No answer, or one that is an error. `unreachable` tells them apart."""

    def __init__(self, text, unreachable=False):
        super().__init__(text)
        self.unreachable = unreachable


def reason(error):
    """A short text without a number."""
    return (getattr(error, "strerror", None) or str(error))[:100]


def labels_of(one):
    """The labels of a series."""
    return {name: str(value) for name, value in one["metric"].items()}


class Prometheus:
    """The server at http://HOST:PORT; a path before /api is kept. With a password, it
    asks as the user foretoken."""

    def __init__(self, url, password=None):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.query:
            raise ValueError(f"{url}: want http://HOST:PORT")
        self._host, self._port = parts.hostname, parts.port or 80
        self._path = parts.path.rstrip("/")
        self._slots = threading.BoundedSemaphore(MAX_QUERIES)
        self.address = parts.netloc
        self._headers = {}
        if password is not None:
            pair = base64.b64encode(f"foretoken:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"

    def _get(self, path, read, **parameters):
        """read(data) of an answer's `data`; other shapes than `read` expects are a
        Failure."""
        if not self._slots.acquire(timeout=TIMEOUT_S):
            raise Failure("Prometheus is too slow: too many queries wait.")
        connection = http.client.HTTPConnection(self._host, self._port,
                                                timeout=TIMEOUT_S)
        try:
            connection.request("GET", f"{self._path}/api/v1/{path}?" +
                               urllib.parse.urlencode(parameters),
                               headers=self._headers)
            answer = connection.getresponse()
            if answer.status in (401, 403):
                raise Failure(f"Prometheus at {self.address} wants another password "
                              "(--password-file).", unreachable=True)
            text = answer.read(MAX_ANSWER_BYTES + 1)
            if len(text) > MAX_ANSWER_BYTES:
                raise Failure("Prometheus' answer is too large.")
            content = json.loads(text)
            if content.get("status") != "success":
                raise Failure("Prometheus refuses the query: "
                              f"{str(content.get('error'))[:300]}")
            return read(content["data"])
        except (OSError, http.client.HTTPException) as error:
            raise Failure(f"Prometheus does not answer at {self.address} "
                          f"({reason(error)}).", unreachable=True) from error
        except (ValueError, KeyError, AttributeError, TypeError, IndexError,
                OverflowError, RecursionError) as error:
            raise Failure(f"The server at {self.address} is not a Prometheus.",
                          unreachable=True) from error
        finally:
            connection.close()
            self._slots.release()

    def series(self, query, window):
        """([(labels, values)], left out) of a query over a window. Values are
        [window.count]; None where there is no finite number. At most MAX_SERIES."""
        def read(data):
            result, found = data["result"], []
            for one in result[:MAX_SERIES]:
                values = [None] * window.count
                for when, text in one["values"]:
                    index = round((when - window.start) / window.step)
                    number = float(text)
                    if 0 <= index < window.count and math.isfinite(number):
                        values[index] = number
                found.append((labels_of(one), values))
            return found, max(0, len(result) - MAX_SERIES)
        return self._get("query_range", read, query=query, start=window.start,
                         end=window.end, step=window.step, timeout=f"{TIMEOUT_S}s")

    def now(self, query):
        """[(labels, value)] of a query now."""
        return self._get("query", lambda data: [
            (labels_of(one), float(one["value"][1]))
            for one in data["result"][:MAX_SERIES]], query=query)

    def label_values(self, metric, label):
        """The label's values in the metric's series."""
        return self._get(f"label/{label}/values",
                         lambda data: [str(value) for value in data],
                         **{"match[]": metric})
