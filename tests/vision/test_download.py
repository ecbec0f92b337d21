"""Where files are looked for, and what a user is told who has neither file nor net."""

import hashlib
import http.server
import io
import tarfile
import threading
from functools import partial

import pytest

from clop.errors import UsageError
from clop.files import cache_folder
from clop.vision.download import Source, find_file, find_folder


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path_factory, monkeypatch):
    """A folder and the address under which it is served."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path_factory.mktemp("served")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def source(server, name="data.gz", content=b"0123456789"):
    folder, address = server
    (folder / name).write_bytes(content)
    return Source(name, f"{address}/{name}", f"md5:{hashlib.md5(content).hexdigest()}")


NOWHERE = Source("data.gz", "http://127.0.0.1:9/data.gz", "md5:0")


def test_a_file_in_the_users_folder_comes_before_the_cache(tmp_path, cache):
    for folder in (tmp_path / "set", cache / "data" / "set"):
        folder.mkdir(parents=True)
        (folder / "data.gz").write_bytes(b"")
    assert find_file(NOWHERE, tmp_path, ("set",)) == tmp_path / "set" / "data.gz"
    assert find_file(NOWHERE, None, ("set",)) == cache / "data" / "set" / "data.gz"
    (tmp_path / "set" / "data.gz").rename(tmp_path / "data")
    assert find_file(NOWHERE, tmp_path, ("set",)) == tmp_path / "data", "unpacked, and in the folder itself"


def test_a_missing_file_is_downloaded_once_with_progress(server, cache, capsys):
    wanted = source(server)
    path = find_file(wanted, None, ("set",))
    assert path == cache / "data" / "set" / "data.gz"
    assert path.read_bytes() == b"0123456789"
    assert "downloading data.gz" in capsys.readouterr().err
    (server[0] / "data.gz").unlink()
    assert find_file(wanted, None, ("set",)) == path


def test_a_download_with_another_hash_is_refused_and_not_kept(server, cache):
    wanted = source(server)
    (server[0] / "data.gz").write_bytes(b"something else")
    with pytest.raises(UsageError, match="its hash is not the published one"):
        find_file(wanted, None, ("set",))
    assert not list(cache.rglob("data.gz"))


def test_offline_the_sentence_says_which_file_from_where_and_where_to_put_it(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(UsageError) as told:
        find_file(NOWHERE, None, ("set",))
    assert str(told.value) == (
        "data.gz is not here and could not be downloaded (no connection); get it from http://127.0.0.1:9/data.gz and "
        f"put it into {cache / 'data' / 'set'}"
    )
    with pytest.raises(UsageError, match=f"put it into {tmp_path / 'set'}"):
        find_file(NOWHERE, tmp_path, ("set",))


def test_a_file_that_is_gone_from_its_host_is_told_with_the_status(server):
    wanted = source(server)
    (server[0] / "data.gz").unlink()
    with pytest.raises(UsageError, match=r"could not be downloaded \(status 404\)"):
        find_file(wanted, None, ("set",))


def test_without_pooch_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    with pytest.raises(UsageError, match=r"clop\[vision\]"):
        find_file(NOWHERE, None, ("set",))


def _archive(**files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name.replace("__", "/"))
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def find_set(source, data=None):
    return find_folder(source, data, ("set2", "set"), lambda path: (path / "train").is_file(), "set")


def test_a_missing_folder_is_downloaded_and_unpacked_once(server, cache):
    wanted = source(server, "set2.tgz", _archive(set2__train=b"x"))
    folder = find_set(wanted)
    assert folder == cache / "data" / "set2"
    assert (folder / "train").read_bytes() == b"x"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["set2"], "neither archive nor drafts"
    (server[0] / "set2.tgz").unlink()
    assert find_set(wanted) == folder


def test_an_archive_that_was_put_where_the_sentence_says_is_taken(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    content = _archive(set2__train=b"x")
    wanted = Source("set2.tgz", "http://127.0.0.1:9/set2.tgz", f"md5:{hashlib.md5(content).hexdigest()}")
    with pytest.raises(UsageError, match=rf"get it from http://127.0.0.1:9/set2.tgz and put it into {tmp_path}$"):
        find_set(wanted, tmp_path)
    (tmp_path / "set2.tgz").write_bytes(content[:-1])
    with pytest.raises(UsageError, match=r"set2\.tgz is damaged: its hash is not the published one"):
        find_set(wanted, tmp_path)
    (tmp_path / "set2.tgz").write_bytes(content)
    assert find_set(wanted, tmp_path) == cache / "data" / "set2"
    assert (tmp_path / "set2.tgz").exists(), "it is the user's"


def test_an_archive_that_cannot_be_unpacked_leaves_no_folder(server, cache):
    wanted = source(server, "set2.tgz", _archive(set2__train=bytes(100_000))[:-30])
    with pytest.raises(UsageError, match="cannot be unpacked"):
        find_set(wanted)
    assert not (cache / "data" / "set2").exists()


def test_a_folder_is_found_under_any_of_its_names_or_is_the_one_named(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train").write_bytes(b"")
    assert find_set(None, tmp_path) == tmp_path / "set"
    assert find_set(None, tmp_path / "set") == tmp_path / "set"
    with pytest.raises(UsageError, match="there is no folder"):
        find_set(None, tmp_path / "other")


def test_what_cannot_be_downloaded_freely_says_where_to_put_it(cache):
    with pytest.raises(UsageError, match=f"put it into {cache / 'data' / 'set2'}"):
        find_set(None)


def test_the_cache_is_the_systems_unless_another_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("CLOP_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "clop"
