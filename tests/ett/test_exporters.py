"""Exporters: what they send, to real servers, and that they can't hurt the job."""

import http.client
import json
import logging
import shutil
import socket
import struct
import subprocess
import threading
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from fastplan import ett
from fastplan.ett.exporters import snapshot, thread
from fastplan.ett.exporters.prometheus import Endpoint, TextFile, metrics_text
from fastplan.ett.exporters.snapshot import Source, take_snapshot
from fastplan.ett.exporters.thread import ExportThread, open_exporter, start_exporters
from tests.ett.runs import Rank

PATIENCE = 60.0  # seconds for another process, after which it counts as broken
DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-ett.json"


@pytest.fixture
def rank(tmp_path):
    made = Rank(tmp_path, 3, world=8, launched=-10.0, host='h"\\\n')
    made.do("plan", 2.0).do("publish", 1.0).steps(0, 9, 0.5)
    made.recorder.checkpoint(9)
    return made


@pytest.fixture
def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def samples(text):
    """The samples of Prometheus' text format by name and phase."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            head, value = line.rsplit(" ", 1)
            name, _, labels = head.partition("{")
            phase = labels.partition('phase="')[2].partition('"')[0]
            found[name.removeprefix("fastplan_ett_"), phase] = float(value)
    return found


def test_a_snapshot_is_the_arithmetic_of_the_report(rank):
    found = take_snapshot(rank.path)
    assert found.phases == {"launch": 10.0, "plan": 2.0, "publish": 1.0, "training": 5.0}
    assert (found.steps, found.last_step, found.checkpoints, found.failures) == (10, 9, 1, 0)
    assert found.time_to_start == 13.0
    assert (found.rank, found.world) == (3, 8)
    assert [(name, end - begin) for name, begin, end in found.spans] == [
        ("plan", 2_000_000_000),
        ("publish", 1_000_000_000),
    ]


def test_a_source_reads_only_what_is_new(rank, monkeypatch):
    source = Source(str(rank.path))
    assert source.snapshot() == take_snapshot(rank.path)
    whole = snapshot.take_snapshot
    monkeypatch.setattr(snapshot, "take_snapshot", None)
    rank.do("eval", 3.0).steps(10, 29, 0.5)
    rank.recorder.stop()
    assert source.snapshot(fresh=True) == whole(rank.path)
    assert source.snapshot(fresh=True).steps == 30
    monkeypatch.undo()
    with rank.path.open("a") as file:
        file.write("damaged\n")
    assert source.snapshot(fresh=True).steps == 30


def test_the_text_has_every_figure_and_escapes_labels(rank):
    text = metrics_text(take_snapshot(rank.path))
    found = samples(text)
    assert found["phase_seconds_total", "plan"] == 2.0
    assert found["steps_total", ""] == 10.0
    assert found["time_to_start_seconds", ""] == 13.0
    assert found["ratio", ""] == pytest.approx(5 / 18)
    assert 'host="h\\"\\\\\\n"' in text
    assert text.count("# TYPE fastplan_ett_phase_seconds_total counter") == 1


def test_a_text_file_is_replaced_as_a_whole(rank, tmp_path):
    place = tmp_path / "collector"
    exporter = TextFile(str(place))
    for _ in range(2):
        exporter.export(take_snapshot(rank.path))
    assert [path.name for path in place.iterdir()] == ["fastplan_ett_rank00003.prom"]
    assert samples((place / "fastplan_ett_rank00003.prom").read_text())["steps_total", ""] == 10.0


def test_the_endpoint_is_on_loopback_unless_told_otherwise(rank):
    endpoint = open_exporter("http:0", Source(str(rank.path)))
    try:
        assert endpoint._server.server_address[0] == "127.0.0.1"
        url = f"http://127.0.0.1:{endpoint.port}"
        with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert samples(answer.read().decode())["steps_total", ""] == 10.0
        connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=PATIENCE)
        connection.request("GET", "/etc/passwd")
        assert connection.getresponse().status == 404
        connection.close()
    finally:
        endpoint.close()


def test_prometheus_scrapes_the_endpoint(rank, tmp_path, free_port):
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
    endpoint = Endpoint("127.0.0.1", 0, Source(str(rank.path)))
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        "scrape_configs:\n- job_name: ett\n  static_configs:\n"
        f"  - targets: ['127.0.0.1:{endpoint.port}']\n"
    )
    server = subprocess.Popen(
        [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{free_port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        found = queried(server, free_port, 'fastplan_ett_phase_seconds_total{phase="plan"}')
        assert (found["value"][1], found["metric"]["rank"]) == ("2", "3")
        # Every query of the dashboard is one that Prometheus understands.
        for query in dashboard_queries():
            queried(server, free_port, query, empty=True)
    finally:
        server.kill()
        server.wait()
        endpoint.close()


def queried(server, port, query, empty=False):
    """The first result of a query, as soon as there is one."""
    waiting = threading.Event()
    for _ in range(int(PATIENCE / 0.2)):
        assert server.poll() is None, "prometheus has ended"
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("GET", "/api/v1/query?" + urllib.parse.urlencode({"query": query}))
            answer = connection.getresponse()
            document = json.loads(answer.read())
            connection.close()
            if answer.status == 400:
                raise AssertionError(f"{query}: {document}")
            if document.get("status") == "success" and (empty or document["data"]["result"]):
                return (document["data"]["result"] or [None])[0]
        except (OSError, ValueError, http.client.HTTPException):
            pass
        waiting.wait(0.2)
    raise AssertionError(f"{query}: no answer")


def dashboard_queries():
    document = json.loads(DASHBOARD.read_text())
    for panel in document["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$job", ".*").replace("$__rate_interval", "5m")


class Collector:
    """A receiver of OTLP that keeps what it gets."""

    def __init__(self):
        self.got, arrived = [], threading.Event()
        self.arrived = arrived
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    import gzip

                    body = gzip.decompress(body)
                got.append((self.path, body))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()
                if self.path == "/v1/traces":
                    arrived.set()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def collector():
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_otlp_sends_metrics_and_spans_by_one_loggers_names(rank, collector):
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    exporter = open_exporter(f"otlp:{collector.url}", Source(str(rank.path)))
    figures = take_snapshot(rank.path)
    exporter.export(figures)
    exporter.export(figures)  # spans are sent once
    exporter.close()
    paths = [path for path, _ in collector.got]
    assert paths == ["/v1/metrics", "/v1/traces", "/v1/metrics"]
    metrics = ExportMetricsServiceRequest.FromString(collector.got[0][1]).resource_metrics[0]
    resource = {each.key: each.value for each in metrics.resource.attributes}
    assert resource["fastplan.rank"].int_value == 3
    by_name = {metric.name: metric for metric in metrics.scope_metrics[0].metrics}
    phases = {
        point.attributes[0].value.string_value: point.as_double
        for point in by_name["fastplan.ett.phase"].sum.data_points
    }
    assert phases == figures.phases
    assert by_name["fastplan.ett.steps"].sum.data_points[0].as_int == 10
    spans = ExportTraceServiceRequest.FromString(collector.got[1][1]).resource_spans[0]
    found = [
        (span.name, span.end_time_unix_nano - span.start_time_unix_nano)
        for span in spans.scope_spans[0].spans
    ]
    assert found == [("model_initialization", 2_000_000_000), ("publish", 1_000_000_000)]


def test_a_job_exports_everything_while_it_runs(tmp_path, collector, monkeypatch):
    monkeypatch.setenv(thread.INTERVAL, "0.05")
    export = [f"textfile:{tmp_path / 'prom'}", "http:0", f"otlp:{collector.url}"]
    assert ett.start(tmp_path / "runs", export=export, labels={"job": "ads", "1-x": "y"})
    with ett.phase("plan"):
        pass
    for number in range(100):
        ett.step(number)
    assert collector.arrived.wait(PATIENCE)
    ett.stop()
    (file,) = (tmp_path / "prom").iterdir()
    text = file.read_text()
    assert samples(text)["steps_total", ""] == 100.0
    assert 'job_name="ads"' in text
    assert '_1_x="y"' in text


class Unshowable:
    def __str__(self):
        raise ValueError("no text")

    __repr__ = __str__


def circular():
    value = {}
    value["self"] = value
    return value


ODD = [
    ["otlp:http://127.0.0.1:1", "http:1:2:3", "textfile:/proc/no", "nonsense", "http:99999"],
    Unshowable(),
    [Unshowable(), ("a", 1), circular()],
    5,
    "http:not-a-port",
    "otlp:ftp://x",
]


@pytest.mark.parametrize("export", ODD, ids=range(len(ODD)))
def test_nothing_that_is_asked_for_raises_into_the_job(tmp_path, monkeypatch, export, caplog):
    monkeypatch.setenv(thread.INTERVAL, "0.05")
    labels = {("tuple", 1): circular(), "a": Unshowable(), Unshowable(): "b"}
    with caplog.at_level(logging.WARNING):
        path = ett.start(tmp_path, export=export, labels=labels)
        assert path is not None
        with ett.phase("plan", odd=Unshowable(), more={("a", 1): circular()}):
            ett.step(0)
        ett.stop()
    assert any("exported" in record.message for record in caplog.records)
    assert take_snapshot(path).steps == 1


def test_a_port_that_is_taken_is_a_warning(rank, caplog):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        running = ExportThread(str(rank.path), [f"http:{taken.getsockname()[1]}"])
        assert running.opened.wait(PATIENCE)
        running.stop()
    assert running.exporters == []
    assert "Address already in use" in caplog.text


def test_a_client_that_says_nothing_does_not_block_the_next_one(rank, monkeypatch):
    from fastplan.ett.exporters import prometheus

    monkeypatch.setattr(prometheus, "_PATIENCE", 0.05)
    endpoint = Endpoint("127.0.0.1", 0, Source(str(rank.path)))
    try:
        with socket.create_connection(("127.0.0.1", endpoint.port)):
            url = f"http://127.0.0.1:{endpoint.port}/metrics"
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                assert answer.status == 200
    finally:
        endpoint.close()


def test_a_client_that_sends_a_byte_now_and_then_does_not_hold_up_the_end(rank, monkeypatch):
    from fastplan.ett.exporters import prometheus

    monkeypatch.setattr(prometheus, "_PATIENCE", 0.2)
    endpoint = Endpoint("127.0.0.1", 0, Source(str(rank.path)))
    hung_up = threading.Event()
    with socket.create_connection(("127.0.0.1", endpoint.port)) as client:

        def drip():
            try:
                while not hung_up.wait(0.02):
                    client.send(b"G")
            except OSError:
                hung_up.set()

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert hung_up.wait(PATIENCE)
        finally:
            hung_up.set()
            dripping.join()
            endpoint.close()


def test_a_client_that_leaves_prints_nothing(rank, capfd):
    endpoint = Endpoint("127.0.0.1", 0, Source(str(rank.path)))
    reset = struct.pack("ii", 1, 0)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", endpoint.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            client.send(b"GET /metrics HTTP/1.0\r\n\r\n")
    with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics") as answer:
        assert answer.status == 200
    endpoint.close()
    assert capfd.readouterr() == ("", "")


def test_ranks_of_a_host_have_ports_of_their_own(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert thread._port(9400) == 9403
    assert thread._port(0) == 0


def test_without_exporters_no_thread_is_started(tmp_path):
    assert start_exporters(str(tmp_path / "x"), None) is None
    assert start_exporters(str(tmp_path / "x"), []) is None
