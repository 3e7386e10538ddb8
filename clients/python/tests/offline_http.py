"""Answers and events as bytes: in pieces, broken, too large."""

from __future__ import annotations

import unittest

from tenure import _http as http
from tenure._api import NewJob, groups, once_name
from tenure._core import cut, encode, find_token, path_of, pieces
from tenure._http import Address, BadAnswer, EventReader, Incoming, request_bytes


def whole(data: bytes, step: int, closed: bool = False) -> bytes:
    incoming, body = Incoming(), b""
    for at in range(0, len(data), step):
        incoming.feed(data[at : at + step])
        body += incoming.body()
    if closed:
        incoming.feed(b"")
    assert incoming.done
    return body


class Answers(unittest.TestCase):
    def test_every_way_to_end_an_answer_cut_at_every_place(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nA: b\r\n"
        sized = head + b"Content-Length: 11\r\n\r\nhello world"
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: u\r\n\r\n"
        until_end = head + b"\r\nhello world"
        for step in range(1, len(chunked) + 1):
            self.assertEqual(whole(sized, step), b"hello world")
            self.assertEqual(whole(chunked, step), b"hello world")
            self.assertEqual(whole(until_end, step, closed=True), b"hello world")
        self.assertEqual(whole(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", 3), b"")

    def test_what_is_cut_off_or_wrong_is_no_answer(self) -> None:
        for data in (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", b"HTTP/1.1 200 OK\r\n", b""):
            with self.assertRaises(BadAnswer):
                incoming = Incoming()
                incoming.feed(data)
                incoming.feed(b"")
        head = b"HTTP/1.1 200 OK\r\n"
        for data in (
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/1.1 2000 OK\r\n\r\n",
            head + b"Content-Length: -1\r\n\r\n",
            head + b"no colon\r\n\r\n",
            head + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
            head + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            b"x" * (http.HEAD_MAX + 1),
            head + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * (http.LINE_MAX + 2),
        ):
            with self.assertRaises(BadAnswer, msg=data[:60]):
                Incoming().feed(data)

    def test_events_cut_at_every_place(self) -> None:
        text = 'retry: 2000\n: tenure\n\nid: a-1\nevent: missed\ndata: {"missed": 3}\n\nid: a-2\r\ndata: {"event":\r\ndata: "ü"}\r\n\r\n'
        data = text.encode()
        for step in range(1, len(data) + 1):
            reader, found = EventReader(), []
            for at in range(0, len(data), step):
                found += reader.feed(data[at : at + step])
            self.assertEqual([(one.name, one.id) for one in found], [("missed", "a-1"), ("ü", "a-2")])
            self.assertEqual(found[0].data, {"missed": 3})
        for data in (b"data: [1]\n\n", b"data: {\n\n", b"data: " + b"x" * (http.EVENT_MAX + 1)):
            with self.assertRaises(BadAnswer):
                EventReader().feed(data)


class Requests(unittest.TestCase):
    def test_nothing_slips_into_the_head(self) -> None:
        address = Address("http://[::1]:7420/tenure/")
        made = request_bytes(address, "GET", "/v1/leader", None, "t" * 16, {})
        self.assertTrue(made.startswith(b"GET /tenure/v1/leader HTTP/1.1\r\nHost: [::1]:7420\r\n"))
        for path, fields in (("/x HTTP/1.1\r\nA: b", {}), ("/\n", {}), ("/ü", {}), ("/", {"Last-Event-ID": "a\r\nB: c"})):
            with self.assertRaises(ValueError):
                request_bytes(address, "GET", path, None, None, fields)
        self.assertEqual(path_of("jobs", "a/../b ?"), "/v1/jobs/a%2F..%2Fb%20%3F")

    def test_wrong_urls(self) -> None:
        for url in ("", "127.0.0.1:7420", "ftp://x", "http://", "http://user:password@x", "http://x/?a=b", "http://x:port"):
            with self.assertRaises(ValueError, msg=url) as caught:
                Address(url)
            self.assertNotIn("password@", str(caught.exception))

    def test_a_bad_token_is_refused_and_not_shown(self) -> None:
        for token in ("short", "a-secret-with a space", "x" * 1025, "a-secret-\r\nwith: a line"):
            with self.assertRaises(ValueError) as caught:
                find_token(token, None)
            self.assertNotIn("secret", str(caught.exception))

    def test_many_jobs_are_cut_into_requests_that_a_node_takes(self) -> None:
        bodies = [NewJob("x", "p" * size).body for size in (100, 15_000, 1) * 700]
        found = groups(bodies)
        self.assertEqual([body for group in found for body in group], bodies)
        for group in found:
            self.assertLessEqual(len(group), 1000)
            self.assertLessEqual(len(encode({"jobs": group})), 64 * 1024)
        self.assertEqual([len(group) for group in groups([NewJob("x", id="i").body] * 2500)], [1000, 1000, 500])

    def test_texts_are_cut_between_characters(self) -> None:
        self.assertEqual(cut("ü" * 600, 1024).encode()[-5:], "ü…".encode())
        self.assertLessEqual(len(cut("ü" * 600, 1024).encode()), 1024)
        self.assertEqual("".join(pieces("aü€𝄞" * 99, 10)), "aü€𝄞" * 99)
        self.assertTrue(all(len(piece.encode()) <= 10 for piece in pieces("aü€𝄞" * 99, 10)))
        self.assertEqual(cut("\ud800", 10), "?")

    def test_the_name_of_a_key_is_an_id_and_its_own(self) -> None:
        keys = ["a", "a.b", "a..b", "ü", "𝄞", "x" * 100, "x" * 101, ".a", "a/b", "-a", "once.a", "a\n", "\ud800"]
        names = [once_name(key) for key in keys]
        self.assertEqual(len(set(names)), len(keys))
        for name in names:
            self.assertRegex(name, r"\Aonce\.[A-Za-z0-9_-]{1,60}\.[0-9a-f]{32}\Z")
        self.assertTrue(names[0].startswith("once.a."))
        with self.assertRaises(ValueError):
            once_name("")


if __name__ == "__main__":
    unittest.main()
