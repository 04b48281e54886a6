"""What the client does on GitHub's bad days, and where it talks to."""

import ssl
import subprocess
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from d3bot.github.client import Client, RefusedError
from d3bot.github.place import Place, place_of, tracker_repo
from d3bot.spec import SpecError
from d3bot.tracker.base import ExhaustedError, TrackerError
from tests.github.proxy import Fault

LIST = {"state": "all"}


def rows(client):
    return [row for page in client.pages("/issues", LIST) for row in page]


@pytest.mark.parametrize("kind", ["before", "limited", "limited-bare", "secondary", "503"])
def test_a_question_is_asked_again(hub, kind):
    hub.proxy.faults.append(Fault(kind, "GET", "/issues$", 2))
    assert rows(hub.client()) == []
    assert len(hub.proxy.requests) == 3


def test_a_slow_page_is_asked_for_again(hub):
    hub.proxy.faults.append(Fault("slow", "GET", "/issues$", 1, seconds=1.5))
    assert rows(hub.client(timeout_s=1)) == []
    assert len(hub.proxy.requests) == 2


@pytest.mark.parametrize(("kind", "least", "most"), [("limited", 2, 3), ("secondary", 3, 4), ("limited-bare", 60, 61)])
def test_a_limit_is_waited_for_as_long_as_github_says_or_a_minute(hub, kind, least, most):
    hub.proxy.faults.append(Fault(kind, "GET", "/issues$"))
    rows(hub.client())
    assert least <= hub.clock.slept <= most


def test_waits_for_limits_have_an_end(hub):
    hub.proxy.faults.append(Fault("limited-bare", "GET", "/issues$", 100))
    with pytest.raises(ExhaustedError, match="the next run goes on"):
        rows(hub.client())
    assert hub.clock.slept <= 300


def test_a_failure_that_lasts_ends_too(hub):
    hub.proxy.faults.append(Fault("before", "GET", "/issues$", 100))
    with pytest.raises(ExhaustedError, match="GitHub answers 502, 4 times"):
        rows(hub.client())


@pytest.mark.parametrize("status", ["403", "404", "410", "422"])
def test_a_no_is_a_no(hub, status):
    hub.proxy.faults.append(Fault(status, "GET", "/issues$"))
    with pytest.raises(RefusedError) as caught:
        rows(hub.client())
    assert caught.value.status == int(status)
    assert len(hub.proxy.requests) == 1


@pytest.mark.parametrize("kind", ["limited", "limited-bare", "secondary"])
def test_a_creation_that_a_limit_stopped_is_tried_again_without_looking(hub, kind):
    hub.proxy.faults.append(Fault(kind, "POST", "/labels$"))
    client = hub.client()
    client.create("x", lambda: client.repo.create_label("x", "ededed"), lambda: pytest.fail("looked"))
    assert len(hub.proxy.requests) == 2


def test_a_creation_of_unknown_outcome_is_looked_for_several_times_before_it_is_repeated(hub):
    hub.proxy.faults.append(Fault("before", "POST", "/labels$", 2))
    client = hub.client()
    looks = []
    with pytest.raises(TrackerError, match="the next run looks again"):
        client.create("x", lambda: client.repo.create_label("x", "ededed"), lambda: looks.append(1))
    assert (len(looks), len(hub.proxy.requests)) == (6, 2)


def test_writes_keep_a_second_between_them(hub):
    client = hub.client()
    for name in ("a", "b", "c"):
        client.create(name, lambda name=name: client.repo.create_label(name, "ededed"), lambda: None)
    assert hub.clock.slept == 2.0


def test_what_did_not_change_costs_no_limit_a_second_time(hub):
    hub.person("POST", "/issues", {"title": "x"})
    client = hub.client()
    assert rows(client) == rows(client)
    assert hub.proxy.not_modified == 1


def test_a_listing_has_all_its_pages(hub):
    for number in range(205):
        hub.person("POST", "/issues", {"title": str(number)})
    assert len(rows(hub.client())) == 205
    assert len(hub.proxy.requests) == 3


def test_the_requests_of_a_run_are_counted(hub):
    client = hub.client(max_requests=7, reserved=4)
    for _ in range(3):
        rows(client)
    with pytest.raises(ExhaustedError, match="are spent"):
        rows(client)


def test_h3_everything_is_below_the_address_that_actions_names(hub):
    assert hub.proxy.url.endswith("/api/v3")
    rows(hub.client())
    assert all(path.startswith("/repos/") for _, path in hub.proxy.requests)
    place = place_of({"GITHUB_API_URL": "https://ghe.example/api/v3/", "GITHUB_SERVER_URL": "https://ghe.example"})
    assert (place.api_url, place.server_url) == ("https://ghe.example/api/v3", "https://ghe.example")


def test_h3_a_proxy_is_used_where_the_environment_names_one(hub, monkeypatch):
    seen = []

    class Forward(BaseHTTPRequestHandler):
        def do_CONNECT(self):
            seen.append(self.path)
            self.send_error(502)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Forward)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.server_address[1]}")
    client = hub.client(place=hub.place(api_url="https://ghe.example/api/v3"))
    with pytest.raises(ExhaustedError, match="ProxyError"):
        client.get("")
    server.shutdown()
    assert seen[0] == "ghe.example:443"


def test_h3_a_certificate_of_ones_own_is_trusted_where_the_environment_names_it(hub, tmp_path, monkeypatch):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = hub.place(api_url=f"https://localhost:{server.server_address[1]}/api/v3")
    with pytest.raises(ExhaustedError, match="SSLError"):
        hub.client(place=place).get("")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    assert "url" in hub.client(place=place).get("")
    server.shutdown()


PLACE = Place(repository="octocat/lib", token="t")


def test_the_workflows_own_repository_is_the_default():
    assert tracker_repo("", (), PLACE) == "octocat/lib"
    assert tracker_repo("Octocat/Lib", (), PLACE) == "Octocat/Lib"


def test_any_other_repository_needs_an_entry_in_the_allow_list():
    with pytest.raises(SpecError, match="add it to \\[tracker\\] allow"):
        tracker_repo("pytorch/pytorch", (), PLACE)
    assert tracker_repo("pytorch/pytorch", ("PyTorch/pytorch",), PLACE) == "pytorch/pytorch"


@pytest.mark.parametrize("wanted", ["", "nobody", "a/b/c", "../x", "a/b.git", "a b/c"])
def test_what_is_no_repository_is_refused(wanted):
    with pytest.raises(SpecError):
        tracker_repo(wanted, (wanted,), Place())


def test_without_a_token_nothing_is_asked():
    with pytest.raises(SpecError, match="GITHUB_TOKEN"):
        Client(Place(repository="o/r"), "o/r")


@pytest.mark.parametrize(
    ("name", "value"),
    [("GITHUB_RUN_ID", "x1"), ("GITHUB_API_URL", "ftp://x"), ("GITHUB_REPOSITORY", "no"), ("GITHUB_RUN_ATTEMPT", "-1")],
)
def test_a_variable_that_cannot_be_is_named(name, value):
    with pytest.raises(SpecError, match=name):
        place_of({name: value})


def test_the_lease_is_not_outlived(hub):
    from d3bot.github.lock import LEASE, held

    with held(hub.client(), "d3bot") as lease:
        lease.check()
        hub.clock.moment += LEASE + timedelta(seconds=1)
        with pytest.raises(ExhaustedError, match="longer than it may"):
            lease.check()
